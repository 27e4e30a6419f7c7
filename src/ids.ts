/** Resource ids: sortable by creation time, and hard to guess. */
import { randomFillSync } from "node:crypto";
import { now } from "./clock.ts";

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const pool = new Uint8Array(4096);
let taken = pool.length;

/**
 * Ten characters of millisecond timestamp in Crockford's alphabet, three of a counter within it, and thirteen random ones (65 bits). Ids sort
 * by creation time, so that indexes grow at their end, and are hard to guess.
 */
function ulid(): string {
  if (taken + 16 > pool.length) {
    randomFillSync(pool);
    taken = 0;
  }
  const ms = now();
  // The counter starts anywhere, so that it does not reveal the number of ids.
  if (ms !== stamped.ms) stamped = { ms, text: stampOf(ms), turn: (pool[taken++]! << 5) | (pool[taken++]! & 31) };
  const turn = stamped.turn++;
  // V8 joins short strings at once but builds a tree for long ones, so there are few parts.
  const half = ALPHABET[(turn >> 10) & 31]! + PAIRS[turn & 1023]! + pair() + pair();
  return stamped.text + half + (pair() + pair() + pair() + pair() + ALPHABET[pool[taken++]! & 31]!);
}

const pair = (): string => PAIRS[((pool[taken++]! & 31) << 5) | (pool[taken++]! & 31)]!;

/** Every pair of characters. */
const PAIRS = Array.from({ length: 1024 }, (_, i) => `${ALPHABET[i >> 5]}${ALPHABET[i & 31]}`);

/** The timestamp of the last id: many ids are created in one millisecond. */
let stamped = { ms: Number.NaN, text: "", turn: 0 };

function stampOf(ms: number): string {
  let stamp = "";
  for (let rest = ms, i = 0; i < 10; i++, rest = Math.floor(rest / 32)) stamp = ALPHABET[rest % 32] + stamp;
  return stamp;
}

/** The prefixes of resource ids. */
export type IdPrefix =
  | "act"
  | "arm"
  | "aud"
  | "cmp"
  | "cred"
  | "dlv"
  | "entry"
  | "evt"
  | "mkk"
  | "bct"
  | "iss"
  | "key"
  | "job"
  | "lease"
  | "line"
  | "oac"
  | "mail"
  | "off"
  | "org"
  | "pay"
  | "pms"
  | "pout"
  | "pred"
  | "pub"
  | "prov"
  | "rep"
  | "ses"
  | "stop"
  | "suite"
  | "replica"
  | "run"
  | "req"
  | "grnd"
  | "grp"
  | "usr"
  | "wh"
  | "ws";

/** A new resource id such as `org_01J…`, sortable by creation time. */
export const newId = (prefix: IdPrefix): string => `${prefix}_${ulid()}`;
