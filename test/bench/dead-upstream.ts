/**
 * What calls of a healthy offering feel while another offering is dead: it refuses connections, takes them and says nothing, or resets them.
 * Prints p50 and p99 of the healthy one alone, and beside callers of the dead one. `node test/bench/dead-upstream.ts [callers] [calls]`
 */
import { mkdtempSync, rmSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { actJson } from "./support/act-call.ts";
import { openGateway } from "./support/gateway.ts";
import { type Load, restLoad } from "./support/load.ts";
import { start } from "./support/processes.ts";

const callers = Number(process.argv[2] ?? 64);
const calls = Number(process.argv[3] ?? 4_000);
const DEADLINE_MS = 2_000;

/** How the dead one is dead. */
type Death = "lives" | "refuses connections" | "takes them and says nothing" | "resets them";

/** A server in front of another that can die. */
class Mortal {
  #death: Death = "lives";
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #port: Promise<number>;

  constructor(behind: number) {
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on("error", () => undefined).once("close", () => this.#sockets.delete(socket));
      if (this.#death === "resets them") socket.once("data", () => socket.resetAndDestroy());
      if (this.#death !== "lives") return;
      const upstream = connect(behind, "127.0.0.1").on("error", () => socket.destroy());
      socket.pipe(upstream).pipe(socket);
      socket.once("close", () => upstream.destroy());
    });
    this.#port = this.#listen(0);
  }

  get port(): Promise<number> {
    return this.#port;
  }

  /** Connections that stand end, as with the machine. */
  async die(death: Death): Promise<void> {
    this.#death = death;
    for (const socket of this.#sockets) socket.resetAndDestroy();
    if (death === "refuses connections") await new Promise((resolve) => this.#server.close(resolve));
    else if (!this.#server.listening) await this.#listen(await this.#port);
  }

  #listen(port: number): Promise<number> {
    return new Promise((resolve) => {
      this.#server.listen(port, "127.0.0.1", () => resolve((this.#server.address() as AddressInfo).port));
    });
  }
}

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const upstream = await start("test/bench/support/upstream.ts", [], (line) => line.startsWith("{"));
const ports: { grpc: number } = JSON.parse(upstream.line);
const mortal = new Mortal(ports.grpc);
const gateway = await openGateway(folder, `grpc://127.0.0.1:${ports.grpc}`);
const origin = `http://127.0.0.1:${gateway.port}`;
const url = `${origin}/v1/act`;
const doomed = Buffer.from(
  JSON.stringify({ ...JSON.parse(actJson.toString()), model: "bench/doomed", provider: { deadline_ms: DEADLINE_MS } }),
);

const call = async (path: string, body: object): Promise<Record<string, string>> => {
  const headers = { "content-type": "application/json", authorization: `Bearer ${gateway.key}` };
  const answer = await fetch(origin + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}: ${await answer.text()}`);
  return answer.json() as Promise<Record<string, string>>;
};
await call("/v1/supply/providers", { name: "doomed" });
const offering = await call("/v1/supply/providers/doomed/models", {
  ...{ model: "bench/doomed", runtime: "limber-policy", endpoint: `grpc://127.0.0.1:${await mortal.port}` },
  ...{ hardware: "cpu", contracts: ["act"], action_spaces: ["ee_delta_6d_grip"], dt_ms: 50 },
});
await call(`/v1/supply/offerings/${offering.id}/verify`, {});

const at = ({ latencies }: Load, share: number): string =>
  (latencies[Math.floor(share * latencies.length)] ?? Number.NaN).toFixed(2).padStart(8);
const told = (name: string, load: Load, beside = ""): void =>
  console.log(`${name.padEnd(38)} p50${at(load, 0.5)} ms  p99${at(load, 0.99)} ms  failed ${load.failed}  ${beside}`);

const CALLERS_OF_HEALTHY = 4;
const healthy = (): Promise<Load> => restLoad(url, actJson, gateway.key, CALLERS_OF_HEALTHY, calls);
/** The callers of the other offering go on until the healthy one's are through. */
async function beside(name: Death): Promise<void> {
  let isOver = false;
  const others = (async () => {
    const sum = { answered: 0, failed: 0 };
    while (!isOver) {
      const { answered, failed } = await restLoad(url, doomed, gateway.key, callers, callers * 4);
      sum.answered += answered;
      sum.failed += failed;
    }
    return sum;
  })();
  const load = await healthy();
  isOver = true;
  const { answered, failed } = await others;
  told(`beside one that ${name}`, load, `the other: ${answered} answered, ${failed} failed`);
}

await healthy(); // warm-up
told("nobody else", await healthy());
await beside("lives");
for (const death of ["refuses connections", "takes them and says nothing", "resets them"] as const) {
  await mortal.die(death);
  await beside(death);
}
await mortal.die("lives");
told("afterwards, nobody else", await healthy());

await Promise.all([gateway.stop(), upstream.stop()]);
rmSync(folder, { recursive: true, force: true });
process.exit(0);
