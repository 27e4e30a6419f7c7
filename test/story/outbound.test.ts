/** Supply behind a NAT: the server dials the gateway, is probed and routed to like any other, and may come and go. */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { create, fromBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import sharp from "sharp";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import {
  OutboundService,
  type ServeRequest,
  ServeRequestSchema,
  type ServeResponse,
} from "../../gen/limber/outbound/v1/outbound_service_pb.ts";
import { PredictResponseSchema } from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import { ACT_DECLARATION, type App, type Caller } from "../support/app.ts";
import { centreOfRed } from "../support/centre-of-red.ts";
import { eventually } from "../support/eventually.ts";
import { frameOf, honestSteps } from "../support/model.ts";
import { startNats } from "../support/nats.ts";
import { ownGateway } from "../support/world.ts";

let app: App;
let supplier: Caller;
let robot: Caller;
let next = 0;
const servers: Server[] = [];

beforeAll(async () => {
  app = await ownGateway();
  supplier = await app.caller(0, { role: "supplier" });
  robot = await app.caller(10);
});
afterEach(async () => {
  for (const server of servers.splice(0)) await server.leave();
});

/** A server that dials; it answers honestly until told otherwise. */
class Server {
  readonly heard: ServeResponse["message"][] = [];
  honest = true;
  readonly ended: Promise<unknown>;
  readonly #said: ServeRequest[] = [];
  readonly #leaving = new AbortController();
  #wake = (): void => {};

  constructor(url: string, key: string, provider: string) {
    this.say({ case: "hello", value: { $typeName: "limber.outbound.v1.Hello", provider } });
    this.ended = this.#run(url, key).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    servers.push(this);
  }

  say(message: ServeRequest["message"]): void {
    this.#said.push(create(ServeRequestSchema, { message }));
    this.#wake();
  }

  async welcome(): Promise<this> {
    await eventually(() => expect(this.heard.map(({ case: name }) => name)).toContain("welcome"));
    return this;
  }

  async leave(): Promise<void> {
    this.#leaving.abort();
    await this.ended;
  }

  async *#talk() {
    for (;;) {
      while (this.#said.length > 0) yield this.#said.shift()!;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  async #run(baseUrl: string, key: string): Promise<void> {
    const client = createClient(OutboundService, createGrpcTransport({ baseUrl }));
    const options = { headers: { authorization: `Bearer ${key}` }, signal: this.#leaving.signal };
    for await (const { message } of client.serve(this.#talk(), options)) {
      this.heard.push(message);
      if (this.honest) await this.#answer(message);
    }
  }

  async #answer(message: ServeResponse["message"]): Promise<void> {
    if (message.case === "act" && message.value.body.case === "call") {
      const steps = honestSteps(message.value.body.value, 2).map((values) => ({ values }));
      const { callId } = message.value;
      this.#say({ case: "act", value: { callId, body: { case: "chunk", value: { steps } } } });
    } else if (message.case === "predict") {
      const { callId, request } = message.value;
      for (let i = 0; i < (request?.horizon ?? 0); i++) {
        const part = fromBinary(PredictResponseSchema, await frameOf(request!, i));
        this.#say({ case: "predict", value: { callId, body: { case: "part", value: part } } });
      }
      this.#say({ case: "predict", value: { callId, body: { case: "end", value: {} } } });
    } else if (message.case === "ground") {
      const { callId, request } = message.value;
      const [frame] = request?.observation?.frames ?? [];
      const at = (frame && (await centreOfRed(frame.data))) ?? { x: 0.75, y: 0.25 };
      const answer = { points: [{ ...at, label: "square", confidence: 1 }] };
      this.#say({ case: "ground", value: { callId, body: { case: "answer", value: answer } } });
    }
  }

  // biome-ignore lint/suspicious/noExplicitAny: parts of messages, made whole by create.
  #say(message: any): void {
    this.#said.push(create(ServeRequestSchema, { message }));
    this.#wake();
  }
}

async function provider(): Promise<string> {
  const name = `outbound-${next++}`;
  await app.call("/v1/supply/providers", { name }, { key: supplier.key });
  return name;
}

const declare = (name: string, more: object = {}) =>
  app.call(
    `/v1/supply/providers/${name}/models`,
    { ...ACT_DECLARATION, model: `${name}/base`, runtime: "limber-outbound", endpoint: `outbound://${name}`, ...more },
    { key: supplier.key },
  );
const verify = async (id: string) =>
  (await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key: supplier.key })).body;
