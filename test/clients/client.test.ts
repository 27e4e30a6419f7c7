/** The TypeScript client against a gateway: calls, refusals, retries, and control loops. */
import { constants } from "node:http2";
import { connect, createServer, type Server, type Socket } from "node:net";
import { inspect } from "node:util";
import { afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { FinishReason } from "../../clients/typescript/src/gen/limber/v1/inference_service_pb.ts";
import type { Suggestion } from "../../clients/typescript/src/gen/limber/v1/plan_pb.ts";
import {
  BadInput,
  CallbackHung,
  CalledOff,
  type Command,
  ConnectionFailed,
  InvalidApiKey,
  KeyDisabled,
  Limber,
  ModelNotFound,
  NoRouteAvailable,
  ObservationRejected,
  observationOf,
  Refused,
  RobotStopped,
  ValidationFailed,
} from "../../clients/typescript/src/index.ts";
import { Limber as WebLimber } from "../../clients/typescript/src/web.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import type { App, Caller } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { SERVER_HELLO, startBareServer } from "../support/h2-server.ts";
import { honestSteps, type Model } from "../support/model.ts";
import { FRAME, frame, uint32 } from "../support/wire-client.ts";
import { openModel, ownGateway } from "../support/world.ts";

let app: App;
let model: Model;
let caller: Caller;
let limber: Limber;

const ACT = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 4 };
const observations = [observationOf({ state: [0.5] })];

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway({ roles: new Set(["api", "worker"]) }), openModel()]);
  const seer = { contracts: ["predict", "ground"], price_per_frame: 0.002, price_per_1k_tokens: 0.01 };
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  await app.supply({ provider: "seer", model: "acme/world", endpoint: model.endpoint, ...seer });
  caller = await app.caller(1_000);
  limber = new Limber({ url: app.url, key: caller.key });
});
afterEach(() => {
  Object.assign(model.script, { act: undefined, predict: undefined, ground: undefined });
});

const spent = async (): Promise<number> =>
  (await app.call("/v1/billing/balance", undefined, { key: caller.key })).body.spent_usd;

