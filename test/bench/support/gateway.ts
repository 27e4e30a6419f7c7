/** A gateway as operators run it, with one instant offering, a rich organisation and a key that no limit stops. */

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { START_FLAGS } from "../../../src/app/collector.ts";
import { cpuNanos, descendants, type Started, start } from "./processes.ts";

/** One running gateway. */
export interface Bench {
  pid: number;
  port: number;
  /** An API key with money and without limits. */
  key: string;
  /** On-CPU nanoseconds of the gateway's database so far. */
  databaseNanos(): number;
  stop(): Promise<void>;
}

/** The operator's token of the gateways of benchmarks. */
export const ADMIN_TOKEN = "benchmark-admin-token";

/**
 * Starts a gateway with its data and its log in the folder `dataDir`, and registers the server at `endpoint` as
 * `bench/instant`, or several servers of it, each by a provider of its own. `flags` are Node's own; `served` is what the servers
 * declare. With `isTuned` the process has the start flags.
 */
export async function openGateway(
  dataDir: string,
  endpoint: string | readonly string[],
  env: Record<string, string> = {},
  flags: string[] = [],
  served: object = ACTS,
  isTuned = true,
): Promise<Bench> {
  mkdirSync(dataDir, { recursive: true });
  const settings = {
    PORT: "0",
    DATA_DIR: dataDir,
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    LIMBER_REFERENCE_SUPPLY: "false",
    ...env,
  };
  const ready = (line: string): boolean => line.startsWith("limber ready ");
  const log = join(dataDir, "log");
  const tuned = isTuned ? START_FLAGS : [];
  const process: Started = await start("src/main.ts", [], ready, { env: settings, flags: [...tuned, ...flags], log });
  const port = Number(new URL(process.line.slice("limber ready ".length)).port);
  const key = await furnish(port, [endpoint].flat(), served);
  return {
    pid: process.pid,
    port,
    key,
    // Looked up each time: a connection that is opened later has a process of its own.
    databaseNanos: () => descendants(process.pid).reduce((sum, pid) => sum + safeCpu(pid), 0),
    stop: process.stop,
  };
}

function safeCpu(pid: number): number {
  try {
    return cpuNanos(pid);
  } catch {
    return 0;
  }
}

const ACTS = { contracts: ["act"], action_spaces: ["ee_delta_6d_grip"], price_per_action_step: 0.000001 };

async function furnish(port: number, endpoints: readonly string[], served: object): Promise<string> {
  const call = async (
    path: string,
    body: unknown,
    headers: Record<string, string>,
  ): Promise<Record<string, string>> => {
    const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
    const result = await answer.json();
    if (!answer.ok) throw new Error(`${path} answered ${answer.status}: ${JSON.stringify(result)}`);
    return result as Record<string, string>;
  };
  const admin = { "x-service-admin-token": ADMIN_TOKEN };
  const org = await call("/v1/orgs", { name: "benchmark" }, admin);
  await call(`/v1/orgs/${org.id}/credits`, { amount_usd: 1_000_000 }, admin);
  const limit = { requests: 10_000_000, window_s: 1, burst: 10_000_000, concurrency: 10_000, streams: 10_000 };
  const key = await call(`/v1/orgs/${org.id}/keys`, { role: "owner", rate_limit: limit }, admin);
  const bearer = { authorization: `Bearer ${key.key}` };
  for (const [i, endpoint] of endpoints.entries()) await supply(`bench${i === 0 ? "" : i}`, endpoint);
  return key.key!;

  async function supply(provider: string, endpoint: string): Promise<void> {
    await call("/v1/supply/providers", { name: provider }, bearer);
    const offering = await call(
      `/v1/supply/providers/${provider}/models`,
      {
        model: "bench/instant",
        runtime: "limber-policy",
        endpoint,
        hardware: "cpu",
        ...served,
        dt_ms: 50,
      },
      bearer,
    );
    const verified = await call(`/v1/supply/offerings/${offering.id}/verify`, {}, bearer);
    if ((verified as unknown as { offering: { status: string } }).offering.status !== "live")
      throw new Error(JSON.stringify(verified));
  }
}