const ACT = { action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
const act = (name: string, more: object = {}) =>
  app.call("/v1/act", { model: `${name}/base`, ...ACT, ...more }, { key: robot.key });

/** A caller who calls through this gateway, and leaves once the server has been asked. */
async function comeAndGo({ call }: App, name: string, server: Server): Promise<void> {
  server.honest = false;
  const before = server.heard.length;
  const leaving = new AbortController();
  const options = { key: robot.key, signal: leaving.signal };
  const left = call("/v1/act", { model: `${name}/base`, ...ACT }, options).catch(() => undefined);
  await eventually(() => expect(server.heard.length).toBeGreaterThan(before));
  leaving.abort();
  await left;
}

async function live(more: object = {}): Promise<{ name: string; server: Server }> {
  const name = await provider();
  const server = await new Server(app.url, supplier.key, name).welcome();
  const { id } = (await declare(name, more)).body;
  const { offering, report } = await verify(id);
  if (offering.status !== "live") throw new Error(JSON.stringify(report));
  return { name, server };
}

describe("a server that dials", () => {
  it("is probed and serves acts with its own values", async () => {
    const { name } = await live();
    const { status, body } = await act(name);
    expect([status, body.action.steps]).toEqual([
      200,
      [
        [0.5, 0.501],
        [0.51, 0.511],
      ],
    ]);
    expect((await app.call("/v1/runtimes")).body.data.map(({ id }: { id: string }) => id)).toContain("limber-outbound");
  });

  it("serves predictions and ground", async () => {
    const prices = { price_per_frame: 0.001, price_per_1k_tokens: 0.01 };
    const { name } = await live({ contracts: ["predict", "ground"], action_spaces: [], ...prices });
    const body = { model: `${name}/base`, observations: [{ proprio: [0.5] }], horizon: 3 };
    expect((await app.call("/v1/predict", body, { key: robot.key })).body.frames).toHaveLength(3);
    const ground = { model: `${name}/base`, observations: [{ proprio: [0.5] }], instruction: "the square" };
    expect((await app.call("/v1/ground", ground, { key: robot.key })).body.points).toMatchObject([
      { x: 0.75, y: 0.25 },
    ]);
  });

  it("is not routable while disconnected, and routable again after it reconnects", async () => {
    const { name, server } = await live();
    await server.leave();
    await eventually(async () => expect((await act(name)).body.error.code).toBe("no_live_deployment"));
    await new Server(app.url, supplier.key, name).welcome();
    await eventually(async () => expect((await act(name)).status).toBe(200));
  });

  it("fails the calls that wait when its stream breaks", async () => {
    const { name, server } = await live();
    server.honest = false;
    const before = server.heard.length;
    const waiting = act(name);
    await eventually(() => expect(server.heard.length).toBeGreaterThan(before));
    await server.leave();
    expect((await waiting).body.route.attempts).toMatchObject([{ status: "error", reason: "connection_lost" }]);
  });

  it("learns that a caller has left", async () => {
    const { name, server } = await live();
    await comeAndGo(app, name, server);
    await eventually(() =>
      expect(server.heard.at(-1)).toMatchObject({ case: "act", value: { body: { case: "cancel" } } }),
    );
    server.honest = true;
    expect((await act(name)).status).toBe(200);
  });

  it("is replaced by a later stream of the same provider", async () => {
    const { name, server } = await live();
    const later = await new Server(app.url, supplier.key, name).welcome();
    expect(String(await server.ended)).toMatch(/connect again/);
    const before = later.heard.length;
    await eventually(async () => expect((await act(name)).status).toBe(200));
    expect(later.heard.length).toBeGreaterThan(before);
  });
});

describe.each(["the database", "NATS"])("a server that has dialled another replica, over %s", (way) => {
  let other: App;
  let nats: Awaited<ReturnType<typeof startNats>> | undefined;
  let natsUrl: string | undefined;
  let [plain, plainSupplier, plainRobot] = [app, supplier, robot];

  beforeAll(async () => {
    [plain, plainSupplier, plainRobot] = [app, supplier, robot];
    if (way === "NATS") {
      nats = await startNats();
      natsUrl = nats.url;
      app = await ownGateway({ natsUrl });
      supplier = await app.caller(0, { role: "supplier" });
      robot = await app.caller(10);
    }
    other = await ownGateway({ database: app.database, natsUrl });
  });
  afterAll(async () => {
    if (nats === undefined) return;
    await nats.close();
    [app, supplier, robot] = [plain, plainSupplier, plainRobot];
  });

  const there = (name: string, more: object = {}, path = "/v1/act") =>
    other.call(path, { model: `${name}/base`, ...ACT, ...more }, { key: robot.key });
  const known = (name: string) => eventually(async () => expect((await there(name)).status).toBe(200));

  it("is called through it with the same values, concurrently", async () => {
    const { name } = await live();
    await known(name);
    const asked = Array.from({ length: 50 }, (_, i) => there(name, { observations: [{ proprio: [i / 100] }] }));
    for (const [i, { status, body }] of (await Promise.all(asked)).entries())
      expect([status, body.action?.steps[0][0] ?? body]).toEqual([200, expect.closeTo(i / 100, 9)]);
  });

  it("serves predictions in order and ground through it, with complete images", async () => {
    const prices = { price_per_frame: 0.001, price_per_1k_tokens: 0.01 };
    const { name, server } = await live({ contracts: ["predict", "ground"], action_spaces: [], ...prices });
    const seen = {
      proprio: [0.5],
      frames: [{ camera: "front", data: (await redSquare(0.5, 0.5, 640)).toString("base64") }],
    };
    const asks = { model: `${name}/base`, observations: [seen] };
    await eventually(async () =>
      expect((await other.call("/v1/ground", { ...asks, instruction: "it" }, { key: robot.key })).status).toBe(200),
    );
    const ask = server.heard.at(-1);
    const shown = ask?.case === "ground" ? ask.value.request?.observation?.frames[0]?.data : undefined;
    expect(Buffer.from(shown ?? []).toString("base64")).toBe(seen.frames[0]!.data);
    const { body } = await other.call("/v1/predict", { ...asks, horizon: 5 }, { key: robot.key });
    expect(body.frames.map(({ index }: { index: number }) => index)).toEqual([0, 1, 2, 3, 4]);
  });

  it("receives images through it that exceed a NATS message", async () => {
    const { name, server } = await live({ contracts: ["ground"], action_spaces: [], price_per_1k_tokens: 0.01 });
    const noise = Buffer.from(Array.from({ length: 800 * 800 * 3 }, (_, i) => ((i * 2_654_435_761) >>> 13) & 255));
    const picture = await sharp(noise, { raw: { width: 800, height: 800, channels: 3 } })
      .png({ compressionLevel: 0 })
      .toBuffer();
    expect(picture.length).toBeGreaterThan(1_500_000);
    const asks = {
      model: `${name}/base`,
      instruction: "it",
      observations: [{ frames: [{ camera: "front", data: picture.toString("base64") }] }],
    };
    server.honest = true;
    await eventually(async () => {
      await other.call("/v1/ground", asks, { key: robot.key });
      const ask = server.heard.findLast(({ case: kind }) => kind === "ground");
      const shown = ask?.case === "ground" ? ask.value.request?.observation?.frames[0]?.data : undefined;
      expect(Buffer.compare(Buffer.from(shown ?? []), picture)).toBe(0);
    });
  });

  it("is declared and probed through it", async () => {
    const name = await provider();
    await new Server(app.url, supplier.key, name).welcome();
    // A probe before the other replica knows of the connection rejects the offering for good.
    await eventually(async () => {
      const { id } = (await declare(name)).body;
      const { body } = await other.call(`/v1/supply/offerings/${id}/verify`, {}, { key: supplier.key });
      expect([body.offering?.status, body.report?.passed], JSON.stringify(body)).toEqual(["live", true]);
    });
  });

  it("learns through it that a caller has left, and keeps no state of the call", async () => {
    const { name, server } = await live();
    await known(name);
    await comeAndGo(other, name, server);
    await eventually(() =>
      expect(server.heard.at(-1)).toMatchObject({ case: "act", value: { body: { case: "cancel" } } }),
    );
    server.honest = true;
    await known(name);
    await eventually(async () => expect(await app.sql`select 1 from relay_message`).toHaveLength(0));
  });

  it("fails waiting calls when its stream breaks, and is routable again after it dials the other replica", async () => {
    const { name, server } = await live();
    await known(name);
    server.honest = false;
    const before = server.heard.length;
    const waiting = there(name);
    await eventually(() => expect(server.heard.length).toBeGreaterThan(before));
    await server.leave();
    expect((await waiting).body.route.attempts).toMatchObject([{ status: "error", reason: "connection_lost" }]);
    await eventually(async () => expect((await there(name)).body.error.code).toBe("no_live_deployment"));
    await new Server(other.url, supplier.key, name).welcome();
    await known(name);
    await eventually(async () => expect((await act(name)).status).toBe(200));
  });

  it("is called by each replica on its own stream if both hold one", async () => {
    const { name, server } = await live();
    const second = await new Server(other.url, supplier.key, name).welcome();
    const [first, before] = [server.heard.length, second.heard.length];
    await known(name);
    expect(second.heard.length).toBeGreaterThan(before);
    expect(server.heard.length).toBe(first);
  });

  it("is not routable after the replica with its stream dies silently", async () => {
    const { name, server } = await live();
    await server.leave();
    // What a replica leaves behind that is killed: a row that nobody renews.
    await app.sql`insert into outbound_connection (provider, replica, alive_until) values (${name}, 'replica_gone', now() + interval '2 seconds')`;
    await eventually(async () => {
      const { body } = await there(name, { provider: { deadline_ms: 100 } });
      expect(body.route?.attempts).toMatchObject([{ status: "error" }]);
    });
    await eventually(async () => expect((await there(name)).body.error.code).toBe("no_live_deployment"));
  });

  it("is released by a closing replica, and known elsewhere after it dials again", async () => {
    const third = await ownGateway({ database: app.database, natsUrl });
    const name = await provider();
    const server = await new Server(third.url, supplier.key, name).welcome();
    const { id } = (await declare(name)).body;
    await eventually(async () => {
      const { body } = await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key: supplier.key });
      expect(body.offering.status).toBe("live");
    });
    await third.close();
    expect(String(await server.ended)).toMatch(/connect again/);
    expect(await app.sql`select 1 from outbound_connection where provider = ${name}`).toHaveLength(0);
    await new Server(app.url, supplier.key, name).welcome();
    await known(name);
  });

  it("receives each message once, by that path only", async () => {
    const { name, server } = await live();
    await known(name);
    const carried = async (): Promise<number> => {
      const [row] = await app.sql<{ last: number }[]>`select last_value as last from relay_message_id_seq`;
      return row!.last;
    };
    const [rows, heard] = [await carried(), server.heard.length];
    for (let i = 0; i < 20; i++) expect((await there(name)).status).toBe(200);
    expect(server.heard.length - heard).toBe(20);
    // A question and an answer for each.
    expect((await carried()) - rows).toBe(way === "NATS" ? 0 : 40);
    if (nats === undefined) return;

    // Without NATS the database carries them, and nobody notices.
    await nats.kill();
    await eventually(async () => expect((await there(name)).status).toBe(200));
    const after = await carried();
    expect((await there(name)).status).toBe(200);
    expect(await carried()).toBeGreaterThan(after);
    await nats.start();
    await eventually(async () => {
      const before = await carried();
      expect((await there(name)).status).toBe(200);
      expect(await carried()).toBe(before);
    });
  });
});

