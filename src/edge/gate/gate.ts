/** The gate that every call passes on any transport: authentication, authorization, rate limits, validation, idempotency. */
import {
  create,
  type DescMessage,
  type DescMethod,
  type DescService,
  getOption,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { http } from "../../../gen/google/api/annotations_pb.ts";
import { rpc, WorkspaceReach } from "../../../gen/limber/edge/v1/options_pb.ts";
import { EvaluationService } from "../../../gen/limber/v1/evaluation_service_pb.ts";
import { JobService } from "../../../gen/limber/v1/job_service_pb.ts";
import type { BrowserHead, Call, CallTrail, KeyPrincipal, StreamHandler, StreamWriter } from "../../call.ts";
import { Cancel, type Signal } from "../../cancellation.ts";
import { everyTogether } from "../../clock.ts";
import { Refusal } from "../../errors.ts";
import type { KeyRecord } from "../../store/account/keys.ts";
import { refusalOfOutage } from "../messages/errors.ts";
import { invalid, violationsOf } from "../messages/validate.ts";
import { type Advice, classOf, type LoadShedder } from "./admission.ts";
import type { Admission, CallContext, CallHead, MethodRule } from "./authenticate.ts";
import { type AuthenticatorDeps, createAuthenticator } from "./authenticate.ts";
import type { IdempotencyKeys } from "./idempotency.ts";
import {
  idempotencyKeyOf,
  type KeyedTurn,
  serveIdempotent,
  streamedRequest,
  streamReplay,
  takeKeyFromHeader,
} from "./idempotency.ts";

export type { Advice };

/** Overload control, for transports that refuse calls before allocating anything for them. */
export interface Overload {
  /** Whether such a call is refused now: returns the share that it takes, and counts the refusal; undefined if it is admitted. */
  refuses(
    method: DescMethod,
    authorization: string | undefined,
    adminToken: string | undefined,
    /** What a call without a key reveals about its browser; used for refused calls. */
    browser?: () => BrowserHead | undefined,
  ): string | undefined;
  /**
   * Sends a refusal: at once, or later if refusals used their share of the CPU, and then returns true. If too many are delayed, `drop` runs
   * instead and ends the call without a response.
   */
  pace(org: string, refuse: () => void, drop: () => void): boolean;
  /** When the caller should retry. */
  advice(): Advice;
}

/** The three steps of a call. Each throws a `Refusal`. */
export interface Gate {
  /**
   * Before the body is read: capacity, key or token, permission, rate and concurrency. A cached key with available tokens needs no query and no
   * wait unless the gateway is overloaded.
   */
  admit(method: DescMethod, head: CallHead): Promise<Admission>;
  /** Identifies the key before the RPC is known, without counting. Refuses a key that cannot make any call. */
  identify(authorization: string | undefined): Promise<KeyPrincipal>;
  /** The principal of a key for a call that a job makes on its behalf; refuses a key that must not make it, or no longer. */
  inNameOf(method: DescMethod, record: KeyRecord | undefined): KeyPrincipal;
  /** Absent if no call is refused for overload. */
  readonly overload?: Overload | undefined;
  /** A unary call: validates, replays, serves. */
  unary(method: DescMethod, admission: Admission, request: Message, context: CallContext): Promise<Message>;
  /** A server-streaming call. */
  serverStream(
    method: DescMethod,
    admission: Admission,
    request: Message,
    context: CallContext,
  ): AsyncIterable<Message>;
  /** A bidirectional stream: each message of the caller is validated as it arrives. The stream ends if the caller's key is revoked. */
  conversation(
    method: DescMethod,
    admission: Admission,
    speaker: StreamWriter<Message>,
    context: CallContext,
  ): StreamHandler<Message>;
}

/** The dependencies of the gate. */
interface GateDeps extends AuthenticatorDeps {
  /** The service functions of all RPCs, by service. */
  services: readonly (readonly [DescService, Readonly<Record<string, ServiceFunction>>])[];
  idempotency: IdempotencyKeys;
  load: LoadShedder;
}

// Any service function: the schema determines the kind of an RPC, and `createGate` calls each accordingly.
type ServiceFunction = (request: never, call: Call) => unknown;

function assertValid(schema: DescMessage, message: Message): void {
  const violations = violationsOf(schema, message);
  if (violations.length > 0) throw invalid(violations);
}

/** Builds the gate over the gateway's services. */
export function createGate(deps: GateDeps): Gate {
  const rules = methodRulesOf(deps.services);
  const authenticator = createAuthenticator(deps);

  const ruleOf = (method: DescMethod): MethodRule => {
    const rule = rules.get(method);
    if (!rule) throw new Error(`${method.parent.typeName}.${method.name} has no service function`);
    return rule;
  };

  return {
    async admit(method, head) {
      const rule = ruleOf(method);
      const priority = head.priority ?? rule.priority;
      const orgOf = (): string => authenticator.orgOf(head.authorization, head.adminToken, head.browser);
      const work = deps.load.tryEnter(priority) ?? (await deps.load.enter(priority, orgOf, head.deadline));
      try {
        const admission = await authenticator.admit(method, rule, head);
        if (admission.principal.kind !== "public") head.slot?.authenticated();
        admission.work = work;
        if (head.browser !== undefined) admission.browser = head.browser;
        return admission;
      } catch (thrown) {
        work.end();
        throw thrown;
      }
    },

    identify: (authorization) => authenticator.identify(authorization),

    inNameOf: (method, record) => authenticator.inNameOf(ruleOf(method), record),

    overload: {
      refuses: (method, authorization, adminToken, browser) =>
        deps.load.refuses(ruleOf(method).priority, () => authenticator.orgOf(authorization, adminToken, browser?.())),
      pace: (org, answer, drop) => deps.load.pace(org, answer, { drop }),
      advice: () => deps.load.advice(),
    },

    async unary(method, admission, request, context) {
      const rule = ruleOf(method);
      // Work of jobs is not admitted here.
      authenticator.assertLoaded(rule.rule);
      takeKeyFromHeader(method, request, context);
      if (context.trail) noteAsked(context.trail, request, context);
      const { principal, work } = admission;
      work?.back();
      assertValid(method.input, request);
      const withinMs = work && work.waitedMs > 0 ? withinOf(request) : undefined;
      if (work && withinMs !== undefined) deps.load.assertInTime(work, rule.priority, withinMs);
      try {
        const key = rule.rule.idempotent ? idempotencyKeyOf(request, context) : undefined;
        if (key === undefined || principal.kind !== "key")
          return await answerOf(method, rule, request, callOf(admission, context, undefined));
        return await serveIdempotent(deps.idempotency, { method, principal, key, request }, context, (turn) =>
          answerOf(method, rule, request, callOf(admission, context, turn)),
        );
      } catch (thrown) {
        throw refusalOfOutage(thrown, "begun");
      }
    },

    serverStream(method, admission, request, context) {
      if (context.trail) noteAsked(context.trail, streamedRequest(request), context);
      assertValid(method.input, request);
      if (idempotencyKeyOf(streamedRequest(request), context) !== undefined) {
        throw streamReplay();
      }
      const signal = watched(admission, context.signal);
      // A long-lived stream is not work that others wait for.
      admission.work?.end();
      const call = { ...callOf(admission, { ...context, signal }, undefined), begin: context.begin };
      return streamOf(ruleOf(method).serve(request, call));
    },

    conversation(method, admission, speaker, context) {
      if (context.idempotencyKey !== undefined) throw streamReplay();
      let rest = nothing;
      let isOver = false;
      const writer = new EndReportingWriter(speaker, () => {
        isOver = true;
        rest();
      });
      admission.work?.end();
      const call = { ...callOf(admission, context, undefined), steps: admission.steps };
      const handler = ruleOf(method).serve(writer, call) as StreamHandler<Message>;
      if (!isOver) rest = recheckWhileOpen(admission, handler, context.signal);
      return {
        hear: (message, sound) => {
          // The first message identifies the stream's subject.
          if (context.trail && context.trail.request === undefined) noteAsked(context.trail, message, context);
          try {
            if (!sound) assertValid(method.input, message);
            handler.hear(message);
          } catch (thrown) {
            if (!(thrown instanceof Refusal)) throw thrown;
            // A started stream is completed, with the final messages that the schema guarantees.
            handler.cut(thrown);
          }
        },
        room: () => handler.room(),
        close: () => handler.close(),
        cut: (refusal) => handler.cut(refusal),
      };
    },
  };
}

/** A writer that reports its end. */
class EndReportingWriter implements StreamWriter<Message> {
  readonly #writer: StreamWriter<Message>;
  readonly #ends: () => void;

  constructor(speaker: StreamWriter<Message>, ends: () => void) {
    this.#writer = speaker;
    this.#ends = ends;
  }

  say(message: Message): void {
    this.#writer.say(message);
  }

  get behind(): boolean {
    return this.#writer.behind;
  }

  end(refusal?: unknown): void {
    this.#ends();
    this.#writer.end(refusal);
  }
}

function noteAsked(trail: CallTrail, request: Message, { traceparent }: CallContext): void {
  trail.request = request;
  if (traceparent !== undefined) trail.traceparent = traceparent;
}

// Sound: the compiler checked the function's result where the service was built.
const answerOf = async (
  { output }: DescMethod,
  { serve }: MethodRule,
  request: Message,
  call: Call,
): Promise<Message> => create(output, (await serve(request, call)) as MessageInitShape<DescMessage>);

const streamOf = (answer: unknown): AsyncIterable<Message> => answer as AsyncIterable<Message>;

/** The additional headers of a call's response: rate limits, and whether it is a replay. */
export function headersOfAnswer({ headers, replayed, browser }: Admission): readonly string[] {
  if (!replayed && !browser?.cookies.length) return headers;
  const cookies = (browser?.cookies ?? []).flatMap((cookie) => ["set-cookie", cookie]);
  return [...headers, ...(replayed ? ["idempotent-replayed", "true"] : []), ...cookies];
}

const callOf = (admission: Admission, context: CallContext, turn: KeyedTurn | undefined): Call => ({
  requestId: context.requestId,
  principal: admission.principal,
  work: admission.work,
  replayed() {
    admission.replayed = true;
  },
  signal: context.signal,
  arrivedAt: context.arrivedAt,
  observedAt: context.observedAt,
  deadline: context.deadline,
  traceparent: context.traceparent,
  host: context.host,
  isUrgent: context.isUrgent,
  trail: context.trail,
  encode: context.encode,
  idempotency: turn && "claim" in turn ? turn.claim : undefined,
  earlier: turn && "earlier" in turn ? turn.earlier : undefined,
  browser: admission.browser,
});

/** The deadline in a routed request, in milliseconds; undefined if absent. */
function withinOf(request: Message): number | undefined {
  const { provider } = request as { provider?: { deadlineMs?: unknown } };
  return typeof provider?.deadlineMs === "number" ? provider.deadlineMs : undefined;
}

const nothing = (): void => {};

/** The services whose GET calls read jobs. */
const JOBS: ReadonlySet<DescService> = new Set([JobService, EvaluationService]);

/** The access rules of all RPCs. */
export function methodRulesOf(services: GateDeps["services"]): Map<DescMethod, MethodRule> {
  const rules = new Map<DescMethod, MethodRule>();
  for (const [service, functions] of services) {
    for (const method of service.methods) {
      const serve = functions[method.localName];
      if (!serve) throw new Error(`${service.typeName}.${method.name} has no service function`);
      // The function's type was checked where the service was built; here the schema provides the names, not the compiler.
      const pool = method.methodKind === "unary" ? "calls" : "streams";
      const rule = getOption(method, rpc);
      if (rule.workspaces === WorkspaceReach.UNSPECIFIED)
        throw new Error(`${service.typeName}.${method.name} does not declare what workspace keys can access`);
      const readsJobs = JOBS.has(service) && getOption(method, http).pattern.case === "get";
      rules.set(method, {
        rule,
        pool,
        readsJobs,
        priority: classOf(rule.priority),
        serve: serve as MethodRule["serve"],
      });
    }
  }
  return rules;
}

/** How often the key of an open stream is checked again. The key is cached, and a notification evicts a revoked one. */
const LOOK_AGAIN_MS = 400;

/** Ends a stream soon after its key is revoked, expires or is narrowed. An unavailable database ends none. */
export function recheckWhileOpen(
  { again }: Admission,
  listener: Pick<StreamHandler<Message>, "cut">,
  signal: Signal,
): () => void {
  // A signal that is already aborted notifies no listener.
  if (again === undefined || signal.aborted) return noRecheck;
  const cut = (thrown: unknown): void => {
    if (thrown instanceof Refusal) listener.cut(thrown);
  };
  const rest = everyTogether(LOOK_AGAIN_MS, () => {
    again().catch(cut);
  });
  signal.addEventListener("abort", rest, { once: true });
  return rest;
}

/** The signal of a stream to the client: also aborted, with the refusal as reason, when the key loses access. */
function watched(admission: Admission, signal: Signal): Signal {
  if (admission.again === undefined) return signal;
  const cancel = new Cancel();
  if (signal.aborted) cancel.abort(signal.reason);
  else signal.addEventListener("abort", () => cancel.abort(signal.reason), { once: true });
  admission.left = recheckWhileOpen(admission, { cut: (refusal) => cancel.abort(refusal) }, signal);
  return cancel;
}

const noRecheck = (): void => {};
