/**
 * What robots notice when something goes wrong: the time from a provider's death to the next chunk from its equal, and the time from
 * an emergency stop, or from the revocation of a key, to the end of every loop, on the replica that was told and on another.
 * `node test/bench/loop-faults.ts [times] [deaths|stops]`
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BOUNDLESS, Pair } from "../support/pair.ts";
import { openGateway } from "./support/gateway.ts";
import { type BenchRobot, pacedLoops, robots } from "./support/loop-load.ts";
import { type Started, startModelServer } from "./support/processes.ts";

const times = Number(process.argv[2] ?? 5);
const ROBOTS = 20;
const HZ = 50;

const at = (values: readonly number[], q: number): string =>
  [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) * q)]?.toFixed(1) ?? "none";
const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Kills whoever serves most, again and again. */
async function deaths(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
  const models: { started: Started; grpc: number; rest: number }[] = await Promise.all(
    Array.from({ length: times + 1 }, async () => {
      const started = await startModelServer();
      return { started, ...JSON.parse(started.line) };
    }),
  );
  const endpoints = models.map(({ grpc }) => `grpc://127.0.0.1:${grpc}`);
  const gateway = await openGateway(folder, endpoints);
  const party = await robots(`http://127.0.0.1:${gateway.port}`, gateway.key, ROBOTS, ROBOTS);
  const load = pacedLoops(party.all, HZ, times + 2);
  const gaps: number[] = [];
  const callsOf = async ({ rest }: { rest: number }): Promise<number> =>
    Number(await (await fetch(`http://127.0.0.1:${rest}/pace`, { method: "POST" })).text());
  const alive = [...models];
  for (let i = 0; i < times; i++) {
    const before = await Promise.all(alive.map(callsOf));
    await wait(300);
    const during = (await Promise.all(alive.map(callsOf))).map((calls, n) => calls - before[n]!);
    const [victim] = alive.splice(during.indexOf(Math.max(...during)), 1);
    const died = performance.now();
    process.kill(victim!.started.pid, "SIGKILL");
    await wait(700);
    for (const { movedAt } of party.all) if (movedAt > died) gaps.push(movedAt - died);
  }
  const { sent, carried, others } = await load;
  console.log(
    `${times} deaths of providers, ${ROBOTS} robots at ${HZ} Hz: next chunk from an equal after ` +
      `p50 ${at(gaps, 0.5)} ms, p99 ${at(gaps, 0.99)} ms (${gaps.length} robots moved; ${carried} of ${sent} carried, ${others} holds)`,
  );
  party.close();
  await gateway.stop();
  await Promise.all(alive.map(({ started }) => started.stop()));
  rmSync(folder, { recursive: true, force: true });
}

/** Stops everything of an organisation that has robots on two replicas, again and again. */
async function stops(): Promise<void> {
  const pair = await Pair.open();
  const { key } = await pair.caller(100, { role: "owner", rate_limit: { ...BOUNDLESS, streams: 10_000 } });
  const open = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 5 };
  const ends: [number[], number[]] = [[], []];
  for (let i = 0; i < times; i++) {
    const parties = await Promise.all(
      [0, 1].map((place) => robots(pair.urlOf(place)!, key, ROBOTS / 2, ROBOTS / 2, open)),
    );
    const loads = parties.map(({ all }) => pacedLoops(all, HZ, 2));
    await wait(300);
    const asked = performance.now();
    const { id } = await pair.well(0, "/v1/robots/stop", { all: true }, { key });
    await Promise.all(loads);
    const late = (robot: BenchRobot): number => robot.endedAt - asked;
    for (const place of [0, 1] as const) ends[place].push(...parties[place]!.all.map(late));
    for (const party of parties) party.close();
    await pair.well(0, "/v1/robots/release", { stop_id: id }, { key });
  }
  for (const [place, name] of ["the replica that was told", "another replica"].entries()) {
    const took = ends[place as 0 | 1];
    console.log(
      `emergency stop, ${name}: loops ended after p50 ${at(took, 0.5)} ms, at the latest ${at(took, 1)} ms (goal 200)`,
    );
  }
  const { id: keyId } = await pair.well(0, "/v1/key", undefined, { key });
  const parties = await Promise.all([0, 1].map((place) => robots(pair.urlOf(place)!, key, 10, 10, open)));
  const loads = parties.map(({ all }) => pacedLoops(all, HZ, 2));
  await wait(300);
  const asked = performance.now();
  await pair.sql`update key set disabled = true where id = ${keyId}`;
  await Promise.all(loads);
  const took = parties.flatMap(({ all }) => all.map(({ endedAt }) => endedAt - asked));
  console.log(`revoked key: loops ended after p50 ${at(took, 0.5)} ms, at the latest ${at(took, 1)} ms (goal 1,000)`);
  for (const party of parties) party.close();
  await pair.close();
}

if (process.argv[3] !== "stops") await deaths();
if (process.argv[3] !== "deaths") await stops();
