/** The small vocabulary that pages are written in: figures, states, fields, copies. */
import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { adviceOf, saidBy } from "../lib/errors.ts";
import { bytes, dollars, duration, type Figure, moment } from "../lib/format.ts";
import { type Call, snippetsOf } from "../lib/snippets.ts";

/** US dollars. Nothing where there is no figure. */
export function Money({ usd }: { usd: number | undefined }) {
  return usd === undefined ? <None /> : <span className="whitespace-nowrap">{dollars(usd)}</span>;
}

/** A number and its unit, the unit muted. */
export function Measure({ value, unit }: Figure) {
  return (
    <span className="whitespace-nowrap">
      {value}
      {unit !== "" && <span className="text-muted"> {unit}</span>}
    </span>
  );
}

/** A duration in milliseconds. */
export const Ms = ({ ms }: { ms: number | undefined }) => (ms === undefined ? <None /> : <Measure {...duration(ms)} />);

/** A size in bytes. */
export const Bytes = ({ of }: { of: number | undefined }) => (of === undefined ? <None /> : <Measure {...bytes(of)} />);

/** A figure that is not there. */
export const None = () => (
  <span className="text-muted">
    <span aria-hidden="true">–</span>
    <span className="sr-only">none</span>
  </span>
);

/** A moment in unix seconds: local time, and UTC under the pointer. */
export function Time({ at }: { at: number | undefined }) {
  if (at === undefined || at === 0) return <None />;
  const date = new Date(at * 1000);
  return (
    <time
      className="whitespace-nowrap"
      dateTime={date.toISOString()}
      title={`${date.toISOString().replace("T", " ").slice(0, 19)} UTC`}
    >
      {moment(date, new Date())}
    </time>
  );
}

/** What a state means, beside its word. */
export type Tone = "good" | "wait" | "bad" | "sim" | "off";

const SHAPES: Readonly<Record<Tone, { readonly mark: string; readonly colour: string }>> = {
  good: { mark: "●", colour: "text-good" },
  wait: { mark: "◐", colour: "text-wait" },
  bad: { mark: "▲", colour: "text-bad" },
  sim: { mark: "▨", colour: "text-sim" },
  off: { mark: "○", colour: "text-muted" },
};

/** A state: a shape and a word, never a colour alone. */
export function Status({ tone, children }: { tone: Tone; children: ReactNode }) {
  const { mark, colour } = SHAPES[tone];
  return (
    <span className="inline-flex max-w-full items-center gap-1.5 whitespace-nowrap">
      <span aria-hidden="true" className={`${colour} text-[11px] leading-none`}>
        {mark}
      </span>
      <span className="min-w-0 truncate">{children}</span>
    </span>
  );
}

/** The tone of a word of the schema. */
export function toneOf(word: string): Tone {
  if (
    /^(?:live|settled|done|completed|succeeded|delivered|enabled|active|healthy|closed|verified|ok|registered|forced closed)$/.test(
      word,
    )
  )
    return "good";
  if (/^(?:failed|rejected|error|open|forced open|down|suspended|expired|unmetered|deactivated|draining)$/.test(word))
    return "bad";
  if (/^(?:disabled|removed|paused|cancelled|off)$/.test(word)) return "off";
  if (/^(?:community|simulated)$/.test(word)) return "sim";
  return "wait";
}

/** A word of the schema with the shape of what it means. */
export const Word = ({ children }: { children: string }) =>
  children === "" ? <None /> : <Status tone={toneOf(children)}>{children}</Status>;

/** An id, a model, a path: in letters of one width, cut where there is no room, whole under the pointer. */
export const Code = ({ children }: { children: string | undefined }) =>
  children === undefined || children === "" ? (
    <None />
  ) : (
    <code className="block truncate" title={children}>
      {children}
    </code>
  );

/** An address that others wrote: a link where it is one of the web, else a text. */
export const Outside = ({ href }: { href: string }) =>
  /^https?:\/\//i.test(href) ? (
    <a href={href} target="_blank" rel="noreferrer noopener" className="[overflow-wrap:anywhere]">
      {href}
    </a>
  ) : (
    <span>{href}</span>
  );

