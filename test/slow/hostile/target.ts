/** The gateway that is attacked: a process of its own as operators run it, with rich organisations and a probe inside. */

import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { ADMIN_TOKEN, callRest } from "../../support/app.ts";
import { launchGateway, scratchDir } from "../../support/gateway.ts";
import type { Vitals } from "./probe.ts";

/** An organisation with an owner's key that no limit of rate and no balance stops. */
export interface Account {
  readonly org: string;
  readonly key: string;
}

/** A running gateway. */
export interface Target {
  readonly url: string;
  readonly port: number;
  readonly gr00tPort: number;
  readonly pid: number;
  /** Who is served beside the attack. */
  readonly good: Account;
  /** Who attacks with a key. */
  readonly bad: Account;
  /** Makes one more organisation. */
  account(name: string): Promise<Account>;
  /** What the process tells of itself, after a forced collection unless `collect` is false. */
  vitals(collect?: boolean): Promise<Vitals>;
  /** How many calls it has answered, whatever was the answer; 0 when it can't be told any more. */
  calls(): Promise<number>;
  /** How many calls of keys it says to be answering; 0 when it can't be told any more. */
  running(): Promise<number>;
  /** How the process ended; undefined while it lives. */
  end(): string | undefined;
  /** What went wrong inside since the last question: errors that nobody heard, answers of 500, errors in the log. */
  complaints(): Promise<string[]>;
  stop(): Promise<void>;
}

/** More than an hour of attacks spends. */
const CREDIT_USD = 1_000_000;
const NO_LIMIT = { requests: 10_000_000, window_s: 1, burst: 10_000_000, concurrency: 10_000, streams: 10_000 };
/** A gateway whose garbage grows beyond this dies, long before the machine does. */
const MOST_HEAP_MB = 1_536;
/** No answer of a process for so long: it hangs. */
const HANG_MS = 120_000;
const FLAGS = [`--max-old-space-size=${MOST_HEAP_MB}`, "--import", fileURLToPath(new URL("probe.ts", import.meta.url))];

/** Starts a gateway on an empty directory with its own database and the reference provider. */
export async function openTarget(env: Readonly<Record<string, string>> = {}): Promise<Target> {
  const folder = scratchDir();
  const gr00tPort = await freePort();
  const settings = {
    DATA_DIR: folder.path,
    LOG_LEVEL: "error",
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    LIMBER_GR00T_PORT: String(gr00tPort),
    ...env,
  };
  const { child, ready, ended } = launchGateway(settings, FLAGS);
  const gateway = await ready;
  const { url } = gateway;
  let end: string | undefined;
  const stopped = ended.then(({ code, signal, stderr }) => {
    end = `the gateway ended with ${code ?? signal}: ${stderr.trim().slice(-600) || "it said nothing"}`;
  });

  let questions = 0;
  const waiting = new Map<number, (vitals: Vitals) => void>();
  child.on("message", (message) => {
    const { question, vitals } = message as { question: number; vitals: Vitals };
    waiting.get(question)?.(vitals);
    waiting.delete(question);
  });
  const vitals = async (collect = true): Promise<Vitals> => {
    const question = ++questions;
    const answered = new Promise<Vitals>((resolve) => waiting.set(question, resolve));
    if (end !== undefined) throw new Error(end);
    child.send({ question, collect }, () => undefined);
    return within(Promise.race([answered, stopped.then(() => Promise.reject(new Error(end)))]), "the probe's answer");
  };

  const admin = async (path: string, body: object): Promise<Record<string, string>> => {
    const { status, text, body: answer } = await callRest(url, path, body, { admin: ADMIN_TOKEN });
    if (status >= 300) throw new Error(`${path} answered ${status}: ${text}`);
    return answer;
  };
  const account = async (name: string): Promise<Account> => {
    const { id } = await admin("/v1/orgs", { name });
    await admin(`/v1/orgs/${id}/credits`, { amount_usd: CREDIT_USD });
    const { key } = await admin(`/v1/orgs/${id}/keys`, { role: "owner", rate_limit: NO_LIMIT });
    return { org: id!, key: key! };
  };

  const seen = { stdout: 0, stderr: 0, counters: new Map<string, number>() };
  const complaints = async (): Promise<string[]> => {
    const found: string[] = [];
    const newText = (name: "stdout" | "stderr"): string => {
      const text = gateway[name]();
      const fresh = text.slice(seen[name]);
      seen[name] = text.length;
      return fresh;
    };
    for (const line of newText("stderr").split("\n"))
      if (line.trim() !== "") found.push(`stderr: ${line.slice(0, 600)}`);
    for (const line of newText("stdout").split("\n"))
      if (/"level":(50|60)/.test(line)) found.push(`an error in the log: ${line.slice(0, 900)}`);
    if (end !== undefined) return found;
    const text = await callRest(url, "/metrics", undefined, { admin: ADMIN_TOKEN }).then(
      (answer) => answer.text,
      // Either the process is ending, or it says nothing to anybody any more.
      (thrown) => Promise.race([stopped.then(() => ""), sayNothing(thrown)]),
    );
    if (end !== undefined) return [];
    for (const [, name = "", value] of text.matchAll(COUNTED)) {
      const grown = Number(value) - (seen.counters.get(name) ?? 0);
      seen.counters.set(name, Number(value));
      if (grown > 0) found.push(`${name} grew by ${grown}`);
    }
    return found;
  };

  const sumOf = async (metric: RegExp): Promise<number> => {
    const answer = await callRest(url, "/metrics", undefined, { admin: ADMIN_TOKEN }).catch(() => undefined);
    return [...(answer?.text.matchAll(metric) ?? [])].reduce((sum, [, count]) => sum + Number(count), 0);
  };
  const calls = (): Promise<number> => sumOf(/^limber_calls_total\{[^}]*\} (\d+)/gm);
  const running = (): Promise<number> => sumOf(/^limber_calls_running (\d+)/gm);

  return {
    url,
    port: Number(new URL(url).port),
    gr00tPort,
    pid: gateway.pid,
    good: await account("good"),
    bad: await account("bad"),
    account,
    vitals,
    calls,
    running,
    end: () => end,
    complaints,
    async stop() {
      await gateway.end("SIGKILL");
      folder.remove();
    },
  };
}

const ENDING_MS = 5_000;
const sayNothing = (thrown: unknown): Promise<never> =>
  new Promise((_, reject) =>
    setTimeout(() => reject(new Error("the metrics are not to be had", { cause: thrown })), ENDING_MS),
  );

/** Errors that nobody heard, and answers that say the gateway failed. */
const COUNTED = /^(limber_unhandled_errors_total(?:\{[^}]*\})?|limber_calls_total\{[^}]*status="500"[^}]*\}) (\d+)/gm;

/** Rejects when `promise` takes so long that it will not come. */
export async function within<T>(promise: Promise<T>, what: string, ms = HANG_MS): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const hang = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not come in ${ms / 1000} s`)), ms);
  });
  try {
    return await Promise.race([promise, hang]);
  } finally {
    clearTimeout(timer);
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
