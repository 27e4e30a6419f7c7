/**
 * Every entry by which a caller gives us an address, over the API: nobody inside is ever connected to. The guard that all of them share meets the
 * complete corpus in its own test.
 */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ACT_DECLARATION, type Answer, type App, type Caller } from "../support/app.ts";
import { type Canary, startCanary } from "../support/canary.ts";
import { eventually } from "../support/eventually.ts";
import type { Model } from "../support/model.ts";
import { type NameServer, startNameServer } from "../support/name-server.ts";
import { openModel, ownGateway } from "../support/world.ts";
import { hostileUrls, LEGITIMATE_URLS } from "../unit/upstream/transport/hostile-urls.ts";

const PUBLIC = "93.184.215.14";
/** Names that real users give; here they lead nowhere, so that nobody outside is called by a test. */
const KNOWN = new Set(LEGITIMATE_URLS.map((text) => new URL(text).hostname.replace(/\.$/, "")));
const UNLIMITED = { requests: 1_000_000, window_s: 1, burst: 1_000_000, concurrency: 1_000 };
const AT_ONCE = 8;

let canary: Canary;
let names: NameServer;
let model: Model;
/** Lets supply in from loopback; `strict`, on the same database, goes to public addresses alone. */
let open: App;
let strict: App;
let caller: Caller;
let next = 0;

beforeAll(async () => {
  let asked = 0;
  // Every name leads inside; every other answer has a public address among it.
  const inside = () => (asked++ % 2 === 0 ? ["127.0.0.1", "::1"] : [PUBLIC, "127.0.0.1", "::1"]);
  [canary, model, names] = await Promise.all([
    startCanary(),
    openModel(),
    startNameServer((name) => (KNOWN.has(name) ? undefined : inside())),
  ]);
  open = await ownGateway();
  await open.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  strict = await ownGateway({
    database: open.database,
    roles: new Set(["api", "worker"]),
    allowPrivateAddresses: false,
    dnsServers: [names.address],
  });
  caller = await strict.caller(1_000, { role: "owner", rate_limit: UNLIMITED });
  await strict.call("/v1/supply/providers", { name: "hostile" }, { key: caller.key });
});
afterAll(async () => {
  await names.close();
  canary.close();
});

const ask = (path: string, body?: unknown, method?: string): Promise<Answer> =>
  strict.call(path, body, { key: caller.key, ...(method && { method }) });

/** Somewhere a caller gives an address. */
interface Entry {
  readonly name: string;
  /** What addresses begin with there. */
  readonly scheme: string;
  /** Gives the address. */
  give(app: App, address: string, key: string): Promise<Answer>;
  /** Where taking the address is not using it: uses it, and answers what came of it. `well` where it was called and answered well. */
  use?(app: App, given: Answer["body"], key: string): Promise<{ well: boolean }>;
  /** It is dialled as soon as it is given. */
  readonly atOnce?: boolean;
  /** What is said there is HTTP/1.1, in which a server can answer with a redirect. */
  readonly speaksHttp1: boolean;
}

const ENTRIES: readonly Entry[] = [
  {
    name: "the endpoint of an offering",
    scheme: "grpc:",
    speaksHttp1: false,
    give: (app, endpoint, key) =>
      app.call(
        "/v1/supply/providers/hostile/models",
        { ...ACT_DECLARATION, model: `hostile/m${next++}`, endpoint },
        { key },
      ),
    async use(app, { id }, key) {
      const { body } = await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key });
      return { well: body.report.checks[0].passed };
    },
  },
  {
    name: "the endpoint of an offering over HTTP",
    scheme: "http:",
    speaksHttp1: true,
    give: (app, endpoint, key) =>
      app.call(
        "/v1/supply/providers/hostile/models",
        {
          ...ACT_DECLARATION,
          price_per_action_step: undefined,
          price_per_frame: 0.001,
          runtime: "cog",
          contracts: ["predict"],
          action_spaces: [],
          model: `hostile/m${next++}`,
          endpoint,
        },
        { key },
      ),
    async use(app, { id }, key) {
      const { body } = await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key });
      return { well: body.report.checks[0].passed };
    },
  },
  {
    name: "the policy of an evaluation",
    scheme: "ws:",
    speaksHttp1: false, // its upgrade is, but this server leaves upgrades unanswered
    give: (app, address, key) =>
      app.call(
        "/v1/evaluate",
        { policy_endpoint: address, scenario: "base-nav", episodes: 1, policy_timeout_ms: 2_000 },
        { key },
      ),
    async use(app, { id }, key) {
      const ended = await eventually(
        async () => {
          const { body } = await app.call(`/v1/evaluate/${id}`, undefined, { key });
          expect(["completed", "failed"]).toContain(body.status);
          return body;
        },
        { timeout: 60_000 },
      );
      return { well: ended.status === "completed" };
    },
  },
  {
    name: "the address of a webhook",
    scheme: "https:",
    speaksHttp1: true,
    give: (app, url, key) => app.call("/v1/webhooks", { url }, { key }),
    async use(app, { id }, key) {
      await app.call(`/v1/webhooks/${id}/test`, {}, { key });
      const delivery = await eventually(
        async () => {
          const { body } = await app.call(`/v1/webhooks/${id}/deliveries`, undefined, { key });
          // What is claimed counts as tried before it is sent.
          const [last] = body.data;
          expect([last.status === "delivered", last.last_error ?? null]).not.toEqual([false, null]);
          return last;
        },
        { timeout: 30_000 },
      );
      await app.call(`/v1/webhooks/${id}`, undefined, { key, method: "DELETE" });
      return { well: delivery.status === "delivered" };
    },
  },
  ...["http/protobuf", "grpc"].map(
    (protocol): Entry => ({
      name: `the target of a broadcast by ${protocol}`,
      scheme: "https:",
      speaksHttp1: protocol !== "grpc",
      give: (app, endpoint, key) => app.call("/v1/broadcast", { endpoint, protocol }, { key }),
      atOnce: true,
    }),
  ),
  {
    name: "the picture of an observation",
    scheme: "https:",
    speaksHttp1: true,
    give: (app, url, key) =>
      app.call(
        "/v1/act",
        {
          model: "acme/base",
          action_space: "base_twist_2d",
          horizon: 1,
          observations: [{ proprio: [0], frames: [{ camera: "front", url }] }],
        },
        { key },
      ),
    atOnce: true,
  },
];

