/** Rolling restarts of three gateways on one PostgreSQL, and NATS where there is one, behind haproxy, under callers of every kind. */
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { startPostgres } from "../../../../src/embedded/postgres.ts";
import { connect } from "../../../../src/store/database/tx.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, callRest as call } from "../../../support/app.ts";
import { closing } from "../../../support/closing.ts";
import { type Launched, launchGateway, scratchDir } from "../../../support/gateway.ts";
import { brokenInvariants } from "../../../support/invariants.ts";
import { startModel } from "../../../support/model.ts";
import { openNats } from "../../../support/nats.ts";
import { BOUNDLESS } from "../../../support/pair.ts";
import { until } from "../jobs/until.ts";
import { callGrpc, callRest, emptyTally, loop, type Tally } from "./callers.ts";
import { type Mode, startHaproxy } from "./haproxy.ts";

/** What is to be done. */
export interface Rolling {
  readonly mode: Mode;
  readonly restarts: number;
  /** How long a gateway serves on after SIGTERM, in seconds. */
  readonly delayS: number;
  /** Whether the gateways have a nats-server. */
  readonly nats?: boolean;
  /** How many calls a second and how many loops; a handful of callers where nothing is said. */
  readonly load?: Load;
  readonly progress?: (line: string) => void;
}

/** A load of a size. */
export interface Load {
  /** Over REST and gRPC together, half each, as long as answers are fast. */
  readonly callsASecond: number;
  /** At ten observations a second. */
  readonly loops: number;
}

/** How long something took, in milliseconds. */
interface Spread {
  readonly p50: number;
  readonly p99: number;
  readonly most: number;
}

/** What came of it. */
export interface Rolled extends Omit<Tally, "failed" | "openMs" | "resumeMs"> {
  /** Milliseconds from being asked to move until the next stream was opened. */
  readonly openMs: Spread | undefined;
  /** Milliseconds from being asked to move to the next chunk. */
  readonly resumeMs: Spread | undefined;
  /** Calls a second that were answered. */
  readonly callsASecond: number;
  readonly mode: Mode;
  readonly restarts: number;
  readonly failed: number;
  /** Everything that should not have been, in words. */
  readonly wrong: string[];
}

const REPLICAS = 3;
/** Callers over REST with this pause between calls: the slow ones call a few times in each delay. */
const REST_PAUSES_MS = [10, 10, 20, 20, 50, 50, 200, 200];
const GRPC_PAUSES_MS = [10, 20, 50, 200];
const LOOP_PAUSES_MS = [20, 20, 50, 50];

