/** Published evaluations: signed, replayable, and ranked. */

import { rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { newId } from "../../../src/ids.ts";
import { BUILT_IN, digestOf, variantFor } from "../../../src/scenarios/index.ts";
import { faultOfSignature, type PublishedDocument, recomputed } from "../../../src/scenarios/published.ts";
import { tx } from "../../../src/store/database/tx.ts";
import { addPublication } from "../../../src/store/jobs/publications.ts";
import { liveAgrees } from "../../../tools/evaluate-live.ts";
import { verifyCommand } from "../../../tools/evaluate-verify.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let caller: Caller;
/** The server of the model `acme/pole`, which may act differently from some time on. */
let pole: Model;
let isChanged = false;
/** A policy at an address. */
let endpoint: string;
const scenarios = new Map(BUILT_IN.map((scenario) => [scenario.id, scenario]));

beforeAll(async () => {
  app = await ownGateway({ roles: new Set(["api", "worker"]), trustedProxies: ["127.0.0.0/8"] });
  pole = await openModel({
    act({ horizon, observations }, answer) {
      answer(Array(horizon).fill([isChanged ? 10 : (observations.at(-1)?.proprio[0] ?? 0) / 100]));
    },
  });
  const space = { action_spaces: ["continuous_nd"], action_dim: 1 };
  await app.supply({ provider: "acme", model: "acme/pole", endpoint: pole.endpoint, ...space });
  ({ endpoint } = await openModel({ act: ({ horizon }, answer) => answer(Array(horizon).fill([0.2])) }));
  caller = await app.caller();
});

const POLE = { scenario: "cartpole-balance", action_space: "continuous_nd", episodes: 2, seed: 3 };
const post = (path: string, body: object, key = caller.key) => app.call(path, body, { key });
const publish = (body: object, key = caller.key) => post("/v1/publications", body, key);
const documentOf = async (id: string) => (await app.call(`/v1/publications/${id}`)).body;
const keys = async () => (await app.call("/.well-known/jwks.json")).body.keys;

async function evaluated(asked: object, { key } = caller): Promise<string> {
  const { body, text } = await post("/v1/evaluate", { ...POLE, ...asked }, key);
  expect(body.id, text).toMatch(/^job_/);
  return eventually(
    async () => {
      const now = await app.call(`/v1/jobs?kind=evaluation`, undefined, { key });
      expect(now.body.data.find(({ id }: { id: string }) => id === body.id)?.status, now.text).toBe("completed");
      return body.id;
    },
    { timeout: 60_000, interval: 50 },
  );
}

/** A document with one member replaced, by its path. */
function changed(document: object, path: readonly (string | number)[], value: unknown): Record<string, unknown> {
  const copy = structuredClone(document) as Record<string, unknown>;
  // biome-ignore lint/suspicious/noExplicitAny: it walks through JSON.
  let at: any = copy;
  for (const name of path.slice(0, -1)) at = at[name];
  at[path.at(-1)!] = value;
  return copy;
}

/** A file with a document, until the test ends. */
function fileOf(document: object): string {
  const file = join(tmpdir(), `${newId("pub")}.json`);
  onTestFinished(() => rmSync(file, { force: true }));
  writeFileSync(file, JSON.stringify(document));
  return file;
}

/** Runs the command; its exit code and everything that it printed. */
async function verify(...args: string[]): Promise<[number, string]> {
  const said: string[] = [];
  const spies = (["log", "error"] as const).map((name) =>
    vi.spyOn(console, name).mockImplementation((text: string) => void said.push(text)),
  );
  const code = await verifyCommand(["--url", app.url, "--key", caller.key, ...args]);
  for (const spy of spies) spy.mockRestore();
  return [code, said.join("\n")];
}

describe("a published evaluation", () => {
  let id: string;
  let evaluation: string;

  it("verifies by its signature, digests, scores and a replay, and hides the server's address and the metadata", async () => {
    evaluation = await evaluated({ policy_endpoint: endpoint, horizon: 16, metadata: { note: "our own words" } });
    const dry = await publish({ evaluation_id: evaluation, title: "first", dry_run: true });
    expect(dry.body, dry.text).toMatchObject({
      id: "",
      discloses: expect.arrayContaining([expect.stringMatching(/^the policy: a server/)]),
    });
    expect((await app.call("/v1/publications", undefined, { key: caller.key })).body.data).toEqual([]);
    const made = await publish({ evaluation_id: evaluation, title: "first <script>&" });
    expect(made.status, made.text).toBe(201);
    id = made.body.id;
    expect(made.body).toMatchObject({
      object: "publication",
      evaluation_id: evaluation,
      title: "first <script>&",
      path: `/v1/publications/${id}`,
    });
    const acts = await app.call("/v1/audit?action=publication.created", undefined, { key: caller.key });
    expect(acts.body.data, acts.text).toMatchObject([{ actor: expect.stringMatching(/^key_/), subject: id }]);
    const document = await documentOf(id);
    expect(JSON.stringify(document)).not.toContain(new URL(endpoint).host);
    expect(JSON.stringify(document)).not.toContain("our own words");
    const shown = await app.call(`/v1/evaluate/${evaluation}`, undefined, { key: caller.key });
    expect(document.evaluations[0].hash).toBe(shown.body.reproducibility.hash);
    expect(document.evaluations[0].scores.success_rate.n).toBe(2);
    expect(faultOfSignature(document, await keys())).toBeUndefined();
    expect(await recomputed(document, scenarios)).toEqual({ problems: [], replayed: 2, controls: 6 });
    const log = vi.spyOn(console, "log").mockImplementation(() => {});
    expect(await verifyCommand([`${app.url}/v1/publications/${id}`])).toBe(0);
    expect(log.mock.calls.flat().join()).toContain("2 episodes and 6 of controls replayed to the last digit");
    log.mockRestore();
  });

  it("shows zeros, random actions and the reference on the same seeds, in the document and beside the policy on its page", async () => {
    const { controls, evaluations } = await documentOf(id);
    const { digest } = evaluations[0].scenario;
    expect(controls).toMatchObject([{ scenario: { id: "cartpole-balance", digest }, seed: 3, episodes: 2 }]);
    expect(controls[0].arms).toMatchObject([
      { control: "zero", scores: { success_rate: { successes: 0, n: 2 } } },
      { control: "random", scores: { success_rate: { successes: 0, n: 2 } } },
      { control: "reference", model: "reference/energy-swingup", scores: { success_rate: { successes: 2, n: 2 } } },
    ]);
    const page = await (await fetch(`${app.url}/v1/publications/${id}`, { headers: { accept: "text/html" } })).text();
    expect(page).toMatch(/<td>control<\/td><td>reference\/energy-swingup<\/td><td>1 \[/);
    expect(page).toContain("The policy is not known to succeed more often than a control that sends zeros.");
  });

  it("is a page without scripts for browsers, which escapes its title and has the command that verifies it", async () => {
    const response = await fetch(`${app.url}/v1/publications/${id}`, { headers: { accept: "text/html,*/*;q=0.8" } });
    const text = await response.text();
    expect([response.status, response.headers.get("content-type")], text).toEqual([200, "text/html; charset=utf-8"]);
    expect(response.headers.get("content-security-policy")).toMatch(/^default-src 'none'/);
    expect(response.headers.get("cache-control")).toBe("public, max-age=60");
    expect(text).toContain("<h1>first &lt;script&gt;&amp;</h1>");
    expect(text).not.toContain("<script");
    expect(text).toContain(`evaluate verify ${(await documentOf(id)).gateway.url}/v1/publications/${id}`);
    const { digests, hash, episodes } = (await documentOf(id)).evaluations[0];
    for (const shown of [digests.actions, hash, `<td>${episodes[1].seed}</td>`]) expect(text).toContain(shown);
  });

  it.each([
    ["a score", ["evaluations", 0, "scores", "return", "mean"], 1, /digest `scores` differs|scores differ/],
    ["an episode's success", ["evaluations", 0, "episodes", 1, "success"], true, /digest `episodes` differs/],
    ["the actions", ["evaluations", 0, "episodes", 0, "actions"], "AAAAAAAA8D8=", /digest `actions` differs/],
    ["the number of attempts", ["evaluations", 0, "attempts"], 0, /evaluations.0: digest `facts` differs/],
    ["the seed", ["evaluations", 0, "seed"], 4, /evaluations.0: digest `facts` differs/],
    ["the hash", ["evaluations", 0, "hash"], "sha256:0", /evaluations.0: `hash` differs/],
    ["a digest", ["evaluations", 0, "digests", "actions"], "sha256:0", /evaluations.0: digest `actions` differs/],
    ["the title", ["title"], "second", /^digest `head` differs/],
    ["the publisher", ["publisher"], "another", /^digest `head` differs/],
    ["the controls by none", ["controls"], [], /^digest `controls` differs/],
    ["the comparison", ["comparison"], { policies: 2, pairs: [] }, /^digest `comparison` differs/m],
    ["the policy", ["evaluations", 0, "policy", "protocol"], "other", /digest `policy` differs/],
    ["the scenario", ["evaluations", 0, "scenario", "version"], "0.0.1", /digest `scenario` differs/],
    ["a control's score", ["controls", 0, "arms", 0, "scores", "progress", "mean"], 0.9, /scores of control zero/],
    ["a control's hash", ["controls", 0, "arms", 1, "hash"], "sha256:0", /`hash` of control random differs/],
    ["the reference's actions", ["controls", 0, "arms", 2, "actions", 1], "", /`hash` of control reference differs/],
    ["a control by another", ["controls", 0, "arms", 0, "control"], "random", /`hash` of control random differs/],
    ["the controls' seed", ["controls", 0, "seed"], 4, /`hash` of control zero differs/],
    ["the evaluations by null", ["evaluations"], null, /malformed/],
    ["an episode by a number", ["evaluations", 0, "episodes", 0], 7, /malformed/],
  ])("names the difference when someone replaces %s", async (_, path, value, problem) => {
    const document = changed(await documentOf(id), path, value);
    expect((await recomputed(document, scenarios)).problems.join("\n")).toMatch(problem);
    expect(faultOfSignature(document, await keys())).toBe("the signature does not match the document");
  });

  it("names a forged key, and stays valid after a rotation", async () => {
    const document = await documentOf(id);
    const forged = changed(document, ["signature", "kid"], "of-another-gateway");
    expect(faultOfSignature(forged, await keys())).toMatch("of-another-gateway is not published");
    const impostor = [{ ...(await keys())[0], x: Buffer.alloc(32, 9).toString("base64url") }];
    expect(faultOfSignature(document, impostor)).toMatch(/is not published/);
    expect((await app.call("/v1/signing-keys/rotation", undefined, { method: "POST", key: caller.key })).status).toBe(
      401,
    );
    const rotated = await app.call("/v1/signing-keys/rotation", undefined, { method: "POST", admin: ADMIN_TOKEN });
    expect(rotated.status, rotated.text).toBe(200);
    const all = await keys();
    expect(all).toHaveLength(2);
    expect(all[0]).toEqual(rotated.body);
    expect(JSON.stringify(all)).not.toContain('"d"');
    expect(faultOfSignature(document, all)).toBeUndefined();
    const [row] = await app.sql<{ kept: number }[]>`select count(sealed)::int as kept from signing_key`;
    expect(row?.kept).toBe(1);
  });

  it("is read 120 times a minute by one address, 60 at once, and others and its owner are unaffected", async () => {
    const read = (address: string) =>
      app.call(`/v1/publications/${id}`, undefined, { headers: { "x-forwarded-for": address } });
    const answers = await Promise.all(Array.from({ length: 150 }, () => read("198.51.100.7")));
    const late = answers.filter(({ status }) => status === 429);
    expect(late.length).toBeGreaterThanOrEqual(50);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(150 - late.length);
    for (const { headers, body } of late) {
      expect(body.error.code).toBe("rate_limit_exceeded");
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    }
    expect((await read("198.51.100.8")).status).toBe(200);
    const own = { key: caller.key, headers: { "x-forwarded-for": "198.51.100.7" } };
    expect((await app.call("/v1/publications", undefined, own)).body.data).toHaveLength(1);
  });

  it("is the same when published twice, at once, and is not another organization's to publish or withdraw", async () => {
    const again = await Promise.all([publish({ evaluation_id: evaluation }), publish({ evaluation_id: evaluation })]);
    expect(again.map(({ body }) => body.id)).toEqual([id, id]);
    const stranger = await app.caller();
    expect((await publish({ evaluation_id: evaluation }, stranger.key)).status).toBe(404);
    const off = { key: stranger.key, method: "DELETE" };
    expect((await app.call(`/v1/publications/${id}`, undefined, off)).status).toBe(404);
    const narrow = await app.key(caller.org, { role: "developer" });
    expect((await publish({ evaluation_id: evaluation }, narrow)).status).toBe(403);
    const acting = await app.key(caller.org, { role: "owner", scopes: ["act"] });
    expect((await publish({ evaluation_id: evaluation }, acting)).status).toBe(403);
  });

  it("is replaced by a signed notice when withdrawn, and its document never changes", async () => {
    const off = { key: caller.key, method: "DELETE" };
    const withdrawn = await app.call(`/v1/publications/${id}?reason=wrong%20robot`, undefined, off);
    expect(withdrawn.body, withdrawn.text).toMatchObject({ id, withdrawn_at: expect.any(Number) });
    expect((await app.call(`/v1/publications/${id}`, undefined, off)).status).toBe(200);
    const notice = await documentOf(id);
    expect(notice).toMatchObject({ object: "publication.withdrawal", id, reason: "wrong robot" });
    expect(await verify(`${app.url}/v1/publications/${id}`)).toEqual([
      1,
      `${id} was withdrawn by its publisher: wrong robot`,
    ]);
    const page = await fetch(`${app.url}/v1/publications/${id}`, { headers: { accept: "text/html" } });
    expect(await page.text()).toContain("Reason: wrong robot");
    expect(faultOfSignature(notice, await keys())).toBeUndefined();
    await expect(app.sql`update publication set document = '{}' where id = ${id}`).rejects.toThrow("never changes");
    const list = await app.call("/v1/publications", undefined, { key: caller.key });
    expect(list.body.data).toEqual([expect.objectContaining({ id, withdrawn_at: expect.any(Number) })]);
  });
});

it("a notice of a withdrawal is not authentic without a valid signature", async () => {
  const keys = ["--keys", `${app.url}/.well-known/jwks.json`];
  const notice = { object: "publication.withdrawal", id: "pub_\u001b[2J1", withdrawn_at: 1, reason: "all wrong" };
  const [code, said] = await verify(fileOf(notice), ...keys);
  expect([code, said]).toEqual([
    1,
    "pub_�[2J1 does not verify: the notice of its withdrawal is not authentic, the document is not signed",
  ]);
});

describe("a live verification", () => {
  let address: string;

  beforeAll(async () => {
    const evaluation = await evaluated({ episodes: 5, seed: 0, policy_endpoint: "acme/pole" });
    const made = await publish({ evaluation_id: evaluation });
    expect(made.status, made.text).toBe(201);
    address = `${app.url}/v1/publications/${made.body.id}`;
  });

  it("says what it may cost before it calls the policy, and agrees if the policy acts as it did", async () => {
    const before = pole.acts.length;
    const [refused, why] = await verify(address, "--live");
    expect([refused, why], why).toEqual([2, expect.stringMatching(/5 episodes at .* cost up to \$1\.\d\d/)]);
    expect(pole.acts.length).toBe(before);
    const [code, said] = await verify(address, "--live", "--max-usd", "0.5");
    expect(code, said).toBe(0);
    expect(said).toMatch(/cost up to \$/);
    expect(said.match(/seed \d {2}then fell +[\d.]+ +now fell/g)).toHaveLength(5);
    expect(said).toMatch(/return, now minus then: 0 \[0, 0\]/);
    expect(said).toContain("consistent: 5 seeds");
  });

  it("ends with 3 if the policy acts differently, and with 1 and no call if the document was changed", async () => {
    isChanged = true;
    const [code, said] = await verify(address, "--live", "--yes");
    expect(code, said).toBe(3);
    expect(said).toMatch(/return, now minus then: -\d/);
    expect(said).toContain("the live results differ");
    const before = pole.acts.length;
    const file = fileOf(changed((await app.call(new URL(address).pathname)).body, ["title"], "x"));
    expect(await verify(file, "--live", "--yes")).toEqual([1, expect.stringContaining("digest `head` differs")]);
    expect(pole.acts.length).toBe(before);
  });

  it("ends with 4 if the connection to the gateway is lost while the policy is called", async () => {
    const file = fileOf((await app.call(new URL(address).pathname)).body);
    const { digest } = (await app.call(new URL(address).pathname)).body.evaluations[0].scenario;
    const gateway = createServer((request, response) => {
      if (request.method === "POST") return void response.end(JSON.stringify({ id: "job_1", scenario: { digest } }));
      response.writeHead(200, { "content-type": "text/event-stream" }).write("event: episode\n");
      setImmediate(() => response.destroy());
    });
    onTestFinished(() => void gateway.close());
    await new Promise<void>((resolve) => gateway.listen(0, "127.0.0.1", resolve));
    const { port } = gateway.address() as AddressInfo;
    const keys = `${app.url}/.well-known/jwks.json`;
    const [code, said] = await verify(file, "--keys", keys, "--live", "--url", `http://127.0.0.1:${port}`);
    expect(code, said).toBe(4);
    expect(said).toContain("the connection to the gateway was lost");
    const [unread, why] = await verify(`http://127.0.0.1:${port}/pub_1`);
    expect([unread, why]).toEqual([4, expect.stringMatching(/the connection to http.* was lost/)]);
  });

  it("ends with 4 if the policy fails after episodes that show no difference", async () => {
    let episodes = 0;
    const failing = await openModel({
      act({ horizon, observations }, answer) {
        if (observations.at(-1)?.tMs === 0) episodes += 1;
        answer(Array(horizon).fill([episodes > 1 ? Number.NaN : 0]));
      },
    });
    const more = JSON.stringify({ horizon: 16, stop_after_faults: 2, parallel_episodes: 1 });
    const [code, said] = await verify(address, "--live", "--policy", failing.endpoint, "--json", more);
    expect(code, said).toBe(4);
    expect(said).toMatch(
      /job_\w+ is failed, so some seeds are not compared; the compared ones \(1\) show no difference/,
    );
  });

  it("calls no address that a document names as its model", async () => {
    const { body } = await app.call(new URL(address).pathname);
    const named = changed(body, ["evaluations", 0, "policy", "model"], "wss://elsewhere.example.com");
    const gateway = { url: "http://127.0.0.1:1", key: "k" };
    const live = liveAgrees(named as unknown as PublishedDocument, gateway);
    await expect(live).rejects.toThrow('no name of a model, but "wss://elsewhere.example.com"; give the policy with');
    const given = liveAgrees(named as unknown as PublishedDocument, { ...gateway, policy: "acme/pole" });
    await expect(given).rejects.toThrow("no gateway answers");
  });

  it("needs the address of a server, and the label of one policy of a comparison", async () => {
    const evaluation = await evaluated({ policy_endpoint: endpoint, horizon: 16, episodes: 1 });
    const { body } = await publish({ evaluation_id: evaluation });
    const at = `${app.url}/v1/publications/${body.id}`;
    expect(await verify(at, "--live")).toEqual([2, expect.stringContaining("give it with --policy")]);
    expect(await verify(at, "--live", "--label", "A")).toEqual([2, expect.stringContaining("--label must be")]);
    const [code, said] = await verify(at, "--live", "--policy", endpoint);
    expect(code, said).toBe(0);
    expect(await verify(at, "--live", "--policy", endpoint, "--episodes", "2")).toEqual([
      2,
      expect.stringContaining("--episodes must be"),
    ]);
  });
});

describe("publishing", () => {
  it("refuses a running evaluation, zero data retention, and requests for none or both", async () => {
    const slow = await openModel({ act: () => {} });
    const running = await post("/v1/evaluate", { ...POLE, policy_endpoint: slow.endpoint, horizon: 16 });
    const early = await publish({ evaluation_id: running.body.id });
    expect([early.status, early.body.error.code], early.text).toEqual([409, "not_publishable"]);
    await app.call(`/v1/evaluate/${running.body.id}`, undefined, { key: caller.key, method: "DELETE" });
    for (const body of [{}, { evaluation_id: "job_1", comparison_id: "cmp_1" }])
      expect((await publish(body)).status, JSON.stringify(body)).toBe(422);
    const retaining = await app.caller();
    const set = await app.call(
      `/v1/orgs/${retaining.org}/settings`,
      { zdr: true },
      { key: retaining.key, method: "PATCH" },
    );
    expect(set.status, set.text).toBe(200);
    const sealed = await evaluated({ policy_endpoint: endpoint, horizon: 16, episodes: 1 }, retaining);
    const refused = await publish({ evaluation_id: sealed }, retaining.key);
    expect([refused.status, refused.body.error.message], refused.text).toEqual([
      409,
      expect.stringMatching(/zero data/),
    ]);
  });

  it.each(["\u0000", "\n", "\r", "\u001b"])("refuses %j in a title and a reason", async (letter) => {
    const titled = await publish({ evaluation_id: "job_1", title: `a${letter}b` });
    const reason = encodeURIComponent(`a${letter}b`);
    const off = { key: caller.key, method: "DELETE" };
    const withdrawn = await app.call(`/v1/publications/pub_1?reason=${reason}`, undefined, off);
    const refused = [titled, withdrawn].map(({ status, body }) => [status, body.error.param]);
    expect(refused, titled.text).toEqual([
      [422, "title"],
      [422, "reason"],
    ]);
  });

  it("covers the paired differences of a comparison, which verify too", async () => {
    const policies = [{ policy_endpoint: "acme/pole" }, { policy_endpoint: endpoint, horizon: 16 }];
    const { body } = await post("/v1/evaluate/compare", { ...POLE, policies, episodes: 1 });
    await eventually(
      async () => {
        const now = await app.call(`/v1/evaluate/compare/${body.id}`, undefined, { key: caller.key });
        expect(now.body.status).toBe("completed");
      },
      { timeout: 60_000, interval: 50 },
    );
    const made = await publish({ comparison_id: body.id });
    expect(made.status, made.text).toBe(201);
    const document = await documentOf(made.body.id);
    expect(document.evaluations[0].policy).toMatchObject({ kind: "model", model: "acme/pole", provider: "acme" });
    expect(document.evaluations.map(({ label }: { label: string }) => label).sort()).toEqual(["A", "B"]);
    expect(await recomputed(document, scenarios)).toEqual({ problems: [], replayed: 2, controls: 3 });
    const lie = changed(document, ["comparison", "pairs", 0, "mcnemar", "only_a"], 9);
    expect((await recomputed(lie, scenarios)).problems.join()).toMatch(/comparison.pairs differ/);
  });
});

/** Stores a published evaluation of 60 episodes from seed 0, as if it had been run. */
async function stored(
  org: string,
  scenario: { name: string; space?: string },
  { successes, ...facts }: { model: string; offeringId?: string; successes: number; attempts?: number },
): Promise<string> {
  const known = scenarios.get(scenario.name)!;
  const digest = digestOf(known, variantFor(known, scenario.space)!);
  const id = newId("pub");
  const outcomes = "1".repeat(successes) + "0".repeat(60 - successes);
  const result = {
    label: "",
    digest,
    revision: undefined,
    outcomes,
    rate: successes / 60,
    progress: 0.5,
    attempts: 1,
    offeringId: "",
    ...facts,
  };
  const publication = { id, kind: "evaluation" as const, subject: id, title: "" };
  await tx(app.sql, (tx) => addPublication(tx, org, publication, '{"object":"publication"}', [result]));
  return id;
}

describe("measured quality", () => {
  it("orders offerings by what independent publishers measured, and the preview names the evaluations", async () => {
    const { endpoint } = await openModel();
    const supply = (provider: string, precision: string) =>
      app.supply({ provider, model: "acme/judged", endpoint, precision });
    const precise = await supply("precise", "fp32");
    const able = await supply("able", "int8");
    const { key } = await app.caller();
    const asked = {
      ...{ model: "acme/judged:quality", action_space: "base_twist_2d" },
      observations: [{ proprio: [0, 0, 0] }],
    };
    const planned = async () => {
      const { body, text } = await app.call("/v1/routes/preview", asked, { key });
      expect(body.plan, text).toHaveLength(2);
      return body.plan as { offering_id: string; quality?: object[] }[];
    };
    const firstIs = (id: string) => eventually(async () => expect((await planned())[0]?.offering_id).toBe(id));
    await firstIs(precise);

    const drive = { name: "base-nav", space: "base_twist_2d" };
    const [owner] = await app.sql<{ orgId: string }[]>`select org_id from offering where id = ${able}`;
    await stored(owner!.orgId, drive, { model: "acme/judged", offeringId: able, successes: 60 });
    const other = { name: "base-nav", space: "waypoint_se2" };
    await stored(caller.org, other, { model: "acme/judged", offeringId: able, successes: 60 });
    const counted = await stored(caller.org, drive, { model: "acme/judged", offeringId: able, successes: 30 });
    await firstIs(able);
    const [first, second] = await planned();
    expect(first?.quality).toEqual([
      {
        publication_id: counted,
        scenario: "base-nav",
        successes: 30,
        episodes: 60,
        lower_bound: expect.closeTo(0.377, 3),
      },
    ]);
    expect(second?.quality ?? []).toEqual([]);

    await app.call(`/v1/publications/${counted}`, undefined, { key: caller.key, method: "DELETE" });
    await firstIs(precise);
  });
});

describe("a leaderboard", () => {
  it("shows ties as ties, widens intervals by attempts, and drops withdrawn results", async () => {
    const scenario = scenarios.get("arm-reach")!;
    const digest = digestOf(scenario, variantFor(scenario, undefined)!);
    const add = (model: string, successes: number, attempts = 1): Promise<string> =>
      stored(caller.org, { name: "arm-reach" }, { model, successes, attempts });
    const best = await add("acme/best", 58);
    await add("acme/near", 56);
    await add("acme/lucky", 57, 40);
    await add("acme/poor", 20);
    const board = () => app.call("/v1/leaderboards/arm-reach");
    const { status, body, text } = await board();
    expect(status, text).toBe(200);
    expect(body).toMatchObject({ object: "leaderboard", scenario: "arm-reach", digest });
    const rows: { model: string; rank: number; interval: { low: number; high: number } }[] = body.data;
    expect(rows.map(({ model, rank }) => [model, rank])).toEqual([
      ["acme/best", 1],
      ["acme/lucky", 1],
      ["acme/near", 1],
      ["acme/poor", 4],
    ]);
    expect(rows[1]!.interval.low).toBeLessThan(rows[2]!.interval.low);
    const strengths = body.data.map(({ strength }: { strength: { value: number } }) => strength.value);
    expect(strengths[0]).toBeGreaterThan(strengths[3]);
    await app.call(`/v1/publications/${best}`, undefined, { key: caller.key, method: "DELETE" });
    const withdrawn = await app.call("/v1/audit?action=publication.withdrawn", undefined, { key: caller.key });
    expect(withdrawn.body.data[0], withdrawn.text).toMatchObject({
      actor: expect.stringMatching(/^key_/),
      subject: best,
    });
    expect((await board()).body.data).toHaveLength(3);
    expect((await app.call("/v1/leaderboards/unknown")).status).toBe(404);
    expect((await app.call("/v1/leaderboards/arm-reach?action_space=unknown")).status).toBe(422);
  });
});
