/** The gate that every call passes, whatever transport it comes in by: who are you, may you, how often, is it valid, seen before. */
import type { DescMessage, DescMethod, DescService, Message } from "@bufbuild/protobuf";
import type { Priority } from "../../../gen/limber/edge/v1/options_pb.ts";
import type {
  BrowserHead,
  Call,
  CallTrail,
  IdempotencyClaim,
  KeyPrincipal,
  Listener,
  Principal,
  Speaker,
  StepLimit,
} from "../../call.ts";
import type { Signal } from "../../cancellation.ts";
import { steadyNow } from "../../clock.ts";
import { Refusal } from "../../errors.ts";
import type { KeyUse } from "../../store/account/key-cache.ts";
import type { KeyRecord } from "../../store/account/keys.ts";
import type { Claim, Claimant } from "../../store/billing/idempotency.ts";
import { refusalOfOutage } from "../messages/store-outage.ts";
import { invalid, violationsOf } from "../messages/validate.ts";
import type { AdmittedWork, Advice, LoadShedder } from "./admission/admission.ts";
import { createAuthenticator } from "./authenticate.ts";
import type { Proxies } from "./caller-address.ts";
import {
  idempotencyKeyOf,
  type KeyedTurn,
  serveIdempotent,
  streamedRequest,
  streamReplay,
  takeKeyFromHeader,
} from "./idempotency.ts";
import { type MethodRule, methodRulesOf } from "./method-rules.ts";
import type { RateLimits } from "./rate-limits.ts";
import { recheckWhileOpen, watched } from "./recheck.ts";

/** What the gate reads of a call before its body. */
export interface CallHead {
  /** The `authorization` header. */
  authorization: string | undefined;
  /** The admin token's header. */
  adminToken: string | undefined;
  /** The address that connected, for limits on calls without a key. */
  remoteAddress: string;
  /** The slot of the connection, which keeps it once a key or a session was accepted. */
  slot?: { authenticated(): void } | undefined;
  /** The header `X-Forwarded-For`, believed where a trusted proxy connected. */
  forwardedFor?: string | undefined;
  /** What the request tells of its browser, where it shows no key and may come from one. */
  browser?: BrowserHead | undefined;
  requestId: string;
  /** Learns whose call it is. */
  trail?: CallTrail | undefined;
  /** The answer should wait for nothing that it can do without. */
  isUrgent?: boolean | undefined;
  /** The class of the call under overload, where the transport knows better than the schema. */
  priority?: Priority | undefined;
  /** The caller's deadline on the steady clock in milliseconds, where the head tells it. */
  deadline?: number | undefined;
}

/** A caller that the gate let in, with what the limits leave to him. */
export interface Admission {
  principal: Principal;
  /** Headers of the rate limit, name and value in turn; empty for calls without a key. */
  readonly headers: readonly string[];
  /** The same as lines of HTTP/1, where somebody has them. */
  readonly lines?: string | undefined;
  /** The answer is that of an earlier call with the same idempotency key: transports say so. */
  replayed?: boolean;
  /** Gives the place in the concurrency limit back; call it once, when the answer is out. */
  leave(): void;
  /** Counts the steps of a control loop against the key's rate limit; undefined for calls without a key. */
  steps?: StepLimit | undefined;
  /** Whether the caller would be let in again; rejects with the refusal when not. For calls that last. */
  again?(): Promise<void>;
  /** Called when the place is given back. */
  left?: () => void;
  /** What the call counts for in the load of this process; ended by `leave`. */
  work?: AdmittedWork | undefined;
  /** The browser that calls, and the cookies that the answer sets there. */
  browser?: BrowserHead | undefined;
}

/** What a call carries beside its message. */
export interface CallContext {
  requestId: string;
  signal: Signal;
  /** When the call arrived, on the steady clock in milliseconds; the moment at which the gate has its message where that is not known. */
  arrivedAt?: number | undefined;
  /** The caller's deadline on the steady clock, in milliseconds. */
  deadline: number | undefined;
  /** The `Idempotency-Key` header. */
  idempotencyKey: string | undefined;
  /** The host that the request names. */
  host?: string | undefined;
  /** The answer should wait for nothing that it can do without. */
  isUrgent?: boolean | undefined;
  /** The `traceparent` header, unread. */
  traceparent?: string | undefined;
  /** Learns what was asked. */
  trail?: CallTrail | undefined;
  /** Encodes the answer as it will be sent; called before the answer is charged. */
  encode?: Call["encode"];
  /** As of Call. */
  begin?: (() => void) | undefined;
}

