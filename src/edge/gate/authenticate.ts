/** Who is let in: by the admin token, by a key and what it may, or as anyone; and how often. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { DescMethod } from "@bufbuild/protobuf";
import { Access, type Rpc } from "../../../gen/limber/edge/v1/options_pb.ts";
import { RobotService } from "../../../gen/limber/v1/robot_service_pb.ts";
import type { BrowserHead, KeyPrincipal, Principal, StepLimit } from "../../call.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { denialOf } from "../../services/permissions.ts";
import type { KeyUse } from "../../store/account/key-cache.ts";
import type { KeyRecord } from "../../store/account/keys.ts";
import { refusalOfOutage } from "../messages/store-outage.ts";
import type { AdmittedWork } from "./admission/admission.ts";
import { callerAddress } from "./caller-address.ts";
import type { Admission, CallHead, GateDeps } from "./gate.ts";
import type { MethodRule } from "./method-rules.ts";
import { bearerOf, isNarrowed, principalOf, principalOfSession } from "./principal.ts";
import type { ConcurrencySlot, KeyLimit } from "./rate-limits.ts";
import type { Limit } from "./token-bucket.ts";

/** What an address may do that calls without a key what is counted: so often in a minute, half of that at once. */
const addressLimit = (perMinute: number): Limit => ({
  requests: perMinute,
  windowS: 60,
  burst: Math.ceil(perMinute / 2),
  concurrency: perMinute,
  streams: 1,
});
const SIGNUP_LIMIT: Limit = { requests: 10, windowS: 3600, burst: 5, concurrency: 2, streams: 1 };
/** Robots are stopped by keys that were good a while ago, when the database can't say whether they still are. */
const STOP = RobotService.method.stopRobots;
/** The operator's share under overload, and that of all whose key is not in memory. */
const OPERATOR = "operator";
const NOBODY = "";

/** Who calls, and whether the call may pass. */
export type AuthenticatorDeps = Pick<
  GateDeps,
  "keys" | "sessions" | "limits" | "adminToken" | "publicSignup" | "trustedProxies" | "closing" | "loaded"
>;

/** Lets callers in, or refuses them. */
export interface Authenticator {
  admit(method: DescMethod, rule: MethodRule, head: CallHead): Promise<Admission>;
  /** Whose key this is; refuses one that may not call at all, and everyone while the gateway is closing. */
  identify(authorization: string | undefined): Promise<KeyPrincipal>;
  /** Who calls with this key; refuses one that may not make the call. For calls that others make in its name later. */
  inNameOf(rule: MethodRule, record: KeyRecord | undefined): KeyPrincipal;
  /** Whose share of an overloaded gateway a call takes, by what is in memory: a key's organisation, the operator, or everyone else. */
  orgOf(authorization: string | undefined, adminToken: string | undefined, browser?: BrowserHead): string;
  /** Refuses while the gateway does not know its state, where that is needed. */
  assertLoaded(rule: Rpc): void;
}

