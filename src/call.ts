/** What a service function knows of the call that it answers, whatever transport it came in by. */

import type {
  DescMethodBiDiStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  Message,
  MessageShape,
} from "@bufbuild/protobuf";
import type { SafetyBounds } from "../gen/limber/v1/action_pb.ts";
import type { Signal } from "./cancellation.ts";
import { steadyNow } from "./clock.ts";
import { Reason, type Refusal, refuse } from "./errors.ts";

/** How far a caller is served, as a number that compares: less is narrower. */
export const Reach = {
  OWN: 0,
  VERIFIED: 1,
  /** Own and verified supply, and a model of its maker's own where the caller names it, or a provider that the caller names. */
  NAMED: 2,
  COMMUNITY: 3,
} as const;
/** One of them. */
export type Reach = (typeof Reach)[keyof typeof Reach];

/** An API key as services see it: the payer, and what the key may do. */
export interface KeyPrincipal {
  kind: "key";
  keyId: string;
  orgId: string;
  role: string;
  /** The member whose key it is; undefined for an organization key. */
  userId?: string | undefined;
  /** The sign-in by which a person calls; undefined for a caller with an API key. */
  session?: { readonly id: string; readonly browser: string } | undefined;
  /** All that the key may do within its role, by permission; undefined: all that the role may. */
  permissions?: readonly string[] | undefined;
  /** How far each permission reaches where the keys that this one descends from narrow it: `all`, or the user whose own things it reaches. */
  held?: ReadonlyMap<string, string> | undefined;
  /** The keys that it descends from, whose budgets count too; undefined: none. */
  ancestors?: readonly string[] | undefined;
  /** The robot that the key is for; undefined where it is for none in particular. */
  robotId?: string | undefined;
  /** Contracts that the key may call; all when empty. */
  scopes: readonly string[];
  /** Models that the key may use, `owner/*` for all of an owner; every model when empty. */
  models: readonly string[];
  /** A hardware key is never served placeholder output. */
  environment: "hardware" | "simulation";
  /** Whose supply may serve at most, by the settings and by the keys of its line. */
  reach: Reach;
  /** Only checkpoints that their makers signed may serve, by the settings and by the keys of its line. */
  requireSigned: boolean;
  /** What no action that it is given may exceed; undefined where nothing is said. */
  bounds?: SafetyBounds | undefined;
  /** The workspace whose budget counts too; undefined: none. */
  workspaceId: string | undefined;
  /** The settings of the organization and the workspace. */
  settings: OrgSettings;
}

/** Whose call it is. */
export type Principal = KeyPrincipal | { kind: "admin" } | { kind: "public" };

/** A claim on an idempotency key: the settlement that answers the call keeps the answer under it. */
export interface IdempotencyClaim {
  orgId: string;
  /** The workspace of the key that calls; undefined: none. */
  workspaceId: string | undefined;
  key: string;
  /** Names this claim among those that ever held the key, so that a fenced owner writes nothing. */
  claimId: string;
  /** Seals the answer before it is kept; undefined where it is kept as it is. */
  readonly seal?: ((answer: Uint8Array) => Uint8Array) | undefined;
  /** Set once credit is held for the call: from then on only the record of its end keeps or frees the key. */
  promised: boolean;
}

/** The answer to an earlier call with the same idempotency key. */
export interface EarlierAnswer {
  /** Of the RPC's own response. */
  readonly message: Message;
  /** Milliseconds from the arrival of that call to `readAt`, a moment of the steady clock. */
  readonly ageMs: number;
  readonly readAt: number;
}

/** What becomes known of a call on its way, for the log: the transport begins it, and the gate and the bill add to it. */
export interface CallTrail {
  /** Whose call it is, once the key is known, whether it is let in or not. */
  principal?: KeyPrincipal;
  /** The request, once it is parsed. */
  request?: Message;
  /** The caller's `traceparent` header. */
  traceparent?: string;
  /** Bytes of the request's body. */
  inputBytes?: number;
  /** The batch that it is an item of. */
  batchId?: string;
  /** What the log keeps of its plan, or of why there is none: the name of a digest, and the order. */
  plan?: { readonly id: string; readonly ranks: string };
  /** Only the bill records the end of the call. */
  isBilled?: boolean;
}

