/** The client, independent of its transport. */
import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
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
import type { Publication } from "./gen/limber/v1/publication_pb.ts";
import {
  type CreatePublicationRequestSchema,
  type GetLeaderboardRequestSchema,
  type GetLeaderboardResponse,
  PublicationService,
} from "./gen/limber/v1/publication_service_pb.ts";
import type { Model } from "./gen/limber/v1/registry_pb.ts";
import { type ListModelsRequestSchema, RegistryService } from "./gen/limber/v1/registry_service_pb.ts";
import type { RobotStop } from "./gen/limber/v1/robot_pb.ts";
import { RobotService, type StopRobotsRequestSchema } from "./gen/limber/v1/robot_service_pb.ts";
import { attempted, type CallOptions, DEFAULT_TIMEOUT_MS, pause } from "./retry.ts";

/** The fields of an act request. Build its observations with `observationOf`. */
export type ActInit = MessageInitShape<typeof ActRequestSchema>;
/** The fields of a predict request. */
export type PredictInit = MessageInitShape<typeof PredictRequestSchema>;
/** The fields of a ground request. */
export type GroundInit = MessageInitShape<typeof GroundRequestSchema>;
/** The fields of an evaluate request. */
export type EvaluateInit = MessageInitShape<typeof EvaluateRequestSchema>;
/** What to publish: `evaluationId` or `comparisonId`, with a title. */
export type PublishInit = MessageInitShape<typeof CreatePublicationRequestSchema>;

/** Calls to one gateway. Methods throw only this package's errors: a class for each refusal reason of the gateway, and client-side errors. */
export class LimberClient {
  /** Emergency stops. */
  readonly robots: Robots;
  /** Signed publications of evaluations. */
  readonly publications: Publications;
  readonly #inference: Client<typeof InferenceService>;
  readonly #registry: Client<typeof RegistryService>;
  readonly #account: Client<typeof AccountService>;
  readonly #evaluations: Client<typeof EvaluationService>;

  constructor(transport: Transport) {
    this.robots = new Robots(createClient(RobotService, transport));
    this.publications = new Publications(createClient(PublicationService, transport));
    this.#inference = createClient(InferenceService, transport);
    this.#registry = createClient(RegistryService, transport);
    this.#account = createClient(AccountService, transport);
    this.#evaluations = createClient(EvaluationService, transport);
  }

