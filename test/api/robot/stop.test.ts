/** POST /v1/robots/stop, POST /v1/robots/release, GET /v1/robots/stops: the emergency stop, on two replicas. */
import { fromBinary } from "@bufbuild/protobuf";
import { beforeAll, describe, expect, it } from "vitest";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { StopScope } from "../../../gen/limber/v1/robot_pb.ts";
import { notify } from "../../../src/store/database/notifications.ts";
import { tx } from "../../../src/store/database/tx.ts";
import { unsentEvents } from "../../../src/store/events/outbox.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { refusalIn } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import { robot } from "../../support/loop-client.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { stopRobots } from "../../support/stops.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let one: App;
let two: App;
let model: Model;
let owner: Caller;

beforeAll(async () => {
  [one, model] = await Promise.all([ownGateway(), openModel()]);
  two = await ownGateway({ database: one.database });
  await one.supply({ provider: "one", model: "acme/base", endpoint: model.endpoint });
  await eventually(async () => expect((await act(two, await one.caller(1))).status).toBe(200), { timeout: 30_000 });
});

const BODY = { model: "acme/base", action_space: "base_twist_2d", horizon: 5, observations: [{ proprio: [0] }] };
const act = (app: App, { key }: Pick<Caller, "key">, more: object = {}) =>
  app.call("/v1/act", { ...BODY, ...more }, { key });
const OPEN = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 5 };
const stop = (body: object, caller = owner, app = one) => stopRobots(app, body, { key: caller.key });
const release = (id: string, caller = owner, app = one) =>
  app.call("/v1/robots/release", { stop_id: id }, { key: caller.key });

/** What each scope is ordered by, and a call that it covers. */
const SCOPES: Record<string, { order: (caller: Caller) => object; call: object; open: object; other: object }> = {
  robot: {
    order: () => ({ robot_id: "r1" }),
    call: { metadata: { robot_id: "r1" } },
    open: { robotId: "r1" },
    other: { metadata: { robot_id: "r2" } },
  },
  "robot, by the same word": {
    order: () => ({ robot_id: "r3" }),
    call: { robot_id: "r3" },
    open: { robotId: "r3" },
    other: { robot_id: "r4", metadata: { robot_id: "r5" } },
  },
  session: {
    order: () => ({ session_id: "s1" }),
    call: { provider: { session_id: "s1" } },
    open: { provider: { sessionId: "s1" } },
    other: { provider: { session_id: "s2" } },
  },
  org: { order: () => ({ all: true }), call: {}, open: {}, other: {} },
};

describe("a release by the name that was stopped", () => {
  const releaseBy = (body: object, caller: Pick<Caller, "key">) =>
    one.call("/v1/robots/release", body, { key: caller.key });

  it.each(Object.entries(SCOPES))("accepts the stop's own fields: %s", async (_, { order, call }) => {
    const mine = await one.caller(1);
    const words = order(mine);
    const { body: stopped } = await stop(words, mine);
    await eventually(async () => expect((await act(two, mine, call)).body.error?.code).toBe("robot_stopped"));
    const stranger = await one.caller(1);
    const strangers = await releaseBy(order(stranger), stranger);
    expect([strangers.status, strangers.body.error.code]).toEqual([404, "not_found"]);
    const { status, body } = await releaseBy(words, mine);
    expect([status, body.id, typeof body.released]).toEqual([200, stopped.id, "number"]);
    await eventually(async () => expect((await act(two, mine, call)).status).toBe(200));
    expect((await releaseBy(words, mine)).status).toBe(404);
  });

  it("releases workspaces' stops for an organization key; a workspace key releases only its own", async () => {
    const mine = await one.caller(1);
    const { id } = (await one.call(`/v1/orgs/${mine.org}/workspaces`, { name: "lab" }, mine)).body;
    const lab = { org: mine.org, key: await one.key(mine.org, { role: "owner", workspace_id: id }) };
    const words = { robot_id: "r9" };
    expect((await stop(words, mine)).status).toBe(200);
    expect((await releaseBy(words, lab)).status).toBe(404);
    expect((await stop(words, lab)).status).toBe(200);
    expect((await releaseBy(words, lab)).status).toBe(200);
    expect((await stop(words, lab)).status).toBe(200);
    expect((await releaseBy(words, mine)).status).toBe(200);
    const { body } = await one.call("/v1/robots/stops", undefined, mine);
    expect(body.data).toEqual([]);
  });

  it("names exactly one target, and the operator an organization", async () => {
    const mine = await one.caller(1);
    await stop({ robot_id: "r1" }, mine);
    for (const body of [{}, { robot_id: "r1", all: true }, { robot_id: "" }, { all: false }])
      expect((await releaseBy(body, mine)).status).toBe(422);
    const admin = (body: object) => one.call("/v1/robots/release", body, { admin: ADMIN_TOKEN });
    expect((await admin({ robot_id: "r1" })).status).toBe(422);
    expect((await admin({ robot_id: "r1", org_id: mine.org })).status).toBe(200);
  });
});

