/** Placeholders are of the right shape, always the same, and own up to being placeholders. */
import { expect, it } from "vitest";
import type { PredictAnswerPart } from "../../src/contracts/contract.ts";
import { blankImage, decodeImage, encodeImage } from "../../src/reference/image.ts";
import { createUpstream } from "../../src/upstream/index.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import {
  actInput,
  callWith,
  framesOf,
  groundInput,
  observed,
  predictInput,
  rowsOf,
  targetAt,
} from "../support/wire-calls.ts";

const upstream = createUpstream({ allowPrivate: false });
const wire = upstream.wireOf("simulated") as Required<Wire>; // it answers to every contract
const target = targetAt("");
const NOTE = "Placeholder output: no model was called.";

it("the simulated wire answers an act with steps of zeros in the offering's dimension", async () => {
  const answer = await wire.act(target, actInput({ horizon: 3 }), framesOf(), callWith());
  expect(rowsOf(answer)).toEqual([
    [0, 0],
    [0, 0],
    [0, 0],
  ]);
  expect(answer).toMatchObject({ dtMs: 100, note: NOTE, prediction: [] });
});

async function predicted(more: Parameters<typeof predictInput>[0], frames = framesOf()): Promise<PredictAnswerPart[]> {
  const parts: PredictAnswerPart[] = [];
  for await (const part of wire.predict(target, predictInput(more), frames, callWith())) parts.push(part);
  return parts;
}

it.each([
  ["of the size that was asked for", { resolution: "32x24" }, [32, 24]],
  ["of a common size when the asked one is absurd", { resolution: "9999999x1" }, [640, 480]],
  ["of a common size when nothing is known", {}, [640, 480]],
] as const)("the simulated wire answers a prediction with gray images %s", async (_, more, [width, height]) => {
  const parts = await predicted(more);
  expect(parts).toHaveLength(3);
  for (const [index, part] of parts.slice(0, 2).entries()) {
    if (part.kind !== "frame") throw new Error("the summary comes last");
    expect(part.frame).toMatchObject({ index, tMs: 100 * (index + 1), width, height });
    const image = await decodeImage(part.frame.data);
    expect([image.width, image.height]).toEqual([width, height]);
    expect(image.data.every((value) => value === 128)).toBe(true);
  }
  expect(parts.at(-1)).toEqual({ kind: "summary", gpuSeconds: 0, note: NOTE });
  expect(await predicted(more)).toEqual(parts);
});

it("the simulated wire answers a prediction in the size of the newest image", async () => {
  const data = await encodeImage(blankImage(20, 10), "png");
  const observation = observed({ frames: [{ camera: "front", data }] });
  const [part] = await predicted({ observations: [observation] }, framesOf(observation));
  expect(part).toMatchObject({ frame: { width: 20, height: 10, camera: "front" } });
});

it("the simulated wire answers a grounding with a point of zero confidence", async () => {
  const observation = observed({ frames: [{ camera: "front", data: Buffer.of(1) }] });
  const answer = await wire.ground(target, groundInput(observation, "the cube"), framesOf(), callWith());
  expect(answer.points).toMatchObject([{ x: 0.5, y: 0.5, confidence: 0, camera: "front" }]);
  expect(answer).toMatchObject({ boxes: [], note: NOTE, inputTokens: 0, outputTokens: 0 });
});

it("the simulated wire is one of the runtimes, and unknown runtimes have no wire", () => {
  expect(upstream.runtimes).toEqual(expect.arrayContaining(["limber-policy", "openpi-ws", "simulated"]));
  for (const runtime of upstream.runtimes) expect(upstream.wireOf(runtime)?.id).toBe(runtime);
  for (const name of ["", "grpc", "__proto__", "constructor"]) expect(upstream.wireOf(name)).toBeUndefined();
});
