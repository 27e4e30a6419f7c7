/**
 * Whose supply may serve a call. Tiers, from the narrowest: an organization's own supply; supply that the operator verified; what the
 * caller names; everybody else's, the community's. Each level (organization, workspace, key, preset, request) can only narrow what the level
 * above leaves open.
 */

import { createPublicKey, type KeyObject, verify } from "node:crypto";
import { SupplyTrust } from "../../gen/limber/v1/preferences_pb.ts";
import { Reach } from "../call.ts";

/** A tier as callers name it. A level that names one is served from it and from those before it. */
export type Trust = "own" | "verified" | "named" | "community";

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
  /** The organization whose offering it is; empty for the gateway's own placeholders. */
  readonly orgId: string;
  /** That of its provider. A rejected one serves its own organization alone. */
  readonly standing: Standing;
  /** Its organization owns the name of its model's owner, the part before the slash. */
  readonly ownsName: boolean;
}

/** What the gateway itself answers with. */
export const OF_THE_GATEWAY: Supplier = { orgId: "", standing: "verified", ownsName: false };

/** The tier of an offering as an organization sees it. */
export const tierOf = ({ orgId, standing }: Supplier, caller: string): Exclude<Trust, "named"> =>
  orgId === caller ? "own" : standing === "verified" ? "verified" : "community";

/** Whether a supplier may serve an organization within a reach; `isNamed`: the caller names the model in full. */
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

/** What a maker states of a checkpoint. */
export interface CheckpointStatement {
  /** The name of the provider that is to serve it. */
  readonly provider: string;
  /** The model's slug. */
  readonly model: string;
  /** `sha256:` and 64 hexadecimal digits. */
  readonly digest: string;
  /** ProtoJSON of `InputContract`. */
  readonly input: object;
  /** ProtoJSON of `SafetyBounds`; null where nothing is said. */
  readonly bounds: object | null;
}

/** The statement as it is signed: canonical JSON (RFC 8785), whose `type` no other text of ours has. */
export const statementOf = ({ provider, model, digest, input, bounds }: CheckpointStatement): string =>
  canonical({ type: "limber.checkpoint.v1", provider, model, digest, input, bounds });

/** JSON with members in the order of their names' UTF-16 units, without spaces. Numbers and strings are as JSON.stringify writes them. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join()}}`;
}

/** A public key of Ed25519 from its PEM; undefined for anything else, private keys and other curves among it. */
export function ed25519Key(pem: string): KeyObject | undefined {
  if (!/^\s*-----BEGIN PUBLIC KEY-----/.test(pem)) return undefined;
  try {
    const key = createPublicKey(pem);
    return key.asymmetricKeyType === "ed25519" ? key : undefined;
  } catch {
    return undefined;
  }
}

/** The PEM by which equal keys are equal. */
export const pemOf = (key: KeyObject): string => key.export({ type: "spki", format: "pem" }) as string; // what PEM gives

/** Whether one of these keys (PEM) signed the statement. */
export function isSigned(statement: string, signature: Uint8Array, keys: readonly string[]): boolean {
  if (signature.length !== SIGNATURE_BYTES) return false;
  const bytes = Buffer.from(statement);
  return keys.some((pem) => {
    const key = ed25519Key(pem);
    return key !== undefined && verify(null, bytes, key, signature);
  });
}

const SIGNATURE_BYTES = 64;
