/** Frames of HTTP/2 that cost the gateway more than who sends them, without a key and with one, on the paths of control loops and on others. */
import type { Socket } from "node:net";
import { sleep } from "../../../src/clock.ts";
import { FLAG, FRAME, fieldBlock, frame, HELLO, PREFACE, request, uint32 } from "../../support/wire-client.ts";
import { type Attack, type AttackContext, attackerAddress, closeOf, dial } from "./attack.ts";
import { actFrame, BAD_ASK, observationFrame, openFrame } from "./good.ts";

/** How a flood ended: the gateway hung up, it stopped reading, or it took all of it. */
type End = "closed" | "stalled" | "swallowed";

/** A flood of one kind. */
interface Flood {
  readonly name: string;
  /** The bytes that open it. */
  readonly begin?: (keyed: boolean) => Buffer;
  /** The nth piece of the flood. */
  readonly piece: (nth: number, keyed: boolean) => Buffer;
  /** The flood costs without end: the gateway has to close or to stop reading before it has taken all. */
  readonly mustEnd: boolean;
  /** The gateway counts wasted bytes twice a second, so it may take all of a fast flood before it ends the session. */
  readonly endsAtLook?: boolean;
  /** Answers are read; where they are not, the gateway has to keep what it can't send. */
  readonly reads: boolean;
}

/** A flood that is not stopped before so many bytes isn't stopped. */
const MOST_BYTES = { short: 24 << 20, whole: 64 << 20 } as const;
/** Pieces are written so many bytes at a time. */
const WRITE_BYTES = 64 << 10;
/** The good client is answered so often on every road while the flood makes no way: it is stalled. */
const STALL_ANSWERS = 20;
const CONNECTIONS = { short: 2, whole: 4 } as const;

/** For each answer that the good client got, a flood may have had so many calls looked at: who refuses takes turns. */
const MOST_CALLS_PER_ANSWER = 10_000;
const PATH = "/limber.v1.InferenceService/Act";
const LOOP_PATH = "/limber.v1.InferenceService/ActStream";
const idOf = (nth: number): number => 2 * nth + 1;
let bearer = "";

const fieldsOf = (keyed: boolean, path: string): Record<string, string> => ({
  ":path": path,
  ":authority": "localhost",
  "content-type": "application/grpc",
  te: "trailers",
  ...(keyed && { authorization: bearer }),
});

/** A head that stands for itself. */
const head = (stream: number, keyed: boolean, end: boolean, path = PATH): Buffer => {
  const { ":path": _, ":authority": __, ...more } = fieldsOf(keyed, path);
  return request(stream, path, { method: "POST", end, more });
};

/** The nth head of a connection in the fewest bytes: the first puts its fields into the table, the others only point there. */
function smallHead(nth: number, keyed: boolean, end: boolean, path = PATH): Buffer {
  const flags = FLAG.endHeaders | (end ? FLAG.endStream : 0);
  const fields = Object.entries(fieldsOf(keyed, path));
  // 0x83 is ":method POST" and 0x86 ":scheme http"; 0x40 begins a field that enters the table, whose newest entry is 62.
  const block =
    nth === 0
      ? Buffer.concat([
          Buffer.of(0x83, 0x86),
          ...fields.map(([name, value]) => Buffer.concat([Buffer.of(0x40), fieldBlock({ [name]: value }).subarray(1)])),
        ])
      : Buffer.of(0x83, 0x86, ...fields.map((_, i) => 0x80 | (61 + fields.length - i)));
  return frame(FRAME.headers, flags, idOf(nth), block);
}
const reset = (stream: number): Buffer => frame(FRAME.reset, 0, stream, uint32(8));
const setting = (id: number, value: number): Buffer => Buffer.concat([Buffer.of(0, id), uint32(value)]);
const ACT = actFrame(BAD_ASK);
const BYTES = Buffer.alloc(8);
const OPEN_STREAM = (keyed: boolean): Buffer => Buffer.concat([HELLO, head(1, keyed, false, LOOP_PATH)]);