/** Copies a text, and says that it has. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 2_000);
    return () => clearTimeout(timer);
  }, [done]);
  return (
    <button
      type="button"
      className="button"
      onClick={() =>
        void navigator.clipboard.writeText(text).then(
          () => setDone(true),
          () => setDone(false),
        )
      }
    >
      <span aria-live="polite">{done ? "Copied" : label}</span>
    </button>
  );
}

/** A call as curl, Python and TypeScript, to copy. */
export function CopyCall({ call }: { call: Call }) {
  return (
    <div className="flex flex-wrap gap-2">
      {Object.entries(snippetsOf(call)).map(([name, text]) => (
        <Copy key={name} text={text} label={`Copy ${name}`} />
      ))}
    </div>
  );
}

/** The message behind a page, folded away. */
export function Json({ of, title = "Raw JSON" }: { of: unknown; title?: string }) {
  const [open, setOpen] = useState(false);
  return (
    <details className="mt-4 border-t border-line pt-2" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary className="text-muted">{title}</summary>
      {open && <Block text={JSON.stringify(of, null, 2)} />}
    </details>
  );
}

/** A text in letters of one width, and a way to copy it. Long lines are broken, or scroll without `wrap`. */
export function Block({ text, wrap = true }: { text: string; wrap?: boolean }) {
  return (
    <div className="relative mt-2">
      <pre
        tabIndex={0}
        aria-label="text to copy"
        role="group"
        className={`max-h-96 overflow-auto rounded bg-panel p-3 pr-20 ${wrap ? "break-all whitespace-pre-wrap" : ""}`}
      >
        {text}
      </pre>
      <div className="absolute top-2 right-2">
        <Copy text={text} />
      </div>
    </div>
  );
}

/** A secret that is shown once. */
export function Secret({ what, text }: { what: string; text: string }) {
  return (
    <div className="mb-4 rounded border border-wait p-3">
      <Status tone="wait">{what}</Status>
      <Block text={text} />
    </div>
  );
}

/** A labelled input. `help` says the unit and what is meant. */
export function Field({
  label,
  help,
  error,
  children,
}: {
  label: string;
  help?: ReactNode;
  error?: string | undefined;
  children: (id: string, describedBy: string | undefined) => ReactNode;
}) {
  const id = useId();
  const described = help !== undefined || error !== undefined ? `${id}-help` : undefined;
  return (
    <div className="grid content-start gap-1">
      <label htmlFor={id} className="text-sm font-medium">
        {label}
      </label>
      {children(id, described)}
      {described !== undefined && (
        <p id={described} className={`text-sm ${error === undefined ? "text-muted" : "text-bad"}`}>
          {error ?? help}
        </p>
      )}
    </div>
  );
}

/** A field of text. */
export function TextField({
  label,
  help,
  value,
  onChange,
  type = "text",
  placeholder,
  required,
  rows,
  suggestions,
}: {
  label: string;
  help?: ReactNode;
  value: string;
  onChange: (value: string) => void;
  type?: string;
  placeholder?: string;
  required?: boolean;
  rows?: number;
  suggestions?: readonly string[];
}) {
  const list = useId();
  return (
    <Field label={label} help={help}>
      {(id, describedBy) =>
        rows === undefined ? (
          <>
            <input
              id={id}
              aria-describedby={describedBy}
              className="input w-full"
              type={type}
              value={value}
              placeholder={placeholder}
              required={required}
              step="any"
              list={suggestions === undefined ? undefined : list}
              onChange={(event) => onChange(event.target.value)}
            />
            {suggestions !== undefined && (
              <datalist id={list}>
                {suggestions.map((suggestion) => (
                  <option key={suggestion} value={suggestion} />
                ))}
              </datalist>
            )}
          </>
        ) : (
          <textarea
            id={id}
            aria-describedby={describedBy}
            className="input w-full"
            rows={rows}
            value={value}
            placeholder={placeholder}
            required={required}
            onChange={(event) => onChange(event.target.value)}
          />
        )
      }
    </Field>
  );
}

