/** Servers whose chunks have a length of their own: what the probe learns of it, and what each kind of request gets. */
import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { WebSocket } from "ws";
import { decodeNumpy, encodeNumpy, NdArray } from "../../../src/codecs/python/ndarray.ts";
import type { App, Caller } from "../../support/app.ts";
import { robot } from "../../support/loop-client.ts";
import { honestSteps, startModel } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { f4, type OpenpiServer, startOpenpiServer } from "../../support/openpi-server.ts";
import { pack } from "../../support/plain-msgpack.ts";
import { startOpenvlaServer } from "../../support/servers/json-numpy.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("aloha", "dreams", "droid", "modest", "moody", "openvla", "pi", "short", "wm");

/** As openpi's own servers: `length` steps, whatever is asked. */
async function fixedServer(length: { steps: number }): Promise<OpenpiServer> {
  let count = 0;
  const server = await startOpenpiServer({
    answer: () => pack(new Map([["actions", f4(Array.from({ length: length.steps }, (_, i) => [i, ++count]))]])),
  });
  server.behave({ kind: "steps", steps: [] });
  return server;
}

const PROFILE = {
  proprio: [{ start: 0, end: 2, key: "observation/state" }],
  proprio_dim: 2,
  instruction_key: "prompt",
};

let app: App;
let caller: Caller;
const servers: OpenpiServer[] = [];
const supply = async (provider: string, model: string, length: { steps: number }, more: object = {}) => {
  const server = await fixedServer(length);
  servers.push(server);
  return app.supply({ provider, model, runtime: "openpi-ws", endpoint: server.endpoint, profile: PROFILE, ...more });
};

beforeAll(async () => {
  app = await openWorld();
  await supply(named.droid, `${named.pi}/droid`, { steps: 10 });
  await supply(named.aloha, `${named.pi}/aloha`, { steps: 50 });
  await supply(named.modest, `${named.pi}/modest`, { steps: 50 }, { max_horizon: 20 });
  caller = await app.caller(10);
});
afterAll(async () => {
  for (const server of servers) await server.close();
});

const act = (model: string, more: object = {}) =>
  app.call(
    "/v1/act",
    { model, action_space: "base_twist_2d", observations: [{ proprio: [1, 2] }], ...more },
    { key: caller.key },
  );

const offeringOf = async (model: string) => (await app.call(`/v1/models/${model}`)).body.offerings[0];

describe("the probe", () => {
  it("learns and declares the length of a server's chunks", async () => {
    expect((await offeringOf(`${named.pi}/droid`)).max_horizon).toBe(10);
    expect((await offeringOf(`${named.pi}/aloha`)).max_horizon).toBe(50);
    expect((await offeringOf(`${named.pi}/modest`)).max_horizon).toBe(20);
  });

  it("learns the chunk length of a policy server that returns fewer steps than requested", async () => {
    const model = await startModel({
      act: (call, answer) => answer(honestSteps(call, 2).slice(0, 8)),
    });
    onTestFinished(() => model.close());
    await app.supply({ provider: named.short, model: `${named.short}/eight`, endpoint: model.endpoint });
    expect((await offeringOf(`${named.short}/eight`)).max_horizon).toBe(8);
    const { status, body, text } = await act(`${named.short}/eight`);
    expect([status, body.action?.steps.length], text).toEqual([200, 8]);
  });

  it("registers OpenVLA's server, which returns one step at a time, without configuration", async () => {
    const server = await startOpenvlaServer();
    onTestFinished(() => server.close());
    const turn = (by: number) => ({ kind: "steps", steps: [[by, 2]] }) as const;
    server.behave(turn(0), turn(0.5), turn(1));
    const profile = { proprio: [{ start: 0, end: 3, key: "state" }] };
    const open = { runtime: "openvla-act", endpoint: server.endpoint, profile };
    await app.supply({ provider: named.openvla, model: `${named.openvla}/one`, ...open });
    expect((await offeringOf(`${named.openvla}/one`)).max_horizon).toBe(1);
    const { status, body } = await act(`${named.openvla}/one`, { observations: [{ proprio: [1, 2, 3] }] });
    expect([status, body.action?.steps]).toEqual([200, [[1, 2]]]);
  });
});

