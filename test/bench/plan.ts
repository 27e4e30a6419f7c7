/**
 * How long a plan takes: an alias, eight hard constraints and an objective over 632, 10,000 and 100,000 offerings, beside
 * the chain of filters and a sort that one would write first; and the same where four of five offerings say what they read. Then a
 * reload of the supply while the event loop is watched: the longest pause is the median of five reloads' longest ones, with 2,000 offerings measured. Each size has a process of its own, as a
 * gateway has one supply: compiled for three, the same code takes half as long again; and each is measured in three. Run:
 * `node test/bench/plan.ts [sizes, such as 10000,100000]`. Figures are microseconds where nothing else is said: those of a core that
 * the process has to itself (see `support/ruler.ts`), and the plan's beside a neighbour. A pause is what others feel: by the wall,
 * how much of it was waiting for a CPU that others had, and the longest by CPU.
 */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { create } from "@bufbuild/protobuf";
import {
  ActionMeaningSchema,
  ContractSource,
  InputContractSchema,
  InputNeed,
} from "../../gen/limber/v1/input_contract_pb.ts";
import { ObservationSchema } from "../../gen/limber/v1/observation_pb.ts";
import { DataCollection } from "../../gen/limber/v1/preferences_pb.ts";
import { ACTION_SPACES, Contract, microOf } from "../../src/contracts/contract.ts";
import { declaredInput } from "../../src/contracts/inputs.ts";
import { Refusal } from "../../src/errors.ts";
import { HealthTracker } from "../../src/routing/health/health.ts";
import type { Offering } from "../../src/routing/offering.ts";
import type { PlanArgs } from "../../src/routing/plan/intent.ts";
import { planFor } from "../../src/routing/plan/plan.ts";
import { buildingSnapshot, buildSnapshot } from "../../src/routing/snapshot/build.ts";
import { inSlices } from "../../src/slices.ts";
import { seeded } from "../support/chance.ts";
import { intent, offering, prefer, SCOPE, supplyOf } from "../support/supply.ts";
import { cpuMs, type Pauses, watchLoop } from "./support/loop-watch.ts";
import { figureOf, leastRuler, type Round, roundsOf } from "./support/ruler.ts";

const REGIONS = ["eu", "us", "asia", "me"];
const CONTRACTS = [Contract.ACT, Contract.ACT, Contract.PREDICT, Contract.GROUND];

function manyOfferings(count: number): Offering[] {
  const random = seeded(count);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  return Array.from({ length: count }, (_, i) => {
    const contract = pick(CONTRACTS);
    const p50Ms = 10 + random() * 400;
    return offering(`off_${i}`, {
      model: `owner${i % 50}/model${Math.floor(i / 3)}`,
      provider: `provider${i % 40}`,
      region: pick(REGIONS),
      contracts: [contract],
      actionSpaces: contract === Contract.ACT ? [pick(ACTION_SPACES).name] : [],
      priceNano: { [contract]: Math.floor(random() * 1e6) },
      retainsFrames: random() < 0.2,
      maxHorizon: pick([8, 16, 64, 256]),
      advertised: { p50Ms, p95Ms: p50Ms * 2, unitsPerS: random() * 100, uptime30d: 0.9 + random() * 0.1 },
      ...(random() < 0.3 && { scaledownS: 300, costNanoPerSecond: 100_000 }),
    });
  });
}

const PREFERENCES = prefer({
  ignore: ["provider3", "provider7"],
  region: ["eu", "us", "asia"],
  dataCollection: DataCollection.DENY,
  maxLatencyMs: 700,
  minUptime30d: 0.92,
  maxPricePerActionStep: 0.0009,
  maxCostUsd: 0.012,
  requireParameters: true,
  objective: { price: 1, latency: 2, reliability: 1 },
});

/** Four of five say what they read: one of 200 contracts, of which most read the request. */
function declaring(offerings: readonly Offering[]): Offering[] {
  const contracts = Array.from({ length: 200 }, (_, i) =>
    declaredInput({
      key: String(i),
      input: create(InputContractSchema, {
        cameras: { cameras: [{ name: "front", required: true }, { name: `extra_${i}` }] },
        proprio: [{ dimension: i % 8 === 0 ? 14 : 7 }, { dimension: i }],
        language: { need: InputNeed.REQUIRED },
      }),
      inputSource: ContractSource.DECLARED,
      actions: [create(ActionMeaningSchema, { units: [i % 10 === 0 ? "rad" : "m"] })],
      actionsSource: ContractSource.DECLARED,
    }),
  );
  return offerings.map((each, i) => (i % 5 === 0 ? each : { ...each, declared: contracts[i % 200] }));
}

