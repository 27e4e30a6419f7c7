/** The head of an HTTP/1.1 request in its plainest form: what is not surely understood alike by every reader is no such head. */
import { isHost } from "../../edge/server/wire-faults.ts";

/** A request's head, and where its body lies behind it. */
export interface PlainHead {
  /** The path, without a query. */
  readonly path: string;
  /** By lower-case names; none came twice. */
  readonly headers: Readonly<Record<string, string>>;
  /** Where the body begins in the bytes that were read. */
  readonly bodyAt: number;
  readonly bodyBytes: number;
  /** The head as it came, to its empty line. */
  readonly bytes: Buffer;
}

/** Longer heads are left to node:http, and longer bodies too. */
const MOST = { headBytes: 8 << 10, bodyBytes: 1 << 20 } as const;

const END = "\r\n\r\n";
const FORM = /^POST (\/[\w./-]*) HTTP\/1\.1\r\n(?:[!#$%&'*+.^_`|~\w-]+:[\t -~]*\r\n)+$/;
const LENGTH = /^\d{1,7}$/;

/** The names that most calls bear, as they are often written: looked up for less than the price of making them small. */
const KNOWN: ReadonlyMap<string, string> = new Map(
  [
    "host",
    "connection",
    "authorization",
    "content-type",
    "content-length",
    "user-agent",
    "accept",
    "accept-encoding",
  ].flatMap((name) =>
    [name, name.replaceAll(/\b\w/g, (letter) => letter.toUpperCase())].map((written) => [written, name]),
  ),
);

/** Headers that change how a connection or a body is read, and that of a browser's page, to which more is answered. */
const NOT_PLAIN = new Set(["transfer-encoding", "expect", "upgrade", "trailer", "origin"]);

/**
 * The head at the start of `bytes`; undefined when it is not whole, or not plain. A caller in a loop says the same head again and
 * again: where it is that of `before`, to the byte, it is not read again.
 */
export function readPlainHead(bytes: Buffer, before?: PlainHead): PlainHead | undefined {
  if (before !== undefined && isSame(before.bytes, bytes)) return before;
  const end = bytes.indexOf(END);
  if (end < 0 || end > MOST.headBytes) return undefined;
  const text = bytes.toString("latin1", 0, end + 2);
  const path = FORM.exec(text)?.[1];
  if (path === undefined) return undefined;
  const headers: Record<string, string> = Object.create(null);
  for (let at = text.indexOf("\r\n") + 2; at < text.length; ) {
    const colon = text.indexOf(":", at);
    const over = text.indexOf("\r\n", colon);
    const written = text.slice(at, colon);
    const name = KNOWN.get(written) ?? written.toLowerCase();
    if (name in headers || NOT_PLAIN.has(name)) return undefined;
    headers[name] = text.slice(colon + 1, over).trim();
    at = over + 2;
  }
  const { host, connection = "keep-alive", "content-length": length = "" } = headers;
  if (host === undefined || !isHost(host) || connection.toLowerCase() !== "keep-alive") return undefined;
  const bodyBytes = Number(length);
  if (!LENGTH.test(length) || bodyBytes > MOST.bodyBytes) return undefined;
  const bodyAt = end + END.length;
  return { path, headers, bodyAt, bodyBytes, bytes: Buffer.from(bytes.subarray(0, bodyAt)) };
}

/** Whether these bytes, which are no plain head, may be the beginning of one. */
export const mayBecomePlain = (bytes: Buffer): boolean =>
  bytes.length < MOST.headBytes &&
  bytes.compare(BEGINNING, 0, Math.min(BEGINNING.length, bytes.length), 0, Math.min(BEGINNING.length, bytes.length)) ===
    0 &&
  !bytes.includes(END);

const BEGINNING = Buffer.from("POST /", "latin1");

const isSame = (head: Buffer, bytes: Buffer): boolean =>
  bytes.length >= head.length && head.compare(bytes, 0, head.length) === 0;
