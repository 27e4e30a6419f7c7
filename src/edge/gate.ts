/** The gate that every call passes, whatever face it comes in by: who are you, may you, how often, is it valid, seen before. */

import { createHash, timingSafeEqual } from "node:crypto";
import {
  type DescMessage,
  type DescMethod,
  type DescService,
  fromBinary,
  fromJson,
  getOption,
  type Message,
  type MessageShape,
  toJson,
} from "@bufbuild/protobuf";
import { Access, type Rpc, rpc } from "../../gen/limber/edge/v1/options_pb.ts";
import { SafetyBoundsSchema } from "../../gen/limber/v1/action_pb.ts";
import { every, now } from "../ambient.ts";
import { Reason, Refusal, refuse } from "../refusal.ts";
import type { Call, IdempotencyClaim, KeyPrincipal, Listener, Principal, Speaker } from "../services/call.ts";
import { callersReach } from "../services/permissions.ts";
import type { Signal } from "../signal.ts";
import type { KeyRecord } from "../store/account/keys.ts";
import { isOutage, isUnstorableText } from "../store/database/unavailable.ts";
import type { Claim } from "../store/money/idempotency.ts";
import { callerAddress, type Proxies } from "./caller-address.ts";
import type { Limit, Pool } from "./limits/bucket.ts";
import type { Limits, Place } from "./limits.ts";
import { wantsStream } from "./stream.ts";
import { invalid, violationsOf } from "./validate.ts";

/** What the gate reads of a call before its body. */
export interface CallHead {
  /** The `authorization` header. */
  authorization: string | undefined;
  /** The admin token's header. */
  adminToken: string | undefined;
  /** The address that connected, for limits on calls without a key. */
  remoteAddress: string;
  /** The header `X-Forwarded-For`, believed where a trusted proxy connected. */
  forwardedFor?: string | undefined;
  requestId: string;
}

/** A caller that the gate let in, with what the limits leave to him. */
export interface Admission {
  principal: Principal;
  /** Headers of the rate limit, name and value in turn; empty for calls without a key. */
  readonly headers: readonly string[];
  /** The same as lines of HTTP/1, where somebody has them. */
  readonly lines?: string | undefined;
  /** Gives the place in the concurrency limit back; call it once, when the answer is out. */
  leave(): void;
  /** Counts a step of a control loop against the key's rate limit; throws or rejects with 429. */
  step?: (() => Promise<void> | undefined) | undefined;
  /** Whether the caller would be let in again; throws or rejects with the refusal when not. For calls that last. */
  again?(): unknown;
}

/** What a call carries beside its message. */
export interface CallContext {
  requestId: string;
  signal: Signal;
  /** The caller's deadline on the steady clock, in milliseconds. */
  deadline: number | undefined;
  /** The `Idempotency-Key` header. */
  idempotencyKey: string | undefined;
  /** The `traceparent` header, unread. */
  traceparent?: string | undefined;
}

