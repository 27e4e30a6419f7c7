/**
 * A key that drives hardware is never served placeholders, by whatever way a call asks for them. The same calls with a key for
 * simulations, which are served placeholders, show that each way is one.
 */
import { once } from "node:events";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { decodeNumpy, encodeNumpy } from "../../../src/codecs/python/ndarray.ts";
import type { App, Caller } from "../../support/app.ts";
import { readEvents } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import { robot } from "../../support/loop-client.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let live: Model;
let caller: Caller;
let hardware: string;
let born = 0;

beforeAll(async () => {
  [app, live] = await Promise.all([ownGateway({ roles: new Set(["api", "worker"]) }), openModel()]);
  await app.supply({ provider: "acme", model: "acme/base", endpoint: live.endpoint });
  await app.catalog("shelf/base");
  await app.sql`insert into model ${app.sql({ slug: "shelf/world", name: "w", contracts: ["predict", "ground"], action_spaces: [] })}`;
  caller = await app.caller(10);
  hardware = await app.key(caller.org, { environment: "hardware" });
  const preset = { models: ["shelf/base"], provider: SIMULATED };
  const { status, text } = await app.call("/v1/presets/shelf", preset, { key: caller.key, method: "PUT" });
  if (status >= 300) throw new Error(text);
  await eventually(async () => {
    const asked = { model: "shelf/world", observations: [{}] };
    if ((await app.call("/v1/routes/preview", asked, caller)).status === 404) throw new Error("not known yet");
  });
});
afterEach(() => {
  live.script.act = undefined;
});

const SIMULATED = { allow_simulated: true };
const ACT = { model: "shelf/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
const fail: Model["script"]["act"] = (_call, _answer, { stream }) => stream.close(2);

/** How a call was served: `simulated`, `real`, or the word with which it was refused. */
type Served = string;
const servedBy = ({ body }: { body: { route?: { simulated: boolean }; error?: { code: string } } }): Served =>
  body.error?.code ?? (body.route?.simulated ? "simulated" : "real");
const act = async (key: string, more: object): Promise<Served> =>
  servedBy(await app.call("/v1/act", { ...ACT, ...more }, { key }));
const whileDead = (ask: (key: string) => Promise<Served>) => (key: string) => {
  live.script.act = fail;
  return ask(key);
};

/** Every way to ask for a placeholder. */
const WAYS: Readonly<Record<string, (key: string) => Promise<Served>>> = {
  "by name": (key) => act(key, { provider: SIMULATED }),
  "by provider": (key) => act(key, { provider: { ...SIMULATED, order: ["simulated"], allow_fallbacks: false } }),
  "by only, of an alias": (key) => act(key, { model: "service/auto", provider: { ...SIMULATED, only: ["simulated"] } }),
  "by a narrow alias": (key) =>
    act(key, { model: "service/cheapest", provider: { ...SIMULATED, only: ["simulated"] } }),
  "by a suffix": (key) => act(key, { model: "shelf/base:floor", provider: SIMULATED }),
  "by a preset": (key) => act(key, { preset: "shelf", model: "shelf/base" }),
  "by an offering's name as a session's": (key) =>
    act(key, { provider: { ...SIMULATED, session_id: "simulated/shelf/base" } }),
  "by the session that a simulation was pinned to": async (key) => {
    const session_id = `episode-${++born}`;
    expect(await act(caller.key, { provider: { ...SIMULATED, session_id } })).toBe("simulated");
    return act(key, { provider: { ...SIMULATED, session_id } });
  },
  "as a fallback of what fails": whileDead((key) =>
    act(key, { model: "acme/base", models: ["shelf/base"], provider: SIMULATED }),
  ),
  "over gRPC's stream": async (key) => {
    const open = { model: "shelf/base", actionSpace: "base_twist_2d", provider: { allowSimulated: true } };
    const loop = robot(app, key, open);
    try {
      return (await loop.expect("opened")).route?.simulated ? "simulated" : "real";
    } catch {
      return "refused";
    } finally {
      loop.leave();
    }
  },
  "as a stream of steps": async (key) => {
    const reader = await readEvents(app, "/v1/act", { ...ACT, stream: true, provider: SIMULATED }, key);
    if (reader.status !== 200) return "refused";
    const first = await reader.next();
    reader.leave();
    return first?.data.simulated ? "simulated" : "real";
  },
  "as a prediction": async (key) =>
    servedBy(
      await app.call(
        "/v1/predict",
        { model: "shelf/world", horizon: 1, observations: [{}], provider: SIMULATED },
        { key },
      ),
    ),
  "as a streamed prediction": async (key) => {
    const asked = { model: "shelf/world", horizon: 1, observations: [{}], provider: SIMULATED };
    const reader = await readEvents(app, "/v1/predict/stream", asked, key);
    if (reader.status !== 200) return "refused";
    const first = await reader.next();
    reader.leave();
    return first?.data.simulated ? "simulated" : "real";
  },
  "as a grounding": async (key) =>
    servedBy(
      await app.call(
        "/v1/ground",
        { model: "shelf/world", instruction: "x", observations: [{}], provider: SIMULATED },
        { key },
      ),
    ),
  "by a plan": async (key) => {
    const { status, body } = await app.call(
      "/v1/routes/preview?contract=act",
      { ...ACT, provider: SIMULATED },
      { key },
    );
    return status === 200 && body.plan.some(({ provider }: { provider: string }) => provider === "simulated")
      ? "simulated"
      : "refused";
  },
  "in a batch": async (key) => {
    const asked = { contract: "act", requests: [{ ...ACT, provider: SIMULATED }] };
    const { id } = (await app.call("/v1/batch", asked, { key })).body;
    await eventually(async () =>
      expect((await app.call(`/v1/batch/${id}`, undefined, { key })).body.status).toMatch(/completed|failed/),
    );
    const { text } = await app.call(`/v1/batch/${id}/results`, undefined, { key });
    return servedBy(JSON.parse(text).response ?? { body: { error: { code: "refused" } } });
  },
  "by openpi's client": async (key) => {
    const url = `${app.url.replace("http", "ws")}/v1/openpi/shelf/base?preset=shelf&action_space=base_twist_2d`;
    const socket = new WebSocket(url, { headers: { authorization: `Api-Key ${key}` } });
    await once(socket, "message");
    socket.send(encodeNumpy({ "observation/state": [0.5] }));
    const [data, isBinary] = await once(socket, "message");
    socket.close();
    if (!isBinary) return data.toString();
    const gateway = (decodeNumpy(data) as Map<string, Map<string, unknown>>).get("gateway");
    return gateway?.get("simulated") ? "simulated" : "real";
  },
};

describe("a placeholder asked for", () => {
  it.each(Object.entries(WAYS))("%s is for simulations alone", async (_way, ask) => {
    expect(await ask(caller.key)).toBe("simulated");
    expect(await ask(hardware)).not.toMatch(/simulated|real/);
  });

  it("is not used as a hedge", async () => {
    live.script.act = (_call, answer) =>
      setImmediate(() =>
        answer([
          [0, 0],
          [0, 0],
        ]),
      );
    const provider = { ...SIMULATED, hedge: { after_ms: 1 } };
    const asked = { ...ACT, model: "acme/base", models: ["shelf/base"], provider };
    const { status, body } = await app.call("/v1/act", asked, { key: hardware });
    expect([status, body.route?.simulated, body.error]).toEqual([200, false, undefined]);
    expect(body.route.attempts.map((attempt: { provider: string }) => attempt.provider)).toEqual(["acme"]);
  });
});
