/** A stranger's name server: DNS over UDP on loopback, which answers as a test says. */
import { createSocket } from "node:dgram";
import { isIP } from "node:net";

/** The server. */
export interface NameServer {
  /** As resolvers take it: `127.0.0.1:port`. */
  readonly address: string;
  /** Every name that was asked for, in small letters. */
  readonly asked: Set<string>;
  close(): Promise<void>;
}

const HEADER_BYTES = 12;
const TYPES: Readonly<Record<number, 4 | 6>> = { 1: 4, 28: 6 };
const NO_SUCH_NAME = 3;

/** Starts one. `answer` gives the addresses of a name, of both families; undefined where there is no such name. */
export async function startNameServer(answer: (name: string) => readonly string[] | undefined): Promise<NameServer> {
  const asked = new Set<string>();
  const socket = createSocket("udp4");
  socket.on("message", (query, from) => {
    const { name, type, end } = questionIn(query);
    asked.add(name);
    const addresses = answer(name);
    const family = TYPES[type];
    const records = (addresses ?? []).filter((address) => isIP(address) === family).map(recordOf);
    const header = Buffer.from(query.subarray(0, HEADER_BYTES));
    header.writeUInt16BE(0x8180 | (addresses === undefined ? NO_SUCH_NAME : 0), 2);
    for (const [at, count] of [1, records.length, 0, 0].entries()) header.writeUInt16BE(count, 4 + 2 * at);
    socket.send(Buffer.concat([header, query.subarray(HEADER_BYTES, end), ...records]), from.port, from.address);
  });
  await new Promise<void>((resolve) => socket.bind(0, "127.0.0.1", resolve));
  return {
    address: `127.0.0.1:${socket.address().port}`,
    asked,
    close: () => new Promise((resolve) => void socket.close(() => resolve())),
  };
}

function questionIn(query: Buffer): { name: string; type: number; end: number } {
  const labels: string[] = [];
  let at = HEADER_BYTES;
  for (let length = query[at]!; length > 0; length = query[at]!) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join(".").toLowerCase(), type: query.readUInt16BE(at + 1), end: at + 5 };
}

/** A record that points back to the question's name, good for no second. */
function recordOf(address: string): Buffer {
  const data = isIP(address) === 4 ? Buffer.from(address.split(".").map(Number)) : sixteenBytesOf(address);
  const head = Buffer.alloc(HEADER_BYTES);
  head.writeUInt16BE(0xc000 | HEADER_BYTES, 0);
  head.writeUInt16BE(data.length === 4 ? 1 : 28, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(data.length, 10);
  return Buffer.concat([head, data]);
}

function sixteenBytesOf(address: string): Buffer {
  const [before = "", after = ""] = address.split("::");
  const words = (text: string): number[] =>
    text === "" ? [] : text.split(":").map((word) => Number.parseInt(word, 16));
  const [front, back] = [words(before), words(after)];
  const all = [...front, ...Array<number>(8 - front.length - back.length).fill(0), ...back];
  return Buffer.from(all.flatMap((word) => [word >> 8, word & 0xff]));
}
