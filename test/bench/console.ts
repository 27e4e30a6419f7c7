/**
 * What the console asks of the browser that shows it, and how soon its STOP is felt, in a real Chromium.
 *
 * `node test/bench/console.ts [rows|live|stop|all] [rows] [robots] [seconds] [times]`
 *
 * - `rows`: a list of so many calls is scrolled to its end while it loads, and from one end to the other: the rows that are in the page
 *   at the same time, and tasks of the page's main thread over 50 ms, from Chromium's own trace. Goals: bounded; none.
 * - `live`: so many robots are watched for so many seconds at a change a second: CPU of the process that draws the page. Goal: 10 % of a core.
 * - `stop`: STOP is held on one of two replicas while 20 robots run at 50 Hz on both: from the end of the hold to the last chunk that any
 *   of them hears. Goal: 250 ms.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { buildConsole, isStale } from "../../console/build.ts";
import { openBrowser } from "../support/chromium.ts";
import { BOUNDLESS, Pair } from "../support/pair.ts";
import { type Bench, openGateway } from "./support/gateway.ts";
import { pacedLoops, robots } from "./support/loop-load.ts";
import { cpuNanos, median, start } from "./support/processes.ts";

const [part = "all", ...figures] = process.argv.slice(2);
const [rows = 10_000, count = 200, seconds = 30, times = 5] = figures.map(Number);
/** Calls that are made at the same time. */
const CALLERS = 32;
/** What a task of the main thread may take before a person feels it, in milliseconds. */
const LONG_MS = 50;
const HELD_MS = 1_000;

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A page of the console, as the owner of the organisation. */
async function opened(browser: Browser, url: string, key: string, path: string): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  await context.setExtraHTTPHeaders({ authorization: `Bearer ${key}` });
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  await page.goto(url + path);
  return page;
}

interface TraceEvent {
  readonly name: string;
  readonly ph: string;
  readonly pid: number;
  readonly tid: number;
  /** Wall time and CPU time, in microseconds. */
  readonly dur?: number;
  readonly tdur?: number;
  readonly args?: { readonly name?: string };
}

/** Tasks of the main threads of pages in a trace, in milliseconds of wall time and of CPU time. */
function tasksOf(trace: Buffer): { wall: number; cpu: number }[] {
  const { traceEvents } = JSON.parse(trace.toString()) as { traceEvents: readonly TraceEvent[] };
  const threads = new Set(
    traceEvents
      .filter(({ ph, name, args }) => ph === "M" && name === "thread_name" && args?.name === "CrRendererMain")
      .map(({ pid, tid }) => `${pid} ${tid}`),
  );
  return traceEvents
    .filter(({ name, ph, pid, tid }) => name === "RunTask" && ph === "X" && threads.has(`${pid} ${tid}`))
    .map(({ dur = 0, tdur = 0 }) => ({ wall: dur / 1000, cpu: tdur / 1000 }));
}

/** Does something with a page under trace; says how many tasks were long. */
async function traced(browser: Browser, page: Page, what: string, act: () => Promise<string>): Promise<void> {
  await browser.startTracing(page, { categories: ["devtools.timeline", "disabled-by-default-devtools.timeline"] });
  const said = await act();
  const tasks = tasksOf(await browser.stopTracing());
  if (tasks.length === 0) throw new Error("the trace has no tasks of the page");
  const long = (of: "wall" | "cpu"): number => tasks.filter((task) => task[of] > LONG_MS).length;
  const longest = (of: "wall" | "cpu"): string => Math.max(...tasks.map((task) => task[of])).toFixed(1);
  console.log(
    `${what}: ${said}; of ${tasks.length} tasks ${long("wall")} over ${LONG_MS} ms (the longest ${longest("wall")}), by CPU time ${long("cpu")} (${longest("cpu")})`,
  );
}

/**
 * Scrolls a list by so many pixels a frame until `done` says so, or its end stands still for a while; answers frames, rows in the page at
 * most, and the place of the last row that was seen.
 */
const scroll = (page: Page, perFrame: number, until: number) =>
  page.evaluate(`new Promise((resolve) => {
    const box = document.querySelector('[aria-label="calls, scrollable"]');
    const seen = { frames: 0, most: 0, last: 0 };
    let still = 0;
    const step = () => {
      const rows = box.querySelectorAll("[data-row]");
      seen.frames += 1;
      seen.most = Math.max(seen.most, rows.length);
      seen.last = Math.max(seen.last, ...[...rows].map((row) => Number(row.dataset.row)));
      const before = box.scrollTop;
      box.scrollTop += ${perFrame};
      still = box.scrollTop === before ? still + 1 : 0;
      if (seen.last >= ${until - 1} || still > 600) resolve(seen);
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  })`) as Promise<{ frames: number; most: number; last: number }>;

/** Makes so many calls, of which each third is refused. */
async function fill({ port, key }: Bench, many: number): Promise<void> {
  let left = many;
  const url = `http://127.0.0.1:${port}/v1/act`;
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const one = async (): Promise<void> => {
    while (left-- > 0) {
      const model = left % 3 === 0 ? "nobody/nothing" : "bench/instant";
      const body = JSON.stringify({ model, robot_id: `arm-${left % 50}`, observations: [{ proprio: [0] }] });
      await (await fetch(url, { method: "POST", headers, body })).arrayBuffer();
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, one));
}

