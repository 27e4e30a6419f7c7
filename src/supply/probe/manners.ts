/** What every contract is asked beyond its answers. */
import { create } from "@bufbuild/protobuf";
import { FrameSchema, type Observation, ObservationSchema } from "../../../gen/limber/v1/observation_pb.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { Refusal } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { grainyPicture } from "../../upstream/pictures/test-picture.ts";
import { ProbeFault } from "./faults.ts";
import type { ProbeRun, Twist } from "./run.ts";

/** How far a measured figure may lie above the advertised one: the probe is not where callers are. */
const SLACK = 2;
/** An observation that no model can make sense of. */
const NONSENSE = create(ObservationSchema, { proprio: Array.from({ length: 97 }, () => 1e30), proprioNames: ["none"] });
/** How a server says that it cannot take what it was shown. */
const HARMLESS: ReadonlySet<AttemptFailure> = new Set([AttemptFailure.INPUT_REJECTED, AttemptFailure.UPSTREAM_ERROR]);

/** What every contract is asked beyond its answers: large pictures, nonsense, strangers, and how long it all takes. */
export async function manners(
  run: ProbeRun,
  ask: (observation: Observation, twist?: Twist) => Promise<string>,
  here: Observation,
): Promise<void> {
  if (here.frames.length > 0) await run.check("large_picture", () => takesLargePictures(ask, here), false);
  await run.check("wrong_input_refused", () => refusesNonsense((twist) => ask(NONSENSE, twist)), false);
  await figures(run, (twist) => ask(here, twist));
}

/** Whether pictures may be as large as cameras make them. */
async function takesLargePictures(
  ask: (observation: Observation, twist: Twist) => Promise<string>,
  here: Observation,
): Promise<string> {
  const data = await grainyPicture();
  const frames = here.frames.map(({ camera }) => create(FrameSchema, { camera, data }));
  await ask(create(ObservationSchema, { ...here, frames }), { aside: true });
  return `pictures of 1280 by 720 (${Math.round(data.length / 1000)} kB) were taken`;
}

/** What a server makes of an observation without a picture, of a robot that it doesn't know. */
async function refusesNonsense(ask: (twist: Twist) => Promise<string>): Promise<string> {
  try {
    await ask({ aside: true });
  } catch (thrown) {
    if (thrown instanceof UpstreamFailure && HARMLESS.has(thrown.failure))
      return "an observation that makes no sense was refused";
    if (thrown instanceof Refusal) return "an observation that makes no sense never reaches it";
    throw thrown;
  }
  throw new ProbeFault("an observation that makes no sense was answered as if it did");
}

/** Credentials and figures, once it is known what an answer looks like. */
async function figures(run: ProbeRun, ask: (twist: Twist) => Promise<string>): Promise<void> {
  const { target, offering } = run.probed;
  if (target.auth.type !== "none") {
    await run.check(
      "auth_enforced",
      async () => {
        const stranger = { ...target, auth: { ...target.auth, secret: `not-${newId("req")}` } };
        const answered = await ask({ target: stranger, aside: true }).then(
          () => true,
          () => false,
        );
        if (answered) throw new ProbeFault("it answers calls with a wrong secret");
        return "a wrong secret is refused";
      },
      false,
    );
  }
  await run.check(
    "latency",
    async () => {
      const { p50Ms, p95Ms } = run.measured();
      const told = offering.advertised;
      if (told.p50Ms !== undefined && p50Ms > told.p50Ms * SLACK)
        throw new ProbeFault(`the median is ${p50Ms} ms, and ${told.p50Ms} ms is advertised`);
      if (told.p95Ms !== undefined && p95Ms > told.p95Ms * SLACK)
        throw new ProbeFault(`the 95th percentile is ${p95Ms} ms, and ${told.p95Ms} ms is advertised`);
      return `median ${p50Ms} ms, 95th percentile ${p95Ms} ms`;
    },
    false,
  );
}
