/**
 * Whose supply can serve a call. Tiers, narrowest first: an organization's own supply; supply that the operator verified; supply that the
 * caller names; all community supply. Each level (organization, workspace, key, preset, request) can only narrow what the level above
 * allows.
 */

import { createPublicKey, type KeyObject, verify } from "node:crypto";
import { SupplyTrust } from "../../gen/limber/v1/preferences_pb.ts";
import { Reach } from "../call.ts";

/** A tier as callers name it. A level that names one allows it and all narrower ones. */
export type Trust = "own" | "verified" | "named" | "community";

const REACHES: Readonly<Record<Trust, Reach>> = {
  own: Reach.OWN,
  verified: Reach.VERIFIED,
  named: Reach.NAMED,
  community: Reach.COMMUNITY,
};

/** The reach of a level that names a tier. */
export const reachOfTier = (trust: Trust): Reach => REACHES[trust];

/** The tier of a reach. */
export const trustOf = (reach: Reach): Trust => TIERS[reach];
const TIERS = ["own", "verified", "named", "community"] as const;

/** Tiers in messages. */
export const TRUSTS: Readonly<Record<Trust, SupplyTrust>> = {
  own: SupplyTrust.OWN,
  verified: SupplyTrust.VERIFIED,
  named: SupplyTrust.NAMED,
  community: SupplyTrust.COMMUNITY,
};

/** The tier of a message; undefined if it names none. */
export const trustIn = (trust: SupplyTrust | undefined): Trust | undefined =>
  TIERS.find((tier) => TRUSTS[tier] === trust);

/** The narrower of two levels. */
export const narrower = (one: Reach, other: Reach): Reach => (one < other ? one : other);

/** The default reach of a key. Hardware keys exclude community supply unless they name a tier. */
export const reachOfKey = (trust: Trust | undefined, environment: "hardware" | "simulation"): Reach =>
  reachOfTier(trust ?? (environment === "hardware" ? "verified" : "community"));

/**
 * The tier that a key must name for this reach; undefined if the default suffices, so that the key is narrowed if it becomes a hardware
 * key.
 */
export const trustSaid = (reach: Reach, environment: "hardware" | "simulation"): Trust | undefined =>
  reach === reachOfKey(undefined, environment) ? undefined : trustOf(reach);

/** The operator's decision on a provider. */
export type Standing = "community" | "verified" | "rejected";

/** The supplier of an offering. */
export interface Supplier {
  /** The offering's organization; empty for the gateway's own placeholders. */
  readonly orgId: string;
  /** Its provider's status. A rejected provider serves only its own organization. */
  readonly standing: Standing;
  /** Whether its organization owns the name of its model's owner, the part before the slash. */
  readonly ownsName: boolean;
}

/** The supplier of the gateway's own placeholders. */
export const OF_THE_GATEWAY: Supplier = { orgId: "", standing: "verified", ownsName: false };

/** The tier of an offering from the view of an organization. */
export const tierOf = ({ orgId, standing }: Supplier, caller: string): Exclude<Trust, "named"> =>
  orgId === caller ? "own" : standing === "verified" ? "verified" : "community";

/** Whether a supplier can serve an organization within a reach; `isNamed`: the caller names the model exactly. */
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

/** A maker's statement about a checkpoint. */
export interface CheckpointStatement {
  /** The name of the provider that serves it. */
  readonly provider: string;
  /** The model's slug. */
  readonly model: string;
  /** `sha256:` and 64 hexadecimal digits. */
  readonly digest: string;
  /** ProtoJSON of `InputContract`. */
  readonly input: object;
  /** ProtoJSON of `SafetyBounds`; null if there are none. */
  readonly bounds: object | null;
}

/** The statement as signed: canonical JSON (RFC 8785), whose `type` occurs in no other text of the gateway. */
export const statementOf = ({ provider, model, digest, input, bounds }: CheckpointStatement): string =>
  canonical({ type: "limber.checkpoint.v1", provider, model, digest, input, bounds });

/** JSON with members sorted by the UTF-16 units of their names, without spaces. Numbers and strings are formatted by JSON.stringify. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join()}}`;
}

/** An Ed25519 public key from its PEM; undefined for anything else, including private keys and other curves. */
export function ed25519Key(pem: string): KeyObject | undefined {
  if (!/^\s*-----BEGIN PUBLIC KEY-----/.test(pem)) return undefined;
  try {
    const key = createPublicKey(pem);
    return key.asymmetricKeyType === "ed25519" ? key : undefined;
  } catch {
    return undefined;
  }
}

/** The canonical PEM, by which equal keys are equal. */
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