const FLOODS: readonly Flood[] = [
  {
    name: "calls whose answers are not read",
    piece: (nth, keyed) => smallHead(nth, keyed, true),
    ...{ mustEnd: true, reads: false },
  },
  {
    name: "calls of another path whose answers are not read",
    piece: (nth, keyed) => smallHead(nth, keyed, true, "/limber.v1.RegistryService/GetModel"),
    ...{ mustEnd: true, reads: false },
  },
  {
    name: "sound calls whose answers are not read",
    piece: (nth, keyed) =>
      Buffer.concat([smallHead(nth, keyed, false), frame(FRAME.data, FLAG.endStream, idOf(nth), ACT)]),
    ...{ mustEnd: true, reads: false },
  },
  {
    name: "calls that are reset at once",
    piece: (nth, keyed) => Buffer.concat([smallHead(nth, keyed, false), reset(idOf(nth))]),
    ...{ mustEnd: true, reads: true },
  },
  {
    name: "sound calls that are reset at once",
    piece: (nth, keyed) =>
      Buffer.concat([
        smallHead(nth, keyed, false),
        frame(FRAME.data, FLAG.endStream, idOf(nth), ACT),
        reset(idOf(nth)),
      ]),
    ...{ mustEnd: true, reads: true },
  },
  {
    name: "loops that are opened and reset",
    piece: (nth, keyed) =>
      Buffer.concat([
        smallHead(nth, keyed, false, LOOP_PATH),
        frame(FRAME.data, 0, idOf(nth), openFrame(BAD_ASK)),
        reset(idOf(nth)),
      ]),
    ...{ mustEnd: true, reads: true },
  },
  {
    name: "streams that make the gateway reset them",
    piece: (nth, keyed) =>
      Buffer.concat([smallHead(nth, keyed, false), frame(FRAME.windowUpdate, 0, idOf(nth), uint32(0))]),
    ...{ mustEnd: true, reads: true },
  },
  { name: "pings", piece: () => frame(FRAME.ping, 0, 0, BYTES), ...{ mustEnd: true, reads: false } },
  { name: "settings", piece: () => frame(FRAME.settings, 0, 0), ...{ mustEnd: true, reads: false } },
  {
    name: "settings of the window while streams are open",
    begin: (keyed) =>
      Buffer.concat([HELLO, ...Array.from({ length: 90 }, (_, i) => head(idOf(i), keyed, false, LOOP_PATH))]),
    piece: (nth) => frame(FRAME.settings, 0, 0, setting(4, 1 + (nth & 0xffff))),
    ...{ mustEnd: true, reads: true },
  },
  {
    name: "windows of the connection",
    piece: () => frame(FRAME.windowUpdate, 0, 0, uint32(1)),
    ...{ mustEnd: false, reads: true },
  },
  {
    name: "windows of a stream",
    begin: OPEN_STREAM,
    piece: () => frame(FRAME.windowUpdate, 0, 1, uint32(1)),
    ...{ mustEnd: false, reads: true },
  },
  {
    name: "a head that goes on without end",
    begin: () => Buffer.concat([HELLO, frame(FRAME.headers, FLAG.endStream, 1, fieldBlock({ ":method": "POST" }))]),
    piece: () => frame(FRAME.continuation, 0, 1, fieldBlock({ "x-a": "b" })),
    ...{ mustEnd: true, reads: true },
  },
  {
    name: "a head that goes on by nothing",
    begin: () => Buffer.concat([HELLO, frame(FRAME.headers, FLAG.endStream, 1, fieldBlock({ ":method": "POST" }))]),
    piece: () => frame(FRAME.continuation, 0, 1),
    ...{ mustEnd: true, reads: true },
  },
  {
    name: "heads of one field said again and again from the table",
    piece: (nth, keyed) =>
      Buffer.concat([
        nth === 0
          ? frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, 1, indexed(keyed))
          : frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, idOf(nth), Buffer.alloc(8_000, 0xbe)),
      ]),
    ...{ mustEnd: true, endsAtLook: true, reads: true },
  },
  {
    name: "heads that are too large",
    piece: (nth, keyed) => {
      const large = fieldBlock({ "x-a": "b".repeat(12_000) });
      return Buffer.concat([
        frame(FRAME.headers, FLAG.endStream, idOf(nth), head(1, keyed, true).subarray(9)),
        frame(FRAME.continuation, 0, idOf(nth), large),
        frame(FRAME.continuation, FLAG.endHeaders, idOf(nth), large),
      ]);
    },
    ...{ mustEnd: false, reads: true },
  },
  {
    name: "data of nothing",
    begin: OPEN_STREAM,
    piece: () => frame(FRAME.data, 0, 1),
    ...{ mustEnd: true, reads: true },
  },
  {
    name: "data of padding alone",
    begin: OPEN_STREAM,
    piece: () => frame(FRAME.data, 8, 1, Buffer.concat([Buffer.of(200), Buffer.alloc(200)])),
    ...{ mustEnd: true, endsAtLook: true, reads: true },
  },
  {
    name: "priorities",
    piece: (nth) => frame(FRAME.priority, 0, idOf(nth % 10_000), Buffer.concat([uint32(0), Buffer.of(1)])),
    ...{ mustEnd: false, reads: true },
  },
  { name: "frames of no known type", piece: () => frame(0xbe, 0, 0, BYTES), ...{ mustEnd: false, reads: true } },
  {
    name: "data for streams that are over",
    piece: (nth, keyed) => (nth === 0 ? head(1, keyed, true) : frame(FRAME.data, 0, 1, BYTES)),
    ...{ mustEnd: true, reads: true },
  },
  {
    name: "observations of a loop, faster than any answer",
    begin: (keyed) => Buffer.concat([OPEN_STREAM(keyed), frame(FRAME.data, 0, 1, openFrame(BAD_ASK))]),
    piece: (nth) => frame(FRAME.data, 0, 1, observationFrame(BAD_ASK, nth + 1)),
    ...{ mustEnd: false, reads: true },
  },
  {
    name: "calls that may not be answered, for every window is closed",
    begin: () => Buffer.concat([PREFACE, frame(FRAME.settings, 0, 0, setting(4, 0))]),
    piece: (nth, keyed) =>
      Buffer.concat([smallHead(nth, keyed, false), frame(FRAME.data, FLAG.endStream, idOf(nth), ACT)]),
    ...{ mustEnd: true, reads: true },
  },
  {
    name: "endings of the connection",
    piece: () => frame(FRAME.goaway, 0, 0, Buffer.concat([uint32(0), uint32(0)])),
    ...{ mustEnd: false, reads: true },
  },
];

