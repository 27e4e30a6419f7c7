/** The conformance probe: whether a declared offering does what it declares, asked over its own wire. */
import { create } from "@bufbuild/protobuf";
import type { SafetyBounds } from "../../../gen/limber/v1/action_pb.ts";
import { FrameSchema, type Observation, ObservationSchema } from "../../../gen/limber/v1/observation_pb.ts";
import {
  ProbeCheckSchema,
  ProbeMeasurementsSchema,
  type ProbeReport,
  ProbeReportSchema,
} from "../../../gen/limber/v1/supply_pb.ts";
import { after, newId, nowSeconds, steadyNow } from "../../ambient.ts";
import * as act from "../../contracts/act.ts";
import { dimensionOf } from "../../contracts/action-spaces.ts";
import { poseOf } from "../../contracts/bounds.ts";
import { Contract, type GroundAnswer, type Intent, type PredictAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import * as ground from "../../contracts/ground.ts";
import * as predict from "../../contracts/predict.ts";
import { Refusal } from "../../refusal.ts";
import type { Offering } from "../../routing/index.ts";
import { Cancel } from "../../signal.ts";
import type { OfferingRecord } from "../../store/supply/supply.ts";
import { type FrameOptions, FrameSet } from "../../upstream/frames.ts";
import type { LimberPolicyWire } from "../../upstream/limber-policy/index.ts";
import { frameSources } from "../../upstream/pictures.ts";
import { grainyPicture, redSquare } from "../../upstream/test-picture.ts";
import type { CallOptions, Target, Wire } from "../../upstream/wire.ts";
import { adviceFor, faultOf, ProbeFault } from "./probe/faults.ts";

/** What is probed. */
export interface Probed {
  offering: Offering;
  target: Target;
  wire: Wire;
  /** What no action of it may exceed. */
  bounds: SafetyBounds | undefined;
  /** What was declared of it, and of its provider's regions. */
  record: OfferingRecord;
}

/** What a probe needs of the house. */
export interface ProbeParts {
  agent: FrameOptions["agent"];
  allowPrivate: boolean;
  /** Can be asked what it serves, where it is the offering's wire. */
  native: LimberPolicyWire;
}

const SQUARE = { x: 0.75, y: 0.25 };
const ELSEWHERE = { x: 0.3, y: 0.6 };
const INSTRUCTION = "reach the red square";
const PROBE_HORIZON = 4;
const WARM_CALLS = 3;
/** How far a measured figure may lie above the advertised one: the probe is not where callers are. */
const SLACK = 2;
/** An observation that no model can make sense of. */
const NONSENSE = create(ObservationSchema, { proprio: Array.from({ length: 97 }, () => 1e30), proprioNames: ["none"] });
/** How a server says that it cannot take what it was shown. */
const HARMLESS: ReadonlySet<AttemptFailure> = new Set([AttemptFailure.INPUT_REJECTED, AttemptFailure.UPSTREAM_ERROR]);

/** What came of a probe. */
export interface Finding {
  report: ProbeReport;
  /** The server had no time for all of it, which says nothing about what it can do. */
  busy: boolean;
}

/**
 * Runs every check of an offering, in order; a check that cannot run because an earlier one failed is left out. `tell` hears of the
 * report as far as it came: at the beginning, and after each check.
 */
export async function probe(
  parts: ProbeParts,
  probed: Probed,
  tell: (soFar: ProbeReport) => Promise<void> = async () => {},
): Promise<Finding> {
  const report = create(ProbeReportSchema, {
    id: newId("rep"),
    offeringId: probed.offering.id,
    startedAt: nowSeconds(),
    measured: {},
  });
  await tell(report);
  const run = new ProbeRun(parts, probed, (check) => {
    report.checks.push(create(ProbeCheckSchema, check));
    return tell(report);
  });
  const reachable = await run.check("reachable", async () => {
    await probed.wire.health(probed.target, run.call());
    return "it answers";
  });
  if (reachable) await run.wireChecks();
  if (reachable) await run.check("region", () => run.region(), probed.record.providerRegions.length > 0);
  if (reachable) for (const contract of probed.offering.contracts) await run.contract(contract);
  report.passed = report.checks.length > 0 && report.checks.every((check) => check.passed || !check.required);
  report.measured = create(ProbeMeasurementsSchema, run.measured());
  report.finishedAt = nowSeconds();
  return { report, busy: run.busy };
}

interface Check {
  name: string;
  passed: boolean;
  required: boolean;
  detail: string;
  latencyMs: number;
  nextStep?: string;
}

/** How a question differs from the plain one. */
interface Twist {
  target?: Target;
  seed?: number;
  horizon?: number;
  /** Answers are not measured: they are not what calls will be like. */
  aside?: boolean;
}

/** What a server expects to see. */
interface Layout {
  proprioNames: readonly string[];
  proprioDim: number;
  cameras: readonly string[];
}

class ProbeRun {
  /** It had no time for us, which says nothing about what it can do. */
  busy = false;
  readonly #parts: ProbeParts;
  readonly #probed: Probed;
  readonly #told: (check: Check) => Promise<void>;
  readonly #latencies: number[] = [];
  /** Ends the patience with each call of the present check. */
  #patience: (() => void)[] = [];
  #actionDim: number | undefined;
  #asked: Promise<Layout> | undefined;

  constructor(parts: ProbeParts, probed: Probed, told: (check: Check) => Promise<void>) {
    this.#parts = parts;
    this.#probed = probed;
    this.#told = told;
  }

  /** Runs one check; `look` gives a sentence of what was seen, or throws one of what to mend. Answers whether it passed. */
  async check(name: string, look: () => Promise<string>, required = true): Promise<boolean> {
    const began = steadyNow();
    let passed = true;
    let detail: string;
    let nextStep: string | undefined;
    try {
      detail = await look();
    } catch (thrown) {
      passed = false;
      detail = thrown instanceof Error ? thrown.message : String(thrown);
      nextStep = adviceFor(name, thrown);
      if (thrown instanceof UpstreamFailure && thrown.failure === AttemptFailure.UPSTREAM_BUSY) this.busy = true;
    }
    for (const forget of this.#patience.splice(0)) forget();
    const latencyMs = Math.round((steadyNow() - began) * 1000) / 1000;
    const advice = nextStep === undefined ? {} : { nextStep };
    await this.#told({ name, passed, required, detail: detail.slice(0, 400), latencyMs, ...advice });
    return passed;
  }

  /** Whether it says that it runs where its provider says that it runs models. */
  async region(): Promise<string> {
    const { region, providerRegions } = this.#probed.record;
    if (region === "") throw new ProbeFault("no region is declared, so that requests which name one never reach it");
    if (providerRegions.length > 0 && !providerRegions.includes(region))
      throw new ProbeFault(`${region} is none of the provider's regions (${providerRegions.join(", ")})`);
    return region;
  }

  /** What the wire alone can look at. */
  async wireChecks(): Promise<void> {
    const { wire, target, offering } = this.#probed;
    const actionDim = dimensionOf(offering.actionSpaces[0] ?? "", offering.actionDim);
    for (const { name, look, required } of wire.probes ?? []) {
      await this.check(name, () => look({ ...target, actionDim }, this.call()), required);
    }
  }

  async contract(contract: Contract): Promise<void> {
    if (contract === Contract.ACT) await this.#act();
    else if (contract === Contract.PREDICT) await this.#predict();
    else if (contract === Contract.GROUND) await this.#ground();
    else
      await this.check("contract", () => Promise.reject(new Error("this contract cannot be served over a wire yet")));
  }

  measured(): { p50Ms: number; p95Ms: number; coldMs: number; actionDim?: number } {
    const warm = this.#latencies.slice(1).sort((a, b) => a - b);
    const at = (share: number): number =>
      Math.round((warm[Math.min(warm.length - 1, Math.floor(share * warm.length))] ?? 0) * 1000) / 1000;
    const dim = this.#actionDim === undefined ? {} : { actionDim: this.#actionDim };
    return { p50Ms: at(0.5), p95Ms: at(0.95), coldMs: Math.round((this.#latencies[0] ?? 0) * 1000) / 1000, ...dim };
  }

  /** What one call is given; its time runs until the check is over. */
  call(): CallOptions {
    const budgetMs = this.#probed.offering.coldTimeoutMs;
    const signal = new Cancel();
    const tooLate = new UpstreamFailure(AttemptFailure.TIMEOUT, `no answer within ${Math.round(budgetMs)} ms`);
    this.#patience.push(after(budgetMs, () => signal.abort(tooLate)));
    return { signal, budgetMs, requestId: newId("req") };
  }

  async #act(): Promise<void> {
    const { offering, target, wire } = this.#probed;
    const space = offering.actionSpaces[0] ?? "";
    const horizon = Math.min(PROBE_HORIZON, offering.maxHorizon);
    const dim = dimensionOf(space, offering.actionDim);
    const intent = intentFor(offering, Contract.ACT, space, horizon);
    const input = {
      instruction: INSTRUCTION,
      seed: undefined,
      temperature: undefined,
      sessionId: undefined,
      actionSpace: space,
      horizon,
      returnPrediction: false,
    };
    const { bounds } = this.#probed;
    const limits = (shown: Observation) => bounds && [{ bounds, pose: poseOf(space, [shown], dim) }];
    const ask = async (observation: Observation, twist: Twist = {}): Promise<string> => {
      const speaks = wire.act?.bind(wire);
      if (!speaks) throw new Error(`the wire ${wire.id} does not speak act`);
      const units = twist.horizon ?? horizon;
      const question = { ...input, seed: twist.seed, horizon: units, observations: [observation] };
      const asked = () =>
        speaks({ ...(twist.target ?? target), actionDim: dim }, question, this.#frames([observation]), this.call());
      const answer = await (twist.aside ? asked() : this.#timed(asked));
      const failure = act.checkAnswer(answer, { intent: { ...intent, units }, dim }, limits(observation));
      if (failure !== undefined) throw new ProbeFault(faultOf(failure, answer.steps[0]?.values.length, dim));
      this.#actionDim = answer.steps[0]?.values.length;
      return JSON.stringify(answer.steps.map((step) => step.values));
    };

    const here = await this.#observation(SQUARE, 0);
    let first = "";
    const shaped = await this.check("action_shape", async () => {
      first = await ask(here);
      return `${horizon} steps of ${dim ?? this.#actionDim} finite numbers`;
    });
    if (!shaped) return;
    await this.check("answers_differ", async () => {
      const second = await ask(await this.#observation(ELSEWHERE, 1));
      if (second === first) throw new ProbeFault("two different observations gave the same actions: is this a stub?");
      return "two different observations gave different actions";
    });
    await this.check("steady", async () => {
      for (let i = 0; i < WARM_CALLS; i++) await ask(here);
      return `${WARM_CALLS} more calls answered`;
    });
    if (offering.parameters.includes("seed")) {
      await this.check("seed_repeatable", async () => {
        const [one, other] = [await ask(here, { seed: 7, aside: true }), await ask(here, { seed: 7, aside: true })];
        if (one !== other) throw new ProbeFault("the same seed gave two different chunks");
        return "the same seed gave the same chunk";
      });
    }
    if (offering.maxHorizon > horizon) {
      await this.check(
        "longest_horizon",
        async () => {
          await ask(here, { horizon: offering.maxHorizon, aside: true });
          return `${offering.maxHorizon} steps in one answer`;
        },
        false,
      );
    }
    await this.#manners(ask, here);
  }

  /** What every contract is asked beyond its answers: large pictures, nonsense, strangers, and how long it all takes. */
  async #manners(ask: (observation: Observation, twist?: Twist) => Promise<string>, here: Observation): Promise<void> {
    if (here.frames.length > 0) await this.check("large_picture", () => this.#takesLargePictures(ask, here), false);
    await this.check("wrong_input_refused", () => this.#refusesNonsense((twist) => ask(NONSENSE, twist)), false);
    await this.#figures((twist) => ask(here, twist));
  }

  /** Whether pictures may be as large as cameras make them. */
  async #takesLargePictures(
    ask: (observation: Observation, twist: Twist) => Promise<string>,
    here: Observation,
  ): Promise<string> {
    const data = await grainyPicture();
    const frames = here.frames.map(({ camera }) => create(FrameSchema, { camera, data }));
    await ask(create(ObservationSchema, { ...here, frames }), { aside: true });
    return `pictures of 1280 by 720 (${Math.round(data.length / 1000)} kB) were taken`;
  }

  /** What a server makes of an observation without a picture, of a robot that it doesn't know. */
  async #refusesNonsense(ask: (twist: Twist) => Promise<string>): Promise<string> {
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
  async #figures(ask: (twist: Twist) => Promise<string>): Promise<void> {
    const { target, offering } = this.#probed;
    if (target.auth.type !== "none") {
      await this.check(
        "auth_enforced",
        async () => {
          const stranger = { ...target, auth: { ...target.auth, secret: `not-${newId("req")}` } };
          const answered = await ask({ target: stranger, aside: true }).then(
            () => true,
            () => false,
          );
          if (answered) throw new ProbeFault("it answers whoever shows a wrong secret");
          return "a wrong secret is refused";
        },
        false,
      );
    }
    await this.check(
      "latency",
      async () => {
        const { p50Ms, p95Ms } = this.measured();
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

  async #predict(): Promise<void> {
    const { offering, target, wire } = this.#probed;
    const horizon = Math.min(2, offering.maxHorizon);
    const intent = intentFor(offering, Contract.PREDICT, undefined, horizon);
    const ask = async (observations: readonly Observation[], twist: Twist = {}): Promise<string> => {
      const speaks = wire.predict?.bind(wire);
      if (!speaks) throw new Error(`the wire ${wire.id} does not speak predict`);
      const input = {
        observations,
        instruction: INSTRUCTION,
        seed: undefined,
        temperature: undefined,
        sessionId: undefined,
        horizon,
        actions: [],
        actionSpace: undefined,
        fps: undefined,
        resolution: undefined,
        numSamples: undefined,
      };
      const asked = async () => {
        const whole: PredictAnswer = { frames: [], gpuSeconds: 0, note: "" };
        for await (const part of speaks(twist.target ?? target, input, this.#frames(observations), this.call())) {
          if (part.kind === "frame") whole.frames.push(part.frame);
        }
        return whole;
      };
      const answer = await (twist.aside ? asked() : this.#timed(asked));
      const failure = predict.checkAnswer(answer, { intent });
      if (failure !== undefined) throw new ProbeFault(faultOf(failure, answer.frames.length, horizon));
      return Buffer.concat(answer.frames.map((frame) => frame.data)).toString("base64");
    };

    const passing = (places: readonly { x: number; y: number }[]): Promise<Observation[]> =>
      Promise.all(places.map((place) => this.#observation(place, 0)));
    const here = await passing([0.3, 0.35, 0.4].map((x) => ({ x, y: 0.5 })));
    let first = "";
    const shaped = await this.check("frames", async () => {
      first = await ask(here);
      return `${horizon} frames that can be read`;
    });
    if (!shaped) return;
    await this.check("answers_differ", async () => {
      const second = await ask(await passing([0.7, 0.65, 0.6].map((y) => ({ x: 0.6, y }))));
      if (second === first) throw new ProbeFault("two different observations gave the same frames: is this a stub?");
      return "two different observations gave different frames";
    });
    await this.#manners((observation, twist) => ask([observation], twist), here.at(-1)!);
  }

  /** One square at a known, asymmetric place shows swapped axes and wrong units at once. */
  async #ground(): Promise<void> {
    const { target, wire } = this.#probed;
    const ask = async (observation: Observation, twist: Twist = {}): Promise<GroundAnswer> => {
      const speaks = wire.ground?.bind(wire);
      if (!speaks) throw new Error(`the wire ${wire.id} does not speak ground`);
      const input = {
        observations: [observation] as const,
        instruction: "the red square",
        seed: undefined,
        temperature: undefined,
        sessionId: undefined,
      };
      const asked = () => speaks(twist.target ?? target, input, this.#frames([observation]), this.call());
      const answer = await (twist.aside ? asked() : this.#timed(asked));
      const failure = ground.checkAnswer(answer);
      if (failure !== undefined) throw new ProbeFault(faultOf(failure, undefined, undefined));
      return answer;
    };
    const here = await this.#observation(SQUARE, 0);
    let first = "";
    const found = await this.check("square_found", async () => {
      const answer = await ask(here);
      first = placesIn(answer);
      if (!isAt(answer, SQUARE))
        throw new ProbeFault(
          `a red square at (${SQUARE.x}, ${SQUARE.y}) was not found there: check the order and unit of coordinates`,
        );
      return "the red square was found where it is";
    });
    if (!found) return;
    await this.check("answers_differ", async () => {
      const second = placesIn(await ask(await this.#observation(ELSEWHERE, 1)));
      if (second === first) throw new ProbeFault("two different observations gave the same places: is this a stub?");
      return "two different observations gave different places";
    });
    await this.check("steady", async () => {
      for (let i = 0; i < WARM_CALLS; i++) await ask(here);
      return `${WARM_CALLS} more calls answered`;
    });
    await this.#manners(async (observation, twist) => placesIn(await ask(observation, twist)), here);
  }

  /** The declared sample of this number, or one that is made up; with a picture for every camera. */
  async #observation(place: { x: number; y: number }, sample: number): Promise<Observation> {
    const { proprioNames, proprioDim, cameras } = await this.#layout();
    const declared = this.#probed.target.profile?.samples[sample];
    if (declared && declared.frames.length > 0) return declared;
    const picture = await redSquare(place.x, place.y);
    const frames = cameras.map((camera) => ({ camera, data: picture }));
    if (declared)
      return create(ObservationSchema, { ...declared, frames: frames.map((frame) => create(FrameSchema, frame)) });
    const proprio = Array.from({ length: proprioDim }, (_, i) => 0.1 + 0.02 * i + 0.15 * sample);
    return create(ObservationSchema, { frames, proprio, proprioNames: [...proprioNames] });
  }

  /** What the server expects to see: as it says itself, else as the profile says, else what the action space suggests. */
  #layout(): Promise<Layout> {
    this.#asked ??= this.#askLayout();
    return this.#asked;
  }

  async #askLayout(): Promise<Layout> {
    const { offering, target, wire } = this.#probed;
    const wants = await wire.wants?.(target, this.call());
    const cameras = wants && wants.cameras.length > 0 ? wants.cameras : ["front"];
    if (wire.id === this.#parts.native.id) {
      const models = await this.#parts.native.describe(target, this.call());
      const card = models.find((model) => model.slug === offering.model);
      if (card) {
        const named = card.cameras.length > 0 ? card.cameras : cameras;
        return { proprioNames: card.proprioNames, proprioDim: card.proprioNames.length, cameras: named };
      }
    }
    const suggested = dimensionOf(offering.actionSpaces[0] ?? "", offering.actionDim) ?? 0;
    return { proprioNames: [], proprioDim: wants?.proprioDim ?? suggested, cameras };
  }

  #frames(observations: readonly Observation[]): FrameSet {
    const { agent, allowPrivate } = this.#parts;
    return new FrameSet(frameSources(observations), { agent, allowPrivate });
  }

  async #timed<T>(run: () => Promise<T>): Promise<T> {
    const began = steadyNow();
    const answer = await run();
    this.#latencies.push(steadyNow() - began);
    return answer;
  }
}

const placesIn = ({ points, boxes }: GroundAnswer): string =>
  JSON.stringify([
    points.map(({ x, y }) => [x, y]),
    boxes.map(({ xMin, yMin, xMax, yMax }) => [xMin, yMin, xMax, yMax]),
  ]);

/** Whether something was found about there. */
function isAt({ points, boxes }: GroundAnswer, place: { x: number; y: number }): boolean {
  const near = (x: number, y: number): boolean => Math.abs(x - place.x) < 0.1 && Math.abs(y - place.y) < 0.1;
  return (
    points.some(({ x, y }) => near(x, y)) ||
    boxes.some((box) => near((box.xMin + box.xMax) / 2, (box.yMin + box.yMax) / 2))
  );
}

const intentFor = (offering: Offering, contract: Contract, actionSpace: string | undefined, units: number): Intent => ({
  contract,
  model: offering.model,
  models: [],
  preference: undefined,
  provider: undefined,
  actionSpace,
  units,
  parameters: [],
});
