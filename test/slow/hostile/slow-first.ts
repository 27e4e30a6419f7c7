/**
 * Many tiny pieces behind a first message that takes a while to read. What a peer sends ahead is held in about as many bytes as it has, and is
 * read at a cost in proportion to it.
 */
import type { Socket } from "node:net";
import { gzipSync } from "node:zlib";
import type { DescMethod } from "@bufbuild/protobuf";
import { SERVICES } from "../../../src/app/services.ts";
import { frameMessage } from "../../../src/codecs/grpc.ts";
import { encodeGr00t } from "../../../src/codecs/python/gr00t.ts";
import { encodeNumpy, NdArray } from "../../../src/codecs/python/ndarray.ts";
import { GREETING, READY, requestHead } from "../../../src/codecs/zmtp.ts";
import { FLAG, FRAME, frame, HELLO, request } from "../../support/wire-client.ts";
import { type Attack, type AttackContext, dial } from "./attack.ts";
import { actJson, BAD_ASK, openFrame } from "./good.ts";
import { http1, webSocketFrame } from "./scripts.ts";
import type { Target } from "./target.ts";

const PIECES = 300_000;
/** What the first message unpacks into: far more work than bytes. */
const SLOW_BYTES = 16 << 20;
/** A first message that is not packed, within the window of one stream. */
const PLAIN_BYTES = 256 << 10;
const FRAME_BYTES = 16 << 10;
/** The good client is answered so often on every road before the attacker leaves. */
const ANSWERS = 20;
/** What one such stream may cost at its peak, garbage included. */
const MOST_PEAK = 384 << 20;

const STREAMING: readonly DescMethod[] = SERVICES.flatMap((service): readonly DescMethod[] => service.methods).filter(
  ({ methodKind }) => methodKind === "bidi_streaming" || methodKind === "client_streaming",
);

/** A field that no schema knows, of zeros; protobuf drops it. */
function padding(size: number): Buffer {
  const head = Buffer.from([0xfa, 0xff, 0xff, 0x0f, 0, 0, 0, 0]); // field 33,554,431, a length of four bytes
  for (let i = 0, rest = size; i < 4; i++, rest >>>= 7) head[4 + i] = (rest & 0x7f) | (i < 3 ? 0x80 : 0);
  return Buffer.concat([head, Buffer.alloc(size)]);
}

/** The first message of a stream: sound where it is known what that is. */
function firstOf({ name }: DescMethod, isPacked: boolean): Buffer {
  const sound = name === "ActStream" ? openFrame(BAD_ASK).subarray(5) : Buffer.alloc(0);
  const message = Buffer.concat([sound, padding(isPacked ? SLOW_BYTES : PLAIN_BYTES)]);
  return isPacked ? frameMessage(gzipSync(message), true) : frameMessage(message);
}

/** What comes behind it, byte by byte: one message in small pieces, or as many messages as there is room for. */
const TAILS: Readonly<Record<string, Buffer>> = {
  "one message": frameMessage(Buffer.alloc(PIECES - 5)),
  "empty messages": Buffer.alloc(PIECES),
  "packed empty messages": Buffer.alloc(PIECES, Buffer.of(1, 0, 0, 0, 0)),
};

/** Bytes of a stream of HTTP/2, in frames of so many. */
const inFrames = (bytes: Buffer, size: number): Buffer =>
  Buffer.concat(
    Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
      frame(FRAME.data, 0, 1, bytes.subarray(i * size, (i + 1) * size)),
    ),
  );

/** Sends all of it, as far as it is taken, and stays until the good client was served for a while. */
async function say(context: AttackContext, port: number, parts: readonly Buffer[]): Promise<void> {
  const socket = await dial(port);
  context.count("connections");
  socket.on("data", () => undefined).on("end", () => socket.destroy());
  for (const part of parts) if (!socket.destroyed) await written(context, socket, part);
  context.count("frames", PIECES);
  await context.good.progress(ANSWERS);
  socket.resetAndDestroy();
}

/** Writes and waits until it is taken, the peer has hung up, or the good client shows that it won't be taken. */
async function written(context: AttackContext, socket: Socket, bytes: Buffer): Promise<void> {
  const taken = new Promise<void>((resolve) => socket.write(bytes, () => resolve()));
  await Promise.race([taken, context.good.progress(ANSWERS)]);
}

const bearer = ({ bad }: Target) => ({ authorization: `Bearer ${bad.key}` });
const GRPC = { "content-type": "application/grpc", te: "trailers", "grpc-encoding": "gzip" };
const CONNECT = { "content-type": "application/connect+proto", "connect-content-encoding": "gzip" };

