/** A client that says exactly what it is told: raw bytes, raw HTTP/2 frames, and a certificate to say them under. */
import { createPrivateKey, generateKeyPairSync, sign } from "node:crypto";
import { connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";

/** One connection, its bytes so far, and ways to wait for more. */
export interface Wire {
  readonly socket: Socket;
  /** Everything received, byte by byte. */
  received(): Buffer;
  send(bytes: string | Uint8Array): void;
  /** Resolves once `found` gives something for the received bytes; rejects when the connection ends before. */
  until<T>(found: (bytes: Buffer) => T | undefined): Promise<T>;
  /** Resolves with everything received once the connection has gone. */
  readonly closed: Promise<Buffer>;
  /** How the connection broke, or undefined while it lives and when it ended in good order. */
  broken(): Error | undefined;
}

/** Connects to a port of loopback and resolves when it may speak; `alpn`, even empty, puts TLS on the connection. */
export async function openWire(port: number, { alpn, halfOpen = false }: WireOptions = {}): Promise<Wire> {
  const to = { port, host: "127.0.0.1", allowHalfOpen: halfOpen };
  const socket = alpn ? connectTls({ ...to, ALPNProtocols: [...alpn], rejectUnauthorized: false }) : connect(to);
  const chunks: Buffer[] = [];
  let broken: Error | undefined;
  const closed = new Promise<Buffer>((resolve) => {
    socket.on("error", (error) => {
      broken = error;
    });
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.once("close", () => resolve(Buffer.concat(chunks)));
  });
  await new Promise<void>((resolve) => {
    socket.once(alpn ? "secureConnect" : "connect", resolve);
    socket.once("close", resolve);
  });
  return {
    socket,
    closed,
    broken: () => broken,
    received: () => Buffer.concat(chunks),
    send: (bytes) => void socket.write(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes),
    until: (found) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          const value = found(Buffer.concat(chunks));
          if (value === undefined) return;
          socket.off("data", look).off("close", gone);
          resolve(value);
        };
        const gone = (): void => reject(new Error(`closed after ${JSON.stringify(Buffer.concat(chunks).toString())}`));
        socket.on("data", look).once("close", gone);
        look();
        if (socket.destroyed) gone();
      }),
  };
}

/** How to connect: TLS with these protocols offered, and whether to stay after the other side has ended. */
export interface WireOptions {
  readonly alpn?: readonly string[];
  readonly halfOpen?: boolean;
}

/** An HTTP/1 answer as read from the wire. */
interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Every answer in `bytes`, each with a content length; throws when bytes remain that are none. */
export function answersIn(bytes: Buffer): RawAnswer[] {
  const answers: RawAnswer[] = [];
  for (let rest = bytes.toString("latin1"); rest !== ""; ) {
    const end = rest.indexOf("\r\n\r\n");
    const [line = "", ...fields] = rest.slice(0, end).split("\r\n");
    const status = /^HTTP\/1\.1 (\d{3}) /.exec(line)?.[1];
    const headers = Object.fromEntries(fields.map((each) => each.toLowerCase().split(": ")));
    const length = Number(headers["content-length"] ?? Number.NaN);
    if (status === undefined || !Number.isInteger(length)) throw new Error(`no answer: ${JSON.stringify(rest)}`);
    answers.push({ status: Number(status), headers, body: rest.slice(end + 4, end + 4 + length) });
    rest = rest.slice(end + 4 + length);
  }
  return answers;
}

/** The bytes that open an HTTP/2 connection with prior knowledge (RFC 9113 section 3.4). */
export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

/** HTTP/2 frame types by name. */
export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

/** HTTP/2 flags by name. */
export const FLAG = { ack: 1, endStream: 1, endHeaders: 4 } as const;

