/** Webhooks: to many receivers of which some are dead, and what one delivery costs. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as rest } from "node:timers/promises";
import { nowSeconds } from "../../../src/clock.ts";
import { Signer } from "../../../src/events/webhooks.ts";
import { MOST_AT_ONE_HOOK } from "../../../src/store/events/webhooks.ts";
import { post } from "../../../src/upstream/post.ts";
import { guardedAgent } from "../../../src/upstream/transport/guard.ts";
import { cpuNanos, median, startModelServer } from "../support/processes.ts";
import { cpuMicros, openBenchHouse, seconds } from "./gateway.ts";

/** An organisation has at most 50. */
const ORGS = 2;
const [HOOKS, DEAD] = [50, 5];
const HAPPENINGS = 40;

/** Prints deliveries a second to 100 receivers of which 10 accept connections and stay silent. */
export async function webhooks(): Promise<void> {
  const { gateway, admin, json, close } = await openBenchHouse();
  const spent = (): [number, number] => [cpuNanos(gateway.pid), gateway.databaseNanos()];
  let got = 0;
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      got++;
      response.writeHead(204).end();
    });
  });
  const silent = createServer(() => {});
  for (const each of [server, silent]) await new Promise<void>((resolve) => each.listen(0, "127.0.0.1", resolve));
  const [port, dead] = [server, silent].map((each) => (each.address() as AddressInfo).port); // a TCP server's address is never a string
  const orgs: string[] = [];
  for (let i = 0; i < ORGS; i++) {
    const { id } = await admin("/v1/orgs", { name: `org ${i}` });
    const { key } = await admin(`/v1/orgs/${id}/keys`, { role: "owner" });
    orgs.push(id);
    for (let hook = 0; hook < HOOKS; hook++) {
      const to = hook < DEAD ? dead : port;
      await json("/v1/webhooks", { url: `http://127.0.0.1:${to}/${hook}`, events: ["key.created"] }, key);
    }
  }
  const live = ORGS * (HOOKS - DEAD);
  while (got < live) await rest(20); // each is greeted with a ping
  const goal = got + live * HAPPENINGS;
  const [began, before] = [performance.now(), spent()];
  await Promise.all(
    orgs.map(async (org) => {
      for (let i = 0; i < HAPPENINGS; i++) await admin(`/v1/orgs/${org}/keys`, { role: "viewer" });
    }),
  );
  const happened = seconds(began);
  while (got < goal) await rest(10);
  const rate = (live * HAPPENINGS) / seconds(began);
  const [ours, theirs] = spent().map((nanos, i) => ((nanos - before[i]!) / 1e3 / (live * HAPPENINGS)).toFixed(0));
  console.log(
    `webhooks to ${ORGS * HOOKS} receivers of which ${ORGS * DEAD} never answer: ${rate.toFixed(0)} a second (the causes took ${happened.toFixed(1)} s of ${seconds(began).toFixed(1)}); CPU of each with its cause: ${ours} us of the gateway, ${theirs} us of PostgreSQL`,
  );
  for (const each of [server, silent]) {
    each.close();
    each.closeAllConnections();
  }
  await close();
}

/** As many at once, and as many of them to one receiver, as the sender has. */
const AT_ONCE = 128;
const RECEIVERS = AT_ONCE / MOST_AT_ONE_HOOK;
const ROUNDS = 7;
const POSTS = 10_000;
const FETCHES = 2_000;
const BODY = Buffer.from(JSON.stringify({ id: "evt_1", type: "batch.completed", data: { text: "x".repeat(900) } }));
const SECRET = `whsec_${Buffer.alloc(24, 7).toString("base64")}`;

/** Prints what CPU a signed delivery takes here, and against the platform's own fetch (goal W1: 50 us); each by the median of rounds. */
export async function deliveryCost(): Promise<void> {
  const upstream = await startModelServer(["0"]);
  const { rest: port }: { rest: number } = JSON.parse(upstream.line);
  const urls = Array.from({ length: RECEIVERS }, (_, i) => `http://127.0.0.1:${port}/hook/${i}`);
  const reach = { allowPrivate: true };
  const agent = guardedAgent(reach, { silenceMs: 10_000, connections: AT_ONCE });
  const limits = { agent, allowPrivate: true, timeoutMs: 10_000, maxBytes: 64 << 10 };
  const signer = new Signer(SECRET);
  const headers = (): Record<string, string> => ({
    "content-type": "application/json",
    "user-agent": "limber-webhooks/1",
    "webhook-id": "evt_1",
    "webhook-timestamp": String(nowSeconds()),
    "webhook-signature": signer.sign("evt_1", new Date(), BODY),
  });
  const ways: Readonly<Record<string, (url: string) => Promise<unknown>>> = {
    sender: (url) => post(url, { ...limits, headers: headers(), body: BODY }),
    fetch: async (url) => (await fetch(url, { method: "POST", headers: headers(), body: BODY })).arrayBuffer(),
    signing: async () => headers(),
  };
  const cost = async (send: (url: string) => Promise<unknown>, count: number): Promise<number> => {
    let left = count;
    // What another way left behind is not this one's.
    globalThis.gc?.({ type: "minor" });
    const before = process.cpuUsage();
    const worker = async (_: unknown, i: number): Promise<void> => {
      while (left-- > 0) await send(urls[i % RECEIVERS]!);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    return cpuMicros(before) / count;
  };
  const took: Record<string, number[]> = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
  for (let round = -1; round < ROUNDS; round++)
    for (const [name, send] of Object.entries(ways)) {
      const each = await cost(send, name === "fetch" ? FETCHES : POSTS);
      if (round >= 0) took[name]!.push(each);
    }
  const [mine, theirs, signed] = Object.values(took).map(median) as [number, number, number];
  console.log(
    `W1 a signed delivery: ${mine.toFixed(1)} us of CPU, of which signing ${signed.toFixed(1)}; ${(theirs / mine).toFixed(1)} times less than global fetch (${theirs.toFixed(0)} us)`,
  );
  await agent.destroy();
  await upstream.stop();
}
