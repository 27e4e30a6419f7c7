/**
 * What several processes on one port cost, what they carry, and how evenly robots fall on them. `node test/bench/processes.ts [rounds] [calls]
 * [PART] [SHARE]`, all parts unless one is named:
 * - `cost`: CPU microseconds of all gateway processes for each call, one process beside two on one PostgreSQL, in turns. The fewer calls a process
 *   has under way, the more each costs, for the turns of its event loop and its commits are shared by fewer: so one is compared with two at as
 *   many under way in each process, and, to tell what that alone costs, at as many in all. To tell what the machine takes, two gateways that
 *   share nothing are called at the same time, each like the one. Then what an idle second costs.
 * - `paced`: the same where calls come at their times, as many a second to each process and fewer than would fill the machine's cores.
 * - `quota`: each process is held to a third of a core, or to the share that is given. Calls, loop messages, and loop messages with 48 kB of
 *   pictures a second of one and of two, at as many under way in each. Beside each figure stands how much of a core everything else had: where
 *   the load or the model has nearly a whole one, or no core is idle, these are the limit and not the quota, and a smaller share is asked for.
 * - `spread`: 10 to 200 robots on two and on four processes, all at once and one after the other: the fullest beside the emptiest.
 */
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as rest } from "node:timers/promises";
import { startPostgres } from "../../src/embedded/postgres.ts";
import { connect } from "../../src/store/database/tx.ts";
import { actJson } from "./support/act-call.ts";
import { ADMIN_TOKEN, type Bench, openGateway } from "./support/gateway.ts";
import { restLoad } from "./support/load.ts";
import { closedLoops, type Observe, observing, robots } from "./support/loop-load.ts";
import { pictures } from "./support/pictures.ts";
import { cpuNanos, descendants, median, startModelServer } from "./support/processes.ts";
import { type HeldProcesses, holdEach } from "./support/quota.ts";

const rounds = Number(process.argv[2] ?? 15);
const calls = Number(process.argv[3] ?? 4_000);
const part = process.argv[4];
const isWanted = (name: string): boolean => part === undefined || part === name;
/** Calls under way in each process. */
const UNDER_WAY = [8, 16, 32, 64];
/** A call gets cheaper for its first 60,000, in each process. A run of few calls is for a first look. */
const WARM_UP = Math.min(60_000, 15 * calls);
const IDLE_S = 10;
/** Of a core, for each process that is held. */
const SHARE = Number(process.argv[5] ?? 1 / 3);
const CALLERS = 32;
/** Calls a second to each process, where they come at their times. */
const PACES = [100, 400, 1_000];
const LOOPS = { connections: 8, robots: 64 };
const PICTURE_LOOPS = { connections: 8, robots: 16 };
const FLEETS = [10, 20, 50, 100, 200];

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const postgres = await startPostgres({ dataDir: join(folder, "postgres") });
const model = await startModelServer();
const { grpc } = JSON.parse(model.line) as { grpc: number };

/** Those that are measured. */
const gateways: Bench[] = [];

/** Each on a database of its own, on one server. */
async function open(processes: number, name = `of_${processes}`): Promise<Bench> {
  const admin = connect(postgres.url, { max: 1 });
  await admin.unsafe(`create database ${name}`).finally(() => admin.end());
  const url = new URL(postgres.url);
  url.pathname = name;
  return openGateway(join(folder, name), `grpc://127.0.0.1:${grpc}`, {
    DATABASE_URL: url.href,
    LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
    LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
    LIMBER_PROCESSES: `${processes}`,
    LOG_LEVEL: "warn",
  });
}

const nanosOf = ({ pid }: Bench): number => [pid, ...descendants(pid)].reduce((sum, each) => sum + cpuNanos(each), 0);

/** Calls of closed loops of as many callers, or of `perSecond`; answers how many came a second. */
async function call(bench: Bench, callers: number, count: number, perSecond?: number): Promise<number> {
  const began = performance.now();
  const url = `http://127.0.0.1:${bench.port}/v1/act`;
  const { failed } = await restLoad(url, actJson, bench.key, callers, count, perSecond);
  if (failed > 0) throw new Error(`${failed} calls failed`);
  return (1_000 * count) / (performance.now() - began);
}

/** CPU of a call to gateways that are all called at the same time, each by as many callers, or as often in a second. */
async function micros(benches: readonly Bench[], callers: number, count = calls, perSecond?: number): Promise<number> {
  const nanos = (): number => sumOf(benches.map(nanosOf));
  const before = nanos();
  await Promise.all(benches.map((bench) => call(bench, callers, count, perSecond)));
  return (nanos() - before) / count / benches.length / 1_000;
}

/** Milliseconds of CPU in a second without calls. */
async function idleMs(bench: Bench): Promise<number> {
  const before = nanosOf(bench);
  await rest(IDLE_S * 1_000);
  return (nanosOf(bench) - before) / IDLE_S / 1e6;
}

