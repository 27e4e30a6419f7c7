/**
 * Whether the time of a refusal tells how near a guess was (dudect): 10,000,000 guesses of each kind of secret, in random order half
 * of them a secret that is there but for its last letter, and half of them the same of one that is not. What a text is made of takes
 * its own time, so that the two secrets change places with chance: each of 100 rounds has a new pair, and t is Welch's over the
 * rounds' means, and of their pairs, without the slowest tenth, which is the machine's doing. Goal: both below 4.5. Usage: node test/bench/timing.ts [guesses]
 */
import { hash, timingSafeEqual } from "node:crypto";
import { KeyCache } from "../../src/store/account/caches.ts";
import { hashSecret, newSecret } from "../../src/store/account/secret.ts";
import type { Notifications } from "../../src/store/database/notifications.ts";
import type { Sql } from "../../src/store/database/tx.ts";

const ROUNDS = 100;
const GUESSES = Math.ceil(Number(process.argv[2] ?? 10_000_000) / ROUNDS);
const GOAL = 4.5;
const KEPT = 0.9;

const LETTERS = [..."0123456789ABCDEFGHJKMNPQRSTVWXYZ"];
/** All that miss a secret by its last letter, each a text of its own in memory. */
const missesOf = (secret: string): string[] =>
  LETTERS.map((letter) => Buffer.from(secret.slice(0, -1) + letter).toString("latin1")).filter(
    (text) => text !== secret,
  );

const meanOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
function welch(one: readonly number[], other: readonly number[]): number {
  const spread = (values: readonly number[], mean = meanOf(values)): number =>
    values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1) / values.length;
  return (meanOf(one) - meanOf(other)) / Math.sqrt(spread(one) + spread(other));
}

/** Times guesses; `guess` knows the secret that is there. */
async function measure(
  name: string,
  prepare: (secret: string) => Promise<(text: string) => unknown>,
): Promise<boolean> {
  const means: [number[], number[]] = [[], []];
  const took = new Float64Array(GUESSES);
  const kinds = new Uint8Array(GUESSES);
  for (let round = -2; round < ROUNDS; round++) {
    const secret = newSecret().secret;
    const guess = await prepare(secret);
    const pools = [missesOf(secret), missesOf(newSecret().secret)];
    for (let i = 0; i < GUESSES; i++) {
      const kind = Math.random() < 0.5 ? 0 : 1;
      const pool = pools[kind] ?? [];
      const text = pool[Math.floor(Math.random() * pool.length)] ?? "";
      const from = process.hrtime.bigint();
      guess(text);
      took[i] = Number(process.hrtime.bigint() - from);
      kinds[i] = kind;
    }
    if (round < 0) continue; // V8 is learning
    const most = took.toSorted()[Math.floor(GUESSES * KEPT)] ?? 0;
    for (const kind of [0, 1] as const)
      means[kind].push(meanOf([...took].filter((value, i) => kinds[i] === kind && value <= most)));
  }
  const t = welch(...means);
  const pairs = welch(
    means[0].map((mean, round) => mean - (means[1][round] ?? 0)),
    [0, 0],
  );
  const good = Math.max(Math.abs(t), Math.abs(pairs)) < GOAL;
  const [near, far] = [meanOf(means[0]), meanOf(means[1])];
  console.log(
    `${name}: ${GUESSES * ROUNDS} guesses, near one that is there ${near.toFixed(1)} ns, near none ${far.toFixed(1)} ns, ` +
      `ratio ${(near / far).toFixed(5)}, Welch t ${t.toFixed(2)}, of pairs ${pairs.toFixed(2)}, goal ${GOAL}: ${good ? "held" : "MISSED"}`,
  );
  return good;
}

// A guess without the right checksum is no key at all, and asks no database; the secret that is there is remembered.
const notifications = { on: () => () => {} } as unknown as Notifications;
const empty = (() => Promise.resolve([])) as unknown as Sql;
const held = [
  await measure("an API key", async (secret) => {
    const keys = new KeyCache(empty, notifications);
    await keys.find(secret);
    return (text) => keys.find(text);
  }),
  await measure("an application's secret", async (secret) => {
    const stored = hashSecret(secret);
    return (text) => timingSafeEqual(hashSecret(text), stored);
  }),
  await measure("the admin token", async (secret) => {
    const stored = hash("sha256", secret, "buffer");
    return (text) => timingSafeEqual(hash("sha256", text, "buffer"), stored);
  }),
];
process.exit(held.every(Boolean) ? 0 : 1);
