/** Who is let in: by the admin token, by a key and what it may, or as anyone; and how often. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { DescMethod } from "@bufbuild/protobuf";
import { Access, type Rpc } from "../../../gen/limber/edge/v1/options_pb.ts";
import { RobotService } from "../../../gen/limber/v1/robot_service_pb.ts";
import { inTime } from "../../ambient.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import type { KeyPrincipal, Principal } from "../../call.ts";
import { denialOf } from "../../services/permissions.ts";
import type { KeyRecord } from "../../store/account/keys.ts";
import type { Admission, CallHead, GateParts } from "./gate.ts";
import { asToldToCallers } from "../messages/store-outage.ts";
import type { Work } from "./admission/admission.ts";
import { callerAddress } from "./caller-address.ts";
import type { Door } from "./method-rules.ts";
import type { Limit } from "./token-bucket.ts";
import type { KeyLimit, Place } from "./rate-limits.ts";
import { bearerOf, isNarrowed, principalOf } from "./principal.ts";

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

/** What a house asks of whoever comes. */
export type AdmitParts = Pick<
  GateParts,
  "keys" | "limits" | "adminToken" | "publicSignup" | "trustedProxies" | "closing" | "loaded"
>;

/** Lets callers in, or refuses them. */
export interface Doorkeeper {
  admit(method: DescMethod, door: Door, head: CallHead): Admission | Promise<Admission>;
  /** Who calls with this key; refuses one that may not make the call. For calls that others make in its name later. */
  inNameOf(door: Door, record: KeyRecord | undefined): KeyPrincipal;
  /** Whose share of an overloaded gateway a call takes, by what is in memory: a key's organisation, the operator, or everyone else. */
  orgOf(authorization: string | undefined, adminToken: string | undefined): string;
  /** Refuses while the house does not know its state, where that is needed. */
  assertLoaded(rule: Rpc): void;
}

/** The doorkeeper of a house. */
export function createDoorkeeper(parts: AdmitParts): Doorkeeper {
  const adminDigest = digestOf(parts.adminToken);

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
    return unlimited({ kind: "admin" });
  };

  const admitRecord = (
    record: KeyRecord | undefined,
    { rule, pool }: Door,
    isStop: boolean,
  ): Admission | Promise<Admission> => {
    const key = principalOf(record);
    const denial = denialOf(key, rule);
    // What a key may not do counts too: who tries it without end is slowed down, and is told what is left.
    const place = parts.limits.enter(key.keyId, limitOf(record), pool, aboveOf(record));
    if (denial === undefined && isStop && place instanceof Promise) return admittedSoon(key, place);
    if (denial === undefined) return admitted(key, place);
    return place instanceof Promise ? place.then((held) => turnAway(held, denial)) : turnAway(place, denial);
  };

  /** The same key, looked at again by who stays: what would be refused now. Its limits are those that hold now. */
  const lookAgain = (head: CallHead, { rule }: Door, before: Principal): unknown => {
    const look = (record: KeyRecord | undefined): void => {
      const key = principalOf(record);
      const denial = denialOf(key, rule);
      if (denial) throw denial;
      if (before.kind === "key" && isNarrowed(key, before))
        throw refuse(Reason.KEY_NARROWED, "this key may do less than when the stream was opened; open another one");
      parts.limits.change(key.keyId, limitOf(record));
      for (const { id, limit } of aboveOf(record) ?? []) parts.limits.change(id, limit);
    };
    const record = parts.keys.find(bearerOf(head.authorization));
    return record instanceof Promise ? record.then(look) : look(record);
  };

  const admitKey = (method: DescMethod, door: Door, head: CallHead): Admission | Promise<Admission> => {
    const isStop = method === STOP;
    const record = parts.keys.find(bearerOf(head.authorization), isStop ? "stop" : "call");
    if (!(record instanceof Promise)) return admitRecord(record, door, isStop);
    return record.then(
      (found) => admitRecord(found, door, isStop),
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
    if (perMinute === 0) return unlimited(principal);
    return admitted(principal, parts.limits.enter(`${method.name} ${addressOf(head)}`, addressLimit(perMinute)));
  };

  return {
    assertLoaded,
    inNameOf({ rule }, record) {
      const key = principalOf(record);
      const denial = denialOf(key, rule);
      if (denial) throw denial;
      return key;
    },
    orgOf(authorization, adminToken) {
      if (isAdmin(adminToken)) return OPERATOR;
      if (authorization === undefined) return NOBODY;
      try {
        return parts.keys.peek(bearerOf(authorization))?.orgId ?? NOBODY;
      } catch {
        return NOBODY;
      }
    },
    admit(method, door, head) {
      const { rule } = door;
      if (rule.access !== Access.PUBLIC && parts.closing()) {
        throw refuse(Reason.NOT_READY, "the gateway is closing; call again elsewhere", {}, { retryAfter: 1 });
      }
      assertLoaded(rule);
      switch (rule.access) {
        case Access.PUBLIC:
          return admitAnyone(method, rule, head);
        case Access.KEY: {
          const entry = admitKey(method, door, head);
          if (method.methodKind === "unary") return entry;
          const lasting = (admission: Admission): Admission =>
            Object.assign(admission, { again: () => lookAgain(head, door, admission.principal) });
          return entry instanceof Promise ? entry.then(lasting) : lasting(entry);
        }
        case Access.ADMIN:
          return admitAdmin(head);
        case Access.ADMIN_OR_SIGNUP:
          return admitSignup(head);
        case Access.ADMIN_OR_KEY: {
          if (head.adminToken === undefined) return admitKey(method, door, head);
          const admin = admitAdmin(head);
          return head.authorization === undefined ? admin : admitKey(method, door, head);
        }
        default:
          throw new Error(`${method.name} does not say who may call it`);
      }
    },
  };
}

function turnAway(place: Place, { reason, message, details }: Refusal): never {
  const { headers } = place;
  place.leave();
  throw refuse(reason, message, details, { headers });
}

const admitted = (principal: Principal, place: Place | Promise<Place>): Admission | Promise<Admission> =>
  place instanceof Promise ? place.then((held) => new Admitted(principal, held)) : new Admitted(principal, place);

/** A stop waits for no database that shares out the key's rate: one that takes longer stops without a place. */
const STOP_PATIENCE_MS = 50;

const admittedSoon = (principal: Principal, place: Promise<Place>): Promise<Admission> =>
  inTime(place, { ms: STOP_PATIENCE_MS, late: () => NO_PLACE, unwanted: (late) => late.leave() }).then(
    (held) => new Admitted(principal, held),
    (thrown) => {
      if (thrown === NO_PLACE) return unlimited(principal);
      throw thrown;
    },
  );

const NO_PLACE = new Error("there is no place yet");

/** A caller without limits. */
const unlimited = (principal: Principal): Admission => ({
  principal,
  headers: [],
  leave() {
    this.work?.end();
  },
});

/** A caller in his place. */
class Admitted implements Admission {
  readonly principal: Principal;
  again?: () => unknown;
  left?: () => void;
  work?: Work | undefined;
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
    this.work?.end();
    this.left?.();
    this.#place.leave();
  }

  step(): Promise<void> | undefined {
    return this.#place.step();
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

const digestOf = (secret: string): Buffer => createHash("sha256").update(secret).digest();
const sameSecret = (a: Buffer, b: Buffer): boolean => timingSafeEqual(a, b);
