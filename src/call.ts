/** The context of a call for service functions, independent of the transport. */

import type {
  DescMethodBiDiStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  Message,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import type { SafetyBounds } from "../gen/limber/v1/action_pb.ts";
import type { Signal } from "./cancellation.ts";
import { steadyNow } from "./clock.ts";
import { Reason, type Refusal, refuse } from "./errors.ts";

/** Trust levels as comparable numbers: lower is narrower. */
export const Reach = {
  OWN: 0,
  VERIFIED: 1,
  /** Own and verified supply, a maker's own model if the caller names it, and any provider that the caller names. */
  NAMED: 2,
  COMMUNITY: 3,
} as const;
/** One of them. */
export type Reach = (typeof Reach)[keyof typeof Reach];

/** An API key for services: the payer and its permissions. */
export interface KeyPrincipal {
  kind: "key";
  keyId: string;
  orgId: string;
  role: string;
  /** The member who owns the key; undefined for an organization key. */
  userId?: string | undefined;
  /** The browser session of a signed-in user; undefined for a caller with an API key. */
  session?: { readonly id: string; readonly browser: string } | undefined;
  /** The key's permissions within its role; undefined means all of the role's. */
  permissions?: readonly string[] | undefined;
  /** The reach of each permission that ancestor keys narrow: `all`, or the user whose own resources it covers. */
  held?: ReadonlyMap<string, string> | undefined;
  /** Its ancestors, whose budgets also count; undefined if none. */
  ancestors?: readonly string[] | undefined;
  /** The robot that the key is bound to; undefined if none. */
  robotId?: string | undefined;
  /** Contracts that the key can call; empty means all. */
  scopes: readonly string[];
  /** Models that the key can use, `owner/*` for all of an owner; empty means all. */
  models: readonly string[];
  /** A hardware key never gets placeholder output. */
  environment: "hardware" | "simulation";
  /** The lowest trust level of offerings, by the settings and by the key and its ancestors. */
  reach: Reach;
  /** Whether only signed checkpoints are allowed, by the settings and by the key and its ancestors. */
  requireSigned: boolean;
  /** Upper bounds on every returned action; undefined if none are set. */
  bounds?: SafetyBounds | undefined;
  /** The workspace whose budget also counts; undefined if none. */
  workspaceId: string | undefined;
  /** The settings of the organization and the workspace. */
  settings: OrgSettings;
}

/** The caller of a call. */
export type Principal = KeyPrincipal | { kind: "admin" } | { kind: "public" };

/** A claim on an idempotency key: the settlement of the call stores the response under it. */
export interface IdempotencyClaim {
  orgId: string;
  /** The workspace of the calling key; undefined if none. */
  workspaceId: string | undefined;
  key: string;
  /** Identifies this claim among all on the key, so that a fenced owner writes nothing. */
  claimId: string;
  /** Seals the response before it is stored; undefined if it is stored unsealed. */
  readonly seal?: ((answer: Uint8Array) => Uint8Array) | undefined;
  /** Set once credit is held for the call: from then on only the record of its end keeps or frees the key. */
  promised: boolean;
}

/** The response to an earlier call with the same idempotency key. */
export interface EarlierAnswer {
  /** The RPC's own response message. */
  readonly message: Message;
  /** Milliseconds from the arrival of that call to `readAt`, a time on the monotonic clock. */
  readonly ageMs: number;
  readonly readAt: number;
}

/** Facts of a call for the log: the transport creates it, and the gate and billing add to it. */
export interface CallTrail {
  /** The caller, once the key is known, whether or not the call is admitted. */
  principal?: KeyPrincipal;
  /** The request, once it is parsed. */
  request?: Message;
  /** The caller's `traceparent` header. */
  traceparent?: string;
  /** The size of the request body in bytes. */
  inputBytes?: number;
  /** The batch of which it is an item. */
  batchId?: string;
  /** The stored plan, or why there is none: the id of a digest, and the order. */
  plan?: { readonly id: string; readonly ranks: string };
  /** Who records the end of the call: billing, or the log of refused calls. A request id has one record. */
  recordedBy?: "billing" | "log";
}

/** What a request reveals about its browser, and the cookies there. */
export interface BrowserHead {
  /** The gateway's origin, such as `https://gateway.example`; undefined if the `Host` header is missing. */
  readonly origin: string | undefined;
  /** Whether one of the gateway's own pages sent the request; undefined if unknown, as with callers that are not browsers. */
  readonly isOwn: boolean | undefined;
  /** Whether cookies are allowed: on encrypted connections and on loopback. */
  readonly canKeep: boolean;
  /** The secret of its session. */
  readonly session: string | undefined;
  /** Cookies of the response, each a value of `Set-Cookie`. */
  readonly cookies: string[];
  /** The value of a cookie; undefined if it is not set. */
  kept(name: string): string | undefined;
  /** Sets a cookie for so many seconds; 0 deletes it. */
  keep(name: string, value: string, forS: number): void;
}

/** Counts the steps of a control loop against its key's rate limit. */
export interface StepLimit {
  /** Takes a step if one is available in memory; else returns false. */
  tryStep(): boolean;
  /** Takes a step, from the database if needed; rejects with the 429 if none is left. */
  waitStep(): Promise<void>;
}

/** One call. */
export interface Call {
  requestId: string;
  principal: Principal;
  /** Aborted when the caller disconnects, on timeout, or when the gateway shuts down. */
  signal: Signal;
  /** When it arrived, on the monotonic clock in milliseconds; time in queues counts against its timeout. */
  arrivedAt?: number | undefined;
  /** When its observation arrived, if that was before the call: its age counts from then. */
  observedAt?: number | undefined;
  /** The caller's deadline (`grpc-timeout`, `connect-timeout-ms`), on the monotonic clock in milliseconds. */
  deadline: number | undefined;
  /** The caller's `traceparent` header, not parsed. */
  traceparent?: string | undefined;
  /** The host and port from the request, by which the caller reached the gateway; undefined if absent. */
  host?: string | undefined;
  /** Whether to skip optional waits: the event loop is late, and would be after each wait. */
  isUrgent?: boolean | undefined;
  trail?: CallTrail | undefined;
  /** The step limiter of a control loop; undefined if steps are not limited. */
  steps?: StepLimit | undefined;
  /** Notified while the call waits for an upstream, which is no load on this process. */
  work?: { away(): void; back(): void } | undefined;
  /** Set if the call has an idempotency key. */
  idempotency: IdempotencyClaim | undefined;
  /** Encodes the response for the transport, and throws if that fails. Called before the response is charged. */
  encode?: ((answer: Message) => unknown) | undefined;
  /** Set if the call repeats an earlier one: it is checked like a new one, but neither run nor charged. */
  earlier?: EarlierAnswer | undefined;
  /** Called when a service replays an earlier response. */
  replayed?(): void;
  /** Called by a streaming service that waits for its first message: the response starts, so errors no longer change its status. */
  begin?: (() => void) | undefined;
  /** The calling browser; undefined for callers with a key, and on transports that browsers do not use. */
  browser?: BrowserHead | undefined;
}

/** The default timeout of an inference, in milliseconds. Source: decisions, section 17.5. */
const LONGEST_MS = 120_000;

/** The remaining time of a call in milliseconds: by its transport's deadline and its `deadline_ms`, at most 120 s. */
export function leftOf({ arrivedAt, deadline }: Pick<Call, "arrivedAt" | "deadline">, request: object): number {
  const at = steadyNow();
  const { deadlineMs = LONGEST_MS } =
    ("provider" in request && (request.provider as { deadlineMs?: number } | undefined)) || {}; // inference requests alone have it
  return Math.min((arrivedAt ?? at) + Math.min(deadlineMs, LONGEST_MS), deadline ?? Number.POSITIVE_INFINITY) - at;
}

/** The refusal of a call whose deadline passed before a response. */
export const tooLate = (): Refusal =>
  refuse(Reason.DEADLINE_EXCEEDED, "the deadline passed before a provider answered; nothing was charged");

/** The calling key and its ancestors: each can read what any of them created. */
export const lineOf = ({ keyId, ancestors = [] }: Pick<KeyPrincipal, "keyId" | "ancestors">): [string, ...string[]] => [
  keyId,
  ...ancestors,
];

/** The caller's key, for services that require one. */
export function keyOf(call: Call): KeyPrincipal {
  if (call.principal.kind !== "key") throw new Error("this RPC requires ACCESS_KEY, so its principal must be a key");
  return call.principal;
}

/**
 * The actor of a call in the audit log: `admin`, `public`, the key's id, or the signed-in user's. Spread it into
 * `audit(tx, {...})`.
 */
export const byCall = ({ principal, requestId }: Call): { actor: string; requestId: string } => ({
  actor: principal.kind === "key" ? actorOf(principal) : principal.kind,
  requestId,
});

const actorOf = ({ keyId, userId, session }: KeyPrincipal): string =>
  session !== undefined && userId !== undefined ? userId : keyId;

/** Messages that are sent to several callers. */
const sharedMessages = new WeakSet<object>();

/** Marks a message that is sent to several callers. It must not change any more, so transports can encode it once. */
export function shared<T extends object>(message: T): T {
  sharedMessages.add(message);
  return message;
}

/** Whether a message is marked as shared. */
export const isShared = (message: object): boolean => sharedMessages.has(message);

/**
 * A service as plain functions, one per RPC with its name in the schema. The compiler checks completeness. The gate makes the message of what a
 * unary function returns: fields that are undefined are not set.
 */
export type Implementation<S extends DescService> = {
  [M in keyof S["method"]]: S["method"][M] extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>, call: Call) => Promise<MessageInitShape<O>>
    : S["method"][M] extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageShape<I>, call: Call) => AsyncIterable<MessageShape<O>>
      : S["method"][M] extends DescMethodBiDiStreaming<infer I, infer O>
        ? (speaker: StreamWriter<MessageShape<O>>, call: Call) => StreamHandler<MessageShape<I>>
        : never;
};

