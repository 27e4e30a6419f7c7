/** GET /v1/loops and GET /v1/loops/watch: the control loops that run, over two replicas. */
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import sharp from "sharp";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { LoopState, type RunningLoop } from "../../../gen/limber/v1/loop_pb.ts";
import { LoopService } from "../../../gen/limber/v1/loop_service_pb.ts";
import { Notifications, notify } from "../../../src/store/database/notifications.ts";
import { redSquare } from "../../../src/upstream/pictures/test-picture.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { bearer, readEvents } from "../../support/clients.ts";
import { setClock } from "../../support/clocks.ts";
import { eventually } from "../../support/eventually.ts";
import { type RobotClient, robot } from "../../support/loop-client.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { startNats } from "../../support/nats.ts";
import { SkippingClock } from "../../support/skipping-clock.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let one: App;
let two: App;
let model: Model;
let owner: Caller;
let clock: SkippingClock;
const running: RobotClient[] = [];

beforeAll(async () => {
  clock = setClock(new SkippingClock());
  [one, model] = await Promise.all([ownGateway(), openModel()]);
  two = await ownGateway({ database: one.database });
  await one.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  owner = await one.caller(10);
  const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 5, observations: [{ proprio: [0] }] };
  await eventually(async () => expect((await two.call("/v1/act", body, { key: owner.key })).status).toBe(200));
});
afterEach(() => {
  for (const each of running.splice(0)) each.leave();
  model.script.act = (call, answer) => answer(honestSteps(call, 2));
});

/** Opens a loop and waits for its first chunk. */
async function start(
  app: App,
  key: string,
  more: object = {},
  observation: object = {},
): Promise<{ loop: RobotClient; id: string }> {
  const open = {
    model: "acme/base",
    actionSpace: "base_twist_2d",
    horizon: 5,
    provider: { deadlineMs: 5_000 },
    ...more,
  };
  const loop = robot(app, key, open);
  running.push(loop);
  const { id } = await loop.expect("opened");
  loop.observe(1, observation);
  await loop.expect("chunk");
  return { loop, id };
}

/** What all replicas report: one that is slow to is named silent, and the list comes without its loops. */
const list = (app: App, key: string, query = "") =>
  eventually(async () => {
    const answer = await app.call(`/v1/loops${query}`, undefined, { key });
    expect(answer.body.silent_replicas ?? 0, answer.text).toBe(0);
    return answer;
  });
// biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
const idsOf = (loops: any[]): string[] => loops.map(({ id }) => id);

