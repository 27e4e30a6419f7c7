/**
 * What one call costs on each wire beyond the model: collecting, writing, exchanging with an instant server in another thread, reading.
 * An observation of two cameras at 224 by 224, decoded beforehand, and three numbers; a chunk of sixteen steps of seven, two frames or two
 * points. Videos are taken apart by a program of its own, whose time is not counted. Columns: CPU time of
 * this thread, how pictures travel, bytes of fresh buffers (every copy lands in one), and for openpi the ratio to a bare `ws` client that
 * sends the same bytes. Run: `npm run bench wires`.
 */
import { Worker } from "node:worker_threads";
import { create } from "@bufbuild/protobuf";
import { WebSocket } from "ws";
import { NumberType, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { Cancel } from "../../src/cancellation.ts";
import { createUpstream } from "../../src/upstream/index.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { installStandInDecoder } from "../support/stand-in-decoder.ts";
import { actInput, framesOf, groundInput, observed, predictInput, targetAt } from "../support/wire-calls.ts";
import { EVERY_WIRE } from "../wires/every-wire.ts";

const CALLS = Number(process.argv[2] ?? 400);
/** Of calls that are asked after until they are done, which takes its time. */
const SLOW_CALLS = Math.ceil(CALLS / 20);
const ROUNDS = 5;

const size = { width: 224, height: 224 };
/** Which keys each wire's server of ours reads, with two pictures. */
const PROFILES: Readonly<Record<string, object>> = {
  "openpi-ws": {
    frames: [
      { key: "observation/image", ...size },
      { key: "observation/wrist_image", ...size },
    ],
  },
  "gr00t-zmq": gr00t(),
  "gr00t-http": gr00t(),
  "openvla-act": {
    frames: [
      { key: "full_image", ...size },
      { key: "wrist_image", ...size },
    ],
    proprio: [{ start: 0, end: 3, key: "state", dtype: NumberType.F8 }],
  },
};

/** How each wire carries pictures: a file, raw bytes (301,056), or base64 of them (401,408). */
const CARRIES: Readonly<Record<string, string>> = {
  "limber-policy": "files",
  "openpi-ws": "raw",
  "gr00t-zmq": "raw",
  "gr00t-http": "base64",
  "openvla-act": "base64",
  "lerobot-async": "none",
  "oip-v2-rest": "none",
  "oip-v2-grpc": "none",
  "vllm-omni-videos": "file",
  "cosmos-nim": "base64",
  cog: "base64",
  "openai-chat": "base64",
};

function gr00t(): object {
  return {
    frames: [
      { key: "video.front", ...size },
      { key: "video.wrist", ...size },
    ],
    proprio: [{ start: 0, end: 3, key: "state.base" }],
    instructionKey: "annotation.task",
    actionKeys: ["base"],
  };
}

/** Bytes of every buffer that is made while counting. */
const fresh = { counting: false, bytes: 0 };
for (const name of ["alloc", "allocUnsafe", "allocUnsafeSlow"] as const) {
  const original = Buffer[name].bind(Buffer) as (length: number, ...rest: never[]) => Buffer<ArrayBuffer>;
  Buffer[name] = ((length: number, ...rest: never[]) => {
    if (fresh.counting) fresh.bytes += length;
    return original(length, ...rest);
  }) as never;
}
const concat = Buffer.concat.bind(Buffer);
Buffer.concat = (list, length) => {
  const joined = concat(list, length);
  if (fresh.counting) fresh.bytes += joined.length;
  return joined;
};

async function serverOf(id: string): Promise<{ endpoint: string; stop: () => Promise<number> }> {
  const worker = new Worker(new URL("./support/wire-server.ts", import.meta.url), { workerData: id });
  const endpoint = await new Promise<string>((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", reject);
  });
  return { endpoint, stop: () => worker.terminate() };
}

interface Measured {
  readonly cpuUs: number;
  readonly freshBytes: number;
}

/** CPU microseconds of this thread for one of so many calls. */
async function round(call: () => Promise<unknown>, calls: number): Promise<number> {
  const before = process.threadCpuUsage();
  for (let i = 0; i < calls; i++) await call();
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / calls;
}

const median = (list: readonly number[]): number => [...list].sort((a, b) => a - b)[list.length >> 1]!;

/** CPU microseconds and fresh bytes of each of these, in rounds that take turns, so that what else the machine does meets all alike. */
async function measure(count: number, ...calls: (() => Promise<unknown>)[]): Promise<Measured[]> {
  for (const call of calls) for (let i = 0; i < count / 8; i++) await call();
  const rounds: number[][] = calls.map(() => []);
  for (let i = 0; i < ROUNDS; i++) for (const [at, call] of calls.entries()) rounds[at]!.push(await round(call, count));
  const measured: Measured[] = [];
  for (const [at, call] of calls.entries()) {
    fresh.bytes = 0;
    fresh.counting = true;
    for (let i = 0; i < 10; i++) await call();
    fresh.counting = false;
    measured.push({ cpuUs: median(rounds[at]!), freshBytes: fresh.bytes / 10 });
  }
  return measured;
}

/** A client of `ws` that does nothing but send these bytes and wait for a frame. */
async function bareRelay(bytes: Buffer): Promise<{ call: () => Promise<unknown>; stop: () => Promise<unknown> }> {
  const { endpoint, stop } = await serverOf("bare");
  const socket = new WebSocket(endpoint, { perMessageDeflate: false });
  await new Promise((resolve) => socket.once("open", resolve));
  return {
    call: () =>
      new Promise((resolve) => {
        socket.once("message", resolve);
        socket.send(bytes);
      }),
    stop: () => {
      socket.terminate();
      return stop();
    },
  };
}

const picture = { data: await redSquare(0.7, 0.3, 224) };
const proprio = [0.1, 0.2, 0.3];
const upstream = createUpstream({ allowPrivate: true });
const row = (...cells: (string | number)[]): string =>
  cells.map((cell, i) => (i === 0 ? String(cell).padEnd(24) : String(cell).padStart(16))).join("");
console.log(row("wire", "cpu us/call", "pictures", "fresh bytes", "ratio"));

const OPENPI_BYTES = 2 * 150_528 + 300;
const bare = await bareRelay(Buffer.alloc(OPENPI_BYTES, 7));
const only = process.argv[3];
const uninstall = await installStandInDecoder();
for (const { id, told, contract } of EVERY_WIRE.filter((wire) => only === undefined || wire.id === only)) {
  const wire = upstream.wireOf(id) as Required<Wire>; // only what its contract is for is called
  const { endpoint, stop } = await serverOf(id);
  const profile = PROFILES[id] ? create(WireProfileSchema, PROFILES[id]) : told?.profile;
  // The models of the Open Inference Protocol's servers take numbers alone; pictures are left out.
  const seen = observed({ frames: id.startsWith("oip") ? [] : [picture, picture], proprio });
  const frames = framesOf(seen);
  const target = targetAt(endpoint, { profile, actionDim: 7 });
  const options = () => ({ signal: new Cancel(), requestId: "req_1", budgetMs: 10_000 });
  const input = actInput({ observations: [seen], horizon: 16 });
  const calls = {
    act: () => wire.act(target, input, frames, options()),
    ground: () => wire.ground(target, groundInput(seen, "the red square"), frames, options()),
    predict: async () => {
      const asked = predictInput({ observations: [seen], instruction: "go on", horizon: 2 });
      for await (const part of wire.predict(target, asked, frames, options())) void part;
    },
  };
  const isOpenpi = id === "openpi-ws";
  const count = contract === "predict" ? SLOW_CALLS : CALLS;
  const [measured, floor] = await measure(count, calls[contract], ...(isOpenpi ? [bare.call] : []));
  const ratio = floor ? (measured!.cpuUs / floor.cpuUs).toFixed(2) : "";
  console.log(row(id, measured!.cpuUs.toFixed(0), CARRIES[id] ?? "", Math.round(measured!.freshBytes), ratio));
  if (floor)
    console.log(row("  bare ws, same bytes", floor.cpuUs.toFixed(0), "raw", Math.round(floor.freshBytes), "1.00"));
  await stop();
}
await uninstall();
await bare.stop();
await upstream.close();
