/**
 * Seals secrets that the gateway must be able to open again, such as provider keys. Each secret has its own data key, wrapped under a master
 * key that is identified by an id: AES-256-GCM both times, bound to a context. Several master keys can be loaded at once, and a rotation only
 * wraps the data keys again.
 */
import { createCipheriv, createDecipheriv, createHash, createHmac } from "node:crypto";
import { secretBytes } from "./random.ts";

/** Why a sealed secret does not open. */
export type VaultFault = "unknown_master_key" | "changed";

/** A sealed secret that does not open. */
export class VaultError extends Error {
  readonly fault: VaultFault;

  constructor(fault: VaultFault) {
    super(
      fault === "changed"
        ? "the sealed bytes were changed or belong to another record"
        : "the master key that sealed it is not loaded",
    );
    this.name = "VaultError";
    this.fault = fault;
  }
}

/** A data key for values that are deleted together. Each value is bound to its place and does not open elsewhere. */
export interface DataKey {
  /** Seals bytes, which open only in the same place. */
  seal(bytes: Uint8Array, place: string): Buffer;
  /** Opens the bytes; throws a `VaultError`. */
  open(sealed: Uint8Array, place: string): Buffer;
}

/** Seals under the current master key, and opens under any loaded one. */
export interface Vault {
  /** The prefix of everything sealed under the current master key. */
  readonly head: Buffer;
  /** The prefixes of all loaded master keys, the current one first. */
  readonly heads: readonly [Buffer, ...Buffer[]];
  /** Seals a secret under the current master key. It opens only with the same context. */
  seal(secret: string | Uint8Array, context: string): Buffer;
  /** Opens a secret; throws a `VaultError`. */
  open(sealed: Uint8Array, context: string): string;
  /** Opens a secret as bytes. */
  openBytes(sealed: Uint8Array, context: string): Buffer;
  /** Seals the secret again under the current master key; undefined if it already is. Throws a `VaultError`. */
  rewrap(sealed: Uint8Array, context: string): Buffer | undefined;
  /** A new data key and its wrapped form. Deleting the wrapped form makes everything sealed with the key unreadable. */
  dataKey(context: string): { wrapped: Buffer; key: DataKey };
  /** Unwraps a data key; throws a `VaultError`. */
  openDataKey(wrapped: Uint8Array, context: string): DataKey;
  /**
   * The hashes that identify a repeated request. With `isKeyed`, the stored one is keyed: without the hash key, it is impossible to test guesses
   * of the request.
   */
  hashes(hash: Buffer, isKeyed: boolean, context: string): KeptHashes;
}

/** The hash to store. */
export interface KeptHashes {
  readonly hash: Buffer;
  /** Other hashes under which it may be stored, because the retention setting changes. */
  readonly otherHashes: readonly Buffer[];
}

const VERSION = 2;
const KEY_ID_BYTES = 4;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_BYTES = 32;
const HEAD_BYTES = 1 + KEY_ID_BYTES;
const WRAP_BYTES = NONCE_BYTES + TAG_BYTES + KEY_BYTES;

/**
 * A vault with 32-byte master keys: the first one seals, the others open earlier secrets. `hashKey` keys its hashes; the master key by
 * default.
 */
export function createVault(current: Buffer, others: readonly Buffer[] = [], hashKey = current): Vault {
  const keys = new Map([...others, current].map((key) => [idOf(key).toString("hex"), key]));
  const headOf = (key: Buffer): Buffer => Buffer.concat([Buffer.of(VERSION), idOf(key)]);
  const head = headOf(current);

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

  const seal = (secret: string | Uint8Array, context: string): Buffer => {
    const dataKey = secretBytes(KEY_BYTES);
    return Buffer.concat([
      wrap(dataKey, context),
      encrypt(dataKey, typeof secret === "string" ? Buffer.from(secret) : secret, [context]),
    ]);
  };
  const openBytes = (sealed: Uint8Array, context: string): Buffer => {
    const bytes = Buffer.from(sealed);
    const dataKey = unwrap(bytes, context);
    return decrypt(dataKey, bytes.subarray(HEAD_BYTES + WRAP_BYTES), [context]);
  };

  return {
    head,
    heads: [head, ...others.map(headOf)],
    seal,
    open: (sealed, context) => openBytes(sealed, context).toString(),
    openBytes,
    rewrap(sealed, context) {
      const bytes = Buffer.from(sealed);
      if (bytes.subarray(0, HEAD_BYTES).equals(head)) return undefined;
      const text = bytes.subarray(HEAD_BYTES + WRAP_BYTES);
      const dataKey = unwrap(bytes, context);
      decrypt(dataKey, text, [context]); // what doesn't open now must not look as if it had been looked after
      return Buffer.concat([wrap(dataKey, context), text]);
    },
    dataKey(context) {
      const key = secretBytes(KEY_BYTES);
      return { wrapped: seal(key, context), key: dataKeyOf(key) };
    },
    openDataKey: (wrapped, context) => dataKeyOf(openBytes(wrapped, context)),
    hashes(hash, isKeyed, context) {
      const keyed = hashUnder(hashKey, hash, context);
      return isKeyed ? { hash: keyed, otherHashes: [hash] } : { hash, otherHashes: [keyed] };
    },
  };
}

const dataKeyOf = (key: Buffer): DataKey => ({
  seal: (bytes, place) => encrypt(key, bytes, [place]),
  open: (sealed, place) => decrypt(key, Buffer.from(sealed), [place]),
});

function hashUnder(secret: Buffer, hash: Buffer, context: string): Buffer {
  // Derived from the secret, which itself might be a master key and seal.
  const key = createHmac("sha256", secret).update(`limber vault hash ${context}`).digest();
  return createHmac("sha256", key).update(hash).digest();
}

const idOf = (key: Buffer): Buffer =>
  createHash("sha256").update("limber vault key").update(key).digest().subarray(0, KEY_ID_BYTES);

/** Nonce, tag, ciphertext. */
function encrypt(key: Buffer, text: Uint8Array, bound: readonly (Buffer | string)[]): Buffer {
  const nonce = secretBytes(NONCE_BYTES);
  const cipher = createCipheriv("aes-256-gcm", key, nonce);
  cipher.setAAD(Buffer.concat(bound.map((part) => Buffer.from(part))));
  const sealed = Buffer.concat([cipher.update(text), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), sealed]);
}

function decrypt(key: Buffer, bytes: Buffer, bound: readonly (Buffer | string)[]): Buffer {
  if (bytes.length < NONCE_BYTES + TAG_BYTES) throw new VaultError("changed");
  const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES });
  decipher.setAAD(Buffer.concat(bound.map((part) => Buffer.from(part))));
  decipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
  try {
    return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()]);
  } catch {
    throw new VaultError("changed");
  }
}
