/** The head of an HTTP/1.1 answer in its plainest form: what is not surely understood alike by every reader is no such head. */

/** What a plain head says. */
export interface PlainAnswer {
  readonly status: number;
  /** How many bytes follow the head. */
  readonly bodyBytes: number;
  /** The connection ends after it. */
  readonly closes: boolean;
  /** The seconds that the server asks to wait. */
  readonly retryAfterS: number | undefined;
}

const FORM = /^HTTP\/1\.1 ([2-5]\d\d)(?: [\t -~\x80-\xff]*)?\r\n(?:[!#$%&'*+.^_`|~\w-]+:[\t -~\x80-\xff]*\r\n)*$/;
/** Headers that say where the answer ends, what becomes of the connection, and how long to wait. */
const TOLD = /^(connection|content-length|retry-after|trailer|transfer-encoding|upgrade):[\t ]*(.*?)[\t ]*\r$/gim;
const LENGTH = /^\d{1,10}$/;
const NO_CONTENT = 204;
const NOT_MODIFIED = 304;

/** What a head says, given from its first byte to the end of its last line; undefined when it is not plain. */
export function readPlainAnswer(head: string): PlainAnswer | undefined {
  const status = Number(FORM.exec(head)?.[1] ?? NOT_MODIFIED);
  if (status === NOT_MODIFIED) return undefined;
  const told: Record<string, string> = Object.create(null);
  for (const [, name = "", value = ""] of head.matchAll(TOLD)) {
    const small = name.toLowerCase();
    if (small in told) return undefined;
    told[small] = value;
  }
  const { connection = "keep-alive", "content-length": length = status === NO_CONTENT ? "0" : "" } = told;
  if ("trailer" in told || "transfer-encoding" in told || "upgrade" in told) return undefined;
  const closes = connection.toLowerCase() === "close";
  if (!closes && connection.toLowerCase() !== "keep-alive") return undefined;
  const bodyBytes = Number(length);
  if (!LENGTH.test(length) || (status === NO_CONTENT && bodyBytes > 0)) return undefined;
  return { status, bodyBytes, closes, retryAfterS: secondsOf(told["retry-after"]) };
}

/** The seconds that a header `Retry-After` names; undefined where it is absent or names none. */
export function secondsOf(retryAfter: unknown): number | undefined {
  const seconds = Number(retryAfter);
  return Number.isFinite(seconds) && seconds >= 0 ? seconds : undefined;
}