async function cost(one: Bench, two: Bench, stranger: Bench): Promise<void> {
  const ways = { one: { benches: [one], times: 1 }, two: { benches: [two], times: 2 } };
  const strangers = { benches: [one, stranger], times: 1 };
  const measures = Object.entries({ ...ways, strangers }).flatMap(([way, { benches, times }]) =>
    UNDER_WAY.map((each) => ({ way, benches, times, each, costs: [] as number[] })),
  );
  for (let round = 0; round < rounds; round++)
    for (const { benches, times, each, costs } of measures) costs.push(await micros(benches, times * each));
  const costsOf = (wanted: string, each: number): number[] =>
    measures.find((measure) => measure.way === wanted && measure.each === each)?.costs ?? [];
  const ratio = (above: readonly number[], below: readonly number[]): string =>
    median(above.map((micros, i) => micros / below[i]!)).toFixed(2);
  for (const each of UNDER_WAY) {
    const [ofOne, ofTwo, ofStrangers] = [costsOf("one", each), costsOf("two", each), costsOf("strangers", each)];
    const inAll = costsOf("two", each / 2);
    console.log(
      `${String(each).padStart(3)} under way in each: one ${median(ofOne).toFixed(0)} us a call, two ${median(ofTwo).toFixed(0)}; ` +
        `two / one ${ratio(ofTwo, ofOne)}${each === CALLERS ? "   (goal 1.1)" : ""}` +
        `; two gateways that share nothing / one ${ratio(ofStrangers, ofOne)}, two / those ${ratio(ofTwo, ofStrangers)}` +
        (inAll.length > 0 ? `; as many in all, half in each of two: ${ratio(inAll, ofOne)}` : ""),
    );
  }
  const [idleOne, idleTwo] = [await idleMs(one), await idleMs(two)];
  console.log(
    `an idle second: one ${idleOne.toFixed(1)} ms of CPU, two and their parent ${idleTwo.toFixed(1)}; ${(idleTwo / idleOne).toFixed(2)}`,
  );
}

async function paced(one: Bench, two: Bench): Promise<void> {
  for (const each of PACES) {
    const count = Math.ceil(calls / 2);
    const costs = { one: [] as number[], two: [] as number[] };
    for (let round = 0; round < rounds; round++) {
      costs.one.push(await micros([one], CALLERS, count, each));
      costs.two.push(await micros([two], 2 * CALLERS, 2 * count, 2 * each));
    }
    console.log(
      `${each} a second to each: one ${median(costs.one).toFixed(0)} us a call, two ${median(costs.two).toFixed(0)}; two / one ` +
        `${median(costs.two.map((micros, i) => micros / costs.one[i]!)).toFixed(2)}   (goal 1.1)`,
    );
  }
}

/** The processes of a gateway that run calls. */
const workersOf = ({ pid }: Bench): number[] => {
  const children = descendants(pid);
  return children.length > 0 ? children : [pid];
};

/** Robots of one gateway and of two processes, and their messages a second. */
async function fleetsOf(benches: readonly Bench[], shape: typeof LOOPS, observation?: Observe) {
  const fleets = await Promise.all(
    benches.map(({ port, key }, i) => {
      const times = i + 1;
      const origin = `http://127.0.0.1:${port}`;
      return robots(origin, key, times * shape.connections, times * shape.robots, undefined, observation);
    }),
  );
  const messages = async (i: number): Promise<number> => {
    const { all } = fleets[i]!;
    const turns = Math.ceil(calls / shape.robots);
    const began = performance.now();
    const { others } = await closedLoops(all, turns);
    if (others > 0) throw new Error(`${others} answers were no chunks`);
    return (1_000 * all.length * turns) / (performance.now() - began);
  };
  const close = (): void => {
    for (const fleet of fleets) fleet.close();
  };
  return { messages, close };
}

/** Who had how much of a core, and the part of its time for which a held process had used up its share. */
type Shares = Record<"gateway" | "used up" | "load" | "model" | "database" | "idle", number>;

/** Nanoseconds for which the cores of the machine had nothing to do. */
const idleNanos = (): number => 1e6 * sumOf(cpus().map(({ times }) => times.idle));

/** A rate of a gateway that is held, and what had the cores meanwhile. */
async function watched(bench: Bench, held: HeldProcesses, rate: () => Promise<number>) {
  const ours = [process.pid, model.pid, ...gateways.flatMap(({ pid }) => [pid, ...descendants(pid)])];
  const database = descendants(process.pid).filter((pid) => !ours.includes(pid));
  const look = (): Shares => ({
    gateway: nanosOf(bench),
    "used up": (1e6 * held.stoodMs()) / workersOf(bench).length,
    load: cpuNanos(process.pid),
    model: cpuNanos(model.pid),
    database: sumOf(database.map(cpuNanos)),
    idle: idleNanos(),
  });
  const [before, began] = [look(), performance.now()];
  const carried = await rate();
  const [after, took] = [look(), 1e6 * (performance.now() - began)];
  const shares = Object.entries(after).map(([name, nanos]) => [name, (nanos - before[name as keyof Shares]) / took]);
  return { rate: carried, shares: Object.fromEntries(shares) as Shares };
}