function streamAttacks(method: DescMethod): Attack[] {
  const path = `/${method.parent.typeName}/${method.name}`;
  return Object.entries({ gRPC: GRPC, Connect: CONNECT }).flatMap(([protocol, type]) =>
    [false, true].map((isPacked) => ({
      name: `tiny frames behind a slow first message: ${method.name} by ${protocol}, ${isPacked ? "packed" : "plain"}`,
      mostPeak: MOST_PEAK,
      async run(context: AttackContext) {
        const head = request(1, path, { method: "POST", end: false, more: { ...type, ...bearer(context.target) } });
        const opening = Buffer.concat([HELLO, head, inFrames(firstOf(method, isPacked), FRAME_BYTES)]);
        for (const tail of Object.values(TAILS)) await say(context, context.target.port, [opening, inFrames(tail, 1)]);
      },
    })),
  );
}

const INFERENCE = "/limber.v1.InferenceService";

/** Bodies of single calls in pieces of a byte. */
async function bodies(context: AttackContext): Promise<void> {
  const { target } = context;
  const json = { "Content-Type": "application/json", Authorization: `Bearer ${target.bad.key}` };
  const text = Buffer.from(`${" ".repeat(PIECES)}${actJson(BAD_ASK)}`);
  const chunks = Buffer.concat([Buffer.alloc(6 * text.length, "1\r\n \r\n"), Buffer.from("0\r\n\r\n")]);
  for (const path of ["/v1/act", "/v1/batches", `${INFERENCE}/Act`]) {
    const head = Buffer.concat(http1(`POST ${path}`, { ...json, "Transfer-Encoding": "chunked" }));
    await say(context, target.port, [head, chunks]);
    const more = { ...bearer(target), "content-type": "application/json" };
    await say(context, target.port, [
      Buffer.concat([HELLO, request(1, path, { method: "POST", end: false, more })]),
      Buffer.concat([inFrames(text, 1), frame(FRAME.data, FLAG.endStream, 1)]),
    ]);
  }
  const more = { ...bearer(target), ...GRPC };
  const opening = Buffer.concat([HELLO, request(1, `${INFERENCE}/Act`, { method: "POST", end: false, more })]);
  await say(context, target.port, [opening, inFrames(TAILS["one message"]!, 1)]);
}

/** Fragments and messages of WebSocket behind an act call. */
async function webSocket(context: AttackContext): Promise<void> {
  const { target } = context;
  const head = http1(`GET /v1/openpi/${BAD_ASK.model}?action_space=${BAD_ASK.actionSpace}&horizon=4`, {
    Upgrade: "websocket",
    Connection: "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    Authorization: `Api-Key ${target.bad.key}`,
  });
  const act = webSocketFrame(encodeNumpy({ "observation/state": NdArray.float64([...BAD_ASK.proprio]) }));
  const masked = (opcode: number, size: number): Buffer =>
    Buffer.concat([Buffer.of(opcode, 0x80 | size, 0, 0, 0, 0), Buffer.alloc(size)]);
  const tails = [
    Buffer.concat([masked(0x02, 1), Buffer.alloc(PIECES * 7, masked(0, 1))]),
    Buffer.concat([masked(0x02, 1), Buffer.alloc(PIECES * 6, masked(0, 0))]),
    Buffer.alloc(PIECES * 7, masked(0x82, 1)),
    Buffer.alloc(PIECES * 7, masked(0x8a, 1)),
  ];
  for (const tail of tails) await say(context, target.port, [...head, ...act, tail]);
}

/** Frames and commands of ZeroMQ behind an act call. */
async function zeromq(context: AttackContext): Promise<void> {
  const { target } = context;
  const asked = encodeGr00t({
    endpoint: "get_action",
    api_token: target.bad.key,
    data: {
      observation: { state: { arm: NdArray.float32([...BAD_ASK.proprio], [1, 1, BAD_ASK.proprio.length]) } },
      options: { model: BAD_ASK.model, action_space: BAD_ASK.actionSpace, horizon: 4 },
    },
  });
  const opening = [GREETING, READY, requestHead(asked.length), asked];
  const tails = [
    Buffer.alloc(PIECES * 3, Buffer.of(1, 1, 0)), // one message of very many frames
    Buffer.alloc(PIECES * 2, Buffer.of(1, 0)),
    Buffer.alloc(PIECES * 5, Buffer.of(1, 0, 0, 1, 0)), // messages of one byte
    Buffer.alloc(PIECES * 4, Buffer.of(4, 2, 1, 65)), // commands
  ];
  for (const tail of tails) await say(context, target.gr00tPort, [...opening, tail]);
}

/** Tiny pieces by every way that takes more than one of them. */
export const slowFirstAttacks = (): Attack[] => [
  ...STREAMING.flatMap(streamAttacks),
  { name: "tiny pieces of bodies", mostPeak: MOST_PEAK, run: bodies },
  { name: "tiny frames of WebSocket behind an act", mostPeak: MOST_PEAK, run: webSocket },
  { name: "tiny frames of ZeroMQ behind an act", mostPeak: MOST_PEAK, run: zeromq },
];
