/**
 * Counts bytes in memory outside V8's heap: buffers read from sockets and buffers built for them. Code that reads or writes messages with
 * images reports their sizes. Without an installed counter, the reports have no effect.
 */

const ignore = (): void => {};
let report: (bytes: number) => void = ignore;

/** Reports bytes in memory allocated outside the heap. */
export const passed = (bytes: number): void => report(bytes);

/** Installs a counter of these bytes and returns a function that removes it. The process collects garbage after many of them. */
export function installPassing(other: (bytes: number) => void): () => void {
  report = other;
  return () => {
    report = ignore;
  };
}
