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

/** What outlives the files of a worker process: the shared gateway. */
interface Staying {
  /** Its listening sockets. */
  readonly sockets: number;
  readonly close: Close;
}

let staying: Staying | undefined;

/** How many listening sockets outlive the files of this process. */
export const socketsThatStay = (): number => staying?.sockets ?? 0;

/** Lets `what` stay open after the file. */
export function letStay(what: Staying): void {
  staying = what;
}

/** Closes what stays open after files. */
export async function closeStaying(): Promise<void> {
  const closing = staying;
  staying = undefined;
  await closing?.close();
}
