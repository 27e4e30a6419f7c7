/** Seals secrets that the gateway must be able to open again, such as what it shows to providers. AES-256-GCM, bound to a context. */
import { createCipheriv, createDecipheriv, createHash } from "node:crypto";
import { secretBytes } from "./ambient.ts";

/** Opens and seals under one master key. */
export interface Vault {
  /** The sealed form of a secret: version, key id, nonce, tag, text. Opens only with the same context. */
  seal(secret: string, context: string): Buffer;
  /** The secret; throws when the bytes were changed, or belong to another context or key. */
  open(sealed: Uint8Array, context: string): string;
}

const VERSION = 1;
const KEY_ID_BYTES = 4;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const HEAD_BYTES = 1 + KEY_ID_BYTES;

/** A vault under a master key of 32 bytes. */
export function createVault(masterKey: Buffer): Vault {
  const keyId = createHash("sha256").update("limber vault key").update(masterKey).digest().subarray(0, KEY_ID_BYTES);
  const head = Buffer.concat([Buffer.of(VERSION), keyId]);

  return {
    seal(secret, context) {
      const nonce = secretBytes(NONCE_BYTES);
      const cipher = createCipheriv("aes-256-gcm", masterKey, nonce);
      cipher.setAAD(Buffer.concat([head, Buffer.from(context)]));
      const text = Buffer.concat([cipher.update(secret, "utf8"), cipher.final()]);
      return Buffer.concat([head, nonce, cipher.getAuthTag(), text]);
    },
    open(sealed, context) {
      const bytes = Buffer.from(sealed);
      if (!bytes.subarray(0, HEAD_BYTES).equals(head)) throw new Error("the secret was sealed under another key");
      const nonce = bytes.subarray(HEAD_BYTES, HEAD_BYTES + NONCE_BYTES);
      const tag = bytes.subarray(HEAD_BYTES + NONCE_BYTES, HEAD_BYTES + NONCE_BYTES + TAG_BYTES);
      const decipher = createDecipheriv("aes-256-gcm", masterKey, nonce, { authTagLength: TAG_BYTES });
      decipher.setAAD(Buffer.concat([head, Buffer.from(context)])).setAuthTag(tag);
      return (
        decipher.update(bytes.subarray(HEAD_BYTES + NONCE_BYTES + TAG_BYTES), undefined, "utf8") +
        decipher.final("utf8")
      );
    },
  };
}