/** A sound head that puts one more field into the table. */
function indexed(keyed: boolean): Buffer {
  const block = head(1, keyed, true).subarray(9);
  const value = "v".repeat(120);
  return Buffer.concat([block, Buffer.of(0x40, 3), Buffer.from("x-a"), Buffer.of(value.length), Buffer.from(value)]);
}

/** The head of a frame that gives the connection up, behind its length. */
const GOAWAY = Buffer.of(FRAME.goaway, 0, 0, 0, 0, 0);

/** Several looks of a gateway that has no processor to itself. */
const LOOKS_MS = 20_000;

/** Writes a flood as fast as it is taken. */
async function flood(
  context: AttackContext,
  { begin, piece, reads, endsAtLook }: Flood,
  keyed: boolean,
): Promise<{ end: End; sent: number; pieces: number }> {
  const socket = await dial(context.target.port);
  context.count("connections");
  if (reads)
    socket.on("data", (chunk: Buffer) => {
      // What still comes to a connection that was given up is dropped until it ends.
      if (chunk.includes(GOAWAY)) socket.destroy();
    });
  else socket.pause();
  socket.on("end", () => socket.destroy());
  const most = context.whole ? MOST_BYTES.whole : MOST_BYTES.short;
  let sent = 0;
  let pieces = 0;
  let end: End = "swallowed";
  const gone = closeOf(socket).then((): End => "closed");
  socket.write(begin?.(keyed) ?? HELLO);
  while (sent < most) {
    const parts: Buffer[] = [];
    for (let bytes = 0; bytes < WRITE_BYTES; bytes += parts.at(-1)!.length) parts.push(piece(pieces++, keyed));
    const bytes = Buffer.concat(parts);
    end = await written(context, socket, bytes, gone);
    if (end !== "swallowed") break;
    sent += bytes.length;
  }
  if (end === "swallowed" && endsAtLook) end = await Promise.race([gone, sleep(LOOKS_MS).then((): End => "swallowed")]);
  socket.resetAndDestroy();
  context.count("frames", pieces);
  return { end, sent, pieces };
}