/** The caller's side of a bidirectional stream, for its service. */
export interface StreamWriter<O> {
  /** Sends a message; does nothing after the end. */
  say(message: O): void;
  /** Whether earlier messages are still unread: sending more fills memory. */
  readonly behind: boolean;
  /** Ends the stream, successfully or with a refusal; further calls do nothing. */
  end(refusal?: unknown): void;
}

/** The service's side of a bidirectional stream, for transports. A refusal that it throws ends the stream. */
export interface StreamHandler<I> {
  /** Receives a message; `sound` if it is known to satisfy every rule of the schema. */
  hear(message: I, sound?: boolean): void;
  /** The caller has read pending messages. */
  room(): void;
  /** The caller has closed its side. */
  close(): void;
  /** The stream must end: the service sends what is pending, then ends with this refusal. */
  cut(refusal: Refusal): void;
}

/** The trust levels of supply, each including the previous ones. */
export type SupplyTrust = "own" | "verified" | "named" | "community";

/** The settings of a call. */
export interface OrgSettings {
  /** The log retention. */
  readonly retentionDays: number;
  /** Zero data retention: no provider that retains frames, and no stored caller data. */
  readonly zdr: boolean;
  /** Whether responses can be shared through caches. */
  readonly cacheSharing: boolean;
  /** When the organization's own provider keys are used. */
  readonly byokMode: ByokMode;
  /** The default preset. */
  readonly defaultPreset: string | undefined;
  /** Regions that can serve; undefined means all, an empty list none. */
  readonly allowedRegions: readonly string[] | undefined;
  /** The largest share of hedged calls. */
  readonly maxHedgeRatio: number;
  /** The lowest trust level of offerings. */
  readonly trust: SupplyTrust;
  /** Whether only signed checkpoints are allowed. */
  readonly requireSigned: boolean;
  /** Whether members can consent to self-registered applications. An organization setting only. */
  readonly selfRegisteredApps: AppPolicy;
  /** Whether signed-in users can create hardware keys. Only the operator sets it. */
  readonly hardwareKeys: boolean;
}

/** A permission for a feature. */
export type AppPolicy = "allow" | "deny";

/** When the organization's own provider key is used. */
export type ByokMode = "off" | "fallback" | "prefer" | "require";
