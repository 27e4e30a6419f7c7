/**
 * Errors that no owner heard: an exception that nothing caught, a rejection that nothing handles, an `error` event without a listener.
 * Each is a bug. They are counted here, for `/metrics` and for the attack tests, which assert that the count stays 0.
 */

/** One error that no owner heard. */
interface UnhandledError {
  readonly kind: "unhandled rejection" | "uncaught exception";
  readonly error: unknown;
}

let count = 0;

/** How many there were in this process. */
export const unhandledErrors = (): number => count;

/** Tells `hear` of each from now on; `isFirst` is true once. Without a caller of this, Node ends the process at the first one. */
export function onUnhandledErrors(hear: (unhandled: UnhandledError, isFirst: boolean) => void): void {
  const on =
    (kind: UnhandledError["kind"]) =>
    (error: unknown): void => {
      count++;
      hear({ kind, error }, count === 1);
    };
  process.on("unhandledRejection", on("unhandled rejection"));
  process.on("uncaughtException", on("uncaught exception"));
}
