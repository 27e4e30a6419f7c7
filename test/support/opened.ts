/**
 * What tests have opened and `setup.ts` closes, newest first: whatever a test or its hooks opened after that test, whatever the hooks of a file
 * opened after the file.
 */

type Close = () => Promise<void>;

const open = new Set<Close>();

/** Has `close` called once: by the returned function, or at the end of the test or file that opened it. */
export function closedAtEnd(close: () => unknown): Close {
  let closed: Promise<void> | undefined;
  const once: Close = () => {
    open.delete(once);
    closed ??= (async () => void (await close()))();
    return closed;
  };
  open.add(once);
  return once;
}

/** What is open now. */
export const openNow = (): ReadonlySet<unknown> => new Set(open);

/** Closes what is not among `before`, newest first, and rejects with the first failure once all of it was closed. */
export async function closeOpened(before: ReadonlySet<unknown> = new Set()): Promise<void> {
  const failures: unknown[] = [];
  for (const close of [...open].reverse())
    if (!before.has(close)) await close().catch((failure: unknown) => failures.push(failure));
  if (failures.length > 0) throw failures[0];
}

let staying = 0;

/** How many listening sockets outlive the files of this process: those of the shared gateway. */
export const socketsThatStay = (): number => staying;

/** Counts `sockets` more that stay, or fewer. */
export function letStay(sockets: number): void {
  staying += sockets;
}
