/** Which errors mean that the database cannot be used now, is damaged, or refuses a text. Imports nothing, because the embedded PostgreSQL runs without the driver. */

/**
 * The store is unavailable. The message is one line for the operator, without secrets; callers never see it.
 */
export class StoreUnavailable extends Error {
  override readonly name = "StoreUnavailable";
  /** Waiting does not help: the operator must fix the setup. */
  readonly lasting: boolean;

  constructor(message: string, { lasting = false, ...options }: ErrorOptions & { lasting?: boolean } = {}) {
    super(message, options);
    this.lasting = lasting;
  }
}

/** Whether an error can resolve itself, so that a start waits for the database. */
export const mayPass = (error: unknown): boolean =>
  isOutage(error) && !(error instanceof StoreUnavailable && error.lasting);

/** Codes of driver and network errors that mean that no working server was reached. */
const NETWORK =
  /^(?:CONNECTION_(?:CLOSED|DESTROYED|ENDED)|CONNECT_TIMEOUT|E(?:CONN\w+|PIPE|NOTFOUND|AI_AGAIN|TIMEDOUT))$/;
/**
 * PostgreSQL's error classes for connections (08), exhausted resources (53), shutdown and timeouts (57), unavailable locks (55P03), idle
 * transaction timeouts (25P03, 25P04), serialization failures and deadlocks (40), a standby (25006), system errors (58).
 */
const SERVER = /^(?:08|53|57|55P03|25P0[34]|40|25006|58)/;

/**
 * Whether an error means that the database is unavailable, rather than that the statement is wrong: the same statement can succeed later. If
 * the connection was lost, it is unknown whether the statement took effect.
 */
export function isOutage(error: unknown): boolean {
  if (error instanceof StoreUnavailable) return true;
  if (!(error instanceof Error && "code" in error)) return false;
  const code = String(error.code);
  const noSocket = code === "ENOENT" && "syscall" in error && error.syscall === "connect";
  return noSocket || NETWORK.test(code) || SERVER.test(code);
}

/** PostgreSQL's codes for corrupted data (XX), and for missing tables, columns and functions. */
const DAMAGE = /^(?:XX00[012]|42P01|42703|42883)$/;

/** Reports whether an error means that the store has lost or corrupted data, which neither waiting nor a restart repairs. */
export const isDamaged = (error: unknown): error is Error =>
  error instanceof Error && "code" in error && DAMAGE.test(String(error.code));

/** Whether the server refused the connection because it is starting or shutting down: nothing was done. */
export const isStarting = (error: unknown): boolean =>
  error instanceof Error && "code" in error && error.code === "57P03";

/** PostgreSQL's code for text that it cannot store. */
const UNSTORABLE_TEXT = "22021";

/** Whether a statement failed because of U+0000 in a string, which PostgreSQL cannot store. */
export const isUnstorableText = (error: unknown): boolean =>
  error instanceof Error && "code" in error && error.code === UNSTORABLE_TEXT;
