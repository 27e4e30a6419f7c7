/**
 * Whose supply may serve a call. Tiers, from the narrowest: an organisation's own supply; supply that the operator verified; what the
 * caller names; everybody else's, the community's. Each level (organisation, workspace, key, preset, request) can only narrow what the level
 * above leaves open.
 */
import { SupplyTrust } from "../../gen/limber/v1/preferences_pb.ts";

/** A tier as callers name it. A level that names one is served from it and from those before it. */
export type Trust = "own" | "verified" | "named" | "community";

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

const REACHES: Readonly<Record<Trust, Reach>> = {
  own: Reach.OWN,
  verified: Reach.VERIFIED,
  named: Reach.NAMED,
  community: Reach.COMMUNITY,
};

/** How far a level reaches that names a tier. */
export const reachOfTier = (trust: Trust): Reach => REACHES[trust];

/** The tier of a reach. */
export const trustOf = (reach: Reach): Trust => TIERS[reach];
const TIERS = ["own", "verified", "named", "community"] as const;

/** Tiers on the wire. */
export const TRUSTS: Readonly<Record<Trust, SupplyTrust>> = {
  own: SupplyTrust.OWN,
  verified: SupplyTrust.VERIFIED,
  named: SupplyTrust.NAMED,
  community: SupplyTrust.COMMUNITY,
};

/** The tier that a message names; undefined where it names none. */
export const trustIn = (trust: SupplyTrust | undefined): Trust | undefined =>
  TIERS.find((tier) => TRUSTS[tier] === trust);

/** What two levels both leave open. */
export const narrower = (one: Reach, other: Reach): Reach => (one < other ? one : other);

/** How far a key reaches by itself. One for hardware gets nothing of the community's unless it says so. */
export const reachOfKey = (trust: Trust | undefined, environment: "hardware" | "simulation"): Reach =>
  reachOfTier(trust ?? (environment === "hardware" ? "verified" : "community"));

/** What a key has to say to reach so far; undefined where it does by saying nothing, so that it is narrowed when it becomes one for hardware. */
export const trustSaid = (reach: Reach, environment: "hardware" | "simulation"): Trust | undefined =>
  reach === reachOfKey(undefined, environment) ? undefined : trustOf(reach);

/** What the operator says of a provider. */
export type Standing = "community" | "verified" | "rejected";

/** Whose an offering is. */
export interface Supplier {
  /** The organisation whose offering it is; empty for the gateway's own placeholders. */
  readonly orgId: string;
  /** That of its provider. A rejected one serves its own organisation alone. */
  readonly standing: Standing;
  /** Its organisation owns the name of its model's owner, the part before the slash. */
  readonly ownsName: boolean;
}

/** What the gateway itself answers with. */
export const OF_THE_GATEWAY: Supplier = { orgId: "", standing: "verified", ownsName: false };

/** The tier of an offering as an organisation sees it. */
export const tierOf = ({ orgId, standing }: Supplier, caller: string): Exclude<Trust, "named"> =>
  orgId === caller ? "own" : standing === "verified" ? "verified" : "community";

/** Whether a supplier may serve an organisation within a reach; `isNamed`: the caller names the model in full. */
export function mayServe(
  { orgId, standing, ownsName }: Supplier,
  caller: string,
  reach: Reach,
  isNamed: boolean,
): boolean {
  if (orgId === caller) return true;
  if (reach === Reach.OWN || standing === "rejected") return false;
  return standing === "verified" || reach === Reach.COMMUNITY || (reach === Reach.NAMED && isNamed && ownsName);
}