/** What a request tells of the browser that sent it, and what is kept there. */
export interface BrowserHead {
  /** By which it knows the gateway, such as `https://gateway.example`; undefined where the `Host` header is missing. */
  readonly origin: string | undefined;
  /** Whether a page of the gateway's own sent the request; undefined where nothing tells, as with callers that are no browsers. */
  readonly isOwn: boolean | undefined;
  /** Whether it is given cookies at all: over an encrypted connection, or on loopback. */
  readonly canKeep: boolean;
  /** The secret of the session that it is signed in by. */
  readonly session: string | undefined;
  /** Cookies that the answer sets, each as a value of `Set-Cookie`. */
  readonly cookies: string[];
  /** What is kept under a name; undefined where nothing is. */
  kept(name: string): string | undefined;
  /** Has it keep a text for so many seconds; 0 ends it. */
  keep(name: string, value: string, forS: number): void;
}

/** Counts the steps of a control loop against the rate limit of its key. */
export interface StepLimit {
  /** Takes a step if one is available; false if the call has to wait or there is none. */
  tryStep(): boolean;
  /** Takes a step, from the database if none is available here; rejects with the 429 if there is none. */
  waitStep(): Promise<void>;
}

/** One call. */
export interface Call {
  requestId: string;
  principal: Principal;
  /** Aborted when the caller leaves, when time runs out, or when the gateway closes. */
  signal: Signal;
  /** When it arrived, on the steady clock in milliseconds; what it waited for before it was served counts against its time. */
  arrivedAt?: number | undefined;
  /** When the caller's own deadline ends (`grpc-timeout`, `connect-timeout-ms`), on the steady clock in milliseconds. */
  deadline: number | undefined;
  /** The caller's `traceparent` header, unread. */
  traceparent?: string | undefined;
  /** The host, with its port, by which the caller reached the gateway, as the request names it; undefined where it names none. */
  host?: string | undefined;
  /** The answer should wait for nothing that it can do without: the event loop is late, and so would be whatever comes after a wait. */
  isUrgent?: boolean | undefined;
  trail?: CallTrail | undefined;
  /** Of a control loop: its steps, which count against the key's rate limit. Undefined where nothing counts them. */
  steps?: StepLimit | undefined;
  /** Told while the call waits for an upstream, which is no load of this process. */
  work?: { away(): void; back(): void } | undefined;
  /** Present when the call carries an idempotency key. */
  idempotency: IdempotencyClaim | undefined;
  /** Encodes the answer as the transport will send it; throws where it can't. Called before the answer is charged. */
  encode?: ((answer: Message) => unknown) | undefined;
  /** Present when the call repeats one that was answered: it is checked like a new one, and neither run nor charged. */
  earlier?: EarlierAnswer | undefined;
  /** Called when a service answers what it answered before. */
  replayed?(): void;
  /** Called by a stream's service that is about to wait for its first message: the answer begins, and is refused no more. */
  begin?: (() => void) | undefined;
  /** The browser that calls; undefined for callers that show a key, and over transports that browsers don't use. */
  browser?: BrowserHead | undefined;
}

/** Without a deadline an inference takes this long at most, in milliseconds. Source: decisions, section 17.5. */
const LONGEST_MS = 120_000;

/** How long a call may still wait, in milliseconds: by its transport's deadline, by its own `deadline_ms`, and 120 seconds at most. */
export function leftOf({ arrivedAt, deadline }: Pick<Call, "arrivedAt" | "deadline">, request: object): number {
  const at = steadyNow();
  const { deadlineMs = LONGEST_MS } =
    ("provider" in request && (request.provider as { deadlineMs?: number } | undefined)) || {}; // inference requests alone have it
  return Math.min((arrivedAt ?? at) + Math.min(deadlineMs, LONGEST_MS), deadline ?? Number.POSITIVE_INFINITY) - at;
}

