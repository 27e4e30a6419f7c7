/** Authentication and authorization: by the admin token, by a key and its permissions, or without either; and rate limits. */
import { createHash, timingSafeEqual } from "node:crypto";
import { BlockList, isIP } from "node:net";
import { type DescMethod, fromJson } from "@bufbuild/protobuf";
import type { Priority } from "../../../gen/limber/edge/v1/options_pb.ts";
import { Access, type Rpc } from "../../../gen/limber/edge/v1/options_pb.ts";
import { SafetyBoundsSchema } from "../../../gen/limber/v1/action_pb.ts";
import { RobotService } from "../../../gen/limber/v1/robot_service_pb.ts";
import { SESSION_COOKIE } from "../../brand.ts";
import type { BrowserHead, Call, CallTrail, KeyPrincipal, Principal, StepLimit } from "../../call.ts";
import type { Signal } from "../../cancellation.ts";
import { now } from "../../clock.ts";
import { Reason, Refusal, refuse } from "../../errors.ts";
import { authorityOf, effective, reachOfCalls, requiresSigned } from "../../services/authority.ts";
import { denialOf } from "../../services/permissions.ts";
import type { KeyUse } from "../../store/account/caches.ts";
import type { KeyRecord } from "../../store/account/keys.ts";
import { refusalOfOutage } from "../messages/errors.ts";
import type { AdmittedWork } from "./admission.ts";
import type { ConcurrencySlot, KeyLimit, Limit, RateLimits, TokenPool } from "./rate-limits.ts";

/** Rate limits of an address for calls without a key: per minute, and half of that as burst. */
const addressLimit = (perMinute: number): Limit => ({
  requests: perMinute,
  windowS: 60,
  burst: Math.ceil(perMinute / 2),
  concurrency: perMinute,
  streams: 1,
});
const SIGNUP_LIMIT: Limit = { requests: 10, windowS: 3600, burst: 5, concurrency: 2, streams: 1 };
/** How long stops of robots accept keys from the cache while the database is unavailable. */
const STOP = RobotService.method.stopRobots;
/** The shares of the operator, and of all callers with uncached keys, under overload. */
const OPERATOR = "operator";
const NO_ORG = "";

/** Identifies the caller and decides whether the call is allowed. */
export interface AuthenticatorDeps {
  keys: {
    find(secret: string, wantedFor?: KeyUse): Promise<KeyRecord | undefined>;
    /** The result of `find` if it is cached and fresh. */
    known(secret: string): KeyRecord | undefined;
    /** The cached key; makes no query. */
    peek(secret: string): KeyRecord | undefined;
  };
  /** The keys of signed-in users, by the secrets of their sessions. `look` does not count as use. */
  sessions: {
    find(secret: string, wantedFor: KeyUse | "look"): Promise<KeyRecord | undefined>;
    peek(secret: string): KeyRecord | undefined;
  };
  limits: RateLimits;
  adminToken: string;
  publicSignup: boolean;
  trustedProxies: Proxies;
  /** Whether the gateway accepts no new calls. */
  closing(): boolean;
  /** Whether the gateway has loaded its state from the database, without which it knows no model. */
  loaded(): boolean;
}

/** Admits callers, or refuses them. */
interface Authenticator {
  admit(method: DescMethod, rule: MethodRule, head: CallHead): Promise<Admission>;
  /** Identifies the key; refuses a key that cannot make any call, and every key while the gateway is shutting down. */
  identify(authorization: string | undefined): Promise<KeyPrincipal>;
  /** The principal of a key, for later calls on its behalf; refuses a key that must not make the call. */
  inNameOf(rule: MethodRule, record: KeyRecord | undefined): KeyPrincipal;
  /** The share of an overloaded gateway that a call takes, by cached keys: of an organization, the operator, or all others. */
  orgOf(authorization: string | undefined, adminToken: string | undefined, browser?: BrowserHead): string;
  /** Refuses calls that need the gateway's state while it is not loaded. */
  assertLoaded(rule: Rpc): void;
}

