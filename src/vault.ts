/**
 * Seals secrets that the gateway must be able to open again, such as what it shows to providers. Each secret has a data key of
 * its own, wrapped under a master key that is named by an id: AES-256-GCM both times, bound to a context. So several master keys
 * can be loaded at one time, and a new one takes over by wrapping the data keys again.
 */
import { createCipheriv, createDecipheriv, createHash } from "node:crypto";
import { secretBytes } from "./ambient.ts";

/** Why a sealed secret doesn't open. */
export type VaultFault = "unknown_master_key" | "changed";

/** A sealed secret that doesn't open. */
export class VaultError extends Error {
  readonly fault: VaultFault;

  constructor(fault: VaultFault) {
    super(
      fault === "changed"
        ? "the sealed bytes were changed, or belong elsewhere"
        : "it was sealed under a key that is not loaded",
    );
    this.name = "VaultError";
    this.fault = fault;
  }
}

/** Opens and seals under master keys of which one is current. */
export interface Vault {
  /** What everything begins with that is sealed under the current master key. */
  readonly head: Buffer;
  /** The sealed form of a secret, under the current master key. Opens only with the same context. */
  seal(secret: string, context: string): Buffer;
  /** The secret; throws a `VaultError`. */
  open(sealed: Uint8Array, context: string): string;
  /** The same secret under the current master key; undefined when it is already. Throws a `VaultError`. */
  rewrap(sealed: Uint8Array, context: string): Buffer | undefined;
}

const VERSION = 2;
const KEY_ID_BYTES = 4;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_BYTES = 32;
const HEAD_BYTES = 1 + KEY_ID_BYTES;
const WRAP_BYTES = NONCE_BYTES + TAG_BYTES + KEY_BYTES;

/** A vault under master keys of 32 bytes; the first is current, the others open what was sealed under them. */
export function createVault(current: Buffer, others: readonly Buffer[] = []): Vault {
  const keys = new Map([...others, current].map((key) => [idOf(key).toString("hex"), key]));
  const head = Buffer.concat([Buffer.of(VERSION), idOf(current)]);

  const wrap = (dataKey: Buffer, context: string): Buffer =>
    Buffer.concat([head, encrypt(current, dataKey, [head, context])]);

  const unwrap = (bytes: Buffer, context: string): Buffer => {
    if (bytes.length < HEAD_BYTES + WRAP_BYTES + NONCE_BYTES + TAG_BYTES || bytes[0] !== VERSION)
      throw new VaultError("changed");
    const key = keys.get(bytes.toString("hex", 1, HEAD_BYTES));
    if (!key) throw new VaultError("unknown_master_key");
    const wrapped = bytes.subarray(HEAD_BYTES, HEAD_BYTES + WRAP_BYTES);
    return decrypt(key, wrapped, [bytes.subarray(0, HEAD_BYTES), context]);
  };

  return {
    head,
    seal(secret, context) {
      const dataKey = secretBytes(KEY_BYTES);
      return Buffer.concat([wrap(dataKey, context), encrypt(dataKey, Buffer.from(secret), [context])]);
    },
    open(sealed, context) {
      const bytes = Buffer.from(sealed);
      const dataKey = unwrap(bytes, context);
      return decrypt(dataKey, bytes.subarray(HEAD_BYTES + WRAP_BYTES), [context]).toString();
    },
    rewrap(sealed, context) {
      const bytes = Buffer.from(sealed);
      if (bytes.subarray(0, HEAD_BYTES).equals(head)) return undefined;
      const text = bytes.subarray(HEAD_BYTES + WRAP_BYTES);
      const dataKey = unwrap(bytes, context);
      decrypt(dataKey, text, [context]); // what doesn't open now must not look as if it had been looked after
      return Buffer.concat([wrap(dataKey, context), text]);
    },
  };
}

const idOf = (key: Buffer): Buffer =>
  createHash("sha256").update("limber vault key").update(key).digest().subarray(0, KEY_ID_BYTES);

/** Nonce, tag, text. */
function encrypt(key: Buffer, text: Buffer, bound: readonly (Buffer | string)[]): Buffer {
  const nonce = secretBytes(NONCE_BYTES);
  const cipher = createCipheriv("aes-256-gcm", key, nonce);
  cipher.setAAD(Buffer.concat(bound.map((part) => Buffer.from(part))));
  const sealed = Buffer.concat([cipher.update(text), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), sealed]);
}

function decrypt(key: Buffer, bytes: Buffer, bound: readonly (Buffer | string)[]): Buffer {
  const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES });
  decipher.setAAD(Buffer.concat(bound.map((part) => Buffer.from(part))));
  decipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
  try {
    return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()]);
  } catch {
    throw new VaultError("changed");
  }
}
