/**
 * A key of a workspace reaches what is of that workspace: every RPC of the schema by keys of two workspaces and of their organisation.
 * An RPC that nobody thought about fails here, or does not start.
 */
import { join } from "node:path";
import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { rpc, WorkspaceReach } from "../../gen/limber/edge/v1/options_pb.ts";
import { sessionOf } from "../../src/inference/sessions.ts";
import { importCatalog } from "../../src/store/supply/catalog.ts";
import type { App, Caller } from "../support/app.ts";
import { type Belongings, belongings, NOBODYS } from "../support/belongings.ts";
import type { FreshDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { robot } from "../support/loop-client.ts";
import { person } from "../support/members.ts";
import type { Model } from "../support/model.ts";
import { type OtlpReceiver, startOtlpReceiver } from "../support/otlp-receiver.ts";
import { bodiesFor, filled, METHODS, namesIn, patternOf, sitesOf, told, withValue } from "../support/places.ts";
import { stopRobots } from "../support/stops.ts";
import { openModel, ownDatabase, ownGateway } from "../support/world.ts";

const DATA = join(import.meta.dirname, "../../data");
/** A scenario that a runner outside takes. */
const BENCHMARK = "1x/1x-world-model-challenge";

const EVALUATION = { policy_endpoint: "ws://robot.lan:8000", scenario: BENCHMARK, runner: "external", episodes: 1 };

/** One part of the organisation: a workspace, or what is of none. */
interface Part {
  readonly mark: string;
  /** Undefined for what is of no workspace. */
  readonly workspace: string | undefined;
  readonly key: string;
  readonly ids: Belongings;
  /** The evaluation; `ids.job_id` is the batch. */
  readonly evaluation: string;
  /** Everything that tells of this part where it stands in an answer. */
  readonly words: readonly string[];
}

let database: FreshDatabase;
let app: App;
let model: Model;
let receiver: OtlpReceiver;
let owner: Caller;
let a: Part;
let b: Part;
let whole: Part;
let bodies: ReturnType<typeof bodiesFor>;

beforeAll(async () => {
  database = await ownDatabase();
  await importCatalog(database.sql, DATA);
  [model, receiver] = await Promise.all([openModel(), startOtlpReceiver()]);
  app = await ownGateway({ database, roles: new Set(["api", "worker"]) });
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  owner = await app.caller(10);
  bodies = bodiesFor(receiver.url);
  const shared = await belongings(app, owner, "shared");
  whole = await furnish("whole", undefined, shared);
  a = await furnish("aaa", (await made("/v1/orgs/{org}/workspaces", { name: "aaa" })).id, shared);
  b = await furnish("bbb", (await made("/v1/orgs/{org}/workspaces", { name: "bbb" })).id, shared);
}, 120_000);
afterAll(async () => {
  await receiver.close();
});

const ACT = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
const call = (part: Pick<Part, "key">, path: string, body?: unknown, method?: string) =>
  app.call(path, body, { key: part.key, ...(method !== undefined && { method }) });

async function made(path: string, body: object, key = owner.key) {
  const answer = await app.call(path.replace("{org}", owner.org), body, { key });
  if (answer.status >= 300) throw new Error(`${path} answered ${answer.status}: ${answer.text}`);
  return answer.body;
}

/** One of everything that a workspace can have, made by a key of it. */
async function furnish(mark: string, workspace: string | undefined, shared: Belongings): Promise<Part> {
  const of = workspace === undefined ? {} : { workspace_id: workspace };
  const { id: ownId, key } = await app.admin(`/v1/orgs/${owner.org}/keys`, {
    name: `own ${mark}`,
    role: "owner",
    ...of,
  });
  const confined = workspace === undefined ? {} : { workspace_ids: [workspace] };
  const member = await person(app, owner.org, "viewer", confined);
  const second = await made("/v1/orgs/{org}/keys", { name: `key ${mark}`, role: "viewer" }, key);
  const hook = await made("/v1/webhooks", { url: `${app.url}/`, events: ["*"], description: `hook ${mark}` }, key);
  await made(`/v1/webhooks/${hook.id}/test`, {}, key);
  const [delivery] = await app.sql`select id from webhook_delivery where hook_id = ${hook.id} limit 1`;
  const target = await made(
    "/v1/broadcast",
    { name: `target ${mark}`, endpoint: receiver.url, protocol: "http/json" },
    key,
  );
  const called = { ...ACT, metadata: { word: `act ${mark}` }, provider: { session_id: `session ${mark}` } };
  const act = await app.call("/v1/act", called, { key });
  const batch = await made(
    "/v1/batch",
    { contract: "act", requests: [{ ...ACT, custom_id: `item ${mark}` }], metadata: { word: `batch ${mark}` } },
    key,
  );
  const asked = { ...EVALUATION, policy_endpoint: `ws://${mark}.lan:8000` };
  const evaluation = await made("/v1/evaluate", { ...asked, metadata: { word: `evaluation ${mark}` } }, key);
  const stop = (await stopRobots(app, { robot_id: `robot ${mark}`, reason: "test" }, { key })).body;
  const arm = `arm ${mark}`;
  const put = { key, method: "PUT" };
  expect((await app.call(`/v1/robots/${arm}`, { action_space: "base_twist_2d" }, put)).status).toBe(200);
  await eventually(async () => {
    const { body } = await app.call(`/v1/batch/${batch.id}`, undefined, { key });
    expect(body.status).toBe("completed");
  });
  const ids: Belongings = {
    ...shared,
    ...(workspace !== undefined && { workspace_id: workspace }),
    user_id: member.userId,
    key_id: second.id,
    hook_id: hook.id,
    delivery_id: delivery?.id,
    target_id: target.id,
    job_id: batch.id,
    stop_id: stop.id,
    robot_id: arm,
  };
  const own = [
    ownId,
    second.id,
    hook.id,
    delivery?.id,
    target.id,
    act.headers.get("x-request-id") ?? "",
    batch.id,
    evaluation.id,
    stop.id,
  ];
  const marks = ["own", "key", "hook", "target", "act", "session", "batch", "item", "evaluation", "robot", "arm"].map(
    (word) => `${word} ${mark}`,
  );
  return {
    mark,
    workspace,
    key,
    ids,
    evaluation: evaluation.id,
    words: [...own, ...marks, `${mark}.lan`, ...(workspace ? [workspace] : [])],
  };
}

const reachOf = (method: DescMethod): WorkspaceReach => getOption(method, rpc).workspaces;
const of = (...reaches: WorkspaceReach[]): DescMethod[] =>
  METHODS.filter((method) => reaches.includes(reachOf(method)));
const { OWN_WORKSPACE, ORGANISATION_READ, ORGANISATION } = WorkspaceReach;
const OF_EVALUATIONS = new Set(["EvaluationService", "RunnerService"]);
/** The ids of a part as an RPC means them. */
const idsFor = ({ parent }: DescMethod, { ids, evaluation }: Part): Belongings =>
  OF_EVALUATIONS.has(parent.name) ? { ...ids, job_id: evaluation } : ids;
/** Names of what is the organisation's, and of itself. */
const SHARED = new Set(["org_id", "client_id", "name", "provider", "offering_id", "payment_id", "group", "suite_id"]);
/** A filter of spans by a key that is not there lets nothing through, and is given back as it came. */
const ECHOED = new Set(["CreateBroadcast", "UpdateBroadcast"]);
const strangers = (): [Part, Part][] => [
  [a, b],
  [b, a],
  [a, whole],
  [b, whole],
];
const betrayed = (text: string, { words }: Part): string[] => words.filter((word) => text.includes(word));
/** Every row of a part, as it stands. */
async function rowsOf({ ids, evaluation, key }: Part): Promise<string> {
  const jobs = [ids.job_id!, evaluation];
  const rows = await app.sql`
    select 'key' as what, to_jsonb(t) as row from key as t where id = ${ids.key_id!} or hash = sha256(${key}::bytea)
    union all select 'hook', to_jsonb(t) - 'consecutive_failures' - 'failing_since' from webhook as t where id = ${ids.hook_id!}
    union all select 'target', to_jsonb(t) from broadcast_target as t where id = ${ids.target_id!}
    union all select 'job', to_jsonb(t) from job as t where id in ${app.sql(jobs)}
    union all select 'item', to_jsonb(t) from job_item as t where job_id in ${app.sql(jobs)}
    union all select 'stop', to_jsonb(t) from robot_stop as t where id = ${ids.stop_id!}
    union all select 'workspace', to_jsonb(t) from workspace as t where id = ${ids.workspace_id!}
    union all select 'member', to_jsonb(t) from member as t where id = ${ids.user_id!}
    order by 1, 2`;
  return JSON.stringify(rows, null, 1);
}

describe("every RPC", () => {
  it("declares its reach for workspace keys", () => {
    const silent = of(WorkspaceReach.UNSPECIFIED);
    expect(silent.map(({ name }) => name)).toEqual([]);
    expect(of(OWN_WORKSPACE).length).toBeGreaterThan(45);
    expect(of(ORGANISATION).length).toBeGreaterThan(45);
  });

  it("that is organization-wide refuses workspace keys with 403, whatever ids they send", async () => {
    const faults: string[] = [];
    for (const method of of(ORGANISATION).filter(({ methodKind }) => methodKind !== "bidi_streaming")) {
      const { verb, path } = patternOf(method);
      const body = verb === "GET" || verb === "DELETE" ? undefined : (bodies[method.name]?.() ?? {});
      for (const part of [a, b]) {
        const { status, text, body: said } = await call(part, filled(path, part.ids), body, verb);
        const isScim = method.parent.name === "ScimService";
        if (status !== 403 || (!isScim && said.error.code !== "scope_denied"))
          faults.push(`${method.name}: ${status} ${text}`);
      }
    }
    expect(faults).toEqual([]);
  });

  it("returns 404 for ids of another workspace in a path, and of none", async () => {
    const faults: string[] = [];
    let looked = 0;
    const before = await Promise.all([a, b, whole].map(rowsOf));
    for (const method of of(OWN_WORKSPACE)) {
      if (method.name === "PutRobot") continue; // one's own, by names that all workspaces share
      const { verb, path } = patternOf(method);
      for (const asked of namesIn(path).filter((name) => !SHARED.has(name))) {
        for (const [by, theirs] of strangers()) {
          if (asked === "workspace_id" && theirs.workspace === undefined) continue;
          const ask = (ids: Belongings) => {
            const body = verb === "GET" || verb === "DELETE" ? undefined : (bodies[method.name]?.() ?? {});
            return call(by, filled(path, { ...idsFor(method, by), [asked]: ids[asked] ?? "" }), body, verb);
          };
          const foreign = idsFor(method, theirs);
          const [one, two] = [await ask(foreign), await ask(NOBODYS)];
          looked++;
          const ids = [foreign[asked] ?? "", NOBODYS[asked] ?? ""];
          const what = `${method.name} ${asked} of ${theirs.mark} by ${by.mark}`;
          if (JSON.stringify(told(one, ids)) !== JSON.stringify(told(two, ids)))
            faults.push(`${what}: ${one.status} ${one.text} but ${two.status} ${two.text}`);
          if (one.status < 400) faults.push(`${what} was reached`);
          const words = betrayed(one.text.replaceAll(ids[0] ?? "-", ""), theirs);
          if (words.length > 0) faults.push(`${what} tells ${words}`);
        }
      }
    }
    expect(faults).toEqual([]);
    expect(looked).toBeGreaterThan(80);
    expect(await Promise.all([a, b, whole].map(rowsOf))).toEqual(before);
  }, 120_000);

  it("returns the same for such ids in query and body", async () => {
    const faults: string[] = [];
    let looked = 0;
    const before = await Promise.all([a, b, whole].map(rowsOf));
    for (const { method, field, many, names } of of(OWN_WORKSPACE, ORGANISATION_READ).flatMap(sitesOf)) {
      if (SHARED.has(names) || (ECHOED.has(method.name) && names === "key_id")) continue;
      const { verb, path } = patternOf(method);
      if (verb === "UNDEFINED") continue;
      for (const [by, theirs] of strangers()) {
        if (names === "workspace_id" && theirs.workspace === undefined) continue;
        const place = field.replace(/^(request|predict)\./, "");
        const to = filled(path, idsFor(method, by));
        const ask = (ids: Belongings) => {
          const value = ids[names] ?? "";
          if (verb === "GET") return call(by, `${to}?${new URLSearchParams({ [place]: value })}`);
          return call(
            by,
            to,
            withValue({ ...bodies[method.name]?.() }, place.split("."), many ? [value] : value),
            verb,
          );
        };
        const foreign = idsFor(method, theirs);
        const [one, two] = [await ask(foreign), await ask(NOBODYS)];
        looked++;
        const ids = [foreign[names] ?? "", NOBODYS[names] ?? ""];
        const what = `${method.name} ${place} of ${theirs.mark} by ${by.mark}`;
        // A member of no workspace is there for all of them.
        const isThere = names === "user_id" && theirs.workspace === undefined;
        if (!isThere && JSON.stringify(told(one, ids)) !== JSON.stringify(told(two, ids)))
          faults.push(`${what}: ${one.status} ${one.text} but ${two.status} ${two.text}`);
        const words = betrayed(one.text.replaceAll(ids[0] ?? "-", ""), theirs);
        if (words.length > 0) faults.push(`${what} tells ${words}`);
      }
    }
    expect(faults).toEqual([]);
    expect(looked).toBeGreaterThan(20);
    expect(await Promise.all([a, b, whole].map(rowsOf))).toEqual(before);
  }, 120_000);

  it("that lists or exports shows workspace keys their own, and organization keys all", async () => {
    // What has ended is watched to its end.
    for (const part of [a, b, whole]) await call(part, `/v1/evaluate/${part.evaluation}`, undefined, "DELETE");
    const faults: string[] = [];
    const shown = new Map<string, Set<string>>([a, b, whole].map((part) => [part.mark, new Set()]));
    const seenByAll = new Set<string>();
    for (const method of of(OWN_WORKSPACE, ORGANISATION_READ)) {
      const { verb, path } = patternOf(method);
      if (verb !== "GET") continue;
      for (const by of [a, b]) {
        // All cursors and kinds that there are, and those of others.
        for (const query of [
          "",
          "?kind=admin",
          "?kind=evaluate",
          "?released=true",
          `?cursor=${whole.ids.job_id}`,
          "?limit=500",
        ]) {
          const { status, text } = await call(by, filled(path, idsFor(method, by)) + query);
          if (status >= 500) faults.push(`${method.name}${query}: ${status}`);
          for (const theirs of [a, b, whole].filter((part) => part !== by)) {
            // A cursor of another list is refused, and given back as it was sent.
            const words = betrayed(status === 422 ? text.replaceAll(whole.ids.job_id ?? "-", "") : text, theirs);
            if (words.length > 0) faults.push(`${method.name}${query} tells ${by.mark} of ${words}`);
          }
          for (const word of betrayed(text, by)) shown.get(by.mark)?.add(word);
        }
      }
      for (const part of [a, b, whole]) {
        const { text } = await call(whole, filled(path, idsFor(method, part)));
        for (const each of [a, b]) for (const word of betrayed(text, each)) seenByAll.add(word);
      }
    }
    expect(faults).toEqual([]);
    // The search finds what may be seen: each of its own words, and all of them for the organisation.
    for (const part of [a, b]) {
      const wanted = part.words;
      expect(wanted.filter((word) => !shown.get(part.mark)?.has(word))).toEqual([]);
      expect(wanted.filter((word) => !seenByAll.has(word))).toEqual([]);
    }
  }, 120_000);
});

describe("an idempotency key", () => {
  const keyed = (part: Part, body: object = ACT) =>
    app.call("/v1/act", body, { key: part.key, headers: { "idempotency-key": "same" } });

  it("of one workspace never replays or blocks another's call", async () => {
    const first = await Promise.all([a, b, whole].map((part) => keyed(part)));
    expect(first.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(new Set(first.map(({ body }) => body.id)).size).toBe(3);
    const again = await Promise.all([a, b, whole].map((part) => keyed(part)));
    expect(again.map(({ body }) => body.id)).toEqual(first.map(({ body }) => body.id));
    expect((await keyed(a, { ...ACT, horizon: 3 })).status).toBe(409);
    const other = await app.caller(1);
    expect((await keyed({ ...a, key: other.key }, { ...ACT, horizon: 3 })).status).toBe(200);
  });

  it("of a job is separate per workspace too", async () => {
    const asked = { contract: "act", requests: [ACT], idempotency_key: "same-job" };
    const jobs = await Promise.all([a, b, whole, a, b, whole].map((part) => made("/v1/batch", asked, part.key)));
    const ids = jobs.map(({ id }) => id);
    expect(new Set(ids).size).toBe(3);
    expect(ids.slice(3)).toEqual(ids.slice(0, 3));
  });

  it("in the internal form of another workspace's does not block it", async () => {
    const { id } = await made("/v1/evaluate", { ...EVALUATION, episodes: 1 }, a.key);
    for (const part of [b, whole]) {
      const headers = { "idempotency-key": `${id}.0.episode` };
      expect((await app.call("/v1/act", ACT, { key: part.key, headers })).status).toBe(200);
    }
    const { claim } = await made("/v1/evaluate/claims", { harness: "h" }, a.key);
    expect(claim.evaluation.id).toBe(id);
    const episode = { epoch: claim.epoch, index: 0, termination: "success", return: 1, steps: 1, sim_time_s: 1 };
    const reported = await call(a, `/v1/evaluate/${id}/episodes`, { ...episode, latencies_ms: [1] });
    expect(reported.status, reported.text).toBe(200);
    await made(`/v1/evaluate/${id}/finish`, { epoch: claim.epoch }, a.key);
  });
});

describe("a runner of a workspace", () => {
  it("takes only its workspace's evaluations; an organization's runner takes all", async () => {
    const id = (await made("/v1/evaluate", EVALUATION, a.key)).id;
    const claim = async (part: Part) => (await made("/v1/evaluate/claims", { harness: "h" }, part.key)).claim;
    expect(await claim(b)).toBeUndefined();
    expect((await claim(whole)).evaluation.id).toBe(id);
    for (const path of ["heartbeat", "episodes", "finish"]) {
      const body = { epoch: 1, index: 0, termination: "success", return: 1, steps: 1, sim_time_s: 1, latencies_ms: [] };
      const sent = path === "episodes" ? body : { epoch: 1 };
      expect((await call(b, `/v1/evaluate/${id}/${path}`, sent)).status).toBe(404);
    }
    expect((await call(a, `/v1/evaluate/${id}`, undefined, "DELETE")).status).toBe(200);
  });
});

describe("an emergency stop", () => {
  const act = async (part: Part, metadata?: object) =>
    (await call(part, "/v1/act", { ...ACT, ...(metadata && { metadata }) })).status;
  const stop = async ({ key }: Part, target: object) =>
    (await stopRobots(app, { ...target, reason: "test" }, { key })).body;
  const release = (part: Part, stop_id: string) => call(part, "/v1/robots/release", { stop_id });

  it("by a workspace key covers that workspace: all of it, a robot, a session", async () => {
    for (const [target, body] of [
      [{ all: true }, {}],
      [{ robot_id: "arm" }, { metadata: { robot_id: "arm" } }],
      [{ session_id: "shift" }, { provider: { session_id: "shift" } }],
    ] as const) {
      const { id, workspace_id, scope } = await stop(a, target);
      expect(workspace_id).toBe(a.workspace);
      if ("all" in target) expect(scope).toBe("workspace");
      const statuses = await Promise.all([a, b, whole].map((part) => call(part, "/v1/act", { ...ACT, ...body })));
      expect(statuses.map(({ status }) => status)).toEqual([409, 200, 200]);
      expect((await release(b, id)).status).toBe(404);
      expect((await release(a, id)).status).toBe(200);
      await eventually(async () => expect(await act(a)).toBe(200));
    }
  });

  it("by an organization key covers all workspaces, and only the organization can release it", async () => {
    const mine = await stop(a, { robot_id: "arm" });
    const all = await stop(whole, { robot_id: "arm" });
    expect(all.id).not.toBe(mine.id);
    const move = () => Promise.all([a, b, whole].map((part) => act(part, { robot_id: "arm" })));
    expect(await move()).toEqual([409, 409, 409]);
    for (const part of [a, b]) expect((await release(part, all.id)).status).toBe(404);
    expect((await release(whole, all.id)).status).toBe(200);
    await eventually(async () => expect(await move()).toEqual([409, 200, 200]));
    expect((await release(whole, mine.id)).status).toBe(200);
    await eventually(async () => expect(await move()).toEqual([200, 200, 200]));
  });

  it("cuts only its workspace's streams, on every replica", async () => {
    const elsewhere = await ownGateway({ database });
    const open = {
      model: "acme/base",
      actionSpace: "base_twist_2d",
      horizon: 200,
      robotId: "arm",
      provider: { deadlineMs: 10_000 },
    };
    await eventually(async () => expect((await elsewhere.call("/v1/act", ACT, { key: b.key })).status).toBe(200));
    const [ours, theirs] = [robot(elsewhere, a.key, open), robot(elsewhere, b.key, open)];
    for (const loop of [ours, theirs]) await loop.expect("opened");
    const { id } = await stop(a, { robot_id: "arm" });
    expect(await ours.expect("ended")).toMatchObject({ code: "robot_stopped" });
    theirs.observe(1);
    await theirs.expect("chunk");
    theirs.leave();
    await release(a, id);
    await elsewhere.gateway.close(0);
  });
});

describe("a session", () => {
  it("of a workspace is separate from one with the same name elsewhere", () => {
    const name = (workspaceId: string | undefined, sessionId = "s", orgId = "org_1") =>
      sessionOf({ provider: { sessionId } }, { orgId, workspaceId, settings: { zdr: false } })?.name;
    const names = [name(undefined), name("ws_1"), name("ws_2"), name(undefined, "ws_1 s"), name("ws_1", "s", "org_2")];
    expect(new Set(names).size).toBe(names.length);
    expect(name("ws_1")).toBe(name("ws_1"));
    const silent = { orgId: "org_1", workspaceId: undefined, settings: { zdr: true } };
    expect(sessionOf({ provider: { sessionId: "a word" } }, silent)?.word).toBe(name(undefined, "a word"));
  });

  it("cannot be resumed or taken over by another workspace", async () => {
    const open = {
      model: "acme/base",
      actionSpace: "base_twist_2d",
      horizon: 200,
      provider: { sessionId: "one arm", deadlineMs: 10_000 },
    };
    const ours = robot(app, a.key, open);
    await ours.expect("opened");
    ours.observe(1);
    await ours.expect("chunk");
    const theirs = robot(app, b.key, open);
    await theirs.expect("opened");
    ours.observe(2);
    await ours.expect("chunk");
    ours.leave();
    theirs.leave();
  });
});

describe("what a workspace is shown of its organisation", () => {
  it("is its effective settings, and only its own spending", async () => {
    await app.call(
      `/v1/orgs/${owner.org}/workspaces/${a.workspace}`,
      { settings: { retention_days: 3 } },
      { key: owner.key, method: "PATCH" },
    );
    const settings = async (part: Part) => (await call(part, `/v1/orgs/${owner.org}/settings`)).body.retention_days;
    expect(await Promise.all([a, b, whole].map(settings))).toEqual([3, 30, 30]);
    const totals = async (part: Part) => (await call(part, "/v1/usage")).body.totals;
    const [ofA, ofB, ofAll] = await Promise.all([a, b, whole].map(totals));
    expect(ofA.requests + ofB.requests).toBeLessThan(ofAll.requests);
    const listed = async (part: Part) =>
      (await call(part, `/v1/orgs/${owner.org}/workspaces`)).body.data.map(({ id }: { id: string }) => id);
    expect(await listed(a)).toEqual([a.workspace]);
    expect((await listed(whole)).length).toBeGreaterThan(2);
  });
});