/** The authenticator of a gateway. */
export function createAuthenticator(deps: AuthenticatorDeps): Authenticator {
  const adminDigest = digestOf(deps.adminToken);

  const assertLoaded = ({ access }: Rpc): void => {
    if (access === Access.PUBLIC || deps.loaded()) return;
    throw refuse(Reason.NOT_READY, "the gateway is still loading its state; retry later", {}, { retryAfter: 1 });
  };

  const assertOpen = (): void => {
    if (deps.closing())
      throw refuse(
        Reason.NOT_READY,
        "the gateway is shutting down; retry on another connection",
        {},
        { retryAfter: 1 },
      );
  };

  const isAdmin = (token: string | undefined): boolean =>
    token !== undefined && sameSecret(digestOf(token), adminDigest);

  const admitAdmin = (head: CallHead): Admission => {
    if (head.adminToken === undefined) {
      throw refuse(
        Reason.ADMIN_TOKEN_REQUIRED,
        "this call requires the admin token; send it in `x-service-admin-token`",
      );
    }
    if (!isAdmin(head.adminToken)) throw refuse(Reason.INVALID_ADMIN_TOKEN, "invalid admin token");
    return unlimited({ kind: "admin" });
  };

  /** The identity of a caller without a key: the session of its browser. A request that another site may have sent has none. */
  const sessionOf = ({ authorization, browser }: CallHead): string | undefined => {
    const secret = authorization === undefined ? browser?.session : undefined;
    if (secret === undefined || browser?.isOwn === true) return secret;
    throw refuse(
      Reason.CROSS_ORIGIN,
      "a session authenticates only same-origin JSON requests from the gateway's own pages; other callers must send an API key",
    );
  };

  /** Throws the refusal of a request that cannot have a key. */
  const recordOf = (head: CallHead, wantedFor: KeyUse | "look"): Promise<KeyRecord | undefined> => {
    const secret = sessionOf(head);
    if (secret !== undefined) return deps.sessions.find(secret, wantedFor);
    return deps.keys.find(bearerOf(head.authorization), wantedFor === "look" ? "call" : wantedFor);
  };

  /** The same without waiting; undefined if a query may be needed. */
  const knownRecordOf = ({ authorization }: CallHead): KeyRecord | undefined =>
    authorization === undefined ? undefined : deps.keys.known(bearerOf(authorization));

  const principalFor = (head: CallHead, record: KeyRecord | undefined): KeyPrincipal =>
    head.authorization === undefined ? principalOfSession(record) : principalOf(record);

  /** The concurrency slot of a call with this key; reads of jobs have separate slots. */
  const enter = (keyId: string, record: KeyRecord | undefined, { pool, readsJobs }: MethodRule) => {
    const above = aboveOf(record);
    return readsJobs
      ? deps.limits.enter(readsName(keyId), limitOf(record), pool, above?.map(readsOf))
      : deps.limits.enter(keyId, limitOf(record), pool, above);
  };

  /** Checks a key again for an open stream: refuses what would be refused now, and applies the current limits. */
  const lookAgain = async (head: CallHead, { rule }: MethodRule, before: Principal): Promise<void> => {
    const record = await recordOf(head, "look");
    const key = principalFor(head, record);
    const denial = denialOf(key, rule);
    if (denial) throw denial;
    if (before.kind === "key" && isNarrowed(key, before))
      throw refuse(Reason.KEY_NARROWED, "the key's permissions were reduced; open a new stream");
    const line = [{ id: key.keyId, limit: limitOf(record) }, ...(aboveOf(record) ?? [])];
    for (const { id, limit } of [...line, ...line.map(readsOf)]) deps.limits.change(id, limit);
  };

  const admitKey = async (method: DescMethod, rule: MethodRule, head: CallHead): Promise<Admission> => {
    const isStop = method === STOP;
    const stopUse = head.isUrgent === true ? "urgentStop" : "stop";
    const record = knownRecordOf(head) ?? (await recordOf(head, isStop ? stopUse : "call").catch(notFound));
    const key = principalFor(head, record);
    if (head.trail) head.trail.principal = key;
    const denial = denialOf(key, rule.rule);
    // Forbidden calls count too, so that a client that repeats them is slowed down and sees its remaining limit.
    if (denial !== undefined) turnAway(await enter(key.keyId, record, rule), denial);
    // A stop uses none of its key's limits, so none of them refuses it.
    const admission = isStop ? unlimited(key) : new Admitted(key, await enter(key.keyId, record, rule));
    // Re-check the key periodically while the stream is open.
    if (method.methodKind !== "unary") admission.again = () => lookAgain(head, rule, key);
    return admission;
  };

  const admitSignup = async (head: CallHead): Promise<Admission> => {
    if (head.adminToken !== undefined || !deps.publicSignup) return admitAdmin(head);
    return new Admitted({ kind: "public" }, await deps.limits.enter(`signup ${addressOf(head)}`, SIGNUP_LIMIT));
  };

  const addressOf = ({ remoteAddress, forwardedFor }: CallHead): string =>
    callerAddress(remoteAddress, forwardedFor, deps.trustedProxies);

  const admitAnyone = async (method: DescMethod, { perMinute }: Rpc, head: CallHead): Promise<Admission> => {
    const principal: Principal = { kind: isAdmin(head.adminToken) ? "admin" : "public" };
    if (perMinute === 0) return unlimited(principal);
    const limit = addressLimit(perMinute);
    return new Admitted(principal, await deps.limits.enter(`${method.name} ${addressOf(head)}`, limit));
  };

  return {
    assertLoaded,
    async identify(authorization) {
      assertOpen();
      return principalOf(await deps.keys.find(bearerOf(authorization)).catch(notFound));
    },
    inNameOf({ rule }, record) {
      const key = principalOf(record);
      const denial = denialOf(key, rule);
      if (denial) throw denial;
      return key;
    },
    orgOf(authorization, adminToken, browser) {
      if (isAdmin(adminToken)) return OPERATOR;
      // A request from another site takes no share of the user's organization.
      if (authorization === undefined)
        return browser?.isOwn === true ? (deps.sessions.peek(browser.session ?? "")?.orgId ?? NO_ORG) : NO_ORG;
      try {
        return deps.keys.peek(bearerOf(authorization))?.orgId ?? NO_ORG;
      } catch {
        return NO_ORG;
      }
    },
    async admit(method, methodRule, head) {
      const { rule } = methodRule;
      if (rule.access !== Access.PUBLIC) assertOpen();
      assertLoaded(rule);
      switch (rule.access) {
        case Access.PUBLIC:
          return admitAnyone(method, rule, head);
        case Access.KEY:
          return await admitKey(method, methodRule, head);
        case Access.ADMIN:
          return admitAdmin(head);
        case Access.ADMIN_OR_SIGNUP:
          return admitSignup(head);
        case Access.ADMIN_OR_KEY: {
          if (head.adminToken === undefined) return await admitKey(method, methodRule, head);
          const admin = admitAdmin(head);
          return head.authorization === undefined ? admin : await admitKey(method, methodRule, head);
        }
        default:
          throw new Error(`${method.name} does not declare its access`);
      }
    },
  };
}