/** Names that are looked up and lead inside. */
const INSIDE = ["7f000001.rebind.example", "127.0.0.1.nip.io", "metadata.google.internal"];
const PER_ENTRY = 12;

/** Hostile addresses for the entry at this place: these names, and others from all over the corpus, different ones for each entry. */
function hostileFor(place: number): string[] {
  const urls = hostileUrls(canary.port);
  const named = INSIDE.map((name) => urls.find((url) => new URL(url).hostname === name));
  if (named.includes(undefined)) throw new Error("the corpus lacks a name that leads inside");
  return [...(named as string[]), ...spread(urls, PER_ENTRY - named.length, place / ENTRIES.length)];
}

/** `count` of these at equal distances; `offset`, between 0 and 1, shifts them by a part of the distance. */
function spread(urls: readonly string[], count: number, offset: number): string[] {
  const step = Math.max(1, urls.length / count);
  return Array.from({ length: Math.min(count, urls.length) }, (_, i) => urls[Math.floor((i + offset) * step)]!);
}

/** Runs the work over all items, a few at one time. */
async function each<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const left = [...items];
  const run = async (): Promise<void> => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, run));
}

describe.each(ENTRIES)("$name", (entry) => {
  const { scheme, give, use, atOnce } = entry;

  it("reaches no internal address", async () => {
    const urls = hostileFor(ENTRIES.indexOf(entry));
    const wrong: string[] = [];
    names.asked.clear();
    await each(urls, async (text) => {
      const address = text.replace(/^http:/, scheme);
      const { status, body, text: said } = await give(strict, address, caller.key);
      if (status >= 400 && status < 500) return;
      if (status >= 500 || !use) wrong.push(`${address}: ${status} ${said.slice(0, 200)}`);
      else if ((await use(strict, body, caller.key)).well) wrong.push(`${address} was called`);
    });
    expect(wrong).toEqual([]);
    // Names were looked up, and found to lead inside.
    for (const name of INSIDE) expect(names.asked).toContain(name);
    expect(canary.connections()).toBe(0);
  });

  it("accepts any legitimate address", async () => {
    // Literal addresses are somebody's: they are not given where that alone dials them.
    const urls = LEGITIMATE_URLS.filter((text) => !/[^\x20-\x7e]|EXAMPLE/.test(text)).filter(
      (text) => !(atOnce || scheme === "ws:") || /^https:\/\/(?!\d)[^[]/.test(text),
    );
    expect(urls.length).toBeGreaterThan(3);
    const refused: string[] = [];
    await each(spread(urls, PER_ENTRY, 0), async (text) => {
      const { status, body, text: said } = await give(strict, text.replace("https:", scheme), caller.key);
      const led = status < 300 || /broadcast_test_failed|frame_unreachable/.test(said);
      if (!led) refused.push(`${text}: ${status} ${said.slice(0, 200)}`);
      if (status < 300 && body.object === "webhook") await ask(`/v1/webhooks/${body.id}`, undefined, "DELETE");
      if (status === 202) await ask(`/v1/evaluate/${body.id}`, undefined, "DELETE");
    });
    expect(refused).toEqual([]);
  }, 60_000);
});

describe("a redirect", () => {
  /** A server at an allowed address that sends everybody on to the canary, in a gateway that would go there. */
  let gate: Server;
  let asked = 0;
  let trusting: App;
  let rich: Caller;

  beforeAll(async () => {
    gate = createServer((request, response) => {
      request.resume();
      asked++;
      response.writeHead(307, { location: `http://127.0.0.1:${canary.port}/secret` }).end();
    });
    await new Promise<void>((resolve) => gate.listen(0, "127.0.0.1", resolve));
    trusting = await ownGateway({ roles: new Set(["api", "worker"]) });
    await trusting.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
    rich = await trusting.caller(10, { role: "owner", rate_limit: UNLIMITED });
    await trusting.call("/v1/supply/providers", { name: "hostile" }, { key: rich.key });
  });
  afterAll(async () => {
    gate.close().closeAllConnections();
  });

  it.each(ENTRIES)("from $name is not followed", async ({ scheme, give, use, speaksHttp1 }) => {
    const address = `${scheme.replace("https:", "http:")}//127.0.0.1:${(gate.address() as AddressInfo).port}/`;
    const before = asked;
    const { status, body } = await give(trusting, address, rich.key);
    if (status < 300 && use) expect((await use(trusting, body, rich.key)).well).toBe(false);
    else expect([status >= 400, status < 500]).toEqual([true, true]);
    if (speaksHttp1) expect(asked).toBeGreaterThan(before);
    expect(canary.connections()).toBe(0);
  });
});
