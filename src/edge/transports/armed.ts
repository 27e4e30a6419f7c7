/** Control loops that agents' runs open on robots that wait: in the name of the agent's key, through the gate, within its limits. */
import { ArmingService } from "../../../gen/limber/v1/arming_service_pb.ts";
import { type ActStreamRequest, InferenceService } from "../../../gen/limber/v1/inference_service_pb.ts";
import type { StreamHandler, StreamWriter } from "../../call.ts";
import { steadyNow } from "../../clock.ts";
import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import type { LoopOpener } from "../../inference/armed.ts";
import type { KeyRecord } from "../../store/account/keys.ts";
import { aboveOf, isNarrowed } from "../gate/authenticate.ts";
import type { Gate } from "../gate/gate.ts";
import type { RateLimits } from "../gate/rate-limits.ts";

/** What such loops depend on. */
interface ArmedLoopsDeps {
  readonly gate: Gate;
  readonly limits: Pick<RateLimits, "enter">;
  /** A key as the database has it now. */
  find(keyId: string): Promise<KeyRecord | undefined>;
  /** Whether a person's session goes on. */
  isOpen(sessionId: string): Promise<boolean>;
}

const LOOP = InferenceService.method.actStream;

/** Opens loops through the gate. */
export const openArmedLoops = ({ gate, limits, find, isOpen }: ArmedLoopsDeps): LoopOpener => ({
  async open(keyId, speaker, { signal, again }) {
    const record = await find(keyId);
    const principal = gate.inNameOf(LOOP, record);
    const slot = await limits.enter(keyId, record!.rateLimit, "streams", aboveOf(record)); // a key that is not there was refused
    signal.addEventListener("abort", () => slot.leave());
    if (signal.aborted) slot.leave();
    const admission = {
      principal,
      headers: [],
      leave: () => slot.leave(),
      steps: slot,
      async again() {
        if (isNarrowed(gate.inNameOf(LOOP, await find(keyId)), principal))
          throw refuse(Reason.KEY_NARROWED, "the agent's key lost permissions since the run began; start a new run");
        await again();
      },
    };
    const context = {
      requestId: newId("req"),
      signal,
      arrivedAt: steadyNow(),
      deadline: undefined,
      idempotencyKey: undefined,
    };
    // The gate knows messages by their RPC, the compiler does not.
    return gate.conversation(
      LOOP,
      admission,
      speaker as StreamWriter<never>,
      context,
    ) as StreamHandler<ActStreamRequest>;
  },
  async assertMayArm(keyId, sessionId) {
    gate.inNameOf(ArmingService.method.armRobot, await find(keyId));
    if (sessionId !== undefined && !(await isOpen(sessionId)))
      throw refuse(Reason.SESSION_ENDED, "the session that started this run has ended");
  },
});
