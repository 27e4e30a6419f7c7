/**
 * Cells on paper: where organisations are placed, what each cell carries, and how long robots stand still where one is lost.
 * `node test/bench/regions.ts [ROBOTS] [SEED]`. What a message, a loop and a charge cost is read from the kept results; the rest is assumed
 * below, and printed. Nothing here measures anything.
 */
import { readFileSync } from "node:fs";
import { seeded } from "../support/chance.ts";

const robots = Number(process.argv[2] ?? 100_000);
const seed = Number(process.argv[3] ?? 1);
if (!Number.isSafeInteger(robots) || robots < 100 || !Number.isSafeInteger(seed)) {
  console.error("usage: node test/bench/regions.ts [ROBOTS] [SEED]");
  process.exit(2);
}
let random = seeded(seed);

/** The numbers of the first row of a page of results that matches. */
function kept(page: string, row: RegExp): number[] {
  const line = readFileSync(new URL(`results/${page}`, import.meta.url), "utf8");
  const found = row.exec(line);
  if (found === null) throw new Error(`results/${page} has no row like ${row}`);
  return found.slice(1).map((text) => Number(text.replaceAll(",", "")));
}
const [busyUs = 0, thinUs = 0] = kept("loop.md", /\| two JPEGs \(48 kB\)[^|]*\| (\d+) \/ (\d+)/);
const [chargesASecond = 0] = kept("billing.md", /\| charged calls a second \| ([\d,]+)/);
const [, takeoverMs = 0] = kept("loop.md", /\| a gateway by SIGKILL[^|]*\| (\d+) to (\d+) ms/);
const [idleKb = 0] = kept("loop.md", /\| an idle stream \| (\d+) kB/);

const ASSUMED = {
  rateHz: 50,
  messageBytes: 48_000,
  /** CPU of a handshake of TLS, of a key's first call and of a loop's first plan, in milliseconds. */
  comeMs: 1.5,
  /** How much of its cores a cell may use in calm. */
  utilisation: 0.6,
  /** How long it takes to point a name elsewhere and to open a database from its archive, in seconds. */
  restoreS: 120,
  /** A robot that was refused or not answered asks again after a second, then after twice as long, 30 s at most; by half more or less. */
  retryMostS: 30,
  /** The answer to a robot that came is waited for as long, in seconds. */
  patienceS: 5,
};
/** Regions by their share of robots, and milliseconds between them: a world with two large markets. */
const REGIONS = [
  { name: "us-east", share: 0.22, at: 0 },
  { name: "us-west", share: 0.14, at: 60 },
  { name: "eu-west", share: 0.2, at: -75 },
  { name: "eu-north", share: 0.06, at: -95 },
  { name: "asia-east", share: 0.2, at: 150 },
  { name: "asia-south", share: 0.1, at: -190 },
  { name: "oceania", share: 0.04, at: 200 },
  { name: "south-america", share: 0.04, at: -115 },
] as const;
const between = (a: number, b: number): number => {
  const around = Math.abs(REGIONS[a]!.at - REGIONS[b]!.at);
  return Math.min(around, 400 - around);
};
/** How far a robot's cell may be, in milliseconds there and back: two periods of 50 Hz, without the model's own time. */
const NEAR_MS = 40;

/** An organisation: where its robots are, and where its home is. */
interface Org {
  readonly region: number;
  readonly robots: number;
  home: number;
}

/** A few organisations have most robots: by Zipf's law. One with more than `most` has several homes, each with a purse of its own. */
function organisations(count: number, most: number): Org[] {
  const weights = Array.from({ length: count }, (_, i) => 1 / (i + 1));
  const sum = weights.reduce((a, b) => a + b, 0);
  return weights.flatMap((weight) => {
    const all = Math.max(1, Math.round((robots * weight) / sum));
    const homes = Math.max(1, Math.ceil(all / most));
    return Array.from({ length: homes }, () => ({
      region: regionAt(random()),
      robots: Math.ceil(all / homes),
      home: -1,
    }));
  });
}

