/** An error that no owner heard: a bug. The process says so, counts it, lets running calls end, and exits for its supervisor to start it again. */
import { afterEach, describe, expect, it } from "vitest";
import { ACT_DECLARATION, ADMIN_TOKEN, callRest } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type Gateway, startGateway } from "../../support/gateway.ts";
import { honestSteps, type Model, startModel } from "../../support/model.ts";

/** A bug of each kind, on request. */
const BUGS = `
process.on("SIGUSR2", () => setImmediate(() => { throw new Error("nobody hears this") }));
process.on("SIGWINCH", () => void Promise.reject(new Error("nobody handles this")));
`;

let database: FreshDatabase;
let gateway: Gateway;
let model: Model;
let key: string;
/** Lets the model answer. */
let goOn: () => void;

afterEach(async () => {
  await gateway?.end("SIGKILL");
  await model?.close();
  await database?.close();
});

async function start(): Promise<void> {
  database = await freshDatabase();
  const held = Promise.withResolvers<void>();
  goOn = held.resolve;
  let isProbed = false;
  model = await startModel({
    act: (call, answer) => {
      if (isProbed) void held.promise.then(() => answer(honestSteps(call, 2)));
      else answer(honestSteps(call, 2));
    },
  });
  gateway = await startGateway({
    LOG_LEVEL: "error",
    DATABASE_URL: database.url,
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
    LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
    LIMBER_REFERENCE_SUPPLY: "false",
    // Long enough for a look at it while it drains.
    LIMBER_DRAIN_DELAY_S: "8",
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(BUGS)}`,
  });
  const admin = { admin: ADMIN_TOKEN };
  const org = (await callRest(gateway.url, "/v1/orgs", { name: "test" }, admin)).body.id;
  await callRest(gateway.url, `/v1/orgs/${org}/credits`, { amount_usd: 1 }, admin);
  key = (await callRest(gateway.url, `/v1/orgs/${org}/keys`, { role: "owner" }, admin)).body.key;
  await callRest(gateway.url, "/v1/supply/providers", { name: "acme" }, { key });
  const declaration = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
  const declared = await callRest(gateway.url, "/v1/supply/providers/acme/models", declaration, { key });
  const verified = await callRest(gateway.url, `/v1/supply/offerings/${declared.body.id}/verify`, {}, { key });
  expect(verified.body.offering.status).toBe("live");
  isProbed = true;
}

const act = () =>
  callRest(
    gateway.url,
    "/v1/act",
    { model: "acme/base", action_space: "base_twist_2d", horizon: 1, observations: [{ proprio: [0, 0] }] },
    { key },
  );

describe("an unhandled error", () => {
  it.each<[string, NodeJS.Signals, string]>([
    [
      "an exception",
      "SIGUSR2",
      "limber: uncaught exception, a bug: the process drains and exits: Error: nobody hears this | at",
    ],
    [
      "a rejection",
      "SIGWINCH",
      "limber: unhandled rejection, a bug: the process drains and exits: Error: nobody handles this | at",
    ],
  ])(
    "that is %s is logged in one line and counted; running calls finish, and the process exits with 1",
    async (_, signal, line) => {
      await start();
      const asked = model.acts.length;
      const running = act();
      await eventually(() => expect(model.acts.length).toBe(asked + 1));
      process.kill(gateway.pid, signal);
      await eventually(async () => {
        const { text } = await callRest(gateway.url, "/metrics", undefined, { admin: ADMIN_TOKEN });
        expect(text).toMatch(/^limber_unhandled_errors_total 1$/m);
      });
      expect((await callRest(gateway.url, "/ready")).status).toBe(503);
      goOn();
      expect((await running).status).toBe(200);
      const { code, stderr } = await gateway.end("SIGCONT");
      expect(code).toBe(1);
      expect(stderr.split("\n").map((text) => text.slice(0, line.length))).toEqual([line, ""]);
    },
    180_000,
  );
});