const GIVEN = {
  observations: [
    create(ObservationSchema, {
      frames: [{ camera: "front", url: "https://robot.example/front.png" }],
      proprio: [1, 2, 3, 4, 5, 6, 7],
    }),
  ],
  instruction: "reach",
  actionSpace: "ee_delta_6d_grip",
};

function argsFor(offerings: readonly Offering[], model: string): PlanArgs {
  const snapshot = buildSnapshot(supplyOf(offerings));
  return {
    intent: intent({ model, provider: PREFERENCES, parameters: ["seed"] }),
    snapshot,
    health: new HealthTracker(snapshot, () => 0).view,
    scope: SCOPE,
    pin: undefined,
    seed: 7,
    now: 1_000_000,
    arrivedAt: 1_000_000,
    deadline: undefined,
  };
}

/** The plan as one would write it first: objects, closures, a sort. */
function naive(offerings: readonly Offering[]): Offering[] {
  const cost = (o: Offering): number =>
    microOf(16, o.priceNano[Contract.ACT] ?? 0) +
    (o.scaledownS === undefined ? 0 : ((o.coldTimeoutMs ?? 0) / 1e6) * o.costNanoPerSecond);
  const left = offerings
    .filter((o) => o.family === "vla" && o.contracts.includes(Contract.ACT))
    .filter((o) => o.actionSpaces.includes("ee_delta_6d_grip"))
    .filter((o) => !PREFERENCES.ignore.includes(o.provider))
    .filter((o) => PREFERENCES.region.includes(o.region))
    .filter((o) => !o.retainsFrames && o.maxHorizon >= 16)
    .filter((o) => o.parameters.includes("seed"))
    .filter((o) => (o.advertised.p95Ms ?? Number.POSITIVE_INFINITY) <= 700)
    .filter((o) => (o.advertised.uptime30d ?? 0) >= 0.92)
    .filter((o) => (o.priceNano[Contract.ACT] ?? 0) <= 900_000)
    .filter((o) => cost(o) <= 12_000);
  const spread = (of: (o: Offering) => number): ((o: Offering) => number) => {
    const values = left.map(of);
    const least = Math.min(...values);
    const most = Math.max(...values);
    return (o) => (most > least ? (of(o) - least) / (most - least) : 0);
  };
  const [price, latency, uptime] = [
    spread(cost),
    spread((o) => o.advertised.p50Ms ?? 0),
    spread((o) => -(o.advertised.uptime30d ?? 0)),
  ];
  return [...left].sort((a, b) => total(a) - total(b)).slice(0, 16);
  function total(o: Offering): number {
    return price(o) + 2 * latency(o) + uptime(o);
  }
}

function refused(run: () => unknown): void {
  try {
    run();
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
  }
}

interface Swap extends Pauses {
  readonly tookMs: number;
}

/** A reload while calls are served: how long it takes, the longest that nobody else had the event loop, and what it holds. */
async function swapped(offerings: readonly Offering[]): Promise<Swap & { megabytes: number }> {
  const supply = supplyOf(offerings);
  const board = new HealthTracker(buildSnapshot(supplyOf([])), () => 0);
  const runs: Swap[] = [];
  let megabytes = 0;
  for (let round = 0; round < 5; round++) {
    globalThis.gc?.();
    const before = heldBytes();
    const stop = watchLoop();
    const start = performance.now();
    const snapshot = await inSlices(buildingSnapshot(supply));
    await inSlices(board.adopting(snapshot, 0));
    const tookMs = performance.now() - start;
    runs.push({ tookMs, ...stop() });
    await new Promise(setImmediate);
    globalThis.gc?.();
    // The supply itself is held by the benchmark; what a snapshot adds to it is what counts.
    if (round === 0) megabytes = (heldBytes() - before) / 1e6;
    for (const each of offerings.slice(0, 2_000))
      board.report(each.id, { outcome: "ok", latencyMs: 20, units: 16, cold: false, at: 1 });
  }
  runs.sort((a, b) => a.pauseCpuMs - b.pauseCpuMs);
  return { ...runs[2]!, megabytes };
}