/** The three steps of a call. Each throws a `Refusal` to say no. */
export interface Gate {
  /** Before the body is read: key or token, permission, rate and concurrency. Synchronous for keys that are known. */
  admit(method: DescMethod, head: CallHead): Admission | Promise<Admission>;
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

/** What the gate asks of the house. */
export interface GateParts {
  /** Every RPC's service function, by service. */
  services: readonly (readonly [DescService, Readonly<Record<string, ServiceFunction>>])[];
  keys: { find(secret: string): KeyRecord | undefined | Promise<KeyRecord | undefined> };
  idempotency: {
    /** Claims a key for a call, answers it from the first one, or refuses. */
    claim(claimant: { orgId: string; key: string; hash: Buffer; method: string; claimId: string }): Promise<Claim>;
    /** Frees a key whose call ended before anything was promised. */
    release(claim: IdempotencyClaim): Promise<void>;
  };
  limits: Limits;
  adminToken: string;
  publicSignup: boolean;
  trustedProxies: Proxies;
  /** Whether the house takes no new work. */
  closing(): boolean;
  /** Whether the house has read its state from the database, without which it knows no model. */
  loaded(): boolean;
}

// Any service function: the schema says which form an RPC has, and `createGate` calls each by its own kind.
type ServiceFunction = (request: never, call: Call) => unknown;

interface Door {
  rule: Rpc;
  /** What its calls count among. */
  pool: Pool;
  serve: (request: unknown, call: Call) => unknown;
}

/** What an address may do that calls without a key what is counted: so often in a minute, half of that at once. */
const addressLimit = (perMinute: number): Limit => ({
  requests: perMinute,
  windowS: 60,
  burst: Math.ceil(perMinute / 2),
  concurrency: perMinute,
  streams: 1,
});
const SIGNUP_LIMIT: Limit = { requests: 10, windowS: 3600, burst: 5, concurrency: 2, streams: 1 };
const NOTHING_TO_LEAVE = (): void => {};

function assertValid(schema: DescMessage, message: Message): void {
  const violations = violationsOf(schema, message);
  if (violations.length > 0) throw invalid(violations);
}

/** Builds the gate over the services of the house. */
export function createGate(parts: GateParts): Gate {
  const doors = doorsOf(parts.services);
  const adminDigest = digestOf(parts.adminToken);

  const doorOf = (method: DescMethod): Door => {
    const door = doors.get(method);
    if (!door) throw new Error(`${method.parent.typeName}.${method.name} has no service function`);
    return door;
  };

  const assertLoaded = ({ access }: Rpc): void => {
    if (access === Access.PUBLIC || parts.loaded()) return;
    throw refuse(Reason.NOT_READY, "the gateway's state is not loaded yet; call again", {}, { retryAfter: 1 });
  };

  const isAdmin = (token: string | undefined): boolean =>
    token !== undefined && sameSecret(digestOf(token), adminDigest);

  const admitAdmin = (head: CallHead): Admission => {
    if (head.adminToken === undefined) {
      throw refuse(Reason.ADMIN_TOKEN_REQUIRED, "this call is the operator's: send the admin token in its header");
    }
    if (!isAdmin(head.adminToken)) throw refuse(Reason.INVALID_ADMIN_TOKEN, "the admin token is not the right one");
    return { principal: { kind: "admin" }, headers: [], leave: NOTHING_TO_LEAVE };
  };

  const admitRecord = (record: KeyRecord | undefined, { rule, pool }: Door): Admission | Promise<Admission> => {
    const key = principalOf(record);
    const reach = rule.permission === "" ? "all" : callersReach(key, rule.permission);
    // A key that belongs to no member has nothing of its own.
    if (reach === undefined || (reach === "own" && (!rule.own || key.userId === undefined))) {
      throw refuse(Reason.PERMISSION_DENIED, `this call needs the permission ${rule.permission}`, {
        needed: [rule.permission],
      });
    }
    if (rule.scope !== "" && key.scopes.length > 0 && !key.scopes.includes(rule.scope)) {
      throw refuse(Reason.SCOPE_DENIED, `this call needs a key with the scope ${rule.scope}`, { needed: [rule.scope] });
    }
    return admitted(key, parts.limits.enter(key.keyId, limitOf(record), pool));
  };

  /** The same key, looked at again: what would be refused now. */
  const lookAgain = (head: CallHead): unknown => {
    const record = parts.keys.find(bearerOf(head.authorization));
    return record instanceof Promise ? record.then(principalOf) : principalOf(record);
  };

  const admitKey = (head: CallHead, door: Door): Admission | Promise<Admission> => {
    const record = parts.keys.find(bearerOf(head.authorization));
    if (!(record instanceof Promise)) return admitRecord(record, door);
    return record.then(
      (found) => admitRecord(found, door),
      (thrown) => {
        throw asToldToCallers(thrown, "not begun");
      },
    );
  };

  const admitSignup = (head: CallHead): Admission | Promise<Admission> => {
    if (head.adminToken !== undefined || !parts.publicSignup) return admitAdmin(head);
    return admitted({ kind: "public" }, parts.limits.enter(`signup ${addressOf(head)}`, SIGNUP_LIMIT));
  };

  const addressOf = ({ remoteAddress, forwardedFor }: CallHead): string =>
    callerAddress(remoteAddress, forwardedFor, parts.trustedProxies);

  const admitAnyone = (method: DescMethod, { perMinute }: Rpc, head: CallHead): Admission | Promise<Admission> => {
    const principal: Principal = { kind: isAdmin(head.adminToken) ? "admin" : "public" };
    if (perMinute === 0) return { principal, headers: [], leave: NOTHING_TO_LEAVE };
    return admitted(principal, parts.limits.enter(`${method.name} ${addressOf(head)}`, addressLimit(perMinute)));
  };

  /** Serves a whole call once per idempotency key: later calls get the first one's answer. */
  const serveOnce = async (
    door: Door,
    method: DescMethod,
    { principal, key }: { principal: KeyPrincipal; key: string },
    request: Message,
    context: CallContext,
  ): Promise<Message> => {
    if (wantsStream(method, request)) throw streamReplay();

    const claim = { orgId: principal.orgId, key, claimId: context.requestId, promised: false };
    const hash = fingerprint(method, request);
    const claimant = { ...claim, hash, method: `${method.parent.typeName}/${method.name}` };
    const claimed = await parts.idempotency.claim(claimant).catch((thrown: unknown) => {
      throw asToldToCallers(thrown, "not begun");
    });
    if (claimed.kind === "replay") return fromBinary(method.output, claimed.response);
    try {
      return await answerOf(door, request, callOf(principal, context, claim));
    } catch (thrown) {
      // Refused before anything was promised, so the same key may try again. Else a charge may still be on its way.
      if (!claim.promised) await parts.idempotency.release(claim).catch(NOTHING_TO_LEAVE);
      throw thrown;
    }
  };

  return {
    admit(method, head) {
      const door = doorOf(method);
      const { rule } = door;
      if (rule.access !== Access.PUBLIC && parts.closing()) {
        throw refuse(Reason.NOT_READY, "the gateway is closing; call again elsewhere", {}, { retryAfter: 1 });
      }
      assertLoaded(rule);
      switch (rule.access) {
        case Access.PUBLIC:
          return admitAnyone(method, rule, head);
        case Access.KEY: {
          const entry = admitKey(head, door);
          if (method.methodKind !== "bidi_streaming") return entry;
          const lasting = (admission: Admission): Admission =>
            Object.assign(admission, { again: () => lookAgain(head) });
          return entry instanceof Promise ? entry.then(lasting) : lasting(entry);
        }
        case Access.ADMIN:
          return admitAdmin(head);
        case Access.ADMIN_OR_SIGNUP:
          return admitSignup(head);
        case Access.ADMIN_OR_KEY: {
          if (head.adminToken === undefined) return admitKey(head, door);
          const admin = admitAdmin(head);
          return head.authorization === undefined ? admin : admitKey(head, door);
        }
        default:
          throw new Error(`${method.name} does not say who may call it`);
      }
    },

    async unary(method, admission, request, context) {
      // Work of jobs comes without being admitted.
      assertLoaded(doorOf(method).rule);
      takeKeyFromHeader(method, request, context);
      assertValid(method.input, request);
      const door = doorOf(method);
      const { principal } = admission;
      try {
        const key = door.rule.idempotent ? idempotencyKeyOf(request, context) : undefined;
        if (key === undefined || principal.kind !== "key")
          return await answerOf(door, request, callOf(principal, context, undefined));
        return await serveOnce(door, method, { principal, key }, request, context);
      } catch (thrown) {
        throw asToldToCallers(thrown, "begun");
      }
    },

    serverStream(method, admission, request, context) {
      assertValid(method.input, request);
      if (idempotencyKeyOf(streamedRequest(request), context) !== undefined) {
        throw streamReplay();
      }
      return streamOf(doorOf(method).serve(request, callOf(admission.principal, context, undefined)));
    },

    conversation(method, admission, speaker, context) {
      if (context.idempotencyKey !== undefined) throw streamReplay();
      let rest = NOTHING_TO_LEAVE;
      const told: Speaker<Message> = {
        say: (message) => speaker.say(message),
        get behind() {
          return speaker.behind;
        },
        end: (refusal) => {
          rest();
          speaker.end(refusal);
        },
      };
      const call = { ...callOf(admission.principal, context, undefined), step: () => admission.step?.() };
      const listener = doorOf(method).serve(told, call) as Listener<Message>;
      rest = watch(admission, listener, context.signal);
      return {
        hear: (message, sound) => {
          if (!sound) assertValid(method.input, message);
          listener.hear(message);
        },
        room: () => listener.room(),
        close: () => listener.close(),
        cut: (refusal) => listener.cut(refusal),
      };
    },
  };
}

function doorsOf(services: GateParts["services"]): Map<DescMethod, Door> {
  const doors = new Map<DescMethod, Door>();
  for (const [service, functions] of services) {
    for (const method of service.methods) {
      const serve = functions[method.localName];
      if (!serve) throw new Error(`${service.typeName}.${method.name} has no service function`);
      // The function's types were checked where the service was built; here the schema names them, not the compiler.
      const pool = method.methodKind === "unary" ? "calls" : "streams";
      doors.set(method, { rule: getOption(method, rpc), pool, serve: serve as Door["serve"] });
    }
  }
  return doors;
}

const admitted = (principal: Principal, place: Place | Promise<Place>): Admission | Promise<Admission> =>
  place instanceof Promise ? place.then((held) => new Admitted(principal, held)) : new Admitted(principal, place);

/** A caller in his place. */
class Admitted implements Admission {
  readonly principal: Principal;
  again?: () => unknown;
  readonly #place: Place;

