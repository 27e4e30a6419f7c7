/** What opens from the right over a list: one thing of it, with an address of its own. */
import { type ReactNode, useEffect, useId, useRef } from "react";
import { useKeys } from "../lib/keys.ts";

/** A sheet. Esc closes it. */
export function Sheet({
  title,
  onClose,
  children,
  actions,
}: {
  title: ReactNode;
  onClose: () => void;
  children: ReactNode;
  actions?: ReactNode;
}) {
  const id = useId();
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus({ preventScroll: true }), []);
  useKeys((key) => {
    if (key !== "Escape") return false;
    onClose();
    return true;
  });
  return (
    <div
      role="dialog"
      aria-labelledby={id}
      className="fixed top-11 right-0 bottom-0 z-20 flex w-full flex-col border-l border-line bg-page shadow-xl sm:w-[min(640px,92vw)]"
    >
      <div className="flex min-h-11 items-center justify-between gap-2 border-b border-line px-4">
        <h2 id={id} ref={heading} tabIndex={-1} className="min-w-0 truncate text-lg font-semibold outline-none">
          {title}
        </h2>
        <div className="flex items-center gap-2">
          {actions}
          <button type="button" className="button" onClick={onClose} title="Esc">
            Close
          </button>
        </div>
      </div>
      <div className="min-h-0 flex-1 overflow-auto p-4">{children}</div>
    </div>
  );
}
