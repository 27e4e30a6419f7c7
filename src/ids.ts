/** Names of resources: sortable by the moment of their making, unguessable enough for a name. */
import { randomFillSync } from "node:crypto";
import { now } from "./clock.ts";

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const pool = new Uint8Array(4096);
let taken = pool.length;

/**
 * A ten-letter millisecond stamp in Crockford letters, three for the turn within it and thirteen random ones (65 bits): sortable by birth,
 * so that what is kept in the order of names grows at its end; unguessable enough for a name.
 */
function ulid(): string {
  if (taken + 16 > pool.length) {
    randomFillSync(pool);
    taken = 0;
  }
  const ms = now();
  // Turns begin anywhere, so that they don't tell how many names there were.
  if (ms !== stamped.ms) stamped = { ms, text: stampOf(ms), turn: (pool[taken++]! << 5) | (pool[taken++]! & 31) };
  const turn = stamped.turn++;
  // A short text is joined at once, a long one becomes a tree of its parts: so there are few parts.
  const half = ALPHABET[(turn >> 10) & 31]! + PAIRS[turn & 1023]! + pair() + pair();
  return stamped.text + half + (pair() + pair() + pair() + pair() + ALPHABET[pool[taken++]! & 31]!);
}

const pair = (): string => PAIRS[((pool[taken++]! & 31) << 5) | (pool[taken++]! & 31)]!;

/** Every two letters. */
const PAIRS = Array.from({ length: 1024 }, (_, i) => `${ALPHABET[i >> 5]}${ALPHABET[i & 31]}`);

/** Many names are made in one millisecond. */
let stamped = { ms: Number.NaN, text: "", turn: 0 };

function stampOf(ms: number): string {
  let stamp = "";
  for (let rest = ms, i = 0; i < 10; i++, rest = Math.floor(rest / 32)) stamp = ALPHABET[rest % 32] + stamp;
  return stamp;
}

/** The prefixes that a resource's name may start with. */
export type IdPrefix =
  | "act"
  | "arm"
  | "aud"
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
  | "prov"
  | "rep"
  | "ses"
  | "stop"
  | "replica"
  | "run"
  | "req"
  | "grnd"
  | "grp"
  | "usr"
  | "wh"
  | "ws";

/** A fresh resource name such as `org_01J…`: sortable by the moment of its making. */
export const newId = (prefix: IdPrefix): string => `${prefix}_${ulid()}`;