async function list(browser: Browser, gateway: Bench): Promise<void> {
  await fill(gateway, rows);
  // The log is written in groups.
  await wait(2_000);
  const page = await opened(browser, `http://127.0.0.1:${gateway.port}`, gateway.key, "/console/calls");
  await page.locator("[data-row]").first().waitFor();
  await traced(browser, page, `${rows} calls, scrolled while they load`, async () => {
    const { frames, most, last } = await scroll(page, 2_000, rows);
    return `row ${last + 1} after ${frames} frames, ${most} rows in the page at most`;
  });
  await page.evaluate(`document.querySelector('[aria-label="calls, scrollable"]').scrollTop = 0`);
  await wait(500);
  await traced(browser, page, `${rows} calls, scrolled from one end to the other`, async () => {
    const { frames, most, last } = await scroll(page, 600, rows);
    return `row ${last + 1} after ${frames} frames, ${most} rows in the page at most`;
  });
  await page.context().close();
}

/** CPU time of the browser's processes so far, in seconds: those that draw pages, and all of them. */
async function browserCpu(browser: Browser): Promise<{ page: number; all: number }> {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  const nanos = processInfo.map(({ type, id }) => ({ type, nanos: cpuNanos(id) }));
  const sum = (of: typeof nanos): number => of.reduce((total, each) => total + each.nanos, 0) / 1e9;
  return { page: sum(nanos.filter(({ type }) => type === "renderer")), all: sum(nanos) };
}

async function live(browser: Browser, gateway: Bench): Promise<void> {
  const url = `http://127.0.0.1:${gateway.port}`;
  const party = await robots(url, gateway.key, 10, count);
  const page = await opened(browser, url, gateway.key, "/console");
  const load = pacedLoops(party.all, 10, seconds + 6);
  await page.getByText(`${count} running`).waitFor();
  await wait(3_000);
  const before = await browserCpu(browser);
  const began = performance.now();
  await traced(browser, page, `${count} robots`, async () => {
    await wait(seconds * 1000);
    return `${await page.locator("[data-row]").count()} rows in the page`;
  });
  const took = (performance.now() - began) / 1000;
  const after = await browserCpu(browser);
  const share = (of: "page" | "all"): string => (((after[of] - before[of]) / took) * 100).toFixed(1);
  console.log(
    `${count} robots watched for ${took.toFixed(0)} s: ${share("page")} % of a core for the page, ${share("all")} % for all of the browser`,
  );
  await load;
  party.close();
  await page.context().close();
}

async function stop(browser: Browser): Promise<void> {
  const pair = await Pair.open();
  const { key } = await pair.caller(100, { role: "owner", rate_limit: { ...BOUNDLESS, streams: 10_000 } });
  const open = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 5 };
  const page = await opened(browser, pair.urlOf(0)!, key, "/console");
  const lates: [number[], number[]] = [[], []];
  for (let i = 0; i < times; i++) {
    const parties = await Promise.all([0, 1].map((place) => robots(pair.urlOf(place)!, key, 10, 10, open)));
    const loads = parties.map(({ all }) => pacedLoops(all, 50, 6));
    await page.getByRole("button", { name: "STOP" }).click();
    const hold = page.locator("[data-hold]");
    await hold.hover();
    await page.evaluate(
      "addEventListener('pointerdown', (event) => { window.pressed = performance.timeOrigin + event.timeStamp; }, { capture: true, once: true })",
    );
    await page.mouse.down();
    await page.getByText("Stopped", { exact: true }).waitFor();
    await page.mouse.up();
    const held = ((await page.evaluate("window.pressed")) as number) + HELD_MS - performance.timeOrigin;
    await Promise.all(loads);
    for (const place of [0, 1] as const)
      lates[place].push(Math.max(...parties[place]!.all.map(({ heardAt }) => heardAt - held)));
    for (const party of parties) party.close();
    await page.getByRole("alertdialog").getByRole("button", { name: "Close" }).click();
    const { data } = await pair.well(0, "/v1/robots/stops", undefined, { key });
    for (const { id } of data) await pair.well(0, "/v1/robots/release", { stop_id: id }, { key });
  }
  for (const [place, name] of ["the replica of the console", "the other replica"].entries()) {
    const took = lates[place as 0 | 1];
    console.log(
      `STOP, ${name}: the last chunk of 10 robots came ${median(took).toFixed(0)} ms after the hold (median of ${times}), ${Math.max(...took).toFixed(0)} ms at the latest (goal 250)`,
    );
  }
  await page.context().close();
  await pair.close();
}

if (isStale()) await buildConsole();
const browser = await openBrowser();
if (part !== "stop") {
  const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
  const upstream = await start("test/bench/support/upstream.ts", [], (line) => line.startsWith("{"));
  const { grpc }: { grpc: number } = JSON.parse(upstream.line);
  const gateway = await openGateway(folder, `grpc://127.0.0.1:${grpc}`);
  if (part !== "live") await list(browser, gateway);
  if (part !== "rows") await live(browser, gateway);
  await gateway.stop();
  await upstream.stop();
  rmSync(folder, { recursive: true, force: true });
}
if (part === "stop" || part === "all") await stop(browser);
await browser.close();
process.exit(0);
