/** One run of the probe: the state that its checks share. */
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

/** The called offering. */
export interface ProbeSubject {
  offering: Offering;
  target: UpstreamTarget;
  wire: Wire;
  /** Safety bounds of its actions. */
  bounds: SafetyBounds | undefined;
}

/** The subject of a probe. */
export interface Probed extends ProbeSubject {
  /** The declarations of the offering, and its provider's regions. */
  record: OfferingRecord;
}

/** Dependencies of a probe. */
export interface ProbeDeps {
  agent: FrameOptions["agent"];
  allowPrivate: boolean;
  /** The native wire, which can request a server's description. */
  native: LimberPolicyWire;
  /** The address that served the last call to an endpoint, if its wire adds a path to it. */
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

/** How a request differs from the plain one. */
export interface QuestionOptions {
  variant?: InputVariant;
  target?: UpstreamTarget;
  seed?: number;
  horizon?: number;
  /** Responses are not measured, because they are not representative of calls. */
  aside?: boolean;
}

/** How a request differs from the plain one while still meeting the contract. */
export interface InputVariant {
  /** Another proprioception layout. */
  layout?: ProprioSpec;
  /** Without names of the proprioception values. */
  unnamed?: boolean;
  /** Without optional cameras. */
  requiredAlone?: boolean;
  /** Images of this size, if any size is accepted. */
  size?: { width: number; height: number };
  /** As many observations as the model reads. */
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

/** The input that a server expects. */
interface Layout {
  readonly cameras: readonly CameraSpec[];
  readonly layout: ProprioSpec;
}

const layoutOf = (cameras: readonly string[], names: readonly string[], dimension: number): Layout => ({
  cameras: cameras.map((name) => create(CameraSpecSchema, { name, required: true })),
  layout: create(ProprioSpecSchema, { names: [...names], dimension }),
});

/** Query strings of addresses may contain keys. */
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

/** Shared state of one probe's checks: requests and findings. */
export class ProbeRun {
  /** The server had no time for the probe, which proves nothing about its abilities. */
  busy = false;
  readonly #deps: ProbeDeps;
  /** The called offering. */
  readonly probed: ProbeSubject;
  readonly #told: (check: ProbeCheck) => Promise<void>;
  readonly #latencies: number[] = [];
  /** The calls of the present check, and their timeouts. */
  #calls: { readonly signal: Cancel; readonly forget: () => void }[] = [];
  /** Number of values per step in its responses. */
  actionDim: number | undefined;
  /** Number of steps in its shortest chunk, if it returns chunks of its own length. */
  chunkSteps: number | undefined;
  #asked: Promise<Layout> | undefined;

  readonly #budgetMs: number;

  /** `budgetMs` is the timeout of one call. */
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

  /** Runs one check; `look` returns a sentence about the finding, or throws one about what to fix. Returns whether it passed. */
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

  /** The address of its calls, if it differs from the endpoint. */
  get address(): string | undefined {
    return this.#deps.addressOf?.(this.probed.target.endpoint);
  }