/** What may be chosen: words of the schema, or a value and what it is called; before them `any`, which chooses nothing. */
export function Options({
  options,
  any,
}: {
  options: readonly (string | readonly [string, string])[];
  any?: string | undefined;
}) {
  return (
    <>
      {any !== undefined && <option value="">{any}</option>}
      {options.map((option) => {
        const [key, name] = typeof option === "string" ? [option, option.replaceAll("_", " ")] : option;
        return (
          <option key={key} value={key}>
            {name}
          </option>
        );
      })}
    </>
  );
}

/** A choice of one. `options` are words of the schema, or a value and what it is called. */
export function Choice({
  label,
  help,
  value,
  onChange,
  options,
  any,
}: {
  label: string;
  help?: ReactNode;
  value: string;
  onChange: (value: string) => void;
  options: readonly (string | readonly [string, string])[];
  any?: string;
}) {
  return (
    <Field label={label} help={help}>
      {(id, describedBy) => (
        <select
          id={id}
          aria-describedby={describedBy}
          className="input w-full"
          value={value}
          onChange={(event) => onChange(event.target.value)}
        >
          <Options options={options} any={any} />
        </select>
      )}
    </Field>
  );
}

/** A box to tick. */
export function Tick({
  label,
  checked,
  onChange,
  help,
}: {
  label: string;
  checked: boolean;
  onChange: (checked: boolean) => void;
  help?: string;
}) {
  return (
    <label className="flex min-h-6 items-start gap-2">
      <input
        type="checkbox"
        className="mt-1 size-4 accent-accent"
        checked={checked}
        onChange={(event) => onChange(event.target.checked)}
      />
      <span>
        {label}
        {help !== undefined && <span className="block text-sm text-muted">{help}</span>}
      </span>
    </label>
  );
}

/** The top of a page: its title, what stands beside it, and one line of facts under it. */
export function Head({ title, children, facts }: { title: string; children?: ReactNode; facts?: ReactNode }) {
  useEffect(() => {
    document.title = `${title} · limber`;
  }, [title]);
  return (
    <header className="mb-3">
      <div className="flex min-h-8 flex-wrap items-center justify-between gap-2">
        <h1 className="text-xl font-semibold">{title}</h1>
        <div className="flex flex-wrap items-end gap-2">{children}</div>
      </div>
      {facts !== undefined && <p className="mt-1 text-muted">{facts}</p>}
    </header>
  );
}

/** Parts of one line of facts, with dots between them. */
export function Facts({ of }: { of: readonly (ReactNode | false | undefined)[] }) {
  const shown = of.filter((fact) => fact !== false && fact !== undefined && fact !== "");
  return (
    <span className="flex flex-wrap gap-x-2">
      {shown.map((fact, i) => (
        <span key={i} className="whitespace-nowrap">
          {i > 0 && (
            <span aria-hidden="true" className="mr-2">
              ·
            </span>
          )}
          {fact}
        </span>
      ))}
    </span>
  );
}

/** A heading within a page. */
export const Part = ({ title, children, aside }: { title: string; children: ReactNode; aside?: ReactNode }) => (
  <section className="mt-6 first:mt-0">
    <div className="mb-2 flex items-center justify-between gap-2">
      <h2 className="text-lg font-semibold">{title}</h2>
      {aside}
    </div>
    {children}
  </section>
);

