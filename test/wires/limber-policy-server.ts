/** A server of the native wire and calls to it, anew for each test of the file that imports this. */
import sharp from "sharp";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { type PolicyOptions, type PolicyServer, startPolicyServer } from "../support/policy-server.ts";
import { actInput, callWith, framesOf, groundInput, observed, predictInput, targetAt } from "../support/wire-calls.ts";

export const STEPS = [
  [1, 2],
  [3, 4],
];
export const NO_FRAMES = framesOf();

export let upstream: Upstream;
export let wire: Required<Wire>;
export let server: PolicyServer;

export const serve = async (methods: PolicyOptions["methods"] = {}): Promise<void> => {
  server = await startPolicyServer({ methods });
};
export const act = (more = {}, signal?: AbortSignal, endpoint = server.endpoint) =>
  wire.act(targetAt(endpoint), actInput(more), NO_FRAMES, callWith(signal));
export const predict = (more = {}, signal?: AbortSignal) =>
  wire.predict(targetAt(server.endpoint), predictInput(more), NO_FRAMES, callWith(signal));
export const ground = (signal?: AbortSignal) =>
  wire.ground(targetAt(server.endpoint), groundInput(observed(), "the cube"), NO_FRAMES, callWith(signal));

export function begin(): void {
  upstream = createUpstream({ allowPrivate: true });
  wire = upstream.wireOf("limber-policy") as Required<Wire>; // the native wire serves all three contracts
}

export async function end(): Promise<void> {
  await upstream.close();
  await server?.close().catch(() => undefined);
}

export const png = (value: number): Promise<Buffer> =>
  sharp({ create: { width: 6, height: 4, channels: 3, background: { r: value, g: 0, b: 0 } } })
    .png()
    .toBuffer();

export const dataUrl = (bytes: Buffer): string => `data:image/png;base64,${bytes.toString("base64")}`;