describe("GET /v1/loops", () => {
  it("lists the loops of every replica with provider, owner and performance", async () => {
    const caller = await one.caller(10);
    const { body: key } = await one.call("/v1/key", undefined, { key: caller.key });
    const first = await start(one, caller.key, { robotId: "arm-1" });
    const second = await start(two, caller.key, { robotId: "arm-2", provider: { deadlineMs: 800, sessionId: "s" } });
    model.script.act = () => {};
    second.loop.observe(2);
    await second.loop.expect("hold");
    for (const app of [one, two]) {
      const { status, body } = await list(app, caller.key);
      expect([status, body.object, body.replicas, body.silent_replicas]).toEqual([200, "list", 2, 0]);
      expect(idsOf(body.data)).toEqual([first.id, second.id]);
      expect(body.data[0]).toMatchObject({
        object: "control_loop",
        org_id: caller.org,
        key_id: key.id,
        robot_id: "arm-1",
        model_requested: "acme/base",
        model: "acme/base",
        provider: "acme",
        action_space: "base_twist_2d",
        deadline_ms: 5_000,
        dt_ms: ACT_DECLARATION.dt_ms,
        chunks: 1,
        holds: {},
        failovers: 0,
        hedges: 0,
        cost_usd: 0.0005,
        episode: 1,
      });
      expect(body.data[1]).toMatchObject({
        robot_id: "arm-2",
        session_id: "s",
        state: "holding",
        last_hold: "late",
        deadline_ms: 800,
        holds: { late: 1 },
      });
    }
  });

  it("pages, and filters by robot and workspace", async () => {
    const caller = await one.caller(10);
    const ids = [];
    for (const robotId of ["a", "b", "c"]) ids.push((await start(one, caller.key, { robotId })).id);
    const { body: page } = await list(two, caller.key, "?limit=2");
    expect([idsOf(page.data), page.has_more, page.next_cursor]).toEqual([ids.slice(0, 2), true, ids[1]]);
    const { body: rest } = await list(two, caller.key, `?limit=2&cursor=${page.next_cursor}`);
    expect([idsOf(rest.data), rest.has_more]).toEqual([ids.slice(2), false]);
    expect(idsOf((await list(two, caller.key, "?robot_id=b")).body.data)).toEqual([ids[1]]);
    expect((await list(two, caller.key, "?workspace_id=ws_nobodys")).body.data).toEqual([]);
  });

  it("is limited to the organization, and to the workspace for workspace keys", async () => {
    const caller = await one.caller(10);
    const space = await one.call(`/v1/orgs/${caller.org}/workspaces`, { name: "lab" }, { key: caller.key });
    const inside = await one.key(caller.org, { role: "owner", workspace_id: space.body.id });
    const outer = await start(one, caller.key);
    const inner = await start(one, inside);
    expect(idsOf((await list(two, caller.key)).body.data)).toEqual([outer.id, inner.id]);
    expect(idsOf((await list(two, inside)).body.data)).toEqual([inner.id]);
    const query = `?workspace_id=${space.body.id}`;
    expect(idsOf((await list(two, caller.key, query)).body.data)).toEqual([inner.id]);
    expect((await list(two, inside, "?workspace_id=ws_other")).body.error.code).toBe("scope_denied");
    const stranger = await one.caller(1);
    expect((await list(two, stranger.key)).body.data).toEqual([]);
    expect((await list(two, stranger.key, `?org_id=${caller.org}`)).status).toBe(404);
    const operator = await two.call(`/v1/loops?org_id=${caller.org}`, undefined, { admin: ADMIN_TOKEN });
    expect(idsOf(operator.body.data)).toEqual([outer.id, inner.id]);
    expect((await two.call("/v1/loops", undefined, { admin: ADMIN_TOKEN })).status).toBe(422);
  });
});

describe("GET /v1/loops/history", () => {
  const history = (app: App, key: string, query = "") => app.call(`/v1/loops/history${query}`, undefined, { key });

  it("adds up each robot's chunks, ages, holds and cost by minute, from every replica and after the loops ended", async () => {
    const caller = await one.caller(10);
    const space = await one.call(`/v1/orgs/${caller.org}/workspaces`, { name: "lab" }, { key: caller.key });
    const inside = await one.key(caller.org, { role: "viewer", workspace_id: space.body.id });
    const inner = await one.key(caller.org, { role: "owner", workspace_id: space.body.id });
    for (const [app, key, robotId] of [
      [one, caller.key, "arm-1"],
      [two, caller.key, "arm-1"],
      [two, inner, "arm-2"],
    ] as const) {
      const { loop } = await start(app, key, { robotId, provider: { deadlineMs: 800 } });
      model.script.act = () => {};
      loop.observe(2);
      await loop.expect("hold");
      model.script.act = (call, answer) => answer(honestSteps(call, 2));
      loop.halfClose();
      await loop.rest();
    }
    // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
    const sums = ({ robots }: any) =>
      // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
      robots.map(({ robot_id, workspace_id, minutes }: any) => ({
        robot_id,
        workspace_id,
        // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
        chunks: minutes.reduce((sum: number, { chunks }: any) => sum + chunks, 0),
        // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
        late: minutes.reduce((sum: number, { holds }: any) => sum + (holds.late ?? 0), 0),
      }));
    const lab = { robot_id: "arm-2", workspace_id: space.body.id, chunks: 1, late: 1 };
    await eventually(async () => {
      const { status, body } = await history(one, caller.key);
      expect([status, sums(body)]).toEqual([200, [{ robot_id: "arm-1", chunks: 2, late: 2 }, lab]]);
    });
    const { body } = await history(two, caller.key, "?robot_id=arm-1&minutes=180&limit=1");
    expect([body.object, body.until - body.since, body.more]).toEqual(["loop_history", 180 * 60, 0]);
    for (const { at, age_p50_ms, age_p99_ms, cost_usd } of body.robots[0].minutes) {
      expect([at % 60, age_p50_ms > 0, age_p99_ms >= age_p50_ms, cost_usd > 0]).toEqual([0, true, true, true]);
    }
    expect((await history(one, caller.key, "?limit=1")).body.more).toBe(1);
    expect(sums((await history(one, inside)).body)).toEqual([lab]);
    expect((await history(one, inside, "?workspace_id=ws_other")).body.error.code).toBe("scope_denied");
    expect((await history(one, owner.key)).body.robots).toEqual([]);
    const { body: log } = await one.call(`/v1/logs?robot_id=arm-2`, undefined, { key: caller.key });
    expect(log.data[0]).toMatchObject({ chunks: 1, holds: { late: 1 } });
    expect(log.data[0].age_p50_ms).toBeGreaterThan(0);
  });
});