async function quota(one: Bench, two: Bench): Promise<void> {
  const plain = await fleetsOf([one, two], LOOPS);
  const seeing = await fleetsOf([one, two], PICTURE_LOOPS, observing(await pictures(2)));
  for (const { messages } of [plain, seeing])
    for (const i of [0, 1]) for (let round = 0; round < 20; round++) await messages(i); // warm-up
  const held = holdEach([...workersOf(one), ...workersOf(two)], SHARE);
  if (held === undefined) {
    console.log("not held: the machine has no cgroups to write");
    return;
  }
  /** Of one process, and of two. */
  const loads: Record<string, readonly (() => Promise<number>)[]> = {
    acts: [() => call(one, CALLERS, calls), () => call(two, 2 * CALLERS, 2 * calls)],
    loops: [() => plain.messages(0), () => plain.messages(1)],
    "loops with pictures": [() => seeing.messages(0), () => seeing.messages(1)],
  };
  const seen = Object.entries(loads).map(([name, rates]) => ({
    name,
    ways: [one, two].map((bench, i) => ({ bench, rate: rates[i]!, all: [] as Awaited<ReturnType<typeof watched>>[] })),
  }));
  for (let round = 0; round < rounds; round++)
    // The one that comes second has what the first one left behind: they change places.
    for (const { ways } of seen)
      for (const { bench, rate, all } of round % 2 === 0 ? ways : ways.toReversed())
        all.push(await watched(bench, held, rate));
  held.release();
  plain.close();
  seeing.close();
  console.log(
    `each process held to ${SHARE.toFixed(2)} of a core, of ${cpus().length}; medians of ${rounds} rounds in turns`,
  );
  for (const { name, ways } of seen) {
    for (const [i, { all }] of ways.entries()) {
      const share = (of: keyof Shares): string => median(all.map(({ shares }) => shares[of])).toFixed(2);
      console.log(
        `${name}, ${i === 0 ? "one" : "two"}: ${median(all.map(({ rate }) => rate)).toFixed(0)} a second; ` +
          `cores: gateway ${share("gateway")} (its share used up ${share("used up")} of the time), load ${share("load")}, ` +
          `model ${share("model")}, database ${share("database")}, idle ${share("idle")}`,
      );
    }
    const [ofOne, ofTwo] = ways.map(({ all }) => all.map(({ rate }) => rate));
    console.log(
      `two carry ${median(ofTwo!.map((rate, i) => rate / ofOne![i]!)).toFixed(2)} times the ${name} of one   (goal 1.8)`,
    );
  }
}

/** The connections of each process, as the gateway counts them; one of them is that of this question. */
async function countsOf({ port }: Bench): Promise<number[]> {
  const asked = request({ port, path: "/metrics", agent: false, headers: { "x-service-admin-token": ADMIN_TOKEN } });
  asked.end();
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  const metrics = await text(answer);
  return [...metrics.matchAll(/^limber_process_connections\{process="\d+"\} (\d+)$/gm)].map(([, count]) =>
    Number(count),
  );
}

const sumOf = (counts: readonly number[]): number => counts.reduce((sum, count) => sum + count, 0);

/** Waits until the gateway knows of as many connections, and of that of the question. */
async function settled(bench: Bench, count: number): Promise<number[]> {
  for (;;) {
    const counts = await countsOf(bench);
    if (sumOf(counts) === count + 1) return counts;
    await rest(100);
  }
}

async function spread(processes: number): Promise<void> {
  const bench = await open(processes);
  const origin = `http://127.0.0.1:${bench.port}`;
  for (const count of FLEETS)
    for (const each of [count, 1]) {
      await settled(bench, 0);
      const fleets: Awaited<ReturnType<typeof robots>>[] = [];
      for (let i = 0; i < count; i += each) fleets.push(await robots(origin, bench.key, each, each));
      const counts = await settled(bench, count);
      const ratio = (Math.max(...counts) / Math.min(...counts)).toFixed(2);
      const how = each === 1 ? "one after the other" : "all at once";
      console.log(
        `${count} robots on ${processes}, ${how}: ${counts.join(" ")}, fullest / emptiest ${ratio}   (goal 1.5)`,
      );
      for (const fleet of fleets) fleet.close();
    }
  await bench.stop();
}

if (isWanted("cost") || isWanted("paced") || isWanted("quota")) {
  const [one, two] = [await open(1), await open(2)];
  gateways.push(one, two);
  await call(one, CALLERS, WARM_UP);
  await call(two, 2 * CALLERS, 2 * WARM_UP);
  if (isWanted("cost")) {
    const stranger = await open(1, "of_a_stranger");
    await call(stranger, CALLERS, WARM_UP);
    await cost(one, two, stranger);
    await stranger.stop();
  }
  if (isWanted("paced")) await paced(one, two);
  if (isWanted("quota")) await quota(one, two);
  await Promise.all([one.stop(), two.stop()]);
}
if (isWanted("spread")) for (const processes of [2, 4]) await spread(processes);
await model.stop();
await postgres.stop();
rmSync(folder, { recursive: true, force: true });
