/** A server that serves one robot at a time, called from two gateways on one database: one lease for both. */
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { ACT_DECLARATION, type App, type Caller } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { type LerobotServer, startLerobotServer } from "../support/servers/lerobot.ts";
import { ownGateway } from "../support/world.ts";

const STEPS = [
  [1, 2],
  [3, 4],
];
const DECLARATION = {
  runtime: "lerobot-async",
  max_horizon: 2,
  profile: {
    proprio: ["a", "b", "c"].map((key, start) => ({ start, end: start + 1, key, dtype: "f8" })),
    constants: [
      { key: "policy_type", text: "act" },
      { key: "pretrained_name_or_path", text: "acme/act" },
    ],
  },
};

let one: App;
let other: App;
let server: LerobotServer;
let robot: Caller;

let model = "";
let id = "";
let supplier: Caller;
let next = 0;

beforeAll(async () => {
  one = await ownGateway();
  other = await ownGateway({ database: one.database });
  const limit = { requests: 10_000, window_s: 1, burst: 10_000, concurrency: 100 };
  robot = await one.caller(10, { role: "owner", rate_limit: limit });
  supplier = await one.caller(0, { role: "supplier" });
  await one.call("/v1/supply/providers", { name: "acme" }, { key: supplier.key });
});

beforeEach(async () => {
  server = await startLerobotServer();
  answerTwoWays();
  model = `acme/arm${next++}`;
  const body = { ...ACT_DECLARATION, ...DECLARATION, model, endpoint: server.endpoint };
  ({ id } = (await one.call("/v1/supply/providers/acme/models", body, { key: supplier.key })).body);
  expect((await verify(one)).body.offering.status).toBe("live");
  await eventually(async () => expect((await act(other, undefined)).status).toBe(200));
});
afterEach(() => server.close());

/** As a policy does: two observations, two chunks; then the same one for ever. */
function answerTwoWays(): void {
  const steps = (value: number) =>
    ({
      kind: "steps",
      steps: [
        [value, 2],
        [3, 4],
      ],
    }) as const;
  server.behave(steps(0), steps(9), steps(1));
}

const verify = (app: App) => app.call(`/v1/supply/offerings/${id}/verify`, {}, { key: supplier.key });
const act = (app: App, session: string | undefined, more: object = {}, beside: object = {}) =>
  app.call(
    "/v1/act",
    {
      model,
      action_space: "base_twist_2d",
      horizon: 2,
      observations: [{ proprio: [1, 2, 3] }],
      provider: { ...(session && { session_id: session }), ...more },
      ...beside,
    },
    { key: robot.key },
  );
const asked = (name: string) => server.asked.filter((method) => method === name).length;
/** The end of every lease, once no call has a server any more: it is given back after its answer was sent. */
async function forget(): Promise<void> {
  await eventually(async () => expect(await one.sql`select from server_lease where running_until > now()`).toEqual([]));
  await one.sql`update server_lease set until = now()`;
}