describe("GET /v1/loops/actions/watch and /v1/loops/pictures/watch", () => {
  const watch = (app: App, what: string, key: string, ids: readonly string[]) =>
    readEvents(app, `/v1/loops/${what}/watch?${ids.map((id) => `loop_ids=${id}`).join("&")}`, undefined, key);
  /** Reads until a message has one of these. */
  async function first(events: Awaited<ReturnType<typeof watch>>, field: string) {
    for (let event = await events.next(); event !== undefined; event = await events.next())
      if (event.data[field]?.length > 0) return event.data;
    throw new Error(`the stream ended without ${field}`);
  }
  const frames = async (side = 32) => [{ camera: "front", data: await redSquare(9, 9, side) }];

  it("show a loop's last chunk with its limits on every replica, and its newest picture, small, where it runs", async () => {
    const caller = await one.caller(10);
    const { id } = await start(one, caller.key, { bounds: { lowest: [-9], highest: [9] } });
    for (const app of [one, two]) {
      const events = await watch(app, "actions", caller.key, [id, "req_UNKNOWN"]);
      expect([events.status, events.type]).toEqual([200, "text/event-stream; charset=utf-8"]);
      const { actions } = await first(events, "actions");
      expect(actions).toMatchObject([
        { loop_id: id, start_step: 1, episode: 1, bounds: { lowest: [-9], highest: [9] } },
      ]);
      expect(actions[0].action).toMatchObject({ space: "base_twist_2d", steps: expect.any(Array) });
      events.leave();
    }
    const observation = { observations: [{ frames: await frames(700) }] };
    const seeing = await start(one, caller.key, {}, observation);
    const events = await watch(one, "pictures", caller.key, [seeing.id]);
    let isShown = false;
    const shown = first(events, "pictures").finally(() => {
      isShown = true;
    });
    for (let step = 2; !isShown; step++) {
      seeing.loop.observe(step, observation);
      await seeing.loop.next();
    }
    const { pictures } = await shown;
    expect(pictures).toMatchObject([{ loop_id: seeing.id, camera: "front", format: expect.any(String) }]);
    const { width, height } = await sharp(Buffer.from(pictures[0].data, "base64")).metadata();
    expect(Math.max(width, height)).toBeLessThanOrEqual(700);
    events.leave();
  });

  it("show nothing to other organizations, workspaces and robots' keys, no picture to viewers, and none of a workspace without retention", async () => {
    const caller = await one.caller(10);
    const space = await one.call(`/v1/orgs/${caller.org}/workspaces`, { name: "lab" }, { key: caller.key });
    const inside = await one.key(caller.org, { role: "owner", workspace_id: space.body.id });
    const viewer = await one.key(caller.org, { role: "viewer" });
    const outer = await start(one, caller.key);
    const inner = await start(one, inside);
    const refused = await one.call(`/v1/loops/pictures/watch?loop_ids=${outer.id}`, undefined, { key: viewer });
    expect([refused.status, refused.body.error.code], refused.text).toEqual([403, "permission_denied"]);
    const events = await watch(one, "actions", inside, [outer.id, inner.id]);
    const { actions } = await first(events, "actions");
    // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
    expect(actions.map(({ loop_id }: any) => loop_id)).toEqual([inner.id]);
    events.leave();
    const bound = await one.key(caller.org, { role: "owner", robot_id: "arm-7" });
    const arm = await start(one, bound);
    const ofArm = await watch(one, "actions", bound, [outer.id, arm.id]);
    // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
    expect((await first(ofArm, "actions")).actions.map(({ loop_id }: any) => loop_id)).toEqual([arm.id]);
    ofArm.leave();
    const listed = await one.call("/v1/loops", undefined, { key: bound });
    expect(
      listed.body.data?.map(({ id }: { id: string }) => id),
      listed.text,
    ).toEqual([arm.id]);
    for (const path of ["/v1/loops", "/v1/loops/history"]) {
      const asked = await one.call(`${path}?robot_id=arm-8`, undefined, { key: bound });
      expect([asked.status, asked.body.error.param], asked.text).toEqual([403, "robot_id"]);
    }
    const stranger = await one.caller(10);
    const theirs = await start(one, stranger.key);
    const other = await watch(one, "actions", stranger.key, [outer.id, theirs.id]);
    // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
    expect((await first(other, "actions")).actions.map(({ loop_id }: any) => loop_id)).toEqual([theirs.id]);
    other.leave();

    await one.supply({
      provider: "discreet",
      model: "acme/private",
      endpoint: model.endpoint,
      data_collection: "deny",
    });
    const quiet = await one.caller(10);
    await one.call(`/v1/orgs/${quiet.org}/settings`, { zdr: true }, { key: quiet.key, method: "PATCH" });
    const { id, loop } = await start(one, quiet.key, { model: "acme/private" });
    loop.observe(2, { observations: [{ frames: await frames() }] });
    const pictures = await watch(one, "pictures", quiet.key, [id]);
    expect(await first(pictures, "withheld")).toEqual({ pictures: [], withheld: [id] });
    pictures.leave();
  });
});