/** The region of a robot, by a number from 0 to 1. */
function regionAt(place: number): number {
  let before = 0;
  for (const [i, { share }] of REGIONS.entries()) {
    before += share;
    if (place < before) return i;
  }
  return 0;
}

const coresOf = (count: number): number => (count * ASSUMED.rateHz * thinUs) / 1e6;

/** A full stack in one region. */
interface Cell {
  readonly region: number;
  readonly cores: number;
  robots: number;
}

/** Each organisation goes to the nearest cell that has room for it; the largest first. Cells are built for the robots of their region, and headroom. */
function place(orgs: readonly Org[], regions: readonly number[], headroom: number): Cell[] {
  const nearest = (region: number): number =>
    regions.reduce((best, each, i) => (between(each, region) < between(regions[best]!, region) ? i : best), 0);
  const wanted = regions.map(() => 0);
  for (const { region, robots } of orgs) wanted[nearest(region)]! += robots;
  const cells = regions.map((region, i) => ({
    region,
    cores: Math.max(8, Math.ceil((coresOf(wanted[i]!) * (1 + headroom)) / ASSUMED.utilisation)),
    robots: 0,
  }));
  for (const org of orgs.toSorted((a, b) => b.robots - a.robots)) settle(org, cells);
  return cells;
}

function settle(org: Org, cells: readonly Cell[], lost = -1): void {
  const order = cells.map((_, i) => i).filter((i) => i !== lost);
  order.sort((a, b) => between(cells[a]!.region, org.region) - between(cells[b]!.region, org.region));
  const hasRoom = (i: number): boolean =>
    coresOf(cells[i]!.robots + org.robots) <= cells[i]!.cores * ASSUMED.utilisation;
  org.home = order.find(hasRoom) ?? order.toSorted((a, b) => loadOf(cells[a]!) - loadOf(cells[b]!))[0]!;
  cells[org.home]!.robots += org.robots;
}
const loadOf = (cell: Cell): number => coresOf(cell.robots) / cell.cores;

/** What became of the robots of a cell that was lost. */
interface Failover {
  readonly p50: number;
  readonly p99: number;
  /** Robots that are never served: their cell has no CPU left for them. */
  readonly left: number;
  readonly fullest: number;
  readonly far: number;
}

/** The homes of a lost cell are settled anew, and its robots come: CPU that is left after those that are served takes handshakes, in order. */
function lose(orgs: readonly Org[], cells: readonly Cell[], lost: number): Failover {
  const before = cells.map(({ robots }) => robots);
  const moved = orgs.filter(({ home }) => home === lost);
  for (const org of moved) settle(org, cells, lost);
  const times: number[] = [];
  let left = 0;
  for (const [i, cell] of cells.entries()) {
    const coming = moved.filter(({ home }) => home === i).reduce((sum, { robots }) => sum + robots, 0);
    if (coming > 0) {
      const came = storm(cell, before[i]!, coming);
      times.push(...came);
      left += coming - came.length;
    }
  }
  times.sort((a, b) => a - b);
  const at = (share: number): number => times[Math.min(times.length - 1, Math.floor(share * times.length))] ?? Infinity;
  const all = moved.reduce((sum, { robots }) => sum + robots, 0);
  const far = moved.filter(({ home, region }) => between(cells[home]!.region, region) > NEAR_MS);
  return {
    p50: at(0.5),
    p99: at(0.99),
    left: left / all,
    fullest: Math.max(...cells.filter((_, i) => i !== lost).map(loadOf)),
    far: far.reduce((sum, { robots }) => sum + robots, 0) / all,
  };
}