describe("the lease of a server", () => {
  it("belongs to one session on both gateways without another setup", async () => {
    expect((await act(one, "first")).body.action.steps).toEqual(STEPS);
    const [ready, setups] = [asked("Ready"), asked("SendPolicyInstructions")];
    for (const app of [other, one, other]) expect((await act(app, "first")).body.action.steps).toEqual(STEPS);
    expect([asked("Ready"), asked("SendPolicyInstructions")]).toEqual([ready, setups]);
    for (const app of [one, other]) {
      const { body } = await act(app, "second");
      expect(body.route.attempts).toMatchObject([{ reason: "upstream_busy" }]);
    }
    await forget(); // the thirty seconds of silence, as the database's clock has them
    await eventually(async () => expect((await act(other, "second")).status).toBe(200));
    expect([asked("Ready"), asked("SendPolicyInstructions")]).toEqual([ready + 1, setups]);
    expect((await act(one, "first")).body.error).toBeDefined();
  });

  it("belongs to the session across episodes, each of which prepares the server", async () => {
    const inEpisode = (app: App, episode: number) => act(app, "first", {}, { episode });
    expect((await inEpisode(one, 1)).body.action.steps).toEqual(STEPS);
    const ready = asked("Ready");
    for (const app of [other, one]) expect((await inEpisode(app, 2)).body.action.steps).toEqual(STEPS);
    expect(asked("Ready")).toBe(ready + 1);
    expect((await act(other, "second")).body.error).toBeDefined();
  });

  it("lets one call at a time reach the server, from both gateways", async () => {
    const from = server.asked.length;
    const calls = Array.from({ length: 24 }, (_, i) => act(i % 2 === 0 ? one : other, "first"));
    for (const { status, body } of await Promise.all(calls)) expect([status, body.action?.steps]).toEqual([200, STEPS]);
    // On a machine that stands still a lease may end between two calls: the server is made ready again, and set up again.
    const calling = new Set(["SendObservations", "GetActions"]);
    const methods = server.asked.slice(from).filter((method) => calling.has(method));
    expect(methods).toEqual(Array.from({ length: 24 }, () => ["SendObservations", "GetActions"]).flat());
  });

  it("expires after its gateway's death, and the next call sets the server up again", async () => {
    await act(one, "first");
    const setups = asked("SendPolicyInstructions");
    // What a gateway leaves behind that is killed in the middle of a call.
    await one.sql`update server_lease set taker = 'replica_gone', setup = null, epoch = epoch + 1, running_until = now() + interval '1 second',
      until = now() + interval '1 second'`;
    const waited = act(other, "first");
    expect((await waited).body.action.steps).toEqual(STEPS);
    expect(asked("SendPolicyInstructions")).toBe(setups + 1);
  });

  it("is not broken by a probe, which learns nothing about a busy server", async () => {
    await act(one, "first");
    const { status, body } = await verify(other);
    expect([status, body.error.code]).toEqual([409, "offering_not_verifiable"]);
    expect((await act(one, "first")).body.action.steps).toEqual(STEPS);
    await forget();
    answerTwoWays();
    expect((await verify(other)).body.offering.status).toBe("live");
  });

  it("delays the probe of a new offering, which stays pending and passes when the server is free", async () => {
    await act(one, "first");
    const body = { ...ACT_DECLARATION, ...DECLARATION, model: `${model}-again`, endpoint: server.endpoint };
    const declared = await one.call("/v1/supply/providers/acme/models", body, { key: supplier.key });
    const path = `/v1/supply/offerings/${declared.body.id}`;
    const again = () => one.call(`${path}/verify`, {}, { key: supplier.key });
    const busy = await again();
    expect([busy.status, busy.body.error.code, busy.body.error.message]).toEqual([
      409,
      "offering_not_verifiable",
      expect.stringContaining("verify again when it is idle"),
    ]);
    expect((await one.call(path, undefined, { key: supplier.key })).body.status).toBe("pending");
    await forget();
    answerTwoWays();
    expect((await again()).body.offering.status).toBe("live");
  });

  it("is not released by a session that has lost it", async () => {
    const { promise: later, resolve: answerNow } = Promise.withResolvers<void>();
    server.behave({ kind: "later", steps: STEPS, after: later }, { kind: "steps", steps: STEPS });
    const before = server.acts.length;
    const slow = act(one, "first");
    await eventually(() => expect(server.acts.length).toBeGreaterThan(before));
    await one.sql`update server_lease set taker = 'somebody', setup = null, session = 'x', epoch = epoch + 1, until = now() + interval '1 minute'`;
    answerNow();
    await slow;
    await act(one, undefined);
    const [row] = await one.sql`select taker, session from server_lease where taker = 'somebody'`;
    expect(row).toEqual({ taker: "somebody", session: "x" });
  });
});
