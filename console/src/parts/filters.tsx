/** The filters of a page: small fields over its table, kept in its address. */
import { type ReactNode, useEffect, useState } from "react";
import { Options } from "./basics.tsx";

/** A row of filters. `/` goes to the first. */
export const Filters = ({ children }: { children: ReactNode }) => (
  <div
    data-filter=""
    className="mb-3 flex shrink-0 items-center gap-2 max-sm:-mx-4 max-sm:overflow-x-auto max-sm:px-4 max-sm:py-0.5 sm:flex-wrap"
  >
    {children}
  </div>
);

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
        className="input text-ink"
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