describe("a request", () => {
  it.each([
    ["without a horizon gets a shorter chunk as it is", `${named.pi}/droid`, {}, 10],
    ["without a horizon gets 16 steps of a longer one", `${named.pi}/aloha`, {}, 16],
    ["for the whole chunk gets all of it", `${named.pi}/aloha`, { whole_chunk: true }, 50],
    ["for the whole chunk gets no more than was declared", `${named.pi}/modest`, { whole_chunk: true }, 20],
    [
      "for the whole chunk and a longer horizon gets the chunk",
      `${named.pi}/droid`,
      { whole_chunk: true, horizon: 25 },
      10,
    ],
    [
      "for the whole chunk and a shorter horizon gets the horizon",
      `${named.pi}/aloha`,
      { whole_chunk: true, horizon: 25 },
      25,
    ],
    ["that names a horizon gets exactly that", `${named.pi}/droid`, { horizon: 7 }, 7],
  ])("%s, and is charged for that", async (_, model, more, steps) => {
    const { status, body, text } = await act(model, more);
    expect(status, text).toBe(200);
    expect(body.action.steps).toHaveLength(steps);
    expect(body.usage).toMatchObject({ action_steps: steps, cost_usd: expect.closeTo(steps * 0.0001, 9) });
  });

  it("for a longer horizon is refused with the reason and runs nothing", async () => {
    const before = servers[0]!.acts.length;
    const { status, body } = await act(`${named.pi}/droid`, { horizon: 16 });
    expect([status, body.error.code]).toEqual([409, "no_route_available"]);
    expect(body.error.details.dropped).toMatchObject([{ reason: "horizon_exceeds_offering" }]);
    expect(servers[0]!.acts).toHaveLength(before);
  });

  it("is previewed at the price of each offering's own steps", async () => {
    const { body } = await app.call(
      "/v1/routes/preview",
      {
        model: `${named.pi}/droid`,
        models: [`${named.pi}/aloha`],
        action_space: "base_twist_2d",
        observations: [{ proprio: [1, 2] }],
      },
      { key: caller.key },
    );
    const prices = body.plan.map(({ model, estimated_cost_usd }: Record<string, unknown>) => [
      model,
      estimated_cost_usd,
    ]);
    expect(prices).toEqual([
      [`${named.pi}/droid`, 0.001],
      [`${named.pi}/aloha`, 0.0016],
    ]);
    expect(body.estimated_cost_usd).toMatchObject({ min: 0.001, max: 0.0016 });
  });
});

describe("a server that misses its own chunk", () => {
  it("fails the attempt, and has its new length after verification", async () => {
    const moody = { steps: 10 };
    const id = await supply(named.moody, `${named.pi}/moody`, moody);
    moody.steps = 8;
    const { status, body } = await act(`${named.pi}/moody`);
    expect([status, body.route.attempts[0].reason]).toEqual([502, "wrong_step_count"]);
    const owner = await app.sql`select org_id from offering where id = ${id}`;
    const key = await app.key(owner[0]!.orgId, { role: "supplier" });
    expect((await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key })).body.report.measured.chunk_steps).toBe(8);
    expect((await act(`${named.pi}/moody`)).body.action.steps).toHaveLength(8);
  });
});

describe("a control loop", () => {
  it("without a horizon uses the provider's chunk length and is charged for it", async () => {
    const loop = robot(app, caller.key, { model: `${named.pi}/droid`, actionSpace: "base_twist_2d" });
    expect((await loop.expect("opened")).horizon).toBe(10);
    loop.observe(1, { observations: [{ proprio: [1, 2] }] });
    const { action, validUntilStep, usage } = await loop.expect("chunk");
    expect([action?.steps.length, validUntilStep, usage?.actionSteps]).toEqual([10, 11, 10]);
    expect(usage?.costUsd).toBeCloseTo(0.001, 9);
    loop.halfClose();
    await loop.rest();
  });
});

describe("a prediction", () => {
  it("without a horizon returns as many frames as the offering has per answer, complete and streamed", async () => {
    const model = await openModel();
    const more = {
      contracts: ["predict"],
      action_spaces: [],
      price_per_action_step: undefined,
      price_per_frame: 0.001,
    };
    await app.supply({
      provider: named.dreams,
      model: `${named.wm}/short`,
      endpoint: model.endpoint,
      max_horizon: 5,
      ...more,
    });
    const body = { model: `${named.wm}/short`, observations: [{ proprio: [1] }] };
    const predict = (more: object, path = "/v1/predict") => app.call(path, { ...body, ...more }, { key: caller.key });
    const whole = await predict({});
    expect([whole.body.frames.length, whole.body.usage.cost_usd]).toEqual([5, 0.005]);
    const streamed = await predict({}, "/v1/predict/stream");
    expect(streamed.text.match(/^event: frame$/gm)).toHaveLength(5);
    expect(streamed.text).toContain('"finish_reason":"complete"');
    expect((await predict({ horizon: 6 })).status).toBe(409);
    const sampled = await predict({ num_samples: 2 });
    expect([sampled.status, sampled.body.frames?.length, sampled.body.usage?.cost_usd]).toEqual([200, 5, 0.005]);
    const required = await predict({ num_samples: 2, provider: { require_parameters: true } });
    expect([required.status, required.text]).toEqual([409, expect.stringContaining("ignores num_samples")]);
  });
});

describe("openpi's own client", () => {
  const infer = async (path: string): Promise<[Buffer, boolean]> => {
    const headers = { authorization: `Api-Key ${caller.key}` };
    const socket = new WebSocket(app.url.replace("http", "ws") + path, { headers });
    await once(socket, "message"); // the metadata
    socket.send(encodeNumpy({ "observation/state": NdArray.float64([1, 2]), prompt: "go" }));
    const answer = (await once(socket, "message")) as [Buffer, boolean];
    socket.close();
    return answer;
  };

  it("gets the complete chunk, so that its broker replays as many steps as with openpi's server", async () => {
    const [answer] = await infer(`/v1/openpi/${named.pi}/aloha?action_space=base_twist_2d`);
    expect((decodeNumpy(answer) as Map<string, NdArray>).get("actions")?.shape).toEqual([50, 2]);
  });

  it("gets the reason if its address requests too many steps", async () => {
    const [answer, isBinary] = await infer(`/v1/openpi/${named.pi}/aloha?action_space=base_twist_2d&horizon=60`);
    expect(isBinary).toBe(false);
    expect(answer.toString()).toContain(`${named.aloha}: returns at most 50 units per call, got 60`);
  });
});