function turnAway(place: ConcurrencySlot, { reason, message, details }: Refusal): never {
  const { headers } = place;
  place.leave();
  throw refuse(reason, message, details, { headers });
}

/** If the database is down, callers with an uncached secret receive a 503. */
const notFound = (thrown: unknown): never => {
  throw refusalOfOutage(thrown, "not begun");
};

/** A caller without limits. */
const unlimited = (principal: Principal): Admission => ({
  principal,
  headers: [],
  leave() {
    this.work?.end();
  },
});

/** An admitted caller, with the concurrency slot that its call holds. */
class Admitted implements Admission {
  readonly principal: Principal;
  again?: () => Promise<void>;
  left?: () => void;
  work?: AdmittedWork | undefined;
  readonly #place: ConcurrencySlot;

  constructor(principal: Principal, place: ConcurrencySlot) {
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
    this.work?.end();
    this.left?.();
    this.#place.leave();
  }

  get steps(): StepLimit {
    return this.#place;
  }
}

const limitOf = (record: KeyRecord | undefined): Limit => {
  if (!record) throw new Error("limits exist only for known keys");
  return record.rateLimit;
};

/** The limits of the key's ancestors; undefined if it has none. */
export const aboveOf = (record: KeyRecord | undefined): readonly KeyLimit[] | undefined =>
  record === undefined || record.ancestors.length === 0
    ? undefined
    : record.ancestors.map(({ id, rateLimit }) => ({ id, limit: rateLimit }));