  constructor(principal: Principal, place: Place) {
    this.principal = principal;
    this.#place = place;
  }

  get headers(): readonly string[] {
    return this.#place.headers;
  }

  get lines(): string {
    return this.#place.lines;
  }

  leave(): void {
    this.#place.leave();
  }

  step(): Promise<void> | undefined {
    return this.#place.step();
  }
}

/** A database that is away is no bug, nor is text that no database holds: the caller is told to come again, or to mend it. */
function asToldToCallers(thrown: unknown, call: keyof typeof AWAY): unknown {
  if (isUnstorableText(thrown))
    return refuse(Reason.MALFORMED_BODY, "text must not contain U+0000", {}, { cause: thrown });
  if (!isOutage(thrown)) return thrown;
  return refuse(Reason.STORE_UNAVAILABLE, AWAY[call], {}, { retryAfter: 1, cause: thrown });
}

/** What a caller is told when the database is away. */
const AWAY = {
  "not begun": "the gateway cannot reach its own state at the moment; nothing was done and nothing was charged",
  begun: "the gateway cannot reach its own state at the moment; whether this call took effect is not known",
} as const;

const answerOf = (door: Door, request: Message, call: Call): Promise<Message> =>
  door.serve(request, call) as Promise<Message>;

const streamOf = (answer: unknown): AsyncIterable<Message> => answer as AsyncIterable<Message>;

const callOf = (principal: Principal, context: CallContext, idempotency: IdempotencyClaim | undefined): Call => ({
  requestId: context.requestId,
  principal,
  signal: context.signal,
  deadline: context.deadline,
  traceparent: context.traceparent,
  idempotency,
});

/** How often a caller who stays is looked at again. The key is in memory, and a revoked one is told of by notification. */
const LOOK_AGAIN_MS = 400;

/** Ends a conversation soon after its caller's key is revoked or runs out. A database that is away ends none. */
function watch({ again }: Admission, listener: Listener<Message>, signal: Signal): () => void {
  if (again === undefined) return NOTHING_TO_LEAVE;
  const cut = (thrown: unknown): void => {
    if (thrown instanceof Refusal) listener.cut(thrown);
  };
  const rest = every(LOOK_AGAIN_MS, () => {
    try {
      const looked = again();
      if (looked instanceof Promise) looked.catch(cut);
    } catch (thrown) {
      cut(thrown);
    }
  });
  signal.addEventListener("abort", rest, { once: true });
  return rest;
}

/** The header before, and the key in it: a caller in a loop sends the same one again and again. */
let heard = { authorization: "", key: "" };

function bearerOf(authorization: string | undefined): string {
  if (authorization === undefined) {
    throw refuse(Reason.MISSING_API_KEY, "send an API key: Authorization: Bearer <key>");
  }
  if (heard.authorization === authorization) return heard.key;
  const key = /^bearer +(\S+) *$/i.exec(authorization)?.[1];
  if (key === undefined) throw refuse(Reason.INVALID_API_KEY, NO_SUCH_KEY);
  heard = { authorization, key };
  return key;
}

// One sentence for every way in which a key can be wrong: who has one learns from the code whether it ended, and nobody else learns anything.
const NO_SUCH_KEY = "this API key is not valid here";

/** Who calls with this key. Refuses for one that is unknown, disabled, or over. */
export function principalOf(record: KeyRecord | undefined): KeyPrincipal {
  if (!record) throw refuse(Reason.INVALID_API_KEY, NO_SUCH_KEY);
  if (record.disabled) throw refuse(Reason.KEY_DISABLED, NO_SUCH_KEY);
  if (record.userInactive) throw refuse(Reason.KEY_DISABLED, NO_SUCH_KEY);
  if (record.orgSuspended) throw refuse(Reason.KEY_DISABLED, NO_SUCH_KEY);
  if (record.expiresAt !== undefined && record.expiresAt * 1000 <= now()) {
    throw refuse(Reason.KEY_EXPIRED, NO_SUCH_KEY);
  }
  const known = principals.get(record);
  if (known) return known;
  const { id, orgId, role, userId, permissions, scopes, models, environment, workspaceId, robotId, settings, bounds } =
    record;
  const who = { keyId: id, orgId, role, userId, permissions };
  const limits = bounds && { bounds: fromJson(SafetyBoundsSchema, bounds as Parameters<typeof fromJson>[1]) }; // written by toJson
  const principal = {
    kind: "key" as const,
    ...who,
    scopes,
    models,
    environment,
    workspaceId,
    robotId,
    settings,
    ...limits,
  };
  principals.set(record, principal);
  return principal;
}

/** By the key's record, which is the same object for as long as the key is in memory unchanged. */
const principals = new WeakMap<KeyRecord, KeyPrincipal>();

/** The same; undefined instead of a refusal. */
export function payerOf(record: KeyRecord | undefined): KeyPrincipal | undefined {
  try {
    return principalOf(record);
  } catch (thrown) {
    if (thrown instanceof Refusal) return undefined;
    throw thrown;
  }
}

const limitOf = (record: KeyRecord | undefined): Limit => {
  if (!record) throw new Error("limits are read for known keys only");
  return record.rateLimit;
};

const streamReplay = (): Refusal =>
  refuse(Reason.IDEMPOTENCY_UNSUPPORTED, "a stream cannot be replayed: leave the idempotency key out");

const digestOf = (secret: string): Buffer => createHash("sha256").update(secret).digest();
const sameSecret = (a: Buffer, b: Buffer): boolean => timingSafeEqual(a, b);

const KEY_FORM = /^[!-~]{1,255}$/;

/** The call's idempotency key: the field wins over the header. */
function idempotencyKeyOf(request: Message, context: CallContext): string | undefined {
  const field =
    "idempotencyKey" in request && typeof request.idempotencyKey === "string" ? request.idempotencyKey : undefined;
  const key = field ?? context.idempotencyKey;
  if (key !== undefined && !KEY_FORM.test(key)) {
    throw refuse(
      Reason.VALIDATION_FAILED,
      "Idempotency-Key must be 1 to 255 printable ASCII characters",
      {},
      { param: "idempotency_key" },
    );
  }
  return key;
}

/** Where a call keeps its idempotency key itself, the header is another way to give it. */
function takeKeyFromHeader(method: DescMethod, request: Message, { idempotencyKey }: CallContext): void {
  if (idempotencyKey === undefined || method.input.field.idempotencyKey === undefined) return;
  if (getOption(method, rpc).idempotent || ("idempotencyKey" in request && request.idempotencyKey !== undefined))
    return;
  Object.assign(request, { idempotencyKey });
}

/** The message of a stream whose fields are the caller's: the one inside, where the RPC wraps it. */
function streamedRequest(request: Message): Message {
  const inner = "predict" in request ? request.predict : undefined;
  return typeof inner === "object" && inner !== null && "$typeName" in inner ? (inner as Message) : request;
}

/** SHA-256 of what was asked, free of face, field order and the key itself. */
function fingerprint<D extends DescMessage>(method: DescMethod & { input: D }, request: MessageShape<D>): Buffer {
  const fields = toJson(method.input, { ...request, idempotencyKey: undefined });
  return createHash("sha256").update(method.name).update(canonical(fields)).digest();
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([name, inner]) => `${JSON.stringify(name)}:${canonical(inner)}`).join(",")}}`;
}