describe("200", () => {
  it.each(Object.entries(SCOPES))(
    "a stop by %s cuts the covered streams and refuses act on every replica until the release",
    async (scope, { order, call, open, other }) => {
      owner = await one.caller(1);
      const stranger = await one.caller(1);
      // A session has one stream at a time.
      const apps = scope === "session" ? [two] : [one, two];
      const loops = apps.map((app) => robot(app, owner.key, { ...OPEN, ...open }));
      const theirs = robot(two, stranger.key, { ...OPEN, ...open });
      for (const loop of [...loops, theirs]) await loop.expect("opened");

      const { status, body: stopped } = await stop({ ...order(owner), reason: "smoke" });
      expect(status).toBe(200);
      expect(stopped).toMatchObject({
        object: "robot_stop",
        scope: scope.split(",")[0],
        org_id: owner.org,
        reason: "smoke",
        released: null,
      });
      for (const loop of loops) {
        expect(await loop.expect("ended")).toMatchObject({ code: "robot_stopped" });
        expect(await refusalIn(loop.next())).toMatchObject({
          reason: "robot_stopped",
          message: expect.stringContaining("smoke"),
        });
      }
      for (const app of [one, two]) {
        expect(await act(app, owner, call)).toMatchObject({ status: 409, body: { error: { code: "robot_stopped" } } });
        const again = robot(app, owner.key, { ...OPEN, ...open });
        expect(await refusalIn(again.next())).toMatchObject({ reason: "robot_stopped" });
      }
      if (scope !== "org") expect((await act(two, owner, other)).status).toBe(200);
      theirs.observe(1);
      await theirs.expect("chunk");
      theirs.leave();

      const { body: again } = await stop(order(owner), owner, two);
      expect(again.id).toBe(stopped.id);
      const { body: listed } = await one.call("/v1/robots/stops", undefined, owner);
      expect(listed.data).toMatchObject([{ id: stopped.id }]);

      expect((await release(stopped.id, owner, two)).body).toMatchObject({
        id: stopped.id,
        released: expect.any(Number),
      });
      await expect.poll(async () => (await act(one, owner, call)).status).toBe(200);
      expect((await one.call("/v1/robots/stops", undefined, owner)).body.data).toEqual([]);
      expect((await one.call("/v1/robots/stops?released=true", undefined, owner)).body.data).toHaveLength(1);
    },
  );

  it("a stop by key leaves the organization's other keys running", async () => {
    owner = await one.caller(1);
    const key = await one.key(owner.org, { role: "operator" });
    const { body } = await one.call("/v1/key", undefined, { key });
    await stop({ key_id: body.id });
    await expect.poll(async () => (await act(two, { key })).status).toBe(409);
    expect((await act(two, owner)).status).toBe(200);
  });

  it("a stop by workspace covers the keys of the workspace, and a stop by robot the keys of the robot", async () => {
    owner = await one.caller(1);
    const { id: workspace } = await one.admin(`/v1/orgs/${owner.org}/workspaces`, { name: "lab" });
    const inside = await one.key(owner.org, { role: "operator", workspace_id: workspace });
    const arm = await one.key(owner.org, { role: "operator", robot_id: "arm" });
    await stop({ workspace_id: workspace });
    await stop({ robot_id: "arm" });
    const statuses = (): Promise<number[]> =>
      Promise.all([inside, arm, owner.key].map(async (key) => (await act(two, { key })).status));
    await expect.poll(statuses).toEqual([409, 409, 200]);
  });

  it("applies as soon as it is received, before any query", async () => {
    owner = await one.caller(1);
    const told = { id: "stop_told", orgId: owner.org, scope: "org", subject: owner.org, reason: "", created: 0 };
    await tx(one.sql, async (tx) => {
      // Nobody reads what stands while this lasts.
      await tx`lock table robot_stop in access exclusive mode`;
      await notify(one.sql, "robots_stopped", JSON.stringify(told));
      await eventually(async () => expect((await act(two, owner)).status).toBe(409));
    });
    await notify(one.sql, "robots_stopped", owner.org);
    await eventually(async () => expect((await act(two, owner)).status).toBe(200));
  });

  it("stops an action that a model is still making", async () => {
    owner = await one.caller(1);
    const asked = Promise.withResolvers<() => void>();
    model.script.act = (call, answer) => asked.resolve(() => answer(honestSteps(call, 2)));
    const answered = act(two, owner);
    const answer = await asked.promise;
    model.script.act = undefined;
    await stop({ all: true });
    // Those that the other replica answers before it hears of the stop are charged.
    let spentUsd = 0;
    const statusNow = async (): Promise<number> => {
      const { status, body } = await act(two, owner);
      if (status === 200) spentUsd += body.usage.cost_usd;
      return status;
    };
    await expect.poll(statusNow).toBe(409);
    answer();
    expect(await answered).toMatchObject({ status: 409, body: { error: { code: "robot_stopped" } } });
    // The replica that answered them charges them before it tells the balance.
    const { body } = await two.call("/v1/billing/balance", undefined, owner);
    expect(body.spent_usd).toBeCloseTo(spentUsd, 9);
    expect(body.balance_usd).toBeCloseTo(1 - spentUsd, 9);
  });

  it("emits one event and one record", async () => {
    owner = await one.caller(1);
    const { body } = await stop({ robot_id: "r9", reason: "test" });
    await stop({ robot_id: "r9" });
    await release(body.id);
    await release(body.id);
    const events = (await unsentEvents(one.sql, 1000)).filter(
      ({ orgId, name }) => orgId === owner.org && name !== "key.created",
    );
    expect(events.map(({ name }) => name)).toEqual(["robot.stopped"]);
    expect(fromBinary(EventSchema, events[0]!.payload).data).toMatchObject({
      case: "robotStopped",
      value: { stopId: body.id, scope: StopScope.ROBOT, subject: "r9" },
    });
    const { body: record } = await one.call("/v1/audit", undefined, owner);
    expect(record.data.map(({ action, subject }: Record<string, string>) => [action, subject]).slice(0, 2)).toEqual([
      ["robot.released", body.id],
      ["robot.stopped", body.id],
    ]);
  });
});