/** The same limits again, for reads of jobs. */
const readsOf = ({ id, limit }: KeyLimit): KeyLimit => ({ id: readsName(id), limit });
const readsName = (id: string): string => `${id} jobs`;

const digestOf = (secret: string): Buffer => createHash("sha256").update(secret).digest();
const sameSecret = (a: Buffer, b: Buffer): boolean => timingSafeEqual(a, b);

/** The last header and its key: a caller in a loop sends the same one repeatedly. */
let heard = { authorization: "", key: "" };

/** The key in an `authorization` header; refuses a missing one. */
function bearerOf(authorization: string | undefined): string {
  if (authorization === undefined) {
    throw refuse(Reason.MISSING_API_KEY, "send an API key: Authorization: Bearer <key>");
  }
  if (heard.authorization === authorization) return heard.key;
  const key = /^bearer +(\S+) *$/i.exec(authorization)?.[1];
  if (key === undefined) throw refuse(Reason.INVALID_API_KEY, "the header must be Authorization: Bearer <key>");
  heard = { authorization, key };
  return key;
}

// One message for every invalid key: the code tells its owner whether it expired, and others learn nothing.
const NO_SUCH_KEY = "invalid API key";

/** The principal of a key, narrowed by its parent keys. Refuses an unknown, disabled or expired key. */
export function principalOf(stored: KeyRecord | undefined): KeyPrincipal {
  if (!stored) throw refuse(Reason.INVALID_API_KEY, NO_SUCH_KEY);
  const record = effective(stored);
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
  const line = record.ancestors.length > 0 && {
    held: authorityOf(record).permissions,
    ancestors: record.ancestors.map((ancestor) => ancestor.id),
  };
  const limits = bounds && { bounds: fromJson(SafetyBoundsSchema, bounds as Parameters<typeof fromJson>[1]) }; // written by toJson
  const principal = {
    kind: "key" as const,
    ...who,
    ...line,
    scopes,
    models,
    environment,
    workspaceId,
    robotId,
    settings,
    reach: reachOfCalls(record),
    requireSigned: requiresSigned(record),
    ...limits,
    ...(record.session && { session: record.session }),
  };
  principals.set(record, principal);
  return principal;
}

/** The principal of a session. One that ended for any reason is refused with the same message. */
function principalOfSession(record: KeyRecord | undefined): KeyPrincipal {
  try {
    return principalOf(record);
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
    throw refuse(Reason.SESSION_ENDED, "this session has ended; sign in again");
  }
}

/**
 * Whether a key is narrower than `before`: fewer models or regions, no retaining or untrusted providers, no unsigned checkpoints, no
 * placeholders; or is bound to another robot, by whose name emergency stops apply.
 */
export function isNarrowed(key: KeyPrincipal, before: KeyPrincipal): boolean {
  if (key === before) return false;
  const { settings, models, environment, robotId, reach, requireSigned } = key;
  return (
    isLess(models.length > 0 ? models : undefined, before.models.length > 0 ? before.models : undefined) ||
    isLess(settings.allowedRegions, before.settings.allowedRegions) ||
    (settings.zdr && !before.settings.zdr) ||
    reach < before.reach ||
    (requireSigned && !before.requireSigned) ||
    (environment === "hardware" && before.environment !== "hardware") ||
    robotId !== before.robotId
  );
}

/** Whether a list lacks an item of another one; undefined contains everything. */
const isLess = (list: readonly string[] | undefined, before: readonly string[] | undefined): boolean =>
  list !== undefined && (before === undefined || before.some((each) => !list.includes(each)));

/** By the key's record, which is the same object as long as the cached key is unchanged. */
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

/** The operator's trusted proxies, by address. */
type Proxies = BlockList;

/** Parses proxy addresses and networks, such as `10.0.0.1` and `10.0.0.0/8`. Throws for any other text. */
export function proxiesOf(words: readonly string[]): Proxies {
  const list = new BlockList();
  for (const word of words) {
    const [address = "", prefix] = word.split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    list.addSubnet(address, prefix === undefined ? (family === "ipv6" ? 128 : 32) : Number(prefix), family);
  }
  return list;
}

/**
 * The address for rate limits: the peer, or, behind a trusted proxy, the last untrusted address in `X-Forwarded-For`. The addresses before it
 * are the caller's claim. An IPv6 host counts with its /64.
 */
