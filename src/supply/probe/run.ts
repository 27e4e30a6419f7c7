/** One run of the probe: what its checks share. */
import { create } from "@bufbuild/protobuf";
import type { SafetyBounds } from "../../../gen/limber/v1/action_pb.ts";
import {
  type CameraSpec,
  CameraSpecSchema,
  type InputContract,
  InputNeed,
  type ProprioSpec,
  ProprioSpecSchema,
} from "../../../gen/limber/v1/input_contract_pb.ts";
import {
  type Frame,
  FrameSchema,
  ImageFormat,
  type Observation,
  ObservationSchema,
} from "../../../gen/limber/v1/observation_pb.ts";
import { Cancel } from "../../cancellation.ts";
import { after, steadyNow } from "../../clock.ts";
import { AttemptFailure, dimensionOf, UpstreamFailure } from "../../contracts/contract.ts";
import { dimensionOfLayout } from "../../contracts/inputs.ts";
import { newId } from "../../ids.ts";
import type { Offering } from "../../routing/index.ts";
import type { OfferingRecord } from "../../store/supply/supply.ts";
import type { LimberPolicyWire } from "../../upstream/limber-policy.ts";
import { type FrameOptions, FrameSet, frameSources } from "../../upstream/pictures/frames.ts";
import { redSquareAs } from "../../upstream/pictures/test-picture.ts";
import type { CallOptions, UpstreamTarget, Wire } from "../../upstream/wire.ts";

/** Whom questions go to. */
export interface ProbeSubject {
  offering: Offering;
  target: UpstreamTarget;
  wire: Wire;
  /** What no action of it may exceed. */
  bounds: SafetyBounds | undefined;
}

/** What is probed. */
export interface Probed extends ProbeSubject {
  /** What was declared of it, and of its provider's regions. */
  record: OfferingRecord;
}

/** What a probe depends on. */
export interface ProbeDeps {
  agent: FrameOptions["agent"];
  allowPrivate: boolean;
  /** Can be asked what it serves, where it is the offering's wire. */
  native: LimberPolicyWire;
  /** The address that took the last call to an endpoint, where its wire adds a path to it. */
  addressOf?: (endpoint: string) => string | undefined;
}

interface ProbeCheck {
  name: string;
  passed: boolean;
  required: boolean;
  detail: string;
  latencyMs: number;
  nextStep?: string;
}

/** How a question differs from the plain one. */
export interface QuestionOptions {
  variant?: InputVariant;
  target?: UpstreamTarget;
  seed?: number;
  horizon?: number;
  /** Answers are not measured: they are not what calls will be like. */
  aside?: boolean;
}

/** In what a question differs from the plain one, and meets the contract all the same. */
export interface InputVariant {
  /** Another layout of proprioception. */
  layout?: ProprioSpec;
  /** Without the names of its numbers. */
  unnamed?: boolean;
  /** Without the cameras that need not be there. */
  requiredAlone?: boolean;
  /** Pictures of this size, where any size is taken. */
  size?: { width: number; height: number };
  /** As many observations as are read. */
  mostMoments?: boolean;
  withGoal?: boolean;
  /** Without an instruction. */
  wordless?: boolean;
}

/** A place in a picture, normalized. */
interface Place {
  x: number;
  y: number;
}

/** What a server expects to see. */
interface Layout {
  readonly cameras: readonly CameraSpec[];
  readonly layout: ProprioSpec;
}

const layoutOf = (cameras: readonly string[], names: readonly string[], dimension: number): Layout => ({
  cameras: cameras.map((name) => create(CameraSpecSchema, { name, required: true })),
  layout: create(ProprioSpecSchema, { names: [...names], dimension }),
});

