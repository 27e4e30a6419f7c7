/** A mail server that keeps what it is sent. */
import type { AddressInfo } from "node:net";
import { SMTPServer } from "smtp-server";

/** A mail as it came. */
export interface ReceivedMail {
  readonly to: readonly string[];
  /** The whole message, its head in front, as the sender wrote it. */
  readonly raw: string;
  /** By their names in lower case; folded lines are one. */
  readonly headers: ReadonlyMap<string, string>;
  /** Its parts, decoded: plain text and HTML. */
  readonly parts: readonly string[];
}

/** A running server. */
export interface MailServer {
  readonly url: string;
  readonly mails: ReceivedMail[];
  /** Refuses the next recipients with this code, as often as this. */
  refuse(code: number, times: number): void;
  close(): Promise<void>;
}

/** Starts a server. */
export async function startMailServer(): Promise<MailServer> {
  const mails: ReceivedMail[] = [];
  let refusals: number[] = [];
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ["STARTTLS"],
    onRcptTo(_address, _session, callback) {
      const code = refusals.shift();
      callback(code === undefined ? undefined : Object.assign(new Error("no"), { responseCode: code }));
    },
    onData(stream, session, callback) {
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      stream.on("end", () => {
        const raw = Buffer.concat(chunks).toString();
        mails.push({ ...read(raw), to: session.envelope.rcptTo.map(({ address }) => address), raw });
        callback();
      });
    },
  });
  server.on("error", () => undefined);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.server.address() as AddressInfo;
  return {
    url: `smtp://127.0.0.1:${port}`,
    mails,
    refuse(code, times) {
      refusals = Array.from({ length: times }, () => code);
    },
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

function read(raw: string): Pick<ReceivedMail, "headers" | "parts"> {
  const [head = "", ...rest] = raw.split("\r\n\r\n");
  const headers = headersOf(head);
  const boundary = /boundary="([^"]+)"/.exec(headers.get("content-type") ?? "")?.[1];
  const body = rest.join("\r\n\r\n");
  const parts = boundary === undefined ? [] : body.split(`--${boundary}`).slice(1, -1);
  return { headers, parts: parts.map((part) => decoded(part.replace(/^\r\n/, ""))) };
}

const headersOf = (head: string): Map<string, string> =>
  new Map(
    head
      .replaceAll(/\r\n[ \t]+/g, " ")
      .split("\r\n")
      .map((line) => [line.split(":")[0]?.toLowerCase() ?? "", line.slice(line.indexOf(":") + 1).trim()]),
  );

function decoded(part: string): string {
  const [head = "", ...rest] = part.split("\r\n\r\n");
  const body = rest.join("\r\n\r\n").replace(/\r\n$/, "");
  const coding = headersOf(head).get("content-transfer-encoding") ?? "7bit";
  if (coding === "base64") return Buffer.from(body, "base64").toString();
  if (coding !== "quoted-printable") return body;
  const bytes = body
    .replaceAll(/=\r\n/g, "")
    .replaceAll(/=([0-9A-F]{2})/g, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(bytes, "latin1").toString();
}