/** Starts everything, restarts one gateway after the other, and ends everything. */
export async function roll({
  mode,
  restarts,
  delayS,
  nats: hasNats = false,
  load,
  progress,
}: Rolling): Promise<Rolled> {
  const { closers, closeAll } = closing();
  try {
    const dir = scratchDir();
    closers.push(() => dir.remove());
    const model = await startModel();
    closers.push(() => model.close());
    const postgres = await startPostgres({ dataDir: join(dir.path, "rolling") });
    closers.push(() => postgres.stop());
    const nats = hasNats ? await openNats() : undefined;
    closers.push(() => nats?.close());
    const sql = connect(postgres.url, { max: 2 });
    closers.push(() => sql.end());
    const env = {
      LOG_LEVEL: "error",
      DATABASE_URL: postgres.url,
      ...(nats && { NATS_URL: nats.url }),
      SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
      LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
      LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
      LIMBER_REFERENCE_SUPPLY: "false",
      LIMBER_DRAIN_DELAY_S: String(delayS),
    };
    const [entry = 0, ...ports] = await freePorts(REPLICAS + 1);
    const replicas: Launched[] = [];
    closers.push(() =>
      Promise.all(
        replicas.map(async ({ pid, ended }) => {
          signal(pid, "SIGKILL");
          await ended;
        }),
      ),
    );
    const start = async (place: number): Promise<void> => {
      replicas[place] = launchGateway({ ...env, PORT: String(ports[place]) });
      await replicas[place].ready;
    };
    for (const place of ports.keys()) await start(place);

    const well = async (path: string, body: unknown, as: object) => {
      const { status, text, body: answer } = await call(`http://127.0.0.1:${ports[0]}`, path, body, as);
      if (status >= 300) throw new Error(`${path} answered ${status}: ${text}`);
      return answer;
    };
    const admin = { admin: ADMIN_TOKEN };
    const { id: org } = await well("/v1/orgs", { name: "rolling" }, admin);
    await well(`/v1/orgs/${org}/credits`, { amount_usd: 10_000 }, admin);
    const { key } = await well(
      `/v1/orgs/${org}/keys`,
      { role: "owner", rate_limit: { ...BOUNDLESS, streams: 100 + (load?.loops ?? 0) } },
      admin,
    );
    await well("/v1/supply/providers", { name: "acme" }, { key });
    const declaration = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
    const { id } = await well("/v1/supply/providers/acme/models", declaration, { key });
    await well(`/v1/supply/offerings/${id}/verify`, {}, { key });
    await until("every gateway to know the model", async () => {
      const asked = ports.map((port) => call(`http://127.0.0.1:${port}`, "/v1/models/acme/base", undefined, { key }));
      return (await Promise.all(asked)).every(({ body }) => body.live === true || body.offerings?.length > 0);
    });

    const haproxy = await startHaproxy(dir.path, mode, entry, ports);
    closers.push(() => haproxy.stop());
    const over = new AbortController();
    const tally = emptyTally();
    const calling = { url: haproxy.url, key, tally, over: over.signal };
    const pauses = pausesOf(load);
    const began = performance.now();
    const callers = [
      ...pauses.rest.map((ms) => callRest(calling, ms)),
      ...pauses.grpc.map((ms) => callGrpc(calling, ms)),
      ...pauses.loops.map((ms, i) => loop(calling, `robot-${i}`, ms)),
    ];
    closers.push(() => over.abort());
    const wrong: string[] = [];
    for (let restart = 0; restart < restarts; restart++) {
      const place = restart % REPLICAS;
      // Everybody is served by what is there before the next one goes.
      const before = { ...tally };
      await until(
        "callers to be served",
        async () => tally.rest > before.rest + 50 && tally.grpc > before.grpc + 20 && tally.chunks > before.chunks + 20,
      );
      const leaving = replicas[place]!;
      signal(leaving.pid, "SIGTERM");
      const { code, stderr } = await leaving.ended;
      if (code !== 0 || stderr !== "") wrong.push(`a gateway ended with ${code}: ${stderr}`);
      await start(place);
      await until("haproxy to see the gateway", async () => (await haproxy.up()) === REPLICAS);
      progress?.(`${mode}: ${restart + 1} of ${restarts} restarts, ${tally.failed.length} failed calls`);
    }
    over.abort();
    const callsASecond = Math.round((1000 * (tally.rest + tally.grpc)) / (performance.now() - began));
    await Promise.all(callers);
    for (const { pid } of replicas) signal(pid, "SIGTERM");
    await Promise.all(replicas.map(({ ended }) => ended));
    wrong.push(...tally.failed, ...(await brokenInvariants(sql)));
    const [settled] = await sql<
      { requests: number }[]
    >`select count(*)::int as requests from request where org_id = ${org}`;
    if ((settled?.requests ?? 0) < tally.rest + tally.grpc)
      wrong.push(`only ${settled?.requests} requests are settled`);
    const { failed, openMs, resumeMs, ...figures } = tally;
    const spreads = { openMs: spreadOf(openMs), resumeMs: spreadOf(resumeMs) };
    return { mode, restarts, ...figures, callsASecond, ...spreads, failed: failed.length, wrong };
  } finally {
    await closeAll();
  }
}

/** Each caller of a load pauses for so long that it calls ten times a second. */
function pausesOf(load: Load | undefined): { rest: number[]; grpc: number[]; loops: number[] } {
  if (load === undefined) return { rest: REST_PAUSES_MS, grpc: GRPC_PAUSES_MS, loops: LOOP_PAUSES_MS };
  const half = Array<number>(Math.ceil(load.callsASecond / 20)).fill(100);
  return { rest: half, grpc: half, loops: Array<number>(load.loops).fill(100) };
}

function spreadOf(all: readonly number[]): Spread | undefined {
  if (all.length === 0) return undefined;
  const sorted = all.toSorted((a, b) => a - b).map((ms) => Math.round(10 * ms) / 10);
  const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
  return { p50: at(0.5), p99: at(0.99), most: at(1) };
}

/** Ports of loopback that nobody has at the moment. */
async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer();
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      return server;
    }),
  );
  const ports = servers.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

/** Sends a signal to a process that may be gone already. */
function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}