/** Queries of addresses may hold keys. */
const withoutQuery = ({ endpoint }: UpstreamTarget): string => endpoint.replace(/[?#].*$/s, "");

const FORMATS: Readonly<Record<number, "png" | "jpeg" | "webp">> = {
  [ImageFormat.PNG]: "png",
  [ImageFormat.JPEG]: "jpeg",
  [ImageFormat.WEBP]: "webp",
};

async function frameOf(
  { name, width, height, anySize, formats }: CameraSpec,
  place: Place,
  { size }: InputVariant,
): Promise<Frame> {
  const wanted = anySize && size ? size : { ...(width && { width }), ...(height && { height }) };
  const [format = ImageFormat.PNG] = formats;
  const data = await redSquareAs(place, { ...wanted, format: FORMATS[format] ?? "png" });
  return create(FrameSchema, { camera: name, data });
}

/** What the checks of one probe ask with, and what they found. */
export class ProbeRun {
  /** It had no time for the probe, which says nothing about what it can do. */
  busy = false;
  readonly #deps: ProbeDeps;
  /** Whom it asks. */
  readonly probed: ProbeSubject;
  readonly #told: (check: ProbeCheck) => Promise<void>;
  readonly #latencies: number[] = [];
  /** The calls of the present check, and what ends the patience with each. */
  #calls: { readonly signal: Cancel; readonly forget: () => void }[] = [];
  /** How many numbers a step of its answers had. */
  actionDim: number | undefined;
  /** How many steps its shortest chunk had, where it answers chunks of its own length. */
  chunkSteps: number | undefined;
  #asked: Promise<Layout> | undefined;

  readonly #budgetMs: number;

  /** `budgetMs` is the time of one call. */
  constructor(
    deps: ProbeDeps,
    probed: ProbeSubject,
    told: (check: ProbeCheck) => Promise<void>,
    budgetMs = probed.offering.coldTimeoutMs ?? probed.offering.timeoutMs,
  ) {
    this.#budgetMs = budgetMs;
    this.#deps = deps;
    this.probed = probed;
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
      if (thrown instanceof UpstreamFailure) detail += ` (asked ${thrown.address ?? withoutQuery(this.probed.target)})`;
      nextStep = adviceFor(name, thrown);
      if (thrown instanceof UpstreamFailure && thrown.failure === AttemptFailure.UPSTREAM_BUSY) this.busy = true;
    }
    this.stopTimers();
    const latencyMs = Math.round((steadyNow() - began) * 1000) / 1000;
    const advice = nextStep === undefined ? {} : { nextStep };
    await this.#told({ name, passed, required, detail: detail.slice(0, 400), latencyMs, ...advice });
    return passed;
  }

  /** Where its calls went, as far as that isn't its endpoint. */
  get address(): string | undefined {
    return this.#deps.addressOf?.(this.probed.target.endpoint);
  }

  /** No call is under way: their time runs no more. */
  stopTimers(): void {
    for (const { forget } of this.#calls.splice(0)) forget();
  }

  /** Calls off what is under way. */
  callOff(): void {
    for (const { signal } of this.#calls) signal.abort(new UpstreamFailure(AttemptFailure.TIMEOUT, "canceled"));
  }

  /** What its answers were like. */
  measured(): { p50Ms: number; p95Ms: number; coldMs: number; actionDim?: number; chunkSteps?: number } {
    const warm = this.#latencies.slice(1).sort((a, b) => a - b);
    const at = (share: number): number =>
      Math.round((warm[Math.min(warm.length - 1, Math.floor(share * warm.length))] ?? 0) * 1000) / 1000;
    const dim = this.actionDim === undefined ? {} : { actionDim: this.actionDim };
    const chunk = this.chunkSteps === undefined ? {} : { chunkSteps: this.chunkSteps };
    return {
      p50Ms: at(0.5),
      p95Ms: at(0.95),
      coldMs: Math.round((this.#latencies[0] ?? 0) * 1000) / 1000,
      ...dim,
      ...chunk,
    };
  }

  /** What one call is given; its time runs until the check is over. */
  call(): CallOptions {
    const budgetMs = this.#budgetMs;
    const signal = new Cancel();
    const tooLate = new UpstreamFailure(AttemptFailure.TIMEOUT, `no answer within ${Math.round(budgetMs)} ms`);
    this.#calls.push({ signal, forget: after(budgetMs, () => signal.abort(tooLate)) });
    return { signal, budgetMs, requestId: newId("req") };
  }

  /**
   * The declared sample of this number, or one that is made up; with a picture for every camera. What the contract says is kept to, and
   * `variant` says in what it is another observation that meets the contract too.
   */
  async observation(place: Place, sample: number, variant: InputVariant = {}): Promise<Observation> {
    const { cameras, layout } = await this.#layout();
    const samples = this.probed.target.profile?.samples ?? [];
    const declared = samples[sample];
    if (declared && declared.frames.length > 0) return declared;
    const shown = variant.requiredAlone ? cameras.filter(({ required }) => required) : cameras;
    const frames = await Promise.all(shown.map((camera) => frameOf(camera, place, variant)));
    const wanted = variant.layout ?? layout;
    // Numbers that are made up may make no sense together: a sample is better where there is one of this layout.
    const fitting = variant.layout && samples.find(({ proprio }) => proprio.length === dimensionOfLayout(wanted));
    const known = fitting ?? (variant.layout ? undefined : declared);
    if (known) return create(ObservationSchema, { ...known, frames, ...(variant.unnamed && { proprioNames: [] }) });
    const proprio = Array.from({ length: dimensionOfLayout(wanted) ?? 0 }, (_, i) => 0.1 + 0.02 * i + 0.15 * sample);
    const proprioNames = variant.unnamed ? [] : [...wanted.names];
    return create(ObservationSchema, { frames, proprio, proprioNames });
  }

  /** An observation as often as the contract wants moments, or as often as it admits. */
  moments(observation: Observation, variant: InputVariant = {}): Observation[] {
    const { least = 1, most = least } = this.input?.history ?? {};
    return Array<Observation>(variant.mostMoments ? most : least).fill(observation);
  }

  /** The picture of the goal, where the contract wants one, or admits one that is to be shown. */
  async goal(variant: InputVariant = {}): Promise<Frame | undefined> {
    const { goalImage } = this.input ?? {};
    const isShown = goalImage?.need === InputNeed.REQUIRED || variant.withGoal;
    if (!goalImage || !isShown) return undefined;
    const { width, height } = goalImage;
    return create(FrameSchema, {
      data: await redSquareAs(ELSEWHERE, { ...(width && { width }), ...(height && { height }) }),
    });
  }

  /** What it is told to do. */
  instruction(variant: InputVariant = {}): string {
    return this.input?.language?.need === InputNeed.NONE || variant.wordless ? "" : INSTRUCTION;
  }

  /** What it says that it reads. */
  get input(): InputContract | undefined {
    return this.probed.offering.declared?.input;
  }

  /** What the server expects to see: by its contract, else as it says itself, else as the profile says, else what the action space suggests. */
  #layout(): Promise<Layout> {
    this.#asked ??= this.#askLayout();
    return this.#asked;
  }

  async #askLayout(): Promise<Layout> {
    const { offering } = this.probed;
    const { cameras, proprio = [] } = this.input ?? {};
    const space = offering.actionSpaces[0] ?? "";
    const said = proprio.find(({ actionSpace }) => !actionSpace || actionSpace === space);
    if (cameras && said) return { cameras: cameras.cameras, layout: said };
    const told = await this.#askServer();
    return { cameras: cameras?.cameras ?? told.cameras, layout: said ?? told.layout };
  }

  async #askServer(): Promise<Layout> {
    const { offering, target, wire } = this.probed;
    const wants = await wire.wants?.(target, this.call());
    const cameras = wants && wants.cameras.length > 0 ? wants.cameras : ["front"];
    if (wire.id === this.#deps.native.id) {
      const models = await this.#deps.native.describe(target, this.call());
      const card = models.find((model) => model.slug === offering.model);
      if (card) {
        const named = card.cameras.length > 0 ? card.cameras : cameras;
        return layoutOf(named, card.proprioNames, card.proprioNames.length);
      }
    }
    const suggested = dimensionOf(offering.actionSpaces[0] ?? "", offering.actionDim) ?? 0;
    return layoutOf(cameras, [], wants?.proprioDim ?? suggested);
  }

  /** The pictures of what it is shown. */
  frames(observations: readonly Observation[], goal?: Frame): FrameSet {
    const { agent, allowPrivate } = this.#deps;
    return new FrameSet(frameSources(observations, goal), { agent, allowPrivate });
  }

  /** Notes how long an answer took. */
  async timed<T>(run: () => Promise<T>): Promise<T> {
    const began = steadyNow();
    const answer = await run();
    this.#latencies.push(steadyNow() - began);
    return answer;
  }
}

/** A check found what it looks for to be missing. The message says what was seen. */
export class ProbeFault extends Error {}

/** What to do about a check that failed on what the server answered, by the check's name. */
const ADVICE: Readonly<Record<string, string>> = {
  region: "declare a region that the provider runs in, or add this one to the provider's regions",
  action_shape:
    "answer exactly as many steps as are asked for, each with the numbers of the declared action space, all finite",
  answers_differ: "check that the observation reaches the model: its keys, its pictures and its proprioception",
  steady: "check the server's log for what happened between one call and the next",
  seed_repeatable: "seed every source of chance of the model from the request, or leave seed out of parameters",
  longest_horizon: "declare the most steps of one answer as max_horizon",
  large_picture: "take pictures as cameras make them: allow messages of a few megabytes, and scale what is too large",
  input_contract: "answer all that the declared contract admits, or declare a narrower one",
  wrong_input_refused: "refuse observations that lack what the model needs, instead of filling them up",
  auth_enforced: "refuse calls without the declared secret: HTTP 401, or UNAUTHENTICATED over gRPC",
  latency: "advertise what callers can expect, or look for what slows the server down",
  frames: "answer exactly as many frames as are asked for, each a whole PNG, JPEG or WebP",
  square_found: "check the order and the unit of the coordinates, and the declared convention",
};

/** What to do about a call that failed on the way, by how it failed. */
const WAYS: Readonly<Partial<Record<AttemptFailure, string>>> = {
  [AttemptFailure.TIMEOUT]: "answer within timeout_s, or declare the time that a cold start takes as cold_timeout_s",
  [AttemptFailure.UNREACHABLE]: "check that the server runs, listens at the declared address, and lets the gateway in",
  [AttemptFailure.CONNECTION_LOST]: "check the server's log: it ended the connection before its answer was whole",
  [AttemptFailure.UPSTREAM_ERROR]: "check the server's log: it reported an error of its own",
  [AttemptFailure.UPSTREAM_AUTH]: "declare the secret that the server expects as auth",
  [AttemptFailure.UPSTREAM_BUSY]: "let the gateway have its share of the server, or try again when it is free",
  [AttemptFailure.INPUT_REJECTED]:
    "declare a profile that maps observations to what the server expects, or samples of them",
  [AttemptFailure.MALFORMED_ANSWER]: "check that the declared runtime and dialect are what the server speaks",
  [AttemptFailure.ANSWER_TOO_LARGE]: "answer less at one time",
};

/** The next step for the owner of an offering that failed a check. */
function adviceFor(check: string, thrown: unknown): string {
  const way = thrown instanceof UpstreamFailure ? WAYS[thrown.failure] : undefined;
  return way ?? ADVICE[check] ?? "read what was seen, mend it, and verify again";
}

/** What is wrong with an answer, in a sentence. */
export function faultOf(failure: AttemptFailure, seen: number | undefined, wanted: number | undefined): string {
  switch (failure) {
    case AttemptFailure.ACTION_DIM_MISMATCH:
      return `the actions have ${seen} numbers per step; the action space has ${wanted}`;
    case AttemptFailure.NON_FINITE_ACTION:
      return "the answer holds a number that is not finite";
    case AttemptFailure.UNSAFE_ACTION:
      return "an action exceeds the declared bounds";
    case AttemptFailure.EMPTY_ANSWER:
      return "the answer is empty";
    case AttemptFailure.WRONG_STEP_COUNT:
      return "the answer has another number of units than was asked for";
    case AttemptFailure.UNREADABLE_FRAME:
      return "a frame of the answer cannot be read as a picture";
    default:
      return "the response violates the contract";
  }
}

/** Where the red square is. */
export const SQUARE = { x: 0.75, y: 0.25 };
/** Where it is when it has to be found anew. */
export const ELSEWHERE = { x: 0.3, y: 0.6 };
/** What a robot is to do about it. */
const INSTRUCTION = "reach the red square";
/** Calls by which a figure is more than chance. */
export const WARM_CALLS = 3;
