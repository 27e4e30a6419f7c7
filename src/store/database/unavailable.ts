/**
 * The store can't be used now. The message is one line for the operator, without secrets; no caller sees
 * it.
 */
export class StoreUnavailable extends Error {
  override readonly name = "StoreUnavailable";
  /** Waiting does not help: somebody has to mend the setup. */
  readonly lasting: boolean;

  constructor(message: string, { lasting = false, ...options }: ErrorOptions & { lasting?: boolean } = {}) {
    super(message, options);
    this.lasting = lasting;
  }
}

/** Whether an error tells of a database that may be there later, so that who starts waits for it. */
export const mayPass = (error: unknown): boolean =>
  isOutage(error) && !(error instanceof StoreUnavailable && error.lasting);

/** Errors of the driver and of the network that mean that the statement found no working server, by their code. */
const NETWORK =
  /^(?:CONNECTION_(?:CLOSED|DESTROYED|ENDED)|CONNECT_TIMEOUT|E(?:CONN\w+|PIPE|NOTFOUND|AI_AGAIN|TIMEDOUT))$/;
/**
 * PostgreSQL's classes for connections (08), exhausted resources (53), its own end and statements that took too long (57), locks that
 * did not come free (55P03), transactions that it ended because they stood still (25P03, 25P04) or stood in each other's way (40), a
 * standby (25006), its disk (58).
 */
const SERVER = /^(?:08|53|57|55P03|25P0[34]|40|25006|58)/;

/**
 * Whether an error of a statement or a transaction tells of a database that can't be used now, and not of the
 * statement: the same may succeed later. What was sent may have been done or not, when the connection was lost
 * meanwhile.
 */
export function isOutage(error: unknown): boolean {
  if (error instanceof StoreUnavailable) return true;
  if (!(error instanceof Error && "code" in error)) return false;
  const code = String(error.code);
  const noSocket = code === "ENOENT" && "syscall" in error && error.syscall === "connect";
  return noSocket || NETWORK.test(code) || SERVER.test(code);
}

/** PostgreSQL's codes for pages that can't be read (XX), and for tables, columns and functions that the schema has and the database lacks. */
const DAMAGE = /^(?:XX00[012]|42P01|42703|42883)$/;

/** Reports whether an error means that the store has lost or corrupted data, which neither waiting nor a restart repairs. */
export const isDamaged = (error: unknown): error is Error =>
  error instanceof Error && "code" in error && DAMAGE.test(String(error.code));

/** Whether the server refused the connection because it is starting or ending: nothing was done. */
export const isStarting = (error: unknown): boolean =>
  error instanceof Error && "code" in error && error.code === "57P03";

/** PostgreSQL's code for text that it cannot hold. */
const UNSTORABLE_TEXT = "22021";

/** Whether a statement failed for what is in a text of it: strings hold U+0000, which PostgreSQL does not. */
export const isUnstorableText = (error: unknown): boolean =>
  error instanceof Error && "code" in error && error.code === UNSTORABLE_TEXT;