  /** No call is running: stops their timeouts. */
  stopTimers(): void {
    for (const { forget } of this.#calls.splice(0)) forget();
  }

  /** Cancels running calls. */
  callOff(): void {
    for (const { signal } of this.#calls) signal.abort(new UpstreamFailure(AttemptFailure.TIMEOUT, "canceled"));
  }

  /** The properties of its responses. */
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

  /** Options of one call; its timeout runs until the check ends. */
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
    // Generated numbers may be inconsistent: a sample is better if there is one with this layout.
    const fitting = variant.layout && samples.find(({ proprio }) => proprio.length === dimensionOfLayout(wanted));
    const known = fitting ?? (variant.layout ? undefined : declared);
    if (known) return create(ObservationSchema, { ...known, frames, ...(variant.unnamed && { proprioNames: [] }) });
    const near = (i: number): number => 0.1 + 0.02 * i + 0.15 * sample;
    const count = dimensionOfLayout(wanted) ?? 0;
    const proprio = Array.from({ length: count }, (_, i) => FAR[sample]?.(i) ?? near(i));
    const proprioNames = variant.unnamed ? [] : [...wanted.names];
    return create(ObservationSchema, { frames, proprio, proprioNames });
  }

  /** Repeats an observation as often as the contract requires, or as often as it allows. */
  moments(observation: Observation, variant: InputVariant = {}): Observation[] {
    const { least = 1, most = least } = this.input?.history ?? {};
    return Array<Observation>(variant.mostMoments ? most : least).fill(observation);
  }

  /** The goal image, if the contract requires one, or allows one that is to be shown. */
  async goal(variant: InputVariant = {}): Promise<Frame | undefined> {
    const { goalImage } = this.input ?? {};
    const isShown = goalImage?.need === InputNeed.REQUIRED || variant.withGoal;
    if (!goalImage || !isShown) return undefined;
    const { width, height } = goalImage;
    return create(FrameSchema, {
      data: await redSquareAs(ELSEWHERE, { ...(width && { width }), ...(height && { height }) }),
    });
  }

  /** The instruction. */
  instruction(variant: InputVariant = {}): string {
    return this.input?.language?.need === InputNeed.NONE || variant.wordless ? "" : INSTRUCTION;
  }

  /** The declared inputs. */
  get input(): InputContract | undefined {
    return this.probed.offering.declared?.input;
  }

  /** The expected input: by its contract, else its own description, else the profile, else the default for the action space. */
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

  /** The images of the input. */
  frames(observations: readonly Observation[], goal?: Frame): FrameSet {
    const { agent, allowPrivate } = this.#deps;
    return new FrameSet(frameSources(observations, goal), { agent, allowPrivate });
  }

  /** Records the latency of a response. */
  async timed<T>(run: () => Promise<T>): Promise<T> {
    const began = steadyNow();
    const answer = await run();
    this.#latencies.push(steadyNow() - began);
    return answer;
  }
}

/** States far from the first two samples, by sample: saturated policies return the same action for near states. */
const FAR: Readonly<Record<number, (i: number) => number>> = {
  2: (i) => -0.6 - 0.02 * i,
  3: (i) => (i % 2 === 0 ? 0.8 : -0.8),
  4: (i) => (i % 4 < 2 ? -0.8 : 0.8),
};

/** A failed check. The message states the finding. */
export class ProbeFault extends Error {}

/** Advice for a check that failed because of the server's response, by check name. */
const ADVICE: Readonly<Record<string, string>> = {
  region: "declare a region that the provider runs in, or add this one to the provider's regions",
  action_shape:
    "return exactly the requested number of steps, each with the declared action space's number of values, all finite",
  answers_differ: "check that the observation reaches the model: its keys, images and proprioception",
  steady: "check the server's log for what happened between one call and the next",
  seed_repeatable: "seed every random source of the model from the request, or remove `seed` from `parameters`",
  longest_horizon: "declare the maximum number of steps per response as `max_horizon`",
  large_picture: "accept camera-sized images: allow messages of a few megabytes, and downscale large images",
  input_contract: "accept all input that the declared contract allows, or declare a narrower one",
  wrong_input_refused: "refuse observations that lack what the model needs, instead of filling them up",
  auth_enforced: "refuse calls without the declared secret: HTTP 401, or UNAUTHENTICATED over gRPC",
  latency: "advertise what callers can expect, or look for what slows the server down",
  frames: "return exactly the requested number of frames, each a complete PNG, JPEG or WebP image",
  square_found: "check the order and the unit of the coordinates, and the declared convention",
};

/** Advice for a call that failed in transit, by failure. */
const WAYS: Readonly<Partial<Record<AttemptFailure, string>>> = {
  [AttemptFailure.TIMEOUT]: "respond within `timeout_s`, or declare the duration of a cold start as `cold_timeout_s`",
  [AttemptFailure.UNREACHABLE]: "check that the server runs, listens at the declared address, and lets the gateway in",
  [AttemptFailure.CONNECTION_LOST]: "check the server's log: it closed the connection before its response was complete",
  [AttemptFailure.UPSTREAM_ERROR]: "check the server's log: it reported an internal error",
  [AttemptFailure.UPSTREAM_AUTH]: "declare the secret that the server expects as auth",
  [AttemptFailure.UPSTREAM_BUSY]: "reserve server capacity for the gateway, or retry when the server is idle",
  [AttemptFailure.INPUT_REJECTED]:
    "declare a profile that maps observations to what the server expects, or samples of them",
  [AttemptFailure.MALFORMED_ANSWER]: "check that the server uses the declared runtime and dialect",
  [AttemptFailure.ANSWER_TOO_LARGE]: "return smaller responses",
};

/** The next step for the owner of an offering that failed a check. */
function adviceFor(check: string, thrown: unknown): string {
  const way = thrown instanceof UpstreamFailure ? WAYS[thrown.failure] : undefined;
  return way ?? ADVICE[check] ?? "fix the reported problem and verify again";
}

/** What is wrong with a response, as a sentence. */
export function faultOf(failure: AttemptFailure, seen: number | undefined, wanted: number | undefined): string {
  switch (failure) {
    case AttemptFailure.ACTION_DIM_MISMATCH:
      return `the actions have ${seen} numbers per step; the action space has ${wanted}`;
    case AttemptFailure.NON_FINITE_ACTION:
      return "the response contains a number that is not finite";
    case AttemptFailure.UNSAFE_ACTION:
      return "an action exceeds the declared bounds";
    case AttemptFailure.EMPTY_ANSWER:
      return "the response is empty";
    case AttemptFailure.WRONG_STEP_COUNT:
      return "the response has another number of units than requested";
    case AttemptFailure.UNREADABLE_FRAME:
      return "a frame of the response is not a valid image";
    default:
      return "the response violates the contract";
  }
}

/** Position of the red square. */
export const SQUARE = { x: 0.75, y: 0.25 };
/** Its position in the second request. */
export const ELSEWHERE = { x: 0.3, y: 0.6 };
/** The robot's instruction. */
const INSTRUCTION = "reach the red square";
/** Number of calls from which a figure is significant. */
export const WARM_CALLS = 3;
