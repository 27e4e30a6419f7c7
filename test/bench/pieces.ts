/**
 * What each piece of the fast layer saves: two gateways, one with every piece and one without that piece, are loaded in turn until
 * neither gets faster, then measured in turn. Printed are medians over rounds of CPU microseconds for a call, and of the ratios of rounds
 * the median and the middle half. `plain` stands for the gateway without any piece.
 * A loop is 64 closed loops without pictures, of which the messages are ten times the calls.
 * `node test/bench/pieces.ts [rounds] [calls] [REST,gRPC,loop] [small,pictures] [http1,validation,…,plain]`
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import sharp from "sharp";
import { ActRequestSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage } from "../../src/codecs/grpc.ts";
import { FAST_PIECES } from "../../src/config.ts";
import { actFrame, actJson, GRPC_PATH } from "./support/act-call.ts";
import { openGateway } from "./support/gateway.ts";
import { grpcLoad, type Load, restLoad } from "./support/load.ts";
import { closedLoops, robots } from "./support/loop-load.ts";
import { descendants, median, pin, startModelServer } from "./support/processes.ts";
import { inTurns, type Program, ratiosOf } from "./support/turns.ts";

const rounds = Number(process.argv[2] ?? 15);
const calls = Number(process.argv[3] ?? 2000);
const transports = process.argv[4]?.split(",") ?? ["REST", "gRPC", "loop"];
const sizes = process.argv[5]?.split(",") ?? ["small", "pictures"];
const pieces = process.argv[6]?.split(",") ?? [...FAST_PIECES, "plain"];
const CALLERS = 32;
const CONNECTIONS = 8;
const ROBOTS = 64;

/** Two JPEGs of noise, about 24 kB each. */
const PICTURES = await Promise.all(
  [1, 2].map((seed) => {
    const pixels = Buffer.alloc(3 * 208 * 156);
    for (let i = 0, x = seed; i < pixels.length; i++) {
      x = (x * 1103515245 + 12345) % 2 ** 31;
      pixels[i] = x >> 16;
    }
    const raw = { width: 208, height: 156, channels: 3 } as const;
    return sharp(pixels, { raw }).jpeg({ quality: 85 }).toBuffer();
  }),
);
const asked = { model: "bench/instant", instruction: "pick up the cup" };
const proprio = Array.from({ length: 14 }, (_, i) => i / 16);
const picturesJson = Buffer.from(
  JSON.stringify({
    ...asked,
    observations: [
      {
        frames: PICTURES.map((bytes, i) => ({
          camera: `camera_${i}`,
          url: `data:image/jpeg;base64,${bytes.toString("base64")}`,
        })),
        proprio,
      },
    ],
  }),
);
const picturesFrame = frameMessage(
  toBinary(
    ActRequestSchema,
    create(ActRequestSchema, {
      ...asked,
      observations: [{ frames: PICTURES.map((data, i) => ({ camera: `camera_${i}`, data })), proprio }],
    }),
  ),
);

function loadOf(transport: string, size: string, port: number, key: string): (count: number) => Promise<Load> {
  const at = `http://127.0.0.1:${port}`;
  const body = size === "small" ? actJson : picturesJson;
  const frame = size === "small" ? actFrame : picturesFrame;
  if (transport === "loop") return (count) => loopLoad(at, key, Math.ceil((10 * count) / ROBOTS));
  if (transport === "REST") return (count) => restLoad(`${at}/v1/act`, body, key, CALLERS, count);
  return (count) => grpcLoad(at, GRPC_PATH, frame, key, CONNECTIONS, CALLERS / CONNECTIONS, count);
}

async function loopLoad(at: string, key: string, each: number): Promise<Load> {
  const { all, close } = await robots(at, key, CONNECTIONS, ROBOTS);
  const { latencies } = await closedLoops(all, each);
  close();
  return { answered: latencies.length, failed: 0, latencies };
}

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const upstream = await startModelServer();
const ports: { grpc: number } = JSON.parse(upstream.line);

for (const piece of pieces) {
  const fast = ["on", piece === "plain" ? "off" : `on,-${piece}`];
  const open = (LIMBER_FAST: string) =>
    openGateway(join(folder, piece, LIMBER_FAST), `grpc://127.0.0.1:${ports.grpc}`, { LIMBER_FAST });
  const gateways = [await open(fast[0]!), await open(fast[1]!)];
  const measured = gateways.map(({ pid }) => pid);
  pin(measured, [upstream.pid, ...measured.flatMap((pid) => descendants(pid))]);
  for (const transport of transports)
    for (const size of transport === "loop" ? sizes.slice(0, 1) : sizes) {
      const programs = gateways.map(
        ({ pid, port, key }, i): Program => ({ name: fast[i]!, pid, load: loadOf(transport, size, port, key) }),
      );
      const [all, without] = await inTurns(programs, { rounds, calls: size === "small" ? calls : calls / 4 });
      const ratios = ratiosOf(without!, all!);
      const at = (share: number): string => ratios[Math.floor(share * (ratios.length - 1))]!.toFixed(2);
      console.log(
        `${`${transport}, ${size}`.padEnd(16)} on ${median(all!.micros).toFixed(1)} us, ${fast[1]} ` +
          `${median(without!.micros).toFixed(1)} us: ${median(ratios).toFixed(3)} (${at(0.25)} - ${at(0.75)})`,
      );
    }
  for (const each of gateways) await each.stop();
}
await upstream.stop();
rmSync(folder, { recursive: true, force: true });