describe("GET /v1/loops/watch", () => {
  it("shows all loops first, then changes and ends on the other replica", async () => {
    const caller = await one.caller(10);
    const { loop, id } = await start(one, caller.key);
    const events = await readEvents(two, "/v1/loops/watch", undefined, caller.key);
    expect([events.status, events.type]).toEqual([200, "text/event-stream; charset=utf-8"]);
    const first = await events.next();
    expect([first?.event, idsOf(first?.data.loops)]).toEqual(["snapshot", [id]]);
    loop.observe(2);
    await loop.expect("chunk");
    const later = await start(two, caller.key);
    const seen = new Map<string, number>();
    while (seen.get(id) !== 2 || seen.get(later.id) !== 1) {
      const told = await events.next();
      expect(told?.event).toBe("change");
      for (const { id, chunks } of told?.data.loops ?? []) seen.set(id, chunks);
    }
    loop.say({ case: "close", value: {} });
    const ended: string[] = [];
    while (ended.length === 0) ended.push(...((await events.next())?.data.ended ?? []));
    expect(ended).toEqual([id]);
    events.leave();
  });

  it("works the same over gRPC and Connect, with a limit on loops", async () => {
    const caller = await one.caller(10);
    const { id } = await start(one, caller.key);
    await start(one, caller.key);
    const transports = [
      createGrpcTransport({ baseUrl: two.url }),
      createConnectTransport({ baseUrl: two.url, httpVersion: "2" }),
    ];
    for (const transport of transports) {
      const leaving = new AbortController();
      const shown = createClient(LoopService, transport).watchLoops(
        { limit: 1 },
        { ...bearer(caller.key), signal: leaving.signal },
      );
      for await (const { event } of shown) {
        if (event.case !== "snapshot") throw new Error("a snapshot comes first");
        expect([event.value.loops.map(({ id }) => id), event.value.more]).toEqual([[id], 1]);
        expect([LoopState.RUNNING, LoopState.WAITING]).toContain(event.value.loops[0]?.state);
        break;
      }
      leaving.abort();
    }
  });

  it("sends all watchers the same change on every protocol, and each the reason why its stream ends", async () => {
    const caller = await one.caller(10);
    const key = await one.key(caller.org, { role: "owner" });
    const { loop, id } = await start(one, caller.key);
    const node = { baseUrl: two.url, httpVersion: "2" } as const;
    const transports = [
      createConnectTransport({ ...node, useBinaryFormat: false }),
      createConnectTransport({ ...node, useBinaryFormat: false }),
      createConnectTransport({ ...node, useBinaryFormat: true }),
      createGrpcTransport({ ...node, useBinaryFormat: false }),
      createGrpcTransport({ ...node, useBinaryFormat: true }),
      createGrpcWebTransport({ ...node, useBinaryFormat: false }),
      createGrpcWebTransport({ ...node, useBinaryFormat: true }),
    ];
    const streams = transports.map((transport) =>
      createClient(LoopService, transport).watchLoops({}, bearer(key))[Symbol.asyncIterator](),
    );
    const events = await readEvents(two, "/v1/loops/watch", undefined, key);
    await Promise.all([...streams.map((stream) => stream.next()), events.next()]);
    loop.observe(2);
    await loop.expect("chunk");
    const told = await Promise.all(
      streams.map(async (stream) => {
        for (;;) {
          const { value } = await stream.next();
          if (value.event.case !== "change") throw new Error("a snapshot comes once");
          const shown = value.event.value.loops.find((each: RunningLoop) => each.id === id);
          if (shown?.chunks === 2) return shown;
        }
      }),
    );
    for (const { robotId, model, provider, chunks } of told)
      expect([robotId, model, provider, chunks]).toEqual([told[0]?.robotId, "acme/base", "acme", 2]);
    const { body } = await one.call("/v1/key", undefined, { key });
    expect(
      (await one.call(`/v1/orgs/${caller.org}/keys/${body.id}`, undefined, { key: caller.key, method: "DELETE" }))
        .status,
    ).toBe(200);
    const ends = streams.map(async (stream) => {
      while (!(await stream.next()).done);
    });
    for (const end of await Promise.allSettled(ends)) {
      if (end.status === "fulfilled") throw new Error("a stream ends with the reason");
      expect(ConnectError.from(end.reason).code).toBe(Code.Unauthenticated);
    }
    events.leave();
  });

  it("sends nothing between replicas without watchers, and the newest state to a slow reader", async () => {
    const caller = await one.caller(10);
    const { loop, id } = await start(one, caller.key);
    const words: string[] = [];
    const notifications = await Notifications.open(one.database.url);
    notifications.on("loops", (word) => words.push(word));
    const client = createClient(LoopService, createGrpcTransport({ baseUrl: two.url }));
    const leaving = new AbortController();
    const shown = client.watchLoops({}, { ...bearer(caller.key), signal: leaving.signal })[Symbol.asyncIterator]();
    await shown.next();
    for (let step = 2; step <= 20; step++) {
      loop.observe(step);
      await loop.expect("chunk");
    }
    await eventually(() => expect(words.length).toBeGreaterThan(4));
    let chunks = 0;
    while (chunks < 20) {
      const told = await shown.next();
      if (told.done || told.value.event.case !== "change") continue;
      const change = told.value.event.value.loops.find((each) => each.id === id);
      if (change) chunks = change.chunks;
    }
    leaving.abort();
    const mark = async (word: string): Promise<void> => {
      await notify(one.sql, "loops", word);
      await eventually(() => expect(words).toContain(word));
    };
    let round = 0;
    await eventually(async () => {
      round += 1;
      clock.skip(4_000); // both the kept view and the last request for it end
      await mark(`ended ${round}`);
      clock.skip(2_500);
      await mark(`quiet ${round}`);
      expect(words.slice(-2)).toEqual([`ended ${round}`, `quiet ${round}`]);
    });
    await notifications.close();
  });

  it("ignores malformed messages", async () => {
    const caller = await one.caller(10);
    const { id } = await start(one, caller.key);
    for (const word of [
      "",
      "x",
      Buffer.from("nonsense").toString("base64"),
      Buffer.alloc(4_000, 255).toString("base64"),
    ])
      await notify(one.sql, "loops", word);
    expect(idsOf((await list(two, caller.key)).body.data)).toEqual([id]);
  });
});

it("loops of all replicas are shown over NATS, too", async () => {
  const nats = await startNats();
  const [a, b] = [
    await ownGateway({ database: one.database, natsUrl: nats.url }),
    await ownGateway({ database: one.database, natsUrl: nats.url }),
  ];
  try {
    const caller = await one.caller(10);
    await eventually(async () => {
      const { id } = await start(a, caller.key);
      // The replicas that are not on NATS stay silent.
      expect(idsOf((await b.call("/v1/loops", undefined, { key: caller.key })).body.data)).toContain(id);
    });
  } finally {
    for (const each of running.splice(0)) each.leave();
    await b.close();
    await a.close();
    await nats.close();
  }
}, 60_000);
