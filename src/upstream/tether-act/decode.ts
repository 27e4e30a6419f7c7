/**
 * What Tether answers: rows under `actions`, or `error` with status 200. Some rows are no answer to what was shown, and say so beside them.
 * Source: FastCrest/tether, src/tether/runtime/server.py at 03ad4cf.
 */
import type { JsonNumpy } from "../../codecs/python/json-numpy.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { jsonActionIn, jsonAnswerIn } from "../payload/json-actions.ts";
import type { Profile } from "../payload/profile.ts";
import { ownerText } from "../transport/failures.ts";

/** What the server says where it has no room; anything else is an error of its own. */
const NO_ROOM: ReadonlySet<unknown> = new Set(["inference_executor_full", "queue_full"]);

/** The first `horizon` rows, of `dim` numbers where that is declared. `showed` says whether a picture was sent. Throws an UpstreamFailure, also for rows that answer something else. */
export function readAction(
  body: Buffer,
  profile: Profile,
  horizon: number,
  { showed, dim }: { showed: boolean; dim: number | undefined },
): ActAnswer {
  const answer = jsonAnswerIn(body);
  const said = (key: string): JsonNumpy | undefined => (answer instanceof Map ? answer.get(key) : undefined);
  const error = said("error");
  if (error != null) {
    const failure = NO_ROOM.has(error) ? AttemptFailure.UPSTREAM_BUSY : AttemptFailure.UPSTREAM_ERROR;
    throw new UpstreamFailure(failure, ownerText(String(error)));
  }
  // With a deadline of its own it answers with the rows of an earlier call, or with zeros.
  if (said("deadline_exceeded") === true)
    throw new UpstreamFailure(AttemptFailure.TIMEOUT, "it missed its own deadline, and answered with earlier actions");
  // Its guard puts zeros in the place of what is no number.
  if (violationsIn(said("guard_violations")).some((text) => text.includes("non_finite")))
    throw new UpstreamFailure(AttemptFailure.NON_FINITE_ACTION, "its guard replaced numbers that were not finite");
  if (showed && said("vlm_conditioning") === "dummy")
    throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, "it acted without looking: its vision model did not run");
  const ms = said("amortized_latency_ms") ?? said("latency_ms");
  const gpuSeconds = typeof ms === "number" ? ms / 1_000 : 0;
  return jsonActionIn(answer, profile, horizon, { gpuSeconds, dim });
}

const violationsIn = (value: JsonNumpy | undefined): string[] => (Array.isArray(value) ? value.map(String) : []);
