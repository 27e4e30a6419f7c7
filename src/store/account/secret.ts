/** API key secrets: `lmb_sk_<12 characters of prefix>_<30 random characters><6 characters of CRC32>`. */
import { hash } from "node:crypto";
import { crc32 } from "node:zlib";
import { KEY_PREFIX } from "../../brand.ts";
import { secretBytes } from "../../random.ts";

const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ID_LETTERS = 12;
const RANDOM_LETTERS = 30;
const CHECK_LETTERS = 6;
const SHAPE = new RegExp(`^${KEY_PREFIX}[0-9A-Za-z]{${ID_LETTERS}}_[0-9A-Za-z]{${RANDOM_LETTERS + CHECK_LETTERS}}$`);

/** A new secret (178 random bits) and its prefix, which is public. */
export function newSecret(): { secret: string; prefix: string } {
  const prefix = KEY_PREFIX + letters(ID_LETTERS);
  const body = `${prefix}_${letters(RANDOM_LETTERS)}`;
  return { secret: body + checksum(body), prefix };
}

/** Whether a text has the form of a secret. Typing errors and guesses are refused without a database query. */
export function isSecret(text: string): boolean {
  return SHAPE.test(text) && checksum(text.slice(0, -CHECK_LETTERS)) === text.slice(-CHECK_LETTERS);
}

/** The SHA-256 of a secret. Only the hash is stored. */
export const hashSecret = (secret: string): Buffer => hash("sha256", secret, "buffer");

/** The same in Base64, which is a third of the cost of bytes as a map key. */
export const hashName = (secret: string): string => hash("sha256", secret, "base64");

/** Bytes from 248 on are skipped: they would make the first characters more likely than the others. */
const FAIR = LETTERS.length * Math.floor(256 / LETTERS.length);

function letters(count: number): string {
  let text = "";
  while (text.length < count) {
    for (const byte of secretBytes(count))
      if (byte < FAIR && text.length < count) text += LETTERS[byte % LETTERS.length];
  }
  return text;
}

function checksum(text: string): string {
  let rest = crc32(text);
  let check = "";
  for (let i = 0; i < CHECK_LETTERS; i++, rest = Math.floor(rest / LETTERS.length))
    check = LETTERS[rest % LETTERS.length] + check;
  return check;
}
