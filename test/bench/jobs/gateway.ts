/** The gateway of these benchmarks: one organisation that is rich, one model that takes as long as it's told. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Bench, openGateway } from "../support/gateway.ts";
import { startModelServer } from "../support/processes.ts";

/** The operator's token of the gateways that benchmarks start. */
const ADMIN_TOKEN = "benchmark-admin-token";

/** A running gateway with its model. */
export interface BenchHouse {
  readonly gateway: Bench;
  readonly url: string;
  /** Calls with the organisation's key; a body makes it a POST. Fails unless it's answered well. */
  call(path: string, body?: unknown, key?: string): Promise<Response>;
  // biome-ignore lint/suspicious/noExplicitAny: answers of every shape.
  json(path: string, body?: unknown, key?: string): Promise<any>;
  /** The same with the operator's token. */
  // biome-ignore lint/suspicious/noExplicitAny: answers of every shape.
  admin(path: string, body: unknown): Promise<any>;
  /** What the gateway tells of itself at `/metrics`. */
  figures(): Promise<string>;
  close(): Promise<void>;
}

/** Opens it; the model takes `modelMs` for an answer, and `flags` are Node's for the gateway. */
export async function openBenchHouse(modelMs = "20", flags: string[] = []): Promise<BenchHouse> {
  const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
  const upstream = await startModelServer([modelMs]);
  const { grpc }: { grpc: number } = JSON.parse(upstream.line);
  const gateway = await openGateway(join(folder, "gateway"), `grpc://127.0.0.1:${grpc}`, {}, flags);
  const url = `http://127.0.0.1:${gateway.port}`;
  const send = async (path: string, body: unknown, headers: Record<string, string>): Promise<Response> => {
    const answer = await fetch(url + path, {
      headers: { "content-type": "application/json", ...headers },
      ...(body !== undefined && { method: "POST", body: JSON.stringify(body) }),
    });
    if (!answer.ok) throw new Error(`${path} answered ${answer.status}: ${await answer.text()}`);
    return answer;
  };
  const call = (path: string, body?: unknown, key = gateway.key) =>
    send(path, body, { authorization: `Bearer ${key}` });
  return {
    gateway,
    url,
    call,
    json: async (path, body, key) => (await call(path, body, key)).json(),
    admin: async (path, body) => (await send(path, body, { "x-service-admin-token": ADMIN_TOKEN })).json(),
    figures: async () => (await send("/metrics", undefined, { "x-service-admin-token": ADMIN_TOKEN })).text(),
    async close() {
      await Promise.all([gateway.stop(), upstream.stop()]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Seconds since a moment of `performance.now()`. */
export const seconds = (began: number): number => (performance.now() - began) / 1000;

/** CPU microseconds that this process has taken since `before`, all its threads. */
export const cpuMicros = (before: NodeJS.CpuUsage): number => {
  const { user, system } = process.cpuUsage(before);
  return user + system;
};
