/**
 * Bytes that pass through memory of their own outside V8's heap: what was read from a socket, and what was put together for one. Code that
 * reads or writes messages with pictures tells how many; the plain path makes nothing of it.
 */

const nobody = (): void => {};
let hear: (bytes: number) => void = nobody;

/** Tells of so many bytes in memory that was taken for them. */
export const passed = (bytes: number): void => hear(bytes);

/** Has `other` hear of bytes that pass; returns a function that takes it away. The process collects garbage after many of them. */
export function installPassing(other: (bytes: number) => void): () => void {
  hear = other;
  return () => {
    hear = nobody;
  };
}