export function callerAddress(connected: string, forwarded: string | undefined, proxies: Proxies): string {
  const hops = [...(forwarded ?? "").split(",").map((hop) => hop.trim()), connected].map(plainAddress);
  let at = hops.length - 1;
  while (at > 0 && isTrusted(hops[at] ?? "", proxies) && isIP(hops[at - 1] ?? "") !== 0) at--;
  return householdOf(hops[at] ?? "");
}

/** The address that is charged for a costly connection; undefined for a trusted proxy, which all callers share. */
export function chargedAs(connected: string, proxies: Proxies): string | undefined {
  const address = plainAddress(connected);
  return isTrusted(address, proxies) ? undefined : householdOf(address);
}

const plainAddress = (address: string): string => address.replace(/^::ffff:(?=\d+\.)/i, "").replace(/%.*$/, "");

function isTrusted(address: string, proxies: Proxies): boolean {
  const family = isIP(address);
  return family !== 0 && proxies.check(address, family === 6 ? "ipv6" : "ipv4");
}

function householdOf(address: string): string {
  if (!address.includes(":")) return address;
  const [head = "", tail] = address.split("::");
  const first = head.split(":").filter(Boolean);
  const last = (tail ?? "").split(":").filter(Boolean);
  const whole = [...first, ...Array(Math.max(0, 8 - first.length - last.length)).fill("0"), ...last];
  return whole.slice(0, 4).join(":");
}

/** The gateway's origin for browsers. */
export interface OwnAddress {
  /** The operator's setting; if absent, each request's own. */
  readonly publicUrl?: string | undefined;
  /** Whether connections to the port are encrypted. */
  readonly isTls: boolean;
}

type HeadersOfRequest = Readonly<Record<string, string | string[] | undefined>>;

/** Methods that other sites cannot use without a preflight. */
const OWN_TYPE = /^application\/(json|(connect\+)?(json|proto))\s*(;|$)/i;
const WITHOUT_BODY = new Set(["GET", "HEAD", "DELETE"]);

/** What the head of a request with the method `verb` reveals about its browser. */
export function browserOf(headers: HeadersOfRequest, verb: string, address: OwnAddress): BrowserHead {
  const own = originOf(headers, address);
  return new Browser(own, isOwn(headers, verb, own), textOf(headers.cookie));
}

/** The gateway's origin in the format of browsers; undefined if the `Host` header is missing. */
function originOf(headers: HeadersOfRequest, { publicUrl, isTls }: OwnAddress): URL | undefined {
  const host = textOf(headers[":authority"]) ?? textOf(headers.host);
  const text = publicUrl ?? `${isTls ? "https" : "http"}://${host}`;
  return (publicUrl === undefined && host === undefined) || !URL.canParse(text) ? undefined : new URL(text);
}

/** Whether one of the gateway's own pages sent it; undefined if unknown, as with callers that are not browsers. */
function isOwn(headers: HeadersOfRequest, verb: string, own: URL | undefined): boolean | undefined {
  const { origin, "sec-fetch-site": site, "content-type": type } = headers;
  if (origin === undefined && site === undefined) return undefined;
  if (own === undefined || (site !== undefined && site !== "same-origin")) return false;
  if (origin !== undefined && origin !== own.origin) return false;
  return type === undefined ? WITHOUT_BODY.has(verb) : OWN_TYPE.test(textOf(type) ?? "");
}

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

class Browser implements BrowserHead {
  readonly origin: string | undefined;
  readonly isOwn: boolean | undefined;
  readonly canKeep: boolean;
  readonly cookies: string[] = [];
  readonly #isSecure: boolean;
  readonly #sent: string | undefined;

  constructor(own: URL | undefined, isOwn: boolean | undefined, sent: string | undefined) {
    this.origin = own?.origin;
    this.isOwn = isOwn;
    this.#isSecure = own?.protocol === "https:";
    this.canKeep = this.#isSecure || LOOPBACK.test(own?.hostname ?? "");
    this.#sent = sent;
  }

  get session(): string | undefined {
    return this.kept(SESSION_COOKIE);
  }

