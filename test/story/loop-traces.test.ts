/** The golden traces of loops: what a robot is to do comes out the same from the same events. `GOLDEN=write` records them anew. */
import { readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { LoopCore, type TraceEvent, type TraceHead, take } from "../../clients/conformance/core.ts";

const FOLDER = new URL("../../clients/conformance/traces/", import.meta.url);

if (process.env.GOLDEN === "write") {
  const { record } = await import("../../clients/conformance/record.ts");
  await record();
}

const traces = readdirSync(FOLDER)
  .filter((name) => name.endsWith(".jsonl"))
  .map((name) => readFileSync(new URL(name, FOLDER), "utf8").trimEnd().split("\n"))
  .map(([head, ...events]) => ({
    head: JSON.parse(head!) as TraceHead,
    events: events.map((line) => JSON.parse(line) as TraceEvent),
  }));

it.each(traces)("$head.trace: $head.says", ({ head, events }) => {
  const core = new LoopCore(head.rate_hz, head);
  for (const event of events) expect(take(core, event), JSON.stringify(event)).toEqual(event.expect);
});

it("the traces contain every kind of event, hold and verdict", () => {
  const all = traces.flatMap(({ events }) => events);
  const holds = new Set(all.flatMap(({ hold }) => (hold ? [hold.reason] : [])));
  expect([...holds].sort()).toEqual(
    expect.arrayContaining(["invalid_observation", "late", "no_provider", "out_of_bounds", "rate_limited"]),
  );
  const verdicts = new Set(all.flatMap(({ chunk, expect }) => (chunk ? [expect] : [])));
  expect([...verdicts]).toEqual(expect.arrayContaining(["taken", "other_episode", "over", "late", "stale"]));
  for (const kind of ["tick", "opened", "chunk", "hold", "lost", "ended", "reset", "stop"] as const)
    expect(
      all.some((event) => event[kind] !== undefined),
      kind,
    ).toBe(true);
});