/** A relay in front of the gateway that can cut connections. */
async function relay(): Promise<{ url: string; cut(): void; refuse(is: boolean): void; close(): void }> {
  const sockets = new Set<Socket>();
  let isRefusing = false;
  const server: Server = createServer((socket) => {
    if (isRefusing) return void socket.destroy();
    const onward = connect(Number(new URL(app.url).port), "127.0.0.1");
    for (const [each, other] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      sockets.add(each);
      each.on("error", () => other.destroy());
      each.on("close", () => {
        sockets.delete(each);
        other.destroy();
      });
      each.pipe(other);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the relay has no port");
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${address.port}`,
    cut,
    refuse: (is) => {
      isRefusing = is;
    },
    close: () => {
      cut();
      server.close();
    },
  };
}

describe("calls", () => {
  it("act, ground and preview return the schema's messages", async () => {
    const { action, route } = await limber.act({ ...ACT, observations });
    expect(action?.steps.map(({ values }) => values)).toEqual(honestSteps(model.acts.at(-1)!, 2));
    expect(route?.provider).toBe("acme");
    const frames = [{ camera: "front", data: Uint8Array.from(await redSquare(0.25, 0.75)) }];
    const { points } = await limber.ground({
      model: "acme/world",
      instruction: "the red square",
      observations: [{ frames }],
    });
    expect(points).toHaveLength(1);
    const { plan } = await limber.preview({ request: { ...ACT, observations } });
    expect(plan.map(({ provider }) => provider)).toEqual(["acme"]);
  });

  it("predict yields each frame and the final result", async () => {
    const picture = await redSquare(0.3, 0.3);
    const prediction = limber.predict({
      model: "acme/world",
      horizon: 3,
      observations: [observationOf({ images: { front: picture } })],
    });
    const indexes: number[] = [];
    for await (const { index } of prediction) indexes.push(index);
    expect(indexes).toEqual([0, 1, 2]);
    expect(prediction.started?.provider).toBe("seer");
    expect(prediction.done?.finishReason).toBe(FinishReason.COMPLETE);
  });

  it("evaluate yields each episode once and returns the scores", async () => {
    const request = { policyEndpoint: "acme/base", scenario: "base-nav", episodes: 2, policyTimeoutMs: 5_000 };
    const run = await limber.evaluate(request);
    const episodes: number[] = [];
    for await (const { index } of run) episodes.push(index);
    expect(episodes.sort()).toEqual([0, 1]);
    expect((await run.result()).scores?.successRate?.n).toBe(2);
    expect((await limber.evaluation(run.id).result()).id).toBe(run.id);
  });

  it("publications.create, list, get and withdraw publish an evaluation, and leaderboard ranks its scenario", async () => {
    const run = await limber.evaluate({ policyEndpoint: "acme/base", scenario: "base-nav", episodes: 1 });
    await run.result();
    const request = { evaluationId: run.id, title: "one episode" };
    const draft = await limber.publications.create({ ...request, dryRun: true });
    expect(draft.discloses.length).toBeGreaterThan(0);
    const made = await limber.publications.create(request);
    expect((await limber.publications.create(request)).id).toBe(made.id);
    expect(await limber.publications.get(made.id)).toMatchObject({ id: made.id, title: "one episode" });
    expect((await limber.publications.leaderboard({ scenario: "base-nav" })).data).toEqual([]);
    const withdrawn = await limber.publications.withdraw(made.id, "a test");
    expect(withdrawn.withdrawnAt).toBeGreaterThanOrEqual(made.publishedAt);
    const ids: string[] = [];
    for await (const { id } of limber.publications.list()) ids.push(id);
    expect(ids).toEqual([made.id]);
    expect(await limber.publications.get(made.id)).toMatchObject({ reason: "a test" });
    await expect(limber.publications.get("pub_none")).rejects.toMatchObject({ code: "not_found" });
  });

  it("models and usage return pages, one model by its slug, and totals", async () => {
    const slugs: string[] = [];
    for await (const { id } of limber.models({ limit: 1 })) slugs.push(id);
    expect(slugs.sort()).toEqual(["acme/base", "acme/world"]);
    expect((await limber.model("acme/base")).id).toBe("acme/base");
    expect((await limber.usage({ limit: 1 })).data).toHaveLength(1);
  });

  it("robots.stop and robots.release stop and release a robot", async () => {
    const stop = await limber.robots.stop({ case: "robotId", value: "arm-9" }, "a hand in the way");
    await expect(limber.act({ ...ACT, observations, robotId: "arm-9" })).rejects.toThrow(RobotStopped);
    expect((await limber.robots.stops()).map(({ id }) => id)).toContain(stop.id);
    await limber.robots.release(stop.id);
    expect((await limber.act({ ...ACT, observations, robotId: "arm-9" })).action?.steps).toHaveLength(4);
  });
});

describe("a refusal", () => {
  it("has the class of its reason and contains its details", async () => {
    const stranger = new Limber({ url: app.url, key: "lmb_sk_of_nobody" });
    await expect(stranger.act({ ...ACT, observations })).rejects.toThrow(InvalidApiKey);
    await expect(limber.act({ ...ACT, model: "acme/nothing", observations })).rejects.toThrow(ModelNotFound);
    await expect(limber.act({ ...ACT, observations: [] })).rejects.toThrow(ValidationFailed);
    const dear = { ...ACT, observations, provider: { maxLatencyMs: 1, allowFallbacks: false } };
    const error = await limber.act({ ...dear, provider: { only: ["nobody"] } }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(NoRouteAvailable);
    expect(error).toMatchObject({ code: "no_route_available", requestId: expect.stringMatching(/^req_/) });
    expect((error as NoRouteAvailable).details?.dropped).toHaveLength(1);
    const [{ change, field }] = (error as NoRouteAvailable).suggestions as [Suggestion];
    expect((error as Error).message).toMatch(/^no_route_available: .+; .+ to admit \d+ offerings?/);
    expect((error as Error).message).toContain(change ?? field);
    // The output of Node.js for an uncaught error: the stack, the code and the request id.
    expect(inspect(error, { customInspect: false, depth: 5 }).replace(/\n\s+at .*?(?= \{\n|\n)/g, "")).toMatch(
      /^NoRouteAvailable: no_route_available: .* \{\n {2}code: 'no_route_available',\n {2}requestId: 'req_\w+'\n\}$/,
    );
    expect(error).toBeInstanceOf(Refused);
  });

  it("of a key names the address that refused it", async () => {
    const lost = new Limber({ url: app.url, key: `lmb_sk_${"0".repeat(48)}` });
    const error = await lost.act({ ...ACT, observations }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "invalid_api_key", message: expect.stringContaining(`(sent to ${app.url})`) });
  });

  it("of invalid arguments is thrown before anything is sent", () => {
    expect(() => observationOf({ state: [1, Number.NaN] })).toThrow(/state\[1\] must be a finite number/);
    expect(() => new Limber({ url: "gopher://x", key: "k" })).toThrow(BadInput);
    expect(() => new Limber({ url: app.url, key: "" })).toThrow(/no API key/);
    expect(() => new Limber({ url: app.url, key: "two\r\nlines" })).toThrow(BadInput);
    expect(() => limber.loop({ model: "acme/base", rateHz: 0 })).toThrow(BadInput);
  });
});

describe("retries", () => {
  it("an act whose connection breaks before the answer runs and costs once", async () => {
    const between = await relay();
    const far = new Limber({ url: between.url, key: caller.key });
    const before = { spent: await spent(), acts: model.acts.length };
    let cuts = 0;
    model.script.act = (call, answer) => {
      // The model has run, but its answer cannot be delivered.
      if (cuts++ === 0) between.cut();
      answer(honestSteps(call, 2));
    };
    const { action, usage } = await far.act({ ...ACT, observations });
    expect(action?.steps).toHaveLength(4);
    expect(model.acts.length).toBe(before.acts + cuts);
    await eventually(async () => expect((await spent()) - before.spent).toBeCloseTo(usage!.costUsd, 9));
    between.close();
  });

  it("are not made after a permanent refusal or after the caller's cancellation", async () => {
    const before = model.acts.length;
    model.script.act = (_call, _answer, { stream }) => stream.close(2);
    await expect(limber.act({ ...ACT, observations, provider: { allowFallbacks: false } })).rejects.toThrow(Refused);
    expect(model.acts.length).toBeGreaterThan(before);
    model.script.act = () => {};
    const signal = AbortSignal.timeout(50);
    await expect(limber.act({ ...ACT, observations }, { signal })).rejects.toThrow(CalledOff);
  });

  it("are made again if a draining gateway refused the stream", async () => {
    const draining = await startBareServer(({ send }, { type, stream }, index) => {
      if (index === 0) send(SERVER_HELLO);
      if (type === FRAME.headers) send(frame(FRAME.reset, 0, stream, uint32(constants.NGHTTP2_REFUSED_STREAM)));
    });
    onTestFinished(() => draining.close());
    const calls = () =>
      draining.connections.flatMap((each) => each.frames().filter(({ type }) => type === FRAME.headers));
    const refused = new Limber({ url: draining.url.origin, key: caller.key });
    await expect(refused.act({ ...ACT, observations }, { timeoutMs: 5_000 })).rejects.toThrow(ConnectionFailed);
    expect(calls()).toHaveLength(3);
  });

  it("end with an error if no gateway is reachable", async () => {
    const between = await relay();
    between.refuse(true);
    const far = new Limber({ url: between.url, key: caller.key });
    await expect(far.act({ ...ACT, observations }, { timeoutMs: 5_000 })).rejects.toThrow(ConnectionFailed);
    between.close();
  });
});

describe("a loop", () => {
  const LOOP = { ...ACT, horizon: 16, rateHz: 50, robot: "ts-base", hold: [0, 0], deadlineMs: 400 };

  /** Runs until `enough` returns true. Returns the robot's commands. */
  async function drive(enough: (told: readonly Command[]) => boolean, more: object = {}, client = limber) {
    const told: Command[] = [];
    const loop = client.loop({ ...LOOP, ...more });
    const ran = loop.run(
      () => (enough(told) ? undefined : { state: [told.length / 1000] }),
      (command) => void told.push(command),
      { maxSeconds: 30 },
    );
    return { told, loop, ran };
  }
  const acted = (told: readonly Command[]) => told.filter(({ hold }) => hold === undefined);

  it("executes valid chunks, counts its actions, and makes the robot hold at the end", async () => {
    const { told, loop, ran } = await drive((told) => acted(told).length >= 20);
    expect(await ran).toBe("done");
    expect(acted(told).every(({ values }) => values?.length === 2)).toBe(true);
    expect(told.at(-1)).toMatchObject({ values: [0, 0], hold: "closed" });
    expect(loop.stats).toMatchObject({ actions: acted(told).length, streams: 1 });
    expect(loop.stats.chunks).toBeGreaterThan(0);
    expect(loop.stats.costUsd).toBeGreaterThan(0);
    expect(loop.ended?.code).toBe("");
  });

  it("resumes its session after a broken connection", async () => {
    const between = await relay();
    const far = new Limber({ url: between.url, key: caller.key });
    let cutAt = Number.POSITIVE_INFINITY;
    const { told, loop, ran } = await drive(
      (told) => {
        if (cutAt > told.length && acted(told).length >= 5) {
          cutAt = told.length;
          between.cut();
        }
        return acted(told.slice(cutAt)).length >= 10;
      },
      {},
      far,
    );
    expect(await ran).toBe("done");
    expect(told.some(({ hold }) => hold === "disconnected")).toBe(true);
    expect(loop.stats.streams).toBeGreaterThan(1);
    between.close();
  });

  it("restarts the steps on a reset and executes no action of the previous episode", async () => {
    const told: Command[] = [];
    const loop = limber.loop(LOOP);
    const ran = loop.run(
      () => {
        const isDone = acted(told.filter(({ episode }) => episode === 2)).length >= 5;
        if (isDone) return undefined;
        if (loop.episode === 1 && acted(told).length >= 5) loop.reset("another task");
        return { state: [loop.episode] };
      },
      (command) => void told.push(command),
      { maxSeconds: 30 },
    );
    expect(await ran).toBe("done");
    const second = told.filter(({ episode }) => episode === 2);
    expect(second[0]!.step).toBe(0);
    // The honest model's actions contain the observed values.
    expect(acted(second).every(({ values }) => Math.floor(values![0]!) === 2)).toBe(true);
  });

  it("ends on an emergency stop: the robot holds, and the refusal is thrown", async () => {
    let stop: Promise<{ readonly id: string }> | undefined;
    const { told, ran } = await drive((told) => {
      if (acted(told).length >= 5) stop ??= limber.robots.stop({ case: "robotId", value: "ts-base" }, "a test");
      return false;
    });
    await expect(ran).rejects.toThrow(RobotStopped);
    expect(told.at(-1)).toMatchObject({ values: [0, 0], hold: "robot_stopped" });
    await limber.robots.release((await stop!).id);
  });

  it("ends when its key is revoked", async () => {
    const key = await app.key(caller.org);
    const { id } = (await app.call("/v1/key", undefined, { key })).body;
    const client = new Limber({ url: app.url, key });
    const { ran } = await drive(
      (told) => {
        if (acted(told).length >= 3) void app.sql`update key set disabled = true where id = ${id}`.execute();
        return false;
      },
      {},
      client,
    );
    await expect(ran).rejects.toThrow(KeyDisabled);
  });

  it("can be interrupted from anywhere", async () => {
    const { told, loop, ran } = await drive((told) => {
      if (acted(told).length === 5) loop.interrupt();
      return false;
    });
    expect(await ran).toBe("interrupted");
    expect(told.at(-1)).toMatchObject({ values: [0, 0], hold: "interrupted" });
  });

  it("makes the robot hold and ends if a callback throws or hangs", async () => {
    const held: Command[] = [];
    const broken = limber.loop(LOOP).run(
      () => {
        throw new Error("the camera is gone");
      },
      (command) => void held.push(command),
      { maxSeconds: 30 },
    );
    await expect(broken).rejects.toThrow("the camera is gone");
    expect(held).toMatchObject([{ values: [0, 0] }]);
    const hung = limber.loop(LOOP).run(
      () => new Promise<undefined>(() => {}),
      (command) => void held.push(command),
      { maxSeconds: 30, callbackMs: 20 },
    );
    await expect(hung).rejects.toThrow(CallbackHung);
    expect(held).toHaveLength(2);
    await expect(
      limber.loop(LOOP).run(
        () => undefined,
        () => {},
        { maxSeconds: Number.NaN },
      ),
    ).rejects.toThrow(BadInput);
  });

  it("ends if the gateway cannot use its observations or is unreachable", async () => {
    const blind = limber.loop({ ...LOOP });
    const seen = blind.run(
      () => ({ state: [1], images: { front: new Uint8Array([0xff, 0xd8, 0xff]) } }),
      () => {},
      { maxSeconds: 30 },
    );
    await expect(seen).rejects.toThrow(ObservationRejected);
    const between = await relay();
    between.refuse(true);
    const far = new Limber({ url: between.url, key: caller.key });
    await expect((await drive(() => false, { giveUpMs: 300 }, far)).ran).rejects.toThrow(ConnectionFailed);
    between.close();
  });
});

describe("in a browser", () => {
  it("the client refuses a secret key, as a key and as a token", async () => {
    expect(() => new WebLimber({ url: app.url, key: caller.key } as never)).toThrow(/must not be used in a page/);
    const web = new WebLimber({ url: app.url, token: () => caller.key });
    await expect(web.model("acme/base")).rejects.toThrow(/must not be used in a page/);
  });

  it("public calls work, and calls that need authentication are refused", async () => {
    const web = new WebLimber({ url: app.url, token: async () => "a-token-that-ended" });
    expect((await web.model("acme/base")).id).toBe("acme/base");
    await expect(web.act({ ...ACT, observations })).rejects.toThrow(InvalidApiKey);
  });
});