describe("a reason that comes after the stop", () => {
  it("is shown to refused callers on every replica, recorded, and changes nothing else", async () => {
    const { org, key } = await one.caller(1);
    const stop = (await stopRobots(one, { robot_id: "arm-late", reason: "" }, { key })).body;
    const path = `/v1/robots/stops/${stop.id}`;
    const refusal = async (app: App) =>
      (await act(app, { key }, { robot_id: "arm-late" })).body.error?.message as string | undefined;
    await eventually(async () => expect(await refusal(two)).toMatch(/an emergency stop is active/));
    const said = await one.call(path, { reason: "a hand was in the cell" }, { key, method: "PATCH" });
    expect([said.status, said.body]).toMatchObject([
      200,
      { id: stop.id, reason: "a hand was in the cell", created: stop.created },
    ]);
    expect((await one.call("/v1/robots/stops", undefined, { key })).body.data).toMatchObject([
      { id: stop.id, reason: "a hand was in the cell", released: null },
    ]);
    expect(await refusal(one)).toContain(": a hand was in the cell");
    await eventually(async () => expect(await refusal(two)).toContain(": a hand was in the cell"));
    // Saying it again is no news; taking it back is.
    expect((await one.call(path, { reason: "a hand was in the cell" }, { key, method: "PATCH" })).status).toBe(200);
    expect((await one.call(path, { reason: "" }, { key, method: "PATCH" })).body.reason).toBe("");
    const acts =
      await one.sql`select action, details from audit where org_id = ${org} and subject = ${stop.id} order by seq`;
    expect(acts.map(({ action }) => action)).toEqual(["robot.stopped", "robot.stop_explained", "robot.stop_explained"]);
    expect(acts.at(-1)?.details).toMatchObject({ before: "a hand was in the cell", reason: "" });
    expect((await one.call("/v1/robots/release", { stop_id: stop.id }, { key })).status).toBe(200);
    expect((await one.call(path, { reason: "the cell was open" }, { key, method: "PATCH" })).body).toMatchObject({
      reason: "the cell was open",
      released: expect.any(Number),
    });
  });

  it("cannot be set by callers who cannot see the stop, and must be a short text", async () => {
    const { org, key } = await one.caller(1);
    const { id } = (await stopRobots(one, { robot_id: "arm-late", reason: "" }, { key })).body;
    const path = `/v1/robots/stops/${id}`;
    const lab = (await one.admin(`/v1/orgs/${org}/workspaces`, { name: "lab" })).id;
    const near = await one.key(org, { role: "operator", workspace_id: lab });
    const viewer = await one.key(org, { role: "viewer" });
    const other = await one.caller(1);
    const body = { reason: "x" };
    for (const [caller, to, what, status] of [
      [other.key, path, body, 404],
      [near, path, body, 404],
      [viewer, path, body, 403],
      [undefined, path, body, 401],
      [key, "/v1/robots/stops/stop_none", body, 404],
      [key, path, {}, 422],
      [key, path, { reason: "x".repeat(513) }, 422],
    ] as const)
      expect([status, (await one.call(to, what, { ...(caller && { key: caller }), method: "PATCH" })).status]).toEqual([
        status,
        status,
      ]);
    expect((await one.call("/v1/robots/stops", undefined, { key })).body.data[0].reason).toBe("");
  });
});