describe("what is refused", () => {
  it("refuses another organization's provider, a key without the permission, and messages before the hello", async () => {
    const name = await provider();
    const stranger = await app.caller(0, { role: "supplier" });
    expect(String(await new Server(app.url, stranger.key, name).ended)).toMatch(/not_found|no provider/);
    expect(String(await new Server(app.url, robot.key, "nobody").ended)).toMatch(/no provider/);
    const developer = await app.key(supplier.org, { role: "developer" });
    expect(String(await new Server(app.url, developer, name).ended)).toMatch(/permission/i);
    expect(String(await new Server(app.url, "lmb_sk_nobody", name).ended)).toMatch(/unauthenticated/i);
    const rude = await new Server(app.url, supplier.key, name).welcome();
    rude.say({ case: "hello", value: { $typeName: "limber.outbound.v1.Hello", provider: name } });
    expect(String(await rude.ended)).toMatch(/only once/);
    const liar = await new Server(app.url, supplier.key, name).welcome();
    liar.say({
      case: "act",
      value: { $typeName: "limber.policy.v1.ActResponse", callId: 99, body: { case: undefined } },
    });
    expect(String(await liar.ended)).toMatch(/does not match any call/);
  });

  it("refuses a foreign endpoint, and a probe while the server is not connected", async () => {
    const name = await provider();
    for (const endpoint of ["outbound://somebody-else", "grpc://127.0.0.1:9999", "outbound://"])
      expect((await declare(name, { endpoint })).body.error.param, endpoint).toBe("endpoint");
    const { id } = (await declare(name)).body;
    const { offering, report } = await verify(id);
    expect([offering.status, report.checks[0].name, report.checks[0].passed]).toEqual(["rejected", "reachable", false]);
  });
});