  kept(name: string): string | undefined {
    if (this.#sent === undefined || !this.canKeep) return undefined;
    const begins = `${this.#nameOf(name)}=`;
    const found = this.#sent.split(";").find((pair) => pair.trimStart().startsWith(begins));
    return found?.trim().slice(begins.length);
  }

  keep(name: string, value: string, forS: number): void {
    // Browsers accept the prefix only on encrypted connections: it prevents other hosts of the domain from setting the cookie.
    const attributes = `Path=/; Max-Age=${forS}; HttpOnly; SameSite=Lax${this.#isSecure ? "; Secure" : ""}`;
    this.cookies.push(`${this.#nameOf(name)}=${value}; ${attributes}`);
  }

  #nameOf(name: string): string {
    return this.#isSecure ? `__Host-${name}` : name;
  }
}

const textOf = (value: string | string[] | undefined): string | undefined =>
  typeof value === "string" ? value : undefined;

/** What the gate needs of a call before its body. */
export interface CallHead {
  /** The `authorization` header. */
  authorization: string | undefined;
  /** The `x-service-admin-token` header. */
  adminToken: string | undefined;
  /** The peer address, for limits on calls without a key. */
  remoteAddress: string;
  /** The slot of the connection, which becomes permanent once a key or a session was accepted. */
  slot?: { authenticated(): void } | undefined;
  /** The `X-Forwarded-For` header, trusted if the peer is a trusted proxy. */
  forwardedFor?: string | undefined;
  /** The request's browser, if it has no key and may come from one. */
  browser?: BrowserHead | undefined;
  requestId: string;
  /** Receives the caller's identity. */
  trail?: CallTrail | undefined;
  /** Whether to skip optional waits. */
  isUrgent?: boolean | undefined;
  /** The priority class of the call, if the transport knows more than the schema. */
  priority?: Priority | undefined;
  /** The caller's deadline on the monotonic clock in milliseconds, if set. */
  deadline?: number | undefined;
}

/** An admitted caller, with its remaining limits. */
export interface Admission {
  principal: Principal;
  /** Rate limit headers, alternating names and values; empty for calls without a key. */
  readonly headers: readonly string[];
  /** The same as lines of HTTP/1, if available. */
  readonly lines?: string | undefined;
  /** Marks the response as a replay for the same idempotency key, for transports to report. */
  replayed?: boolean;
  /** Releases the concurrency slot; call it once, after the response. */
  leave(): void;
  /** Counts the steps of a control loop against the key's rate limit; undefined for calls without a key. */
  steps?: StepLimit | undefined;
  /** Whether the caller would be admitted again; rejects with the refusal if not. For long calls. */
  again?(): Promise<void>;
  /** Called when the slot is released. */
  left?: () => void;
  /** The call's part of this process's load; ended by `leave`. */
  work?: AdmittedWork | undefined;
  /** The calling browser, and the cookies that the response sets. */
  browser?: BrowserHead | undefined;
}

/** The context of a call besides its message. */
export interface CallContext {
  requestId: string;
  signal: Signal;
  /** When the call arrived, before it was queued or decoded, on the monotonic clock in milliseconds. */
  arrivedAt: number;
  /** When its observation arrived, if that was before the call. */
  observedAt?: number | undefined;
  /** The caller's deadline on the monotonic clock, in milliseconds. */
  deadline: number | undefined;
  /** The `Idempotency-Key` header. */
  idempotencyKey: string | undefined;
  /** The `Host` of the request. */
  host?: string | undefined;
  /** Whether to skip optional waits. */
  isUrgent?: boolean | undefined;
  /** The `traceparent` header, not parsed. */
  traceparent?: string | undefined;
  /** Receives the request. */
  trail?: CallTrail | undefined;
  /** Encodes the response for the transport; called before the response is charged. */
  encode?: Call["encode"];
  /** See Call. */
  begin?: (() => void) | undefined;
}

/** The access rules of an RPC. */
export interface MethodRule {
  rule: Rpc;
  /** The rate limit group of its calls. */
  pool: TokenPool;
  /**
   * Whether it reads jobs or their results. Such calls have the key's limits again for themselves, so that polling a job does not slow its calls.
   */
  readsJobs: boolean;
  /** Its priority class under overload. */
  priority: Priority;
  serve: (request: unknown, call: Call) => unknown;
}
