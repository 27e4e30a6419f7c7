/** The policy of an evaluation: which refusals are retried, and for how long. */
import { beforeEach, expect, it, onTestFinished } from "vitest";
import { Cancel } from "../../../src/cancellation.ts";
import { type CallGateway, type EvaluationRequest, gatewayPolicy } from "../../../src/services/evaluation-run.ts";
import { setAmbient } from "../../support/clocks.ts";
import { ManualClock } from "../../support/manual-clock.ts";

let clock: ManualClock;
beforeEach(() => {
  clock = new ManualClock();
  const restore = setAmbient({ clock });
  onTestFinished(restore);
});

const RESTING = { code: "capacity_exhausted", message: "those that could serve the request have open breakers" };
const attempted = { attempts: [{ reason: "unreachable" }] };
const refusal = (error: object, route?: object) => ({ kind: "refusal", body: { error, route }, waitedMs: 0 }) as const;
const answer = {
  kind: "answer",
  body: { model: "acme/base", action: { steps: [[0]] }, route: { simulated: false } },
  costMicro: 1,
  waitedMs: 0,
} as const;

/** The outcome of one call of a policy, which the gateway answers as `calls` says from the start. */
function asked(mode: EvaluationRequest["mode"], calls: (count: number) => Awaited<ReturnType<CallGateway>>) {
  const seen = { calls: 0, outcome: "waits" };
  const call: CallGateway = async () => calls(seen.calls++);
  const request = {
    policyEndpoint: "acme/base",
    actionSpace: "joints",
    policyTimeoutMs: 1_000,
    mode,
  } as EvaluationRequest;
  const about = {
    jobId: "job_1",
    lane: 1,
    share: undefined,
    epoch: 1,
    instruction: "",
    offers: "",
    actionDim: 1,
    dtMs: 20,
  };
  const shown = { proprio: [0], proprioNames: ["x"], pictures: [], timeMs: 0, episode: 0, first: true };
  const end = (outcome: string) => {
    seen.outcome = outcome;
  };
  gatewayPolicy(call, request, about)
    .act(shown, new Cancel())
    .then(
      () => end("answered"),
      ({ termination }) => end(termination),
    );
  return seen;
}

it("a call that was never made because of open breakers is repeated each second, and is no fault if the policy responds", async () => {
  const seen = asked("sync", (count) => (count < 30 ? refusal(RESTING) : answer));
  await clock.advance(29_000);
  expect(seen).toEqual({ calls: 30, outcome: "waits" });
  await clock.advance(1_000);
  expect(seen).toEqual({ calls: 31, outcome: "answered" });
});

it("breakers that stay open for 45 s end the episode with a fault", async () => {
  const seen = asked("sync", () => refusal(RESTING));
  await clock.advance(44_000);
  expect(seen.outcome).toBe("waits");
  await clock.advance(2_000);
  expect(seen.outcome).toBe("policy_disconnected");
});

it.each([
  ["in real time", "realtime", refusal(RESTING)],
  ["after an attempt", "sync", refusal(RESTING, attempted)],
] as const)("a refusal %s is a fault at once", async (_, mode, refused) => {
  const seen = asked(mode, () => refused);
  await clock.advance(0);
  expect(seen).toEqual({ calls: 1, outcome: "policy_disconnected" });
});