export type { Advice };

/** Overload, for transports that refuse calls before anything is made for them. */
export interface Overload {
  /** Whose share such a call takes, where it is refused at this moment, and counts it; undefined where it is not refused. */
  refuses(
    method: DescMethod,
    authorization: string | undefined,
    adminToken: string | undefined,
    /** What a call without a key tells of its browser; asked where the call is refused. */
    browser?: () => BrowserHead | undefined,
  ): string | undefined;
  /**
   * Runs what answers a refusal to one of these: at once, or later where refusing has cost its share of the processor, and then true. `drop`
   * runs instead where too many are held: it ends the call without an answer.
   */
  pace(org: string, refuse: () => void, drop: () => void): boolean;
  /** When the caller is told to come again. */
  advice(): Advice;
}

/** The three steps of a call. Each says no by a `Refusal`. */
export interface Gate {
  /**
   * Before the body is read: room for it, key or token, permission, rate and concurrency. For a key in memory that has tokens at hand nothing
   * is asked and nothing waited for, while the gateway is not overloaded.
   */
  admit(method: DescMethod, head: CallHead): Promise<Admission>;
  /** Whose key this is, before it is known what it asks for; counts nothing. Refuses a key that may not call at all. */
  identify(authorization: string | undefined): Promise<KeyPrincipal>;
  /** Who calls with this key, for a call that a job makes in its name; refuses a key that may not make it, or not any more. */
  inNameOf(method: DescMethod, record: KeyRecord | undefined): KeyPrincipal;
  /** Absent where nothing is refused for overload. */
  readonly overload?: Overload | undefined;
  /** A whole message in, a whole message out: validates, replays, serves. */
  unary(method: DescMethod, admission: Admission, request: Message, context: CallContext): Promise<Message>;
  /** A message in, a stream out. */
  serverStream(
    method: DescMethod,
    admission: Admission,
    request: Message,
    context: CallContext,
  ): AsyncIterable<Message>;
  /** Both talk as they like: each message of the caller is validated as it comes. A caller whose key is revoked is cut off. */
  conversation(
    method: DescMethod,
    admission: Admission,
    speaker: Speaker<Message>,
    context: CallContext,
  ): Listener<Message>;
}

/** A hash of what was asked, and the other forms in which it may have been kept. */
type KeptHashes = Pick<Claimant, "hash" | "otherHashes">;

/** What a call with an idempotency key asks for. */
interface KeyedCall extends KeptHashes, Pick<Claimant, "line" | "arrivedAt"> {
  method: string;
  /** Its answer will be kept sealed. */
  sealed: boolean;
}

/** What the gate asks of the gateway. */
export interface GateDeps {
  /** Every RPC's service function, by service. */
  services: readonly (readonly [DescService, Readonly<Record<string, ServiceFunction>>])[];
  keys: {
    find(secret: string, wantedFor?: KeyUse): Promise<KeyRecord | undefined>;
    /** What `find` would resolve to, where it is in memory and need not be read again. */
    known(secret: string): KeyRecord | undefined;
    /** The key where it is in memory; asks nobody. */
    peek(secret: string): KeyRecord | undefined;
  };
  /** The keys by which people act who are signed in, by the secrets of their sessions. `look` does not count as using the session. */
  sessions: {
    find(secret: string, wantedFor: KeyUse | "look"): Promise<KeyRecord | undefined>;
    peek(secret: string): KeyRecord | undefined;
  };
  idempotency: {
    /** Claims a key for a call, answers it from the first one, or refuses. */
    claim(claimant: Omit<IdempotencyClaim, "promised" | "seal"> & KeyedCall): Promise<Claim>;
    /** Frees a key whose call ended before anything was promised. */
    release(claim: IdempotencyClaim): Promise<void>;
    /** The sealed form of an answer of an organisation that retains no data; opens only at the same place. */
    seal(answer: Uint8Array, place: string): Uint8Array;
    /** The hash of what was asked as it is kept, keyed or not. */
    hashes(hash: Buffer, isKeyed: boolean, place: string): KeptHashes;
    /** The answer; undefined where it does not open any more. */
    open(sealed: Uint8Array, place: string): Uint8Array | undefined;
  };
  limits: RateLimits;
  load: LoadShedder;
  adminToken: string;
  publicSignup: boolean;
  trustedProxies: Proxies;
  /** Whether the gateway takes no new work. */
  closing(): boolean;
  /** Whether the gateway has read its state from the database, without which it knows no model. */
  loaded(): boolean;
}