/** The refusal of a call whose deadline passed before an answer. */
export const tooLate = (): Refusal =>
  refuse(Reason.DEADLINE_EXCEEDED, "the deadline passed before a provider answered; nothing was charged");

/** The key that calls, and those that it descends from: what one of them made, it may have again. */
export const lineOf = ({ keyId, ancestors = [] }: Pick<KeyPrincipal, "keyId" | "ancestors">): [string, ...string[]] => [
  keyId,
  ...ancestors,
];

/** The caller's key, for the services that only a key may call. */
export function keyOf(call: Call): KeyPrincipal {
  if (call.principal.kind !== "key")
    throw new Error("this RPC requires ACCESS_KEY, so its principal must be a key");
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

/** Messages that several callers are sent. */
const sharedMessages = new WeakSet<object>();

/** Marks a message that several callers are sent: it changes no more, so that transports may write it once for all. */
export function shared<T extends object>(message: T): T {
  sharedMessages.add(message);
  return message;
}

/** Whether a message was marked so. */
export const isShared = (message: object): boolean => sharedMessages.has(message);

/** A service as plain functions: one per RPC, named as the schema names them. The compiler asks for each. */
export type Implementation<S extends DescService> = {
  [M in keyof S["method"]]: S["method"][M] extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>, call: Call) => Promise<MessageShape<O>>
    : S["method"][M] extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageShape<I>, call: Call) => AsyncIterable<MessageShape<O>>
      : S["method"][M] extends DescMethodBiDiStreaming<infer I, infer O>
        ? (speaker: StreamWriter<MessageShape<O>>, call: Call) => StreamHandler<MessageShape<I>>
        : never;
};

/** The caller's side of a conversation, as its service sees it. */
export interface StreamWriter<O> {
  /** Sends a message; nothing after the end. */
  say(message: O): void;
  /** What was said before is not read yet: who goes on talking fills memory. */
  readonly behind: boolean;
  /** Ends the conversation, well or with a refusal; further calls do nothing. */
  end(refusal?: unknown): void;
}

/** The service's side of a conversation, as the transports see it. A refusal that it throws ends the conversation. */
export interface StreamHandler<I> {
  /** Takes a message of the caller; `sound` where it is known to keep every rule of the schema. */
  hear(message: I, sound?: boolean): void;
  /** The caller has read on. */
  room(): void;
  /** The caller says no more. */
  close(): void;
  /** The caller may not go on: what there is to say is said, then it ends with this refusal. */
  cut(refusal: Refusal): void;
}

/** Whose supply may serve at most: each includes those before it. */
export type SupplyTrust = "own" | "verified" | "named" | "community";

/** The settings that hold for a call. */
export interface OrgSettings {
  /** How long logs are kept. */
  readonly retentionDays: number;
  /** Zero data retention: no provider that retains frames, and nothing of what callers send on record. */
  readonly zdr: boolean;
  /** Whether answers may be shared through caches. */
  readonly cacheSharing: boolean;
  /** When the organization's own keys at providers are used. */
  readonly byokMode: ByokMode;
  /** The preset of requests that name none. */
  readonly defaultPreset: string | undefined;
  /** Regions that may serve; undefined: all. An empty list admits none. */
  readonly allowedRegions: readonly string[] | undefined;
  /** The largest share of calls that may be hedged. */
  readonly maxHedgeRatio: number;
  /** Whose supply may serve at most. */
  readonly trust: SupplyTrust;
  /** Only checkpoints that their makers signed may serve. */
  readonly requireSigned: boolean;
  /** Whether members may consent to applications that registered themselves. The organization's alone. */
  readonly selfRegisteredApps: AppPolicy;
  /** People who are signed in may make keys for hardware. The operator's alone. */
  readonly hardwareKeys: boolean;
}

/** Whether something may be used. */
export type AppPolicy = "allow" | "deny";

/** When a key is used. */
export type ByokMode = "off" | "fallback" | "prefer" | "require";