/** Names and what they are, under each other. */
export function Pairs({ of }: { of: readonly (readonly [string, ReactNode] | false | undefined)[] }) {
  return (
    <dl className="grid grid-cols-[minmax(96px,max-content)_minmax(0,1fr)] gap-x-4 gap-y-1">
      {of.map(
        (pair) =>
          pair && (
            <div key={pair[0]} className="contents">
              <dt className="text-muted">{pair[0]}</dt>
              <dd className="min-w-0 [overflow-wrap:anywhere]">{pair[1]}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

/** What an empty table says: one sentence, and the command that fills it. */
export function Empty({ children, command, action }: { children: ReactNode; command?: string; action?: ReactNode }) {
  return (
    <div className="mx-auto max-w-2xl px-4 py-10 text-center">
      <p className="text-muted">{children}</p>
      {action !== undefined && <div className="mt-3">{action}</div>}
      {command !== undefined && (
        <div className="mt-3 text-left">
          <Block text={command} />
        </div>
      )}
    </div>
  );
}

/** A refusal: the gateway's sentence, its word with what it means, and what would help. */
export function Refused({ error, again }: { error: unknown; again?: () => void }) {
  if (error === null || error === undefined) return null;
  const { sentence, code, details, requestId } = saidBy(error);
  const dropped = details?.dropped ?? [];
  return (
    <div role="alert" className="my-3 rounded border border-bad px-3 py-2">
      <p className="flex items-baseline gap-1.5">
        <span aria-hidden="true" className="text-[11px] text-bad">
          {SHAPES.bad.mark}
        </span>
        <strong className="min-w-0 font-medium [overflow-wrap:anywhere]">{sentence}</strong>
      </p>
      {details?.suggestions.map((suggestion) => (
        <p key={suggestion.field} className="mt-1">
          {adviceOf(suggestion)}
        </p>
      ))}
      {dropped.length > 0 && (
        <ul className="mt-1 max-h-40 overflow-auto text-sm" tabIndex={0} aria-label="dropped offerings">
          {dropped.map((drop) => (
            <li key={drop.offeringId}>
              <code>{drop.model}</code> at {drop.provider}: {drop.detail}
            </li>
          ))}
        </ul>
      )}
      <p className="mt-1 flex flex-wrap items-center gap-x-3 text-sm text-muted">
        {code !== undefined && (
          <a className="underline" href={`/docs/errors#${code}`}>
            {code}
          </a>
        )}
        {requestId !== undefined && <code>{requestId}</code>}
        {again !== undefined && (
          <button type="button" className="button" onClick={again}>
            Try again
          </button>
        )}
      </p>
    </div>
  );
}

/** A question before something that cannot be undone, or that a person has to mean. Esc and a click beside it answer no. */
export function Modal({
  title,
  open,
  onClose,
  children,
  role = "dialog",
  wide = false,
}: {
  title: string;
  open: boolean;
  onClose: () => void;
  children: ReactNode;
  role?: "dialog" | "alertdialog";
  wide?: boolean;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    if (open && dialog !== null && !dialog.open) dialog.showModal();
    if (!open) dialog?.close();
  }, [open]);
  if (!open) return null;
  return (
    <dialog
      ref={ref}
      role={role}
      aria-labelledby={id}
      onClose={onClose}
      onClick={(event) => event.target === event.currentTarget && onClose()}
      onKeyDown={(event) => event.key === "Escape" && event.stopPropagation()}
      className={`panel w-[min(calc(100vw-24px),var(--width))] p-0 shadow-lg ${wide ? "[--width:720px]" : "[--width:480px]"}`}
    >
      <div className="grid gap-3 p-4">
        <h2 id={id} className="text-lg font-semibold">
          {title}
        </h2>
        {children}
      </div>
    </dialog>
  );
}

/** A button that asks once more before it does what cannot be undone. */
export function Sure({
  label,
  question,
  onSure,
  busy,
}: {
  label: string;
  question: string;
  onSure: () => void;
  busy?: boolean;
}) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" className="button button-bad" disabled={busy} onClick={() => setOpen(true)}>
        {label}
      </button>
      <Modal title={question} open={open} onClose={() => setOpen(false)} role="alertdialog">
        <div className="flex justify-end gap-2">
          <button type="button" className="button" onClick={() => setOpen(false)}>
            Cancel
          </button>
          <button
            type="button"
            className="button button-bad"
            onClick={() => {
              setOpen(false);
              onSure();
            }}
          >
            {label}
          </button>
        </div>
      </Modal>
    </>
  );
}

/** What stands alone in the middle of the window: signing in, and what is decided before anything else is shown. */
export const Card = ({ children, wide = false }: { children: ReactNode; wide?: boolean }) => (
  <main
    className={`mx-auto w-[min(var(--width),calc(100vw-24px))] pb-8 ${wide ? "mt-[6vh] [--width:560px]" : "mt-[12vh] [--width:420px]"}`}
  >
    <p className="mb-4 font-semibold">limber</p>
    <div className="panel p-4">{children}</div>
  </main>
);