/** One HTTP/2 frame as bytes. */
export function frame(type: number, flags: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** Four bytes of a number, as windows, codes and stream ids travel. */
export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** Preface and empty settings: what a polite client opens with. */
export const HELLO = Buffer.concat([PREFACE, frame(FRAME.settings, 0, 0)]);

/** A HEADERS frame for `method path` without compression (RFC 7541), ending the headers and, unless told, the stream. */
export function request(stream: number, path: string, { method = "GET", end = true, more = {} }: Head = {}): Buffer {
  const fields = { ":method": method, ":scheme": "http", ":path": path, ":authority": "localhost", ...more };
  return frame(FRAME.headers, FLAG.endHeaders | (end ? FLAG.endStream : 0), stream, fieldBlock(fields));
}

/** What a request's HEADERS frame may say beyond its path. */
interface Head {
  readonly method?: string;
  readonly end?: boolean;
  readonly more?: Readonly<Record<string, string>>;
}

/** Header fields as literals without indexing (RFC 7541 section 6.2.2). */
export function fieldBlock(fields: Readonly<Record<string, string>>): Buffer {
  return Buffer.concat(Object.entries(fields).flatMap(([name, value]) => [Buffer.of(0), text(name), text(value)]));
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value, "latin1");
  const length: number[] = [Math.min(bytes.length, 127)];
  if (bytes.length >= 127) {
    let rest = bytes.length - 127;
    for (; rest >= 128; rest = Math.floor(rest / 128)) length.push((rest % 128) + 128);
    length.push(rest);
  }
  return Buffer.concat([Buffer.from(length), bytes]);
}

/** A frame as read from the wire. */
export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

/** Every whole frame in `bytes`. */
export function framesIn(bytes: Buffer): Frame[] {
  const frames: Frame[] = [];
  for (let at = 0; at + 9 <= bytes.length; ) {
    const length = bytes.readUIntBE(at, 3);
    const payload = bytes.subarray(at + 9, at + 9 + length);
    if (payload.length < length) break;
    frames.push({ type: bytes[at + 3]!, flags: bytes[at + 4]!, stream: bytes.readUInt32BE(at + 5), payload });
    at += 9 + length;
  }
  return frames;
}

/** The error code of the last GOAWAY in `bytes`, or undefined when there is none. */
export function goawayIn(bytes: Buffer): number | undefined {
  return framesIn(bytes)
    .findLast(({ type }) => type === FRAME.goaway)
    ?.payload.readUInt32BE(4);
}

/** The last streams that the GOAWAY frames in `bytes` name. */
export const lastStreamsIn = (bytes: Buffer): number[] =>
  framesIn(bytes)
    .filter(({ type }) => type === FRAME.goaway)
    .map(({ payload }) => payload.readUInt32BE(0));

/** Whether `bytes` hold the end of stream `stream`, by its last frame or a reset. */
export function endOf(bytes: Buffer, stream: number): Frame | undefined {
  return framesIn(bytes).find(
    (each) => each.stream === stream && (each.type === FRAME.reset || (each.type < 2 && each.flags & FLAG.endStream)),
  );
}

/** A fresh self-signed certificate for localhost and 127.0.0.1 with its key, both in PEM. */
export function selfSigned(): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ec", {
    namedCurve: "prime256v1",
    privateKeyEncoding: { type: "pkcs8", format: "pem" },
    publicKeyEncoding: { type: "spki", format: "der" },
  });
  const ecdsaSha256 = der(0x30, oid("2a8648ce3d040302"));
  const name = der(0x30, der(0x31, der(0x30, oid("550403"), der(0x0c, Buffer.from("localhost")))));
  const validity = der(0x30, der(0x17, Buffer.from("200101000000Z")), der(0x17, Buffer.from("491231235959Z")));
  const names = der(0x30, der(0x82, Buffer.from("localhost")), der(0x87, Buffer.of(127, 0, 0, 1)));
  const extensions = der(0xa3, der(0x30, der(0x30, oid("551d11"), der(0x04, names))));
  const version = der(0xa0, der(0x02, Buffer.of(2)));
  const serial = der(0x02, Buffer.of(1));
  const body = der(0x30, version, serial, ecdsaSha256, name, validity, name, publicKey, extensions);
  const signature = sign("sha256", body, createPrivateKey(privateKey));
  const cert = der(0x30, body, ecdsaSha256, der(0x03, Buffer.of(0), signature));
  const lines = cert.toString("base64").match(/.{1,64}/g) ?? [];
  return {
    key: privateKey,
    cert: ["-----BEGIN CERTIFICATE-----", ...lines, "-----END CERTIFICATE-----", ""].join("\n"),
  };
}

function oid(hex: string): Buffer {
  return der(0x06, Buffer.from(hex, "hex"));
}

function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.of(tag, ...size), content]);
}
