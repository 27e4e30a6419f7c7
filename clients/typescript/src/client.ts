/** The client, whatever transport it calls over. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Client, createClient, type Transport } from "@connectrpc/connect";
import { errorOf, MalformedAnswer } from "./errors.ts";
import {
  AccountService,
  type ListUsageRequestSchema,
  type ListUsageResponse,
} from "./gen/limber/v1/account_service_pb.ts";
import type { EpisodeRecord, Evaluation } from "./gen/limber/v1/evaluation_pb.ts";
import { type EvaluateRequestSchema, EvaluationService } from "./gen/limber/v1/evaluation_service_pb.ts";
import {
  type ActRequestSchema,
  type ActResponse,
  type GroundRequestSchema,
  type GroundResponse,
  InferenceService,
  type PredictDone,
  type PredictRequestSchema,
  type PredictStarted,
  type PreviewRoutesRequestSchema,
  type PreviewRoutesResponse,
} from "./gen/limber/v1/inference_service_pb.ts";
import type { PredictedFrame } from "./gen/limber/v1/prediction_pb.ts";
import type { Model } from "./gen/limber/v1/registry_pb.ts";
import { type ListModelsRequestSchema, RegistryService } from "./gen/limber/v1/registry_service_pb.ts";
import type { RobotStop } from "./gen/limber/v1/robot_pb.ts";
import { RobotService, type StopRobotsRequestSchema } from "./gen/limber/v1/robot_service_pb.ts";
import { attempted, type CallOptions, DEFAULT_TIMEOUT_MS, pause } from "./retry.ts";

/** The fields of an act request; `observationOf` makes its observations. */
export type ActInit = MessageInitShape<typeof ActRequestSchema>;
/** The fields of a prediction. */
export type PredictInit = MessageInitShape<typeof PredictRequestSchema>;
/** The fields of a ground request. */
export type GroundInit = MessageInitShape<typeof GroundRequestSchema>;
/** The fields of an evaluation. */
export type EvaluateInit = MessageInitShape<typeof EvaluateRequestSchema>;

/** Calls of one gateway. Every method throws errors of this package alone: a class for each reason of the gateway's, and its own. */
export class LimberClient {
  /** Emergency stops. */
  readonly robots: Robots;
  readonly #inference: Client<typeof InferenceService>;
  readonly #registry: Client<typeof RegistryService>;
  readonly #account: Client<typeof AccountService>;
  readonly #evaluations: Client<typeof EvaluationService>;

  constructor(transport: Transport) {
    this.robots = new Robots(createClient(RobotService, transport));
    this.#inference = createClient(InferenceService, transport);
    this.#registry = createClient(RegistryService, transport);
    this.#account = createClient(AccountService, transport);
    this.#evaluations = createClient(EvaluationService, transport);
  }

