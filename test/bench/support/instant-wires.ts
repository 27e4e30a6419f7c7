/**
 * Instant servers of openpi's protocol over WebSockets and of Isaac-GR00T's over ZeroMQ: 16 steps of 7, at once. They stand beyond every
 * measured program alike. The first number of an answer is taken from what was shown, because a server whose answers never change is
 * a stub, which the probe rejects.
 */
import { createServer as createHttp } from "node:http";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { WebSocketServer } from "ws";
import { encodeGr00t } from "../../../src/codecs/python/gr00t.ts";
import { encodeNumpy, NdArray } from "../../../src/codecs/python/ndarray.ts";
import { GREETING, READY_TO_ANSWER, requestHead, ZmtpReader } from "../../../src/codecs/zmtp.ts";
import { CAMERAS } from "./cameras.ts";

const MOST_BYTES = 64 << 20;
const values = Float32Array.from({ length: 16 * 7 }, (_, i) => i / 1000);
/** Stands where the first number is written. */
const FIRST = 1234.5;
values[0] = FIRST;
const mark = Buffer.from(Float32Array.of(FIRST).buffer);

/** An answer whose first number can be written over. */
function answerOf(bytes: Buffer): (seen: number) => Buffer {
  const at = bytes.indexOf(mark);
  return (seen) => {
    const answer = Buffer.from(bytes);
    answer.writeFloatLE(seen, at);
    return answer;
  };
}

const openpi = answerOf(encodeNumpy({ actions: NdArray.float32(values, [16, 7]), server_timing: { infer_ms: 0 } }));
const gr00t = answerOf(encodeGr00t([new Map([["base", NdArray.float32(values, [1, 16, 7])]]), new Map()]));

/** Some bytes, weighed by where they stand: a square that moves is another number. */
function look(message: Buffer): number {
  let sum = 0;
  for (let at = 0; at < message.length; at += 997) sum = (sum * 31 + message[at]!) % 9973;
  return sum / 9973;
}

const http = createHttp((_, response) => response.end("OK\n"));
const sockets = new WebSocketServer({ server: http, perMessageDeflate: false, maxPayload: MOST_BYTES });
sockets.on("connection", (client) => {
  client.on("error", () => undefined);
  client.send(encodeNumpy({}));
  client.on("message", (data: Buffer) => client.send(openpi(look(data))));
});

const UNKNOWN = encodeGr00t({ error: "Unknown endpoint" });
const EMPTY = encodeGr00t({});

const modality = (keys: readonly string[], moments: readonly number[]) => ({
  modality_keys: keys,
  delta_indices: moments,
});
const CONFIG = encodeGr00t({
  video: modality(CAMERAS, [0]),
  state: modality(["base"], [0]),
  action: modality(["base"], [...values.keys()].slice(0, 16)),
  language: modality(["annotation.task"], [0]),
});

function gr00tAnswer(message: Buffer): Buffer {
  const head = message.subarray(0, 200);
  const names = (endpoint: string): boolean => head.includes(endpoint);
  if (names("get_action")) return gr00t(look(message));
  if (names("get_modality_config")) return CONFIG;
  if (names("ping")) return encodeGr00t({ status: "ok", message: "Server is running" });
  if (names("reset")) return EMPTY;
  return UNKNOWN;
}

const zeromq = createServer({ noDelay: true }, (socket: Socket) => {
  socket.on("error", () => socket.destroy());
  const reader = new ZmtpReader(MOST_BYTES, {
    onGreeting: () => void socket.write(READY_TO_ANSWER),
    onCommand: () => undefined,
    onMessage(message) {
      const answer = gr00tAnswer(message);
      socket.cork();
      socket.write(requestHead(answer.length));
      socket.write(answer);
      socket.uncork();
    },
  });
  socket.write(GREETING);
  socket.on("data", (chunk) => reader.push(chunk));
});

const portOf = (server: { address(): unknown }): number => (server.address() as AddressInfo).port;
http.listen(0, "127.0.0.1", () =>
  zeromq.listen(0, "127.0.0.1", () => {
    console.log(JSON.stringify({ openpi: portOf(http), gr00t: portOf(zeromq) }));
  }),
);
process.on("SIGTERM", () => process.exit(0));
