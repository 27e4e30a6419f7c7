/**
 * Placeholders for cataloged offerings without a live server, if a caller allows them: of the right shape, the same for equal requests, and
 * marked as simulated.
 */
import sharp from "sharp";
import type { ActionStep } from "../../gen/limber/v1/action_pb.ts";
import { ImageFormat } from "../../gen/limber/v1/observation_pb.ts";
import type { PredictInput } from "../contracts/contract.ts";
import type { FrameSet } from "./pictures/frames.ts";
import type { Wire } from "./wire.ts";

const NOTE = "Placeholder output: no model was called.";
const GRAY = { r: 128, g: 128, b: 128 };
const MAX_SIDE = 4_096;

/** A wire without a server. Its answers are zeros, gray images, and the image center with zero confidence. */
export function simulated(): Wire {
  return {
    id: "simulated",
    schemes: [],
    async act({ actionDim, dtMs }, { horizon }) {
      const steps = Array.from({ length: horizon }, () => stillStep(actionDim ?? 1));
      return { steps, dtMs, note: NOTE, prediction: [], gpuSeconds: 0 };
    },
    async *predict({ dtMs }, input, frames) {
      const { width, height } = await sizeOf(input, frames);
      const data = await sharp({ create: { width, height, channels: 3, background: GRAY } })
        .png()
        .toBuffer();
      for (let index = 0; index < input.horizon; index++) {
        const tMs = (index + 1) * dtMs;
        const frame = {
          $typeName: "limber.v1.PredictedFrame" as const,
          index,
          tMs,
          camera: frames.cameras.at(-1) ?? "",
        };
        yield { kind: "frame", frame: { ...frame, width, height, format: ImageFormat.PNG, data } };
      }
      yield { kind: "summary", gpuSeconds: 0, note: NOTE };
    },
    async ground(_, { observations: [{ frames }] }) {
      const camera = frames[0]?.camera ?? "";
      const point = { x: 0.5, y: 0.5, label: "placeholder", confidence: 0, frame: 0, camera };
      return {
        points: [{ $typeName: "limber.v1.GroundedPoint", ...point }],
        boxes: [],
        note: NOTE,
        inputTokens: 0,
        outputTokens: 0,
      };
    },
    async health() {},
    async close() {},
  };
}

const stillStep = (dim: number): ActionStep => ({
  $typeName: "limber.v1.ActionStep",
  values: Array.from({ length: dim }, () => 0),
});

/** The requested size, otherwise the last image's, otherwise a default. */
async function sizeOf({ resolution }: PredictInput, frames: FrameSet): Promise<{ width: number; height: number }> {
  const [width, height] = (resolution ?? "").split("x").map(Number);
  if (isSide(width) && isSide(height)) return { width, height };
  const count = frames.cameras.length;
  return count === 0 ? { width: 640, height: 480 } : frames.bytes(count - 1);
}

const isSide = (side: number | undefined): side is number =>
  side !== undefined && Number.isInteger(side) && side >= 1 && side <= MAX_SIDE;
