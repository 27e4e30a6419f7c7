/** The filters of a page: small fields over its table, kept in its address. */
import { Children, type ReactNode, useEffect, useState } from "react";
import { Options } from "./basics.tsx";

/** A row of filters. `/` focuses the first. On a phone the first stays in sight, and a button unfolds the others below it. */
export function Filters({ children, active = 0 }: { children: ReactNode; active?: number }) {
  const [open, setOpen] = useState(false);
  const isSingle = Children.toArray(children).length < 2;
  return (
    <div
      data-filter=""
      className={`mb-3 flex shrink-0 flex-wrap items-center gap-2 max-sm:*:grow ${open ? "" : "max-sm:*:not-first:not-data-more:hidden"}`}
    >
      {children}
      {!isSingle && (
        <button
          type="button"
          data-more=""
          className="button order-none max-sm:grow-0! sm:hidden"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
        >
          {open ? "Fewer filters" : `Filters${active > 0 ? ` · ${active}` : ""}`}
        </button>
      )}
    </div>
  );
}

/** A filter of a few words. */
export function Pick({
  label,
  value,
  onChange,
  options,
  any = "any",
}: {
  label: string;
  value: string | undefined;
  onChange: (value: string | undefined) => void;
  options: readonly (string | readonly [string, string])[];
  any?: string | undefined;
}) {
  return (
    <label className="inline-flex shrink-0 items-center gap-1.5 text-sm text-muted">
      {label}
      <select
        className="input grow text-ink"
        value={value ?? ""}
        onChange={(event) => onChange(event.target.value === "" ? undefined : event.target.value)}
      >
        <Options options={options} any={any} />
      </select>
    </label>
  );
}

/** How long after the last letter a filter holds, in milliseconds. */
const SETTLED_MS = 250;

/** A filter of free text; it holds a moment after the last letter. */
export function Find({
  label,
  value,
  onChange,
  placeholder,
  width = "w-40",
}: {
  label: string;
  value: string | undefined;
  onChange: (value: string | undefined) => void;
  placeholder?: string;
  width?: string;
}) {
  const [text, setText] = useState(value ?? "");
  useEffect(() => setText(value ?? ""), [value]);
  useEffect(() => {
    if (text === (value ?? "")) return;
    const timer = setTimeout(() => onChange(text === "" ? undefined : text), SETTLED_MS);
    return () => clearTimeout(timer);
  }, [text, value, onChange]);
  return (
    <input
      className={`input shrink-0 ${width}`}
      aria-label={label}
      placeholder={placeholder ?? label}
      value={text}
      onChange={(event) => setText(event.target.value)}
    />
  );
}