  /**
   * An action chunk for what a robot senses. The call has an idempotency key of its own where it is given none, so that it is repeated
   * after a broken connection without running or costing twice.
   */
  act(request: ActInit, options: CallOptions = {}): Promise<ActResponse> {
    const keyed = { ...request, idempotencyKey: request.idempotencyKey ?? newKey() };
    return attempted(options, true, (attempt) => this.#inference.act(keyed, attempt));
  }

  /** Future frames, one after the other, as they are made. Not repeated: what was seen is not seen twice. */
  predict(request: PredictInit, { timeoutMs = DEFAULT_TIMEOUT_MS, signal }: CallOptions = {}): Prediction {
    const { idempotencyKey: _, ...predict } = request;
    const options = { timeoutMs: Math.ceil(timeoutMs), ...(signal && { signal }) };
    return new Prediction(() => this.#inference.predictStream({ predict }, options), signal);
  }

  /** Points and boxes for what an instruction names. Repeatable as `act` is. */
  ground(request: GroundInit, options: CallOptions = {}): Promise<GroundResponse> {
    const headers = { "idempotency-key": newKey() };
    return attempted(options, true, (attempt) => this.#inference.ground(request, { ...attempt, headers }));
  }

  /** How a request would be routed: the plan, its cost, and every dropped offering. Runs nothing. */
  preview(
    request: MessageInitShape<typeof PreviewRoutesRequestSchema>,
    options: CallOptions = {},
  ): Promise<PreviewRoutesResponse> {
    return attempted(options, true, (attempt) => this.#inference.previewRoutes(request, attempt));
  }

  /** Tries a policy in a scenario. Resolves when the evaluation is accepted; what it answers tells how it goes. */
  async evaluate(request: EvaluateInit, options: CallOptions = {}): Promise<EvaluationRun> {
    const keyed = { ...request, idempotencyKey: request.idempotencyKey ?? newKey() };
    const { evaluation } = await attempted(options, true, (attempt) => this.#evaluations.evaluate(keyed, attempt));
    if (evaluation === undefined) throw new MalformedAnswer("the gateway accepted an evaluation without naming it");
    return new EvaluationRun(this.#evaluations, evaluation.id, options.signal);
  }

  /** An evaluation that was asked for before. */
  evaluation(id: string, signal?: AbortSignal): EvaluationRun {
    return new EvaluationRun(this.#evaluations, id, signal);
  }

  /** The models of the catalog that a query selects, page after page. */
  async *models(
    query: MessageInitShape<typeof ListModelsRequestSchema> = {},
    options: CallOptions = {},
  ): AsyncGenerator<Model, void, undefined> {
    let offset = query.offset ?? 0;
    for (;;) {
      const page = await attempted(options, true, (attempt) =>
        this.#registry.listModels({ ...query, offset }, attempt),
      );
      yield* page.data;
      offset += page.data.length;
      if (page.data.length === 0 || offset >= page.total) return;
    }
  }

  /** One model with its offerings, by its slug `owner/name`. */
  async model(slug: string, options: CallOptions = {}): Promise<Model> {
    const [owner = "", name = ""] = slug.split("/", 2);
    const { model } = await attempted(options, true, (attempt) => this.#registry.getModel({ owner, name }, attempt));
    if (model === undefined) throw new MalformedAnswer("the gateway answered without a model");
    return model;
  }

  /** Settled requests, newest first, with their totals. */
  usage(
    query: MessageInitShape<typeof ListUsageRequestSchema> = {},
    options: CallOptions = {},
  ): Promise<ListUsageResponse> {
    return attempted(options, true, (attempt) => this.#account.listUsage(query, attempt));
  }
}

/** The emergency stop. */
export class Robots {
  readonly #client: Client<typeof RobotService>;

  constructor(client: Client<typeof RobotService>) {
    this.#client = client;
  }

  /** Stops what `target` names: `{ case: "robotId", value: "arm-3" }`, a session, a key, a workspace, or all. Safe to repeat, and repeated. */
  stop(
    target: NonNullable<MessageInitShape<typeof StopRobotsRequestSchema>["target"]>,
    reason: string,
    options: CallOptions = {},
  ): Promise<RobotStop> {
    return attempted(options, true, async (attempt) => {
      const { stop } = await this.#client.stopRobots({ target, reason }, attempt);
      if (stop === undefined) throw new MalformedAnswer("the gateway answered without a stop");
      return stop;
    });
  }

  /** Releases a stop by its id. */
  release(stopId: string, options: CallOptions = {}): Promise<RobotStop> {
    return attempted(options, true, async (attempt) => {
      const { stop } = await this.#client.releaseRobots({ target: { case: "stopId", value: stopId } }, attempt);
      if (stop === undefined) throw new MalformedAnswer("the gateway answered without a stop");
      return stop;
    });
  }

  /** The newest stops that stand, and with `released` those that do not any more. */
  async stops({ released = false } = {}, options: CallOptions = {}): Promise<readonly RobotStop[]> {
    const { data } = await attempted(options, true, (attempt) => this.#client.listRobotStops({ released }, attempt));
    return data;
  }
}

type PredictEvents = ReturnType<Client<typeof InferenceService>["predictStream"]>;

/** A prediction while it is made: iterate it for its frames, once. */
export class Prediction implements AsyncIterable<PredictedFrame> {
  /** Who answers, as soon as that is known. */
  started: PredictStarted | undefined;
  /** What it came to, once all frames were there. */
  done: PredictDone | undefined;
  readonly #open: () => PredictEvents;
  readonly #signal: AbortSignal | undefined;

  constructor(open: () => PredictEvents, signal: AbortSignal | undefined) {
    this.#open = open;
    this.#signal = signal;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<PredictedFrame, void, undefined> {
    try {
      for await (const { event } of this.#open()) {
        if (event.case === "route") this.started = event.value;
        else if (event.case === "frame") yield event.value;
        else if (event.case === "done") this.done = event.value;
      }
    } catch (thrown) {
      throw errorOf(thrown, this.#signal);
    }
    if (this.done === undefined) throw new MalformedAnswer("the prediction broke off without saying what it came to");
  }
}

/** Streams of one evaluation in a row that end without saying anything new. */
const MOST_EMPTY_STREAMS = 5;

/** An evaluation while it runs: iterate it for its episodes as they end, or wait for what it comes to. */
export class EvaluationRun implements AsyncIterable<EpisodeRecord> {
  readonly id: string;
  readonly #client: Client<typeof EvaluationService>;
  readonly #signal: AbortSignal | undefined;
  #done: Evaluation | undefined;

  constructor(client: Client<typeof EvaluationService>, id: string, signal: AbortSignal | undefined) {
    this.id = id;
    this.#client = client;
    this.#signal = signal;
  }

  /** Each episode once, also over a connection that breaks. */
  async *[Symbol.asyncIterator](): AsyncGenerator<EpisodeRecord, void, undefined> {
    const seen = new Set<number>();
    const signal = this.#signal;
    for (let empty = 0; this.#done === undefined; ) {
      try {
        for await (const { event } of this.#client.watchEvaluation({ jobId: this.id }, signal ? { signal } : {})) {
          if (event.case === "done") this.#done = event.value;
          if (event.case !== "episode" || seen.has(event.value.index)) continue;
          seen.add(event.value.index);
          empty = 0;
          yield event.value;
        }
        empty++;
      } catch (thrown) {
        const error = errorOf(thrown, signal);
        const mayPass = error.name === "ConnectionFailed" || ("retryable" in error && error.retryable === true);
        if (!mayPass || ++empty >= MOST_EMPTY_STREAMS) throw error;
        await pause(100 * 2 ** empty, signal);
      }
      if (empty >= MOST_EMPTY_STREAMS) throw new MalformedAnswer("the gateway does not say how the evaluation goes");
    }
  }

  /** Waits until it is over; resolves with its scores. */
  async result(): Promise<Evaluation> {
    for await (const _ of this);
    return this.#done!; // iteration ends with it, or throws
  }

  /** Calls it off; the episodes that ended keep their records. */
  async cancel(options: CallOptions = {}): Promise<void> {
    await attempted(options, true, (attempt) => this.#client.cancelEvaluation({ jobId: this.id }, attempt));
  }
}

const newKey = (): string => crypto.randomUUID();
