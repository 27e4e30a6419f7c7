/**
 * Checkpoints that their makers signed: Ed25519 (RFC 8032) over a statement of digest, input contract and bounds. The statement names model and
 * provider, so that a signature speaks for no other offering than those of that provider.
 */
import { createPublicKey, type KeyObject, verify } from "node:crypto";

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
