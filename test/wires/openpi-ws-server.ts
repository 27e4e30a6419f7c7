/** A server of the openpi wire and calls to it, anew for each test of the file that imports this. */
import { readFileSync } from "node:fs";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import sharp from "sharp";
import { expect } from "vitest";
import type { Observation } from "../../gen/limber/v1/observation_pb.ts";
import { WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { eventually } from "../support/eventually.ts";
import { type OpenpiOptions, type OpenpiServer, startOpenpiServer } from "../support/openpi-server.ts";
import { actInput, callWith, framesOf, targetAt } from "../support/wire-calls.ts";

export const STEPS = [
  [1, 2],
  [3, 4],
];
export const NO_FRAMES = framesOf();

export let upstream: Upstream;
export let wire: Required<Pick<Wire, "act" | "health">>;
export let server: OpenpiServer;

export const serve = async (options: OpenpiOptions = {}): Promise<void> => {
  server = await startOpenpiServer(options);
  server.behave({ kind: "steps", steps: STEPS });
};
export const act = (more = {}, signal?: AbortSignal) =>
  wire.act(targetAt(server.endpoint), actInput(more), NO_FRAMES, callWith(signal));
export const received = (count: number) => eventually(() => expect(server.acts).toHaveLength(count));

export function begin(): void {
  upstream = createUpstream({ allowPrivate: true });
  wire = upstream.wireOf("openpi-ws") as Required<Wire>; // this wire acts
}

export async function end(): Promise<void> {
  await upstream.close();
  await server?.close().catch(() => undefined);
}

export const sample = (name: string): Buffer =>
  readFileSync(new URL(`../golden/wire-samples/${name}.msgpack`, import.meta.url));

/** The picture of the recorded samples: 8 by 8, bytes of (37·i) mod 256; and the same upside down. */
export const PIXELS = Buffer.from(Uint8Array.from({ length: 192 }, (_, i) => (37 * i) % 256));
export const FLIPPED = Buffer.concat(
  Array.from({ length: 8 }, (_, row) => PIXELS.subarray((7 - row) * 24, (8 - row) * 24)),
);
export const png = (pixels: Buffer, width = 8): Promise<Buffer> =>
  sharp(pixels, { raw: { width, height: pixels.length / 3 / width, channels: 3 } })
    .png()
    .toBuffer();

/** As numpy rounds it. */
export const linspace = (count: number): number[] => Array.from({ length: count }, (_, i) => i * (2 / (count - 1)) - 1);

export const small = { width: 8, height: 8 };
export const profile = (init: MessageInitShape<typeof WireProfileSchema>) => create(WireProfileSchema, init);

export async function sent(
  observation: Observation,
  init?: MessageInitShape<typeof WireProfileSchema>,
  instruction = "go on",
) {
  const target = targetAt(server.endpoint, { profile: init && profile(init) });
  await wire.act(target, actInput({ observations: [observation], instruction }), framesOf(observation), callWith());
  return server.requests.at(-1)!;
}
