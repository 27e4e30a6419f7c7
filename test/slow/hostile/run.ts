/**
 * `npm run hostile [MINUTES] [SEED] [WORD]`: every attack of the suite, again and again with new seeds, against one gateway, for so
 * many minutes. It prints figures each minute, and ends with 1 where anything was found.
 */
import { tell } from "../chaos/findings.ts";
import { MOST_GROWTH, type Outcome, told } from "./attack.ts";
import { driftOf, lineOf, Suite } from "./suite.ts";

const minutes = Number(process.argv[2] ?? 60);
const seed = Number(process.argv[3] ?? 1 + (Date.now() % 1_000_000));
if (!(minutes > 0) || !Number.isSafeInteger(seed)) {
  console.error("usage: npm run hostile [MINUTES] [SEED] [WORD]");
  process.exit(2);
}
/** Attacks whose name holds this word; all where none is given. */
const only = process.argv[4] ?? "";

/** The gateway without TLS, as figures name it. */
const PLAIN = "plain";

const suite = new Suite();
const attacks = suite.attacks.filter(({ name }) => name.includes(only));
const began = performance.now();
const minute = (): number => (performance.now() - began) / 60_000;
const wrong: string[] = [];
const totals: Record<string, number> = { attacks: 0, "good answers": 0 };
/**
 * Of each gateway that is attacked the level after the first round, when every cache has filled, with which its memory is compared at the
 * end, and that after its last attack.
 */
const levels = new Map<string, { first?: Outcome | undefined; last?: Outcome | undefined }>();
let toldAt = 0;
let deaths = 0;

console.log(`seed ${seed}, ${attacks.length} attacks`);
for (let nth = 0; minute() < minutes; nth++) {
  // The first round takes samples, so that every kind is seen early; the others try everything.
  const whole = nth >= attacks.length;
  const attack = attacks[nth % attacks.length]!;
  const outcome = await suite.run(attack, seed + nth, whole);
  totals.attacks! += 1;
  totals["good answers"]! += outcome.goodAnswers;
  for (const [kind, count] of Object.entries(outcome.counts)) totals[kind] = (totals[kind] ?? 0) + count;
  if (outcome.findings.length > 0 || only !== "") console.log(lineOf(outcome));
  for (const finding of outcome.findings) {
    console.log(`    ${finding}`);
    wrong.push(`${outcome.name}: ${finding}`);
  }
  if (outcome.after === undefined) {
    deaths += 1;
    levels.delete(attack.place ?? PLAIN); // another process, another level
  } else {
    const { first } = levels.get(attack.place ?? PLAIN) ?? {};
    levels.set(attack.place ?? PLAIN, { first: first ?? (nth >= attacks.length ? outcome : undefined), last: outcome });
  }
  if (minute() - toldAt >= 1) {
    toldAt = minute();
    const memory = [...levels].flatMap(([place, { last }]) => (last?.after ? `${place} ${told(last.after)}` : []));
    console.log(`minute ${Math.floor(toldAt)}: ${figures()}; ${memory.join("; ") || "dead"}`);
  }
}
await suite.stop();

for (const { first, last } of levels.values()) {
  const drift = first && last && driftOf(first, last, MOST_GROWTH);
  if (drift !== undefined) wrong.push(drift);
}
const memory = Object.fromEntries(
  [...levels].map(([place, { first, last }]) => [place, { first: first?.after, last: last?.after }]),
);
const code = tell("hostile", seed, { minutes: Math.round(minute()), deaths, ...totals, memory }, wrong);
console.log(
  code === 0
    ? `held: ${minutes} minutes, ${figures()}, the process lived`
    : `not held: ${wrong.length} findings, the process died ${deaths} times`,
);
process.exit(code);

function figures(): string {
  return ["attacks", "connections", "bombs", "frames", "compared", "good answers"]
    .map((kind) => `${totals[kind] ?? 0} ${kind}`)
    .join(", ");
}