describe("403", () => {
  it("is returned to roles without robots.stop", async () => {
    owner = await one.caller(1);
    const key = await one.key(owner.org, { role: "viewer" });
    expect((await stop({ all: true }, { org: owner.org, key })).status).toBe(403);
  });
});

describe("404", () => {
  it("is returned for another organization and its stops", async () => {
    const stranger = await one.caller(1);
    owner = await one.caller(1);
    const { body } = await stop({ robot_id: "r" });
    expect((await release(body.id, stranger)).status).toBe(404);
    expect((await stop({ org_id: owner.org, all: true }, stranger)).status).toBe(404);
    expect((await release("stop_none")).status).toBe(404);
    await expect.poll(async () => (await act(two, owner, { metadata: { robot_id: "r" } })).status).toBe(409);
  });
});

describe("422", () => {
  it.each([
    [{}],
    [{ robot_id: "" }],
    [{ robot_id: "a", session_id: "b" }],
    [{ all: false }],
    [{ robot: "a" }],
    [{ robot_id: "a\u0000b" }],
    [{ all: true, reason: "\u0000" }],
  ])("refuses %j", async (body) => {
    owner = await one.caller(0);
    expect((await stop(body)).status).toBe(422);
  });

  it("requires the organization from the operator", async () => {
    const { status, body } = await one.call(
      "/v1/robots/stop",
      { all: true },
      { admin: "an-operators-token-for-tests" },
    );
    expect([status, body.error.param]).toEqual([422, "org_id"]);
  });
});
