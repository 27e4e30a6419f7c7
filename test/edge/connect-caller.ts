import { ActResponseSchema, PredictStreamResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import type { Signal } from "../../src/cancellation.ts";
import { type HouseOptions, KEY, message, openForTest, type TestGateway } from "./gateway.ts";

/** Opens a gateway for the test that runs, whose RPCs are `rpcs`. */
export const open = (rpcs: HouseOptions["rpcs"] = {}): Promise<TestGateway> => openForTest({ rpcs });

export const AUTH = { authorization: `Bearer ${KEY}` };
export const SOUND = { model: "o/n", observations: [{ proprio: [1] }] };
export const ACT = "/limber.v1.InferenceService/Act";
export const CHUNK = message(ActResponseSchema, { id: "act_1", validUntilMs: 5, action: { steps: [{ values: [1] }] } });
export const frame = (index: number) =>
  message(PredictStreamResponseSchema, { event: { case: "frame", value: { index } } });

/** Works on a call until it is called off, and notes why. */
export function untilAborted(signal: Signal, reasons: unknown[]): Promise<never> {
  return new Promise((_, reject) =>
    signal.addEventListener("abort", () => {
      reasons.push(signal.reason);
      reject(new Error("aborted"));
    }),
  );
}