/** Seconds after the loss at which each robot that comes to a cell is served again. */
function storm(cell: Cell, served: number, coming: number): number[] {
  const TICK_S = 0.1;
  const MOST_S = ASSUMED.restoreS + 600;
  const due: number[][] = [];
  const ask = (at: number, tries: number): void => {
    const tick = Math.ceil(at / TICK_S);
    const known = due[tick] ?? [];
    known.push(tries);
    due[tick] = known;
  };
  // The client's own back-off has reached its longest pause by the time that the home is there again.
  for (let i = 0; i < coming; i++) ask(ASSUMED.restoreS + random() * ASSUMED.retryMostS, 5);
  const queue: { at: number; tries: number }[] = [];
  const times: number[] = [];
  let carried = served;
  let head = 0;
  for (let tick = 0; tick * TICK_S < MOST_S && times.length < coming; tick++) {
    const at = tick * TICK_S;
    for (const tries of due[tick] ?? []) queue.push({ at, tries });
    let spareMs = (cell.cores - coresOf(carried)) * TICK_S * 1000;
    while (head < queue.length) {
      const { at: asked, tries } = queue[head]!;
      if (at - asked > ASSUMED.patienceS) {
        head += 1;
        ask(at + Math.min(ASSUMED.retryMostS, 2 ** tries) * (0.5 + random()), tries + 1);
        continue;
      }
      if (spareMs < ASSUMED.comeMs || coresOf(carried + 1) > cell.cores) break;
      spareMs -= ASSUMED.comeMs;
      head += 1;
      carried += 1;
      times.push(at + takeoverMs / 1000);
    }
  }
  return times;
}

console.log(
  `kept: a message of two JPEGs ${busyUs} us where processes are busy, ${thinUs} us where robots are spread thin`,
);
console.log(
  `kept: ${chargesASecond} charges a second of one PostgreSQL; a loop goes on elsewhere after ${takeoverMs} ms; ${idleKb} kB a loop`,
);
console.log(`assumed: ${JSON.stringify(ASSUMED)}`);
console.log(
  `${robots} robots: ${Math.ceil(coresOf(robots))} cores busy, ${((robots * ASSUMED.rateHz * ASSUMED.messageBytes) / 1e9).toFixed(0)} GB/s of pictures, ${(robots / chargesASecond).toFixed(1)} databases for a charge a second each`,
);
/** Robots of one home: all of an organisation, or a fiftieth of all robots. */
const HOMES = [Infinity, robots / 50];
console.log(
  "| cells | headroom | largest home | cores | largest cell | far in calm | a cell is lost: p50, p99 | never served | fullest | far |",
);
console.log("|---|---|---|---|---|---|---|---|---|---|");
for (const regions of [
  [0, 2, 4],
  [0, 1, 2, 4, 5],
  [0, 1, 2, 3, 4, 5, 6, 7],
]) {
  for (const headroom of [0, 0.25, 0.5]) for (const most of HOMES) console.log(row(regions, headroom, most));
}

/** One of these worlds; every row has the same organisations. */
function row(regions: readonly number[], headroom: number, most: number): string {
  random = seeded(seed);
  const orgs = organisations(2_000, most);
  const cells = place(orgs, regions, headroom);
  const all = orgs.reduce((sum, { robots }) => sum + robots, 0);
  const far = orgs.filter(({ home, region }) => between(cells[home]!.region, region) > NEAR_MS);
  const farInCalm = far.reduce((sum, { robots }) => sum + robots, 0) / all;
  const largest = cells.reduce((best, { robots }, i) => (robots > cells[best]!.robots ? i : best), 0);
  const share = cells[largest]!.robots / all;
  const came = lose(orgs, cells, largest);
  const cores = cells.reduce((sum, { cores }) => sum + cores, 0);
  const home = Math.max(...orgs.map(({ robots }) => robots)) / all;
  const columns = [
    cells.length,
    percent(headroom),
    percent(home),
    cores,
    percent(share),
    percent(farInCalm),
    `${came.p50.toFixed(0)} s, ${came.p99.toFixed(0)} s`,
    percent(came.left),
    percent(came.fullest),
    percent(came.far),
  ];
  return `| ${columns.join(" | ")} |`;
}

function percent(part: number): string {
  return `${(100 * part).toFixed(0)} %`;
}