  /**
   * Requests an action chunk for an observation. The client generates an idempotency key if none is given, so that a retry after a broken
   * connection neither runs nor costs twice.
   */
  act(request: ActInit, options: CallOptions = {}): Promise<ActResponse> {
    const keyed = { ...request, idempotencyKey: request.idempotencyKey ?? newKey() };
    return attempted(options, true, (attempt) => this.#inference.act(keyed, attempt));
  }

  /** Requests future frames and returns each one when it arrives. Never retried, because frames have already been delivered. */
  predict(request: PredictInit, { timeoutMs = DEFAULT_TIMEOUT_MS, signal }: CallOptions = {}): Prediction {
    const { idempotencyKey: _, ...predict } = request;
    const options = { timeoutMs: Math.ceil(timeoutMs), ...(signal && { signal }) };
    return new Prediction(() => this.#inference.predictStream({ predict }, options), signal);
  }

  /** Requests points and boxes that match an instruction. Retried like `act`. */
  ground(request: GroundInit, options: CallOptions = {}): Promise<GroundResponse> {
    const headers = { "idempotency-key": newKey() };
    return attempted(options, true, (attempt) => this.#inference.ground(request, { ...attempt, headers }));
  }

  /** Returns how a request would be routed: the plan, its cost, and every dropped offering. Runs nothing. */
  preview(
    request: MessageInitShape<typeof PreviewRoutesRequestSchema>,
    options: CallOptions = {},
  ): Promise<PreviewRoutesResponse> {
    return attempted(options, true, (attempt) => this.#inference.previewRoutes(request, attempt));
  }

  /** Evaluates a policy in a scenario. Resolves when the evaluation is accepted; the returned object reports its progress. */
  async evaluate(request: EvaluateInit, options: CallOptions = {}): Promise<EvaluationRun> {
    const keyed = { ...request, idempotencyKey: request.idempotencyKey ?? newKey() };
    const { evaluation } = await attempted(options, true, (attempt) => this.#evaluations.evaluate(keyed, attempt));
    if (evaluation === undefined) throw new MalformedAnswer("the gateway accepted the evaluation but sent no id");
    return new EvaluationRun(this.#evaluations, evaluation.id, options.signal);
  }

  /** Returns an evaluation that was requested earlier. */
  evaluation(id: string, signal?: AbortSignal): EvaluationRun {
    return new EvaluationRun(this.#evaluations, id, signal);
  }

  /** Yields the catalog's models that match a query, page by page. */
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

  /** Returns one model with its offerings, by its slug `owner/name`. */
  async model(slug: string, options: CallOptions = {}): Promise<Model> {
    const [owner = "", name = ""] = slug.split("/", 2);
    const { model } = await attempted(options, true, (attempt) => this.#registry.getModel({ owner, name }, attempt));
    if (model === undefined) throw new MalformedAnswer("the gateway answered without a model");
    return model;
  }

  /** Returns settled requests, newest first, with their totals. */
  usage(
    query: MessageInitShape<typeof ListUsageRequestSchema> = {},
    options: CallOptions = {},
  ): Promise<ListUsageResponse> {
    return attempted(options, true, (attempt) => this.#account.listUsage(query, attempt));
  }
}

/** Emergency stops. */
export class Robots {
  readonly #client: Client<typeof RobotService>;

  constructor(client: Client<typeof RobotService>) {
    this.#client = client;
  }

  /** Stops `target`: `{ case: "robotId", value: "arm-3" }`, a session, a key, a workspace, or all. Safe to repeat, so it is retried. */
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

  /** Returns the newest active stops; with `released`, also released ones. */
  async stops({ released = false } = {}, options: CallOptions = {}): Promise<readonly RobotStop[]> {
    const { data } = await attempted(options, true, (attempt) => this.#client.listRobotStops({ released }, attempt));
    return data;
  }
}

/** Signed publications of evaluations and comparisons. `limber evaluate verify` checks a document. */
export class Publications {
  readonly #client: Client<typeof PublicationService>;

  constructor(client: Client<typeof PublicationService>) {
    this.#client = client;
  }

  /**
   * Publishes a completed evaluation or comparison. Repeated calls return the same publication. With `dryRun`, only returns what would become
   * public, in `discloses`. The first publication of a scenario takes some seconds, because controls are run.
   */
  create(request: PublishInit, options: CallOptions = {}): Promise<Publication> {
    return attempted(options, true, async (attempt) =>
      published((await this.#client.createPublication(request, attempt)).publication),
    );
  }

  /** Yields the organization's publications, newest first, page by page; withdrawn ones too. */
  async *list(options: CallOptions = {}): AsyncGenerator<Publication, void, undefined> {
    for (let cursor: string | undefined; ; ) {
      const from = cursor === undefined ? {} : { cursor };
      const page = await attempted(options, true, (attempt) => this.#client.listPublications(from, attempt));
      yield* page.data;
      cursor = page.nextCursor;
      if (!page.hasMore || cursor === undefined) return;
    }
  }

  /** Returns the signed document of any organization's publication, or the signed notice of its withdrawal. */
  async get(publicationId: string, options: CallOptions = {}): Promise<JsonObject> {
    const { document } = await attempted(options, true, (attempt) =>
      this.#client.getPublication({ publicationId }, attempt),
    );
    if (document === undefined) throw new MalformedAnswer("the gateway answered without a document");
    return document;
  }

  /** Withdraws a publication: a signed notice with the reason replaces its document. */
  withdraw(publicationId: string, reason: string, options: CallOptions = {}): Promise<Publication> {
    return attempted(options, true, async (attempt) =>
      published((await this.#client.withdrawPublication({ publicationId, reason }, attempt)).publication),
    );
  }

  /** Returns the published policies of a scenario, best first; equal ranks are ties. */
  leaderboard(
    request: MessageInitShape<typeof GetLeaderboardRequestSchema>,
    options: CallOptions = {},
  ): Promise<GetLeaderboardResponse> {
    return attempted(options, true, (attempt) => this.#client.getLeaderboard(request, attempt));
  }
}

function published(publication: Publication | undefined): Publication {
  if (publication === undefined) throw new MalformedAnswer("the gateway answered without a publication");
  return publication;
}

type PredictEvents = ReturnType<Client<typeof InferenceService>["predictStream"]>;

/** A prediction in progress. Iterate over its frames once. */
export class Prediction implements AsyncIterable<PredictedFrame> {
  /** The serving offering, as soon as it is known. */
  started: PredictStarted | undefined;
  /** The final result, after the last frame. */
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
    if (this.done === undefined) throw new MalformedAnswer("the prediction ended without a final result");
  }
}

/** Consecutive streams without a new event before an evaluation gives up. */
const MOST_EMPTY_STREAMS = 5;

/** A running evaluation. Iterate over its episodes, or wait for `result()`. */
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

  /** Yields each episode once, even if the connection breaks. */
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
      if (empty >= MOST_EMPTY_STREAMS) throw new MalformedAnswer("the gateway sends no events for the evaluation");
    }
  }

  /** Waits for the end and resolves with the evaluation and its scores. */
  async result(): Promise<Evaluation> {
    for await (const _ of this);
    return this.#done!; // the iteration sets it or throws
  }

  /** Cancels the evaluation. Finished episodes keep their records. */
  async cancel(options: CallOptions = {}): Promise<void> {
    await attempted(options, true, (attempt) => this.#client.cancelEvaluation({ jobId: this.id }, attempt));
  }
}

const newKey = (): string => crypto.randomUUID();