const heldBytes = (): number => {
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
};

const SIZES = [632, 10_000, 100_000];
const PROCESSES = 3;
/** The word by which one of them is told to measure. */
const ALONE = "alone";

/** What is timed. */
type Timed = Readonly<Record<"plan" | "inputs" | "balanced" | "slug" | "naive" | "refusal", Round[]>>;

/** What one process measured. */
interface Measured {
  readonly timed: Timed;
  readonly refusalCpuMs: number;
  readonly swap: Awaited<ReturnType<typeof swapped>>;
}

async function measure(count: number): Promise<Measured> {
  const offerings = manyOfferings(count);
  const alias = argsFor(offerings, "service/auto:vla");
  const declared = argsFor(declaring(offerings), "service/auto:vla");
  const reading = { ...declared, intent: { ...declared.intent, given: GIVEN } };
  const lax = { ...alias, intent: { ...alias.intent, provider: undefined } };
  const named = offerings.find((o) => o.actionSpaces[0] === "ee_delta_6d_grip" && o.maxHorizon >= 16);
  const slug = { ...lax, intent: { ...lax.intent, model: named?.model ?? "" } };
  const none = { ...alias, intent: { ...alias.intent, provider: prefer({ maxLatencyMs: 1 }) } };
  const timed = {
    plan: roundsOf(() => planFor(alias)),
    inputs: roundsOf(() => planFor(reading)),
    balanced: roundsOf(() => planFor(lax)),
    slug: roundsOf(() => planFor(slug)),
    naive: roundsOf(() => naive(offerings)),
    refusal: roundsOf(() => refused(() => planFor(none))),
  };
  const cpuBefore = cpuMs();
  for (let i = 0; i < 10; i++) refused(() => planFor(none));
  return { timed, refusalCpuMs: (cpuMs() - cpuBefore) / 10, swap: await swapped(offerings) };
}

const us = (figure: number): string => (Number.isNaN(figure) ? "–" : figure.toFixed(1));

/** One line of the table, where the fixed work takes `ruler` on a core of its own. */
function lineOf(count: number, { timed, refusalCpuMs, swap }: Measured, ruler: number): Record<string, string> {
  const plan = figureOf(timed.plan, ruler);
  const p50 = (name: keyof Timed): number => figureOf(timed[name], ruler).p50;
  return {
    "plan p50": us(plan.p50),
    "plan p99": us(plan.p99),
    "core to itself": `${(plan.ownShare * 100).toFixed(0)} %`,
    "p50 beside a neighbour": us(plan.sharedP50),
    "input contracts p50": us(p50("inputs")),
    "balanced p50": us(p50("balanced")),
    "slug p50": us(p50("slug")),
    "naive p50": us(p50("naive")),
    "naive / plan": `${(p50("naive") / plan.p50).toFixed(0)} x`,
    "409 p50 ms": us(p50("refusal") / 1000),
    "409 CPU ms": us(refusalCpuMs),
    "swap ms": us(swap.tookMs),
    "longest pause ms": us(swap.pauseMs),
    "of it queued": us(swap.queuedMs),
    "longest by CPU": us(swap.pauseCpuMs),
    "MB per 10,000": us(swap.megabytes / (count / 10_000)),
  };
}

const [size, again] = process.argv.slice(2);
if (again === ALONE) console.log(JSON.stringify(await measure(Number(size))));
else {
  const measured = (size?.split(",").map(Number) ?? SIZES).flatMap((count) =>
    Array.from({ length: PROCESSES }, (_, i) => {
      const args = ["--expose-gc", fileURLToPath(import.meta.url), String(count), ALONE];
      const all: Measured = JSON.parse(execFileSync(process.execPath, args, { encoding: "utf8", maxBuffer: 1e8 }));
      return { count, name: `${count}, ${i + 1}`, all };
    }),
  );
  const ruler = leastRuler(measured.flatMap(({ all }) => Object.values(all.timed).flat()));
  console.table(Object.fromEntries(measured.map(({ count, name, all }) => [name, lineOf(count, all, ruler)])));
  console.log(`the fixed work: ${ruler.toFixed(2)} at least`);
}
