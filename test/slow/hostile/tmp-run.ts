import { lineOf, Suite } from "./suite.ts";
const suite = new Suite();
const words = process.argv.slice(2);
for (const attack of suite.attacks.filter(({ name }) => words.some((w) => name.includes(w)))) {
  const t = performance.now();
  const outcome = await suite.run(attack, 4242, false);
  console.log(Math.round(performance.now() - t), lineOf(outcome), outcome.findings);
}
await suite.stop();
process.exit(0);