describe("the example", () => {
  it("connects, is registered by the command, and serves", async () => {
    const root = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
    const { PATH = "" } = process.env;
    const env = { PATH, LIMBER_URL: app.url, LIMBER_KEY: supplier.key };
    const name = `early${next++}`;
    const server = spawn(process.execPath, [root("examples/outbound.ts"), name, `${name}/cruise`], { env });
    try {
      let text = "";
      server.stdout.on("data", (part) => (text += part));
      server.stderr.on("data", (part) => (text += part));
      // In the documented order: its provider is registered while it dials in vain.
      await eventually(() => expect(text.length).toBeGreaterThan(0));
      const more = ["--provider", name, "--runtime", "limber-outbound", "--endpoint", `outbound://${name}`];
      const args = [
        root("tools/provider.ts"),
        "register",
        "--model",
        `${name}/cruise`,
        ...more,
        "--action-space",
        "base_twist_2d",
      ];
      const command = spawn(process.execPath, args, { env });
      let told = "";
      command.stdout.on("data", (part) => (told += part));
      const code = await new Promise((resolve) => command.once("close", resolve));
      expect([code, told]).toEqual([0, expect.stringContaining("is live")]);
      expect((await act(name, { model: `${name}/cruise` })).status).toBe(200);
    } finally {
      server.kill("SIGKILL");
    }
  });
});
