/** Who calls: the key that a call brings, and what is known of it. */
import { fromJson } from "@bufbuild/protobuf";
import { SafetyBoundsSchema } from "../../../gen/limber/v1/action_pb.ts";
import type { KeyPrincipal } from "../../call.ts";
import { now } from "../../clock.ts";
import { Reason, Refusal, refuse } from "../../errors.ts";
import { authorityOf, effective, reachOfCalls, requiresSigned } from "../../services/authority.ts";
import type { KeyRecord } from "../../store/account/keys.ts";

/** The header before, and the key in it: a caller in a loop sends the same one again and again. */
let heard = { authorization: "", key: "" };

/** The key in an `authorization` header; refuses where there is none. */
export function bearerOf(authorization: string | undefined): string {
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

/** Who calls with this key, narrowed by the keys that it descends from. Refuses for one that is unknown, disabled, or over. */
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

/** Who calls by a session. Whatever ended it, the person has to sign in again, and is told no more. */
export function principalOfSession(record: KeyRecord | undefined): KeyPrincipal {
  try {
    return principalOf(record);
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
    throw refuse(Reason.SESSION_ENDED, "this session is over; sign in again");
  }
}

/**
 * Whether a key may be served less than it might `before`: fewer models or regions, by nobody who retains frames or is not trusted, no unsigned checkpoints, no placeholders; or
 * is for another robot, which emergency stops know by its name.
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

/** Whether a list lacks something of another one; undefined has everything. */
const isLess = (list: readonly string[] | undefined, before: readonly string[] | undefined): boolean =>
  list !== undefined && (before === undefined || before.some((each) => !list.includes(each)));

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