/** The authenticator of a gateway. */
export function createAuthenticator(deps: AuthenticatorDeps): Authenticator {
  const adminDigest = digestOf(deps.adminToken);

  const assertLoaded = ({ access }: Rpc): void => {
    if (access === Access.PUBLIC || deps.loaded()) return;
    throw refuse(Reason.NOT_READY, "the gateway's state is not loaded yet; call again", {}, { retryAfter: 1 });
  };

  const assertOpen = (): void => {
    if (deps.closing())
      throw refuse(Reason.NOT_READY, "the gateway is closing; call again elsewhere", {}, { retryAfter: 1 });
  };

  const isAdmin = (token: string | undefined): boolean =>
    token !== undefined && sameSecret(digestOf(token), adminDigest);

  const admitAdmin = (head: CallHead): Admission => {
    if (head.adminToken === undefined) {
      throw refuse(Reason.ADMIN_TOKEN_REQUIRED, "this call is the operator's: send the admin token in its header");
    }
    if (!isAdmin(head.adminToken)) throw refuse(Reason.INVALID_ADMIN_TOKEN, "the admin token is not the right one");
    return unlimited({ kind: "admin" });
  };

  /** By what a caller without a key is known: the session of its browser. A request that another site's page may have sent has none. */
  const sessionOf = ({ authorization, browser }: CallHead): string | undefined => {
    const secret = authorization === undefined ? browser?.session : undefined;
    if (secret === undefined || browser?.isOwn === true) return secret;
    throw refuse(
      Reason.CROSS_ORIGIN,
      "a session counts for requests of the gateway's own pages alone, which name its address and send JSON; other callers send an API key",
    );
  };

  /** Throws the refusal of a head that can have no key. */
  const recordOf = (head: CallHead, wantedFor: KeyUse | "look"): Promise<KeyRecord | undefined> => {
    const secret = sessionOf(head);
    if (secret !== undefined) return deps.sessions.find(secret, wantedFor);
    return deps.keys.find(bearerOf(head.authorization), wantedFor === "look" ? "call" : wantedFor);
  };

  /** The same, where nothing has to be waited for; undefined where something may have to be. */
  const knownRecordOf = ({ authorization }: CallHead): KeyRecord | undefined =>
    authorization === undefined ? undefined : deps.keys.known(bearerOf(authorization));

  const principalFor = (head: CallHead, record: KeyRecord | undefined): KeyPrincipal =>
    head.authorization === undefined ? principalOfSession(record) : principalOf(record);

  /** The place of a call with this key: reads of jobs have places of their own. */
  const enter = (keyId: string, record: KeyRecord | undefined, { pool, readsJobs }: MethodRule) => {
    const above = aboveOf(record);
    return readsJobs
      ? deps.limits.enter(readsName(keyId), limitOf(record), pool, above?.map(readsOf))
      : deps.limits.enter(keyId, limitOf(record), pool, above);
  };

  /** The same key, looked at again by who stays: what would be refused now. Its limits are those that hold now. */
  const lookAgain = async (head: CallHead, { rule }: MethodRule, before: Principal): Promise<void> => {
    const record = await recordOf(head, "look");
    const key = principalFor(head, record);
    const denial = denialOf(key, rule);
    if (denial) throw denial;
    if (before.kind === "key" && isNarrowed(key, before))
      throw refuse(Reason.KEY_NARROWED, "this key may do less than when the stream was opened; open another one");
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
    // What a key may not do counts too: who tries it without end is slowed down, and is told what is left.
    if (denial !== undefined) turnAway(await enter(key.keyId, record, rule), denial);
    // A stop takes nothing of its key's limits, and so is refused by none of them.
    const admission = isStop ? unlimited(key) : new Admitted(key, await enter(key.keyId, record, rule));
    // Of who stays the key is asked for again.
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
      // What another site's page has a browser send takes no share of the person's organisation.
      if (authorization === undefined)
        return browser?.isOwn === true ? (deps.sessions.peek(browser.session ?? "")?.orgId ?? NOBODY) : NOBODY;
      try {
        return deps.keys.peek(bearerOf(authorization))?.orgId ?? NOBODY;
      } catch {
        return NOBODY;
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
          throw new Error(`${method.name} does not say who may call it`);
      }
    },
  };
}

function turnAway(place: ConcurrencySlot, { reason, message, details }: Refusal): never {
  const { headers } = place;
  place.leave();
  throw refuse(reason, message, details, { headers });
}

/** Where the database is away that knows of a secret, its callers are told so. */
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
  if (!record) throw new Error("limits are read for known keys only");
  return record.rateLimit;
};

/** The limits of the keys that a key descends from; undefined for none. */
export const aboveOf = (record: KeyRecord | undefined): readonly KeyLimit[] | undefined =>
  record === undefined || record.ancestors.length === 0
    ? undefined
    : record.ancestors.map(({ id, rateLimit }) => ({ id, limit: rateLimit }));

/** The same limits once more, for reads of jobs. */
const readsOf = ({ id, limit }: KeyLimit): KeyLimit => ({ id: readsName(id), limit });
const readsName = (id: string): string => `${id} jobs`;

const digestOf = (secret: string): Buffer => createHash("sha256").update(secret).digest();
const sameSecret = (a: Buffer, b: Buffer): boolean => timingSafeEqual(a, b);
