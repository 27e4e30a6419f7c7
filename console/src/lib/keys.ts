/** Keys of the keyboard. What is typed into a field is no command. */
import { useEffect, useRef } from "react";

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(?:INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

/** Calls `handle` with each key that is no text; sequences such as `g c` come as one, `"g c"`. Answer true where it was meant. */
export function useKeys(handle: (keys: string, event: KeyboardEvent) => boolean): void {
  const latest = useRef(handle);
  useEffect(() => {
    latest.current = handle;
  });
  useEffect(() => {
    let before = "";
    let at = 0;
    const listen = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.isComposing) return;
      const command = event.metaKey || event.ctrlKey;
      if (event.altKey || (isTyping(event.target) && event.key !== "Escape" && !command)) return;
      const key = command ? `mod+${event.key.toLowerCase()}` : event.key;
      const sequence = event.timeStamp - at < SEQUENCE_MS && before !== "" ? `${before} ${key}` : key;
      before = key.length === 1 ? key : "";
      at = event.timeStamp;
      if (latest.current(sequence, event) || (sequence !== key && latest.current(key, event))) {
        event.preventDefault();
        if (sequence !== key) before = "";
      }
    };
    window.addEventListener("keydown", listen);
    return () => window.removeEventListener("keydown", listen);
  }, []);
}

/** How long after `g` its second key may come, in milliseconds. */
const SEQUENCE_MS = 1_000;