// Any service function: the schema says which form an RPC has, and `createGate` calls each by its own kind.
type ServiceFunction = (request: never, call: Call) => unknown;

function assertValid(schema: DescMessage, message: Message): void {
  const violations = violationsOf(schema, message);
  if (violations.length > 0) throw invalid(violations);
}

/** Builds the gate over the services of the gateway. */
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
      // Work of jobs comes without being admitted.
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
          return await answerOf(rule, request, callOf(admission, context, undefined));
        return await serveIdempotent(deps.idempotency, { method, principal, key, request }, context, (turn) =>
          answerOf(rule, request, callOf(admission, context, turn)),
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
      // What lasts is no work that others wait for.
      admission.work?.end();
      const call = { ...callOf(admission, { ...context, signal }, undefined), begin: context.begin };
      return streamOf(ruleOf(method).serve(request, call));
    },

    conversation(method, admission, speaker, context) {
      if (context.idempotencyKey !== undefined) throw streamReplay();
      let rest = nothing;
      let isOver = false;
      const told = new HeardSpeaker(speaker, () => {
        isOver = true;
        rest();
      });
      admission.work?.end();
      const call = { ...callOf(admission, context, undefined), steps: admission.steps };
      const listener = ruleOf(method).serve(told, call) as Listener<Message>;
      if (!isOver) rest = recheckWhileOpen(admission, listener, context.signal);
      return {
        hear: (message, sound) => {
          // The first message says what the conversation is about.
          if (context.trail && context.trail.request === undefined) noteAsked(context.trail, message, context);
          try {
            if (!sound) assertValid(method.input, message);
            listener.hear(message);
          } catch (thrown) {
            if (!(thrown instanceof Refusal)) throw thrown;
            // What has begun is brought to its end, with the last words that the schema promises.
            listener.cut(thrown);
          }
        },
        room: () => listener.room(),
        close: () => listener.close(),
        cut: (refusal) => listener.cut(refusal),
      };
    },
  };
}

/** A speaker who is heard to end. */
class HeardSpeaker implements Speaker<Message> {
  readonly #speaker: Speaker<Message>;
  readonly #ends: () => void;

  constructor(speaker: Speaker<Message>, ends: () => void) {
    this.#speaker = speaker;
    this.#ends = ends;
  }

  say(message: Message): void {
    this.#speaker.say(message);
  }

  get behind(): boolean {
    return this.#speaker.behind;
  }

  end(refusal?: unknown): void {
    this.#ends();
    this.#speaker.end(refusal);
  }
}

function noteAsked(trail: CallTrail, request: Message, { traceparent }: CallContext): void {
  trail.request = request;
  if (traceparent !== undefined) trail.traceparent = traceparent;
}

const answerOf = (rule: MethodRule, request: Message, call: Call): Promise<Message> =>
  rule.serve(request, call) as Promise<Message>;

const streamOf = (answer: unknown): AsyncIterable<Message> => answer as AsyncIterable<Message>;

/** The headers of a call's answer beside its own: those of the rate limit, and whether it is an earlier answer. */
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
  arrivedAt: context.arrivedAt ?? steadyNow(),
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

/** The milliseconds that a routed request gives its call; undefined where it names none. */
function withinOf(request: Message): number | undefined {
  const { provider } = request as { provider?: { deadlineMs?: unknown } };
  return typeof provider?.deadlineMs === "number" ? provider.deadlineMs : undefined;
}

const nothing = (): void => {};
