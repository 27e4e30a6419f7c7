/** Names whose servers are silent hold no thread that others need. */
import { expect, it } from "vitest";
import { type LookupAnswer, oneAtATime } from "../../../../src/upstream/transport/guard.ts";
import { setClock } from "../../../support/clocks.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const ADDRESS: LookupAnswer[] = [{ address: "127.0.0.1", family: 4 }];

/** A resolver whose names of `.silent` are answered when a test says so, and the names that it is asked at this moment. */
function resolver() {
  const clock = new ManualClock();
  setClock(clock);
  const holding: { name: string; answer: () => void }[] = [];
  const resolve = oneAtATime((name) => {
    if (!name.endsWith(".silent")) return Promise.resolve(ADDRESS);
    return new Promise((resolved) => {
      const held = {
        name,
        answer: () => {
          holding.splice(holding.indexOf(held), 1);
          resolved(ADDRESS);
        },
      };
      holding.push(held);
    });
  });
  const names = () => holding.map(({ name }) => name);
  return { clock, resolve, names, holding };
}

it("concurrent lookups of one name share one query", async () => {
  const { clock, resolve, names, holding } = resolver();
  const asked = [resolve("a.silent"), resolve("a.silent"), resolve("a.silent")];
  await clock.advance(0);
  expect(names()).toEqual(["a.silent"]);
  holding[0]?.answer();
  expect(await Promise.all(asked)).toEqual([ADDRESS, ADDRESS, ADDRESS]);
});

it("other names are resolved while one is silent, and at most three silent ones run at once", async () => {
  const { clock, resolve, names, holding } = resolver();
  const failed: string[] = [];
  const ask = (name: string) => void resolve(name).catch(({ message }) => failed.push(`${name}: ${message}`));
  ask("0.silent");
  await clock.advance(1_000);
  expect(await resolve("known.test")).toEqual(ADDRESS);
  for (let i = 1; i < 10; i++) ask(`${i}.silent`);
  await clock.advance(4_000);
  expect(names()).toEqual(["0.silent", "1.silent", "2.silent"]);
  await clock.advance(1_000);
  const late = "the DNS lookup timed out";
  expect(failed).toEqual(Array.from({ length: 10 }, (_, i) => `${i}.silent: ${late}`));
  // The system gives them up at last. Asked for again, they have one thread together.
  for (let i = 0; i < 10; i++) {
    await clock.advance(2_000);
    for (const { answer } of [...holding]) answer();
  }
  await clock.advance(0);
  for (let i = 0; i < 3; i++) ask(`${i}.silent`);
  await clock.advance(0);
  expect(names()).toEqual(["0.silent"]);
  expect(await resolve("known.test")).toEqual(ADDRESS);
});

it("a slow name queues behind other slow names until it is fast again", async () => {
  const { clock, resolve, names, holding } = resolver();
  const first = resolve("a.silent");
  const second = resolve("b.silent");
  await clock.advance(1_500);
  for (const { answer } of [...holding]) answer();
  await Promise.all([first, second]);
  const again = [resolve("a.silent"), resolve("b.silent")];
  await clock.advance(100);
  expect(names()).toEqual(["a.silent"]);
  holding[0]?.answer();
  await clock.advance(0);
  expect(names()).toEqual(["b.silent"]);
  holding[0]?.answer();
  await Promise.all(again);
  const quick = [resolve("a.silent"), resolve("b.silent")];
  await clock.advance(0);
  expect(names()).toEqual(["a.silent", "b.silent"]);
  for (const { answer } of [...holding]) answer();
  expect(await Promise.all(quick)).toEqual([ADDRESS, ADDRESS]);
});