/** Writes and waits until it is taken, the peer has hung up, or the good client shows that it won't be taken. */
async function written(context: AttackContext, socket: Socket, bytes: Buffer, gone: Promise<End>): Promise<End> {
  if (socket.destroyed) return "closed";
  const taken = new Promise<End>((resolve) => socket.write(bytes, (error) => resolve(error ? "closed" : "swallowed")));
  const stalled = context.good.progress(STALL_ANSWERS).then((): End => (context.isOver() ? "closed" : "stalled"));
  return Promise.race([gone, taken, stalled]);
}

/** Pings that each wait for their answer, as a patient client sends them. */
const ALLOWED_PINGS = 110;
/** The next connection of the same address is answered before the good client has been so often on each road. */
const SOON = 60;

/** A client that stays within what is allowed costs the next connection of its address nothing. */
async function allowedPings(context: AttackContext): Promise<void> {
  const address = attackerAddress();
  const socket = await dial(context.target.port, address);
  let received = 0;
  let wake = (): void => {};
  socket.on("data", (chunk: Buffer) => {
    received += chunk.length;
    wake();
  });
  const closed = closeOf(socket).then(() => wake());
  socket.write(HELLO);
  for (let ping = 0; ping < ALLOWED_PINGS && !socket.destroyed; ping++) {
    const before = received;
    socket.write(frame(FRAME.ping, 0, 0, BYTES));
    while (received === before && !socket.destroyed) await new Promise<void>((resolve) => (wake = resolve));
  }
  socket.end();
  await Promise.race([closed, context.good.progress(1)]);
  const next = await dial(context.target.port, address);
  const answered = new Promise<boolean>((resolve) => next.once("data", () => resolve(true)));
  next.write("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const isSoon = await Promise.race([answered, context.good.progress(SOON).then(() => false)]);
  if (!isSoon && !context.isOver())
    context.find(`after ${ALLOWED_PINGS} allowed pings the next connection of their address was kept waiting`);
  for (const each of [socket, next]) each.destroy();
}

/** Garbage included: the heap may grow to three times of what lives, some 100 MiB, before the old are collected (src/app/collector.ts). */
const MOST_PEAK = 384 << 20;
/** A flood leaves other organisations at 95 % of what they have without it. */
const MOST_OVERLOADED = 0.05;

/** Floods of every kind, and one client who is patient. */
export const floodAttacks = (): Attack[] => [
  { name: "pings over HTTP/2 at an allowed pace", run: allowedPings },
  ...FLOODS.flatMap((each) =>
    [false, true].map((keyed) => ({
      name: `a flood of HTTP/2 ${keyed ? "with" : "without"} a key: ${each.name}`,
      mostPeak: MOST_PEAK,
      mostOverloaded: MOST_OVERLOADED,
      async run(context: AttackContext) {
        bearer = `Bearer ${context.target.bad.key}`;
        const count = context.whole ? CONNECTIONS.whole : CONNECTIONS.short;
        const [calls, answers] = [await context.target.calls(), context.good.total];
        const ends = await Promise.all(Array.from({ length: count }, () => flood(context, each, keyed)));
        for (const { end, sent, pieces } of ends) {
          context.count(end);
          if (end === "swallowed" && each.mustEnd && !context.isOver())
            context.find(
              `${pieces} frames, ${sent >> 20} MiB, were taken from one connection and it was never stopped`,
            );
        }
        if (context.isOver()) return;
        const [looked, answered] = [(await context.target.calls()) - calls, context.good.total - answers];
        context.count("calls looked at", looked);
        if (looked > MOST_CALLS_PER_ANSWER * Math.max(1, answered))
          context.find(
            `${looked} calls of the flood were looked at, while the good client was answered ${answered} times`,
          );
      },
    })),
  ),
];
