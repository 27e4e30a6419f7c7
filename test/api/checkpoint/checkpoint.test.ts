/** Signed checkpoints: keys of makers, declarations that they signed, and callers who require that. */
import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import { ACT_DECLARATION, ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { robot } from "../../support/loop-client.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme", "other", "plain", "host", "host2");

let app: App;
let model: Model;
let maker: Caller;
let host: Caller;
let caller: Caller;
const [first, second] = [generateKeyPairSync("ed25519"), generateKeyPairSync("ed25519")];
const pemOf = (key: KeyObject) => key.export({ type: "spki", format: "pem" });

const DIGEST = `sha256:${"0f".repeat(32)}`;
const INPUT = { proprio: [{ dimension: 1 }], language: { need: "optional" } };
const BOUNDS = { lowest: [-10], highest: [10] };

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  [maker, host] = [await app.caller(0, { role: "supplier" }), await app.caller(0, { role: "supplier" })];
  caller = await app.caller(10);
  await app.sql`insert into model_owner ${app.sql({ owner: named.acme, org_id: maker.org })}`;
  for (const provider of [named.host, named.host2, named.plain]) {
    await app.call("/v1/supply/providers", { name: provider }, { key: host.key });
    await app.admin(`/v1/supply/providers/${provider}/review`, { standing: "verified", note: "known" });
  }
});

const keys = (body?: object, { key } = maker, method = body ? "POST" : "GET") =>
  app.call(`/v1/supply/owners/${named.acme}/keys`, body, { key, method });
const statement = async (body: object): Promise<string> => {
  const stated = {
    served_by: named.host,
    model: `${named.acme}/arm`,
    digest: DIGEST,
    input: INPUT,
    bounds: BOUNDS,
    ...body,
  };
  const { status, text, body: answer } = await app.call("/v1/supply/checkpoints/statement", stated, { key: host.key });
  if (status !== 200) throw new Error(text);
  return answer.statement;
};
const signatureOf = async (body: object = {}, { privateKey } = first): Promise<string> =>
  sign(null, Buffer.from(await statement(body)), privateKey).toString("base64");
const declare = (checkpoint: object | undefined, more: object = {}, provider = named.host) => {
  const body = {
    ...ACT_DECLARATION,
    model: `${named.acme}/arm`,
    endpoint: model.endpoint,
    input: INPUT,
    bounds: BOUNDS,
  };
  return app.call(`/v1/supply/providers/${provider}/models`, { ...body, checkpoint, ...more }, { key: host.key });
};
const offering = async (id: string) =>
  (await app.call(`/v1/supply/offerings/${id}`, undefined, { key: host.key })).body;
const live = async (answer: { body: { id: string } }): Promise<string> => {
  const { id } = answer.body;
  const { body } = await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key: host.key });
  expect(body.offering?.status, JSON.stringify(body)).toBe("live");
  return id;
};
const ACT = {
  model: `${named.acme}/arm`,
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0.5] }],
};
const act = (more: object = {}, key = caller.key) => app.call("/v1/act", { ...ACT, ...more }, { key });
const REQUIRED = { provider: { require_signed: true } };

describe("a maker's key", () => {
  it("can be added once by the organization that owns the name, which can list it", async () => {
    const { status, body } = await keys({ public_key: pemOf(first.publicKey), name: "release" });
    expect([status, body.owner, body.name, body.public_key]).toEqual([
      201,
      named.acme,
      "release",
      pemOf(first.publicKey),
    ]);
    expect((await keys({ public_key: pemOf(first.publicKey) })).body.id).toBe(body.id);
    expect((await keys()).body.data).toEqual([body]);
    const [act] = await app.sql`select action from audit where subject = ${body.id}`;
    expect(act?.action).toBe("maker_key.added");
  });

  it("cannot be added, read or removed by other organizations", async () => {
    const [known] = (await keys()).body.data;
    expect((await keys({ public_key: pemOf(second.publicKey) }, host)).status).toBe(404);
    expect((await keys(undefined, host)).status).toBe(404);
    const path = `/v1/supply/owners/${named.acme}/keys/${known.id}`;
    expect((await app.call(path, undefined, { key: host.key, method: "DELETE" })).status).toBe(404);
    expect(
      (
        await keys(
          { public_key: pemOf(second.publicKey) },
          { ...maker, key: await app.key(maker.org, { role: "viewer" }) },
        )
      ).status,
    ).toBe(403);
  });

  it.each([
    ["another curve", pemOf(generateKeyPairSync("ec", { namedCurve: "P-256" }).publicKey)],
    ["a private one", first.privateKey.export({ type: "pkcs8", format: "pem" })],
    ["no key", "ssh-ed25519 AAAA"],
  ])("is refused if it is %s", async (_, public_key) => {
    const { status, body } = await keys({ public_key });
    expect([status, body.error.param]).toEqual([422, "public_key"]);
  });

  it("is limited to eight", async () => {
    const pems = Array.from({ length: 8 }, () => pemOf(generateKeyPairSync("ed25519").publicKey));
    const answers = [];
    for (const public_key of pems) answers.push(await keys({ public_key }));
    expect(answers.map(({ status }) => status)).toEqual([...Array(7).fill(201), 422]);
    for (const { body, status } of answers)
      if (status === 201)
        await app.call(`/v1/supply/owners/${named.acme}/keys/${body.id}`, undefined, {
          key: maker.key,
          method: "DELETE",
        });
    expect((await keys()).body.data).toHaveLength(1);
  });
});

describe("a declaration with a checkpoint", () => {
  it.each<[string, () => Promise<string>, object?, string?]>([
    ["signed by another key", () => signatureOf({}, second)],
    ["with another digest", () => signatureOf({ digest: `sha256:${"00".repeat(32)}` })],
    ["with another input contract", () => signatureOf(), { input: { ...INPUT, proprio: [] } }],
    ["with other bounds", () => signatureOf(), { bounds: { ...BOUNDS, highest: [11] } }],
    ["without the bounds", () => signatureOf(), { bounds: undefined }],
    ["of another model", () => signatureOf(), { model: `${named.acme}/arm2` }],
    ["that was signed for another provider", () => signatureOf(), {}, named.host2],
  ])("%s is refused", async (_, signature, more, provider) => {
    const { status, body } = await declare({ digest: DIGEST, signature: await signature() }, more, provider);
    expect([status, body.error.param]).toEqual([422, "checkpoint.signature"]);
  });

  it("is refused if it is truncated, from a maker without keys, or lacks an input contract", async () => {
    const signature = await signatureOf();
    const cut = Buffer.from(signature, "base64").subarray(0, 63).toString("base64");
    expect((await declare({ digest: DIGEST, signature: cut })).body.error.param).toBe("checkpoint.signature");
    expect((await declare({ digest: "sha256:0f", signature })).body.error.param).toBe("checkpoint.digest");
    expect((await declare({ digest: DIGEST, signature }, { model: `${named.other}/arm` })).body.error.param).toBe(
      "checkpoint",
    );
    expect((await declare({ digest: DIGEST, signature }, { input: undefined })).body.error.param).toBe("input");
  });
});

describe("who requires signed checkpoints", () => {
  let signed: string;
  let makerKey: string;

  beforeAll(async () => {
    await live(await declare(undefined, { price_per_action_step: 0.00001 }, named.plain));
    signed = await live(await declare({ digest: DIGEST, signature: await signatureOf() }));
    makerKey = (await keys()).body.data[0].id;
  });

  it("sees whether an offering is signed", async () => {
    expect((await offering(signed)).checkpoint).toEqual({ digest: DIGEST, signed: true });
  });

  it("sees the revision of running control loops with a declared checkpoint", async () => {
    const signed = { model: `${named.acme}/revised` };
    const checkpoint = { digest: DIGEST, signature: await signatureOf(signed) };
    await live(await declare(checkpoint, signed));
    await live(await declare(undefined, { model: `${named.acme}/plain` }));
    for (const [name, revision] of [
      [`${named.acme}/revised`, DIGEST],
      [`${named.acme}/plain`, undefined],
    ] as const) {
      const { key } = await app.caller(1);
      const loop = robot(app, key, { model: name, actionSpace: "base_twist_2d", horizon: 2 });
      await loop.expect("opened");
      loop.observe(1);
      await loop.expect("chunk");
      const { body } = await app.call("/v1/loops", undefined, { key });
      expect(body.data).toMatchObject([{ model: name }]);
      expect(body.data[0].revision).toBe(revision);
      loop.halfClose();
      await loop.rest();
    }
  });

  it("is served only by signed offerings; other callers by the cheapest", async () => {
    expect((await act({ preference: "cheapest" })).body.route.provider).toBe(named.plain);
    expect((await act({ preference: "cheapest", ...REQUIRED })).body.route.provider).toBe(named.host);
  });

  it("may be an organization, workspace, key or preset, and a request cannot lift it", async () => {
    const lifted = { provider: { require_signed: false } };
    const org = await app.caller(10);
    const settings = (require_signed: boolean) =>
      app.call(`/v1/orgs/${org.org}/settings`, { require_signed }, { key: org.key, method: "PATCH" });
    expect((await settings(true)).body.require_signed).toBe(true);
    await eventually(async () => expect((await act(lifted, org.key)).body.route?.provider).toBe(named.host));
    const workspace = await app.call(
      `/v1/orgs/${org.org}/workspaces`,
      { name: "lab", settings: { require_signed: false } },
      org,
    );
    expect(workspace.body.settings.require_signed).toBe(true);
    await settings(false);
    const strict = await app.key(org.org, { role: "owner", require_signed: true });
    expect((await act({ preference: "cheapest", ...lifted }, strict)).body.route.provider).toBe(named.host);
    await eventually(async () =>
      expect((await act({ preference: "cheapest" }, org.key)).body.route.provider).toBe(named.plain),
    );
    await app.call("/v1/presets/strict", { provider: { require_signed: true } }, { key: org.key, method: "PUT" });
    expect((await act({ preset: "strict", preference: "cheapest", ...lifted }, org.key)).body.route.provider).toBe(
      named.host,
    );
  });

  it("cannot grant a key without it, and no key lifts it", async () => {
    const strict = await app.key(caller.org, { role: "owner", require_signed: true });
    const made = await app.call(`/v1/orgs/${caller.org}/keys`, { name: "inherits" }, { key: strict });
    expect([made.status, made.body.require_signed]).toEqual([201, true]);
    const wider = await app.call(
      `/v1/orgs/${caller.org}/keys`,
      { name: "wider", require_signed: false },
      { key: strict },
    );
    expect([wider.status, wider.body.error.message]).toEqual([403, expect.stringContaining("require_signed")]);
    await app.call(`/v1/orgs/${caller.org}/settings`, { require_signed: true }, { key: caller.key, method: "PATCH" });
    const lift = { require_signed: false };
    const settings = (key: string) => app.call(`/v1/orgs/${caller.org}/settings`, lift, { key, method: "PATCH" });
    expect((await settings(strict)).status).toBe(403);
    expect((await settings(caller.key)).status).toBe(200);
  });

  it("sees in the error why no offering is left and what to relax", async () => {
    const wanted = { ...REQUIRED.provider, only: [named.plain] };
    const { status, body } = await act({ provider: wanted });
    expect([status, body.error.code]).toEqual([409, "no_route_available"]);
    expect(body.error.dropped ?? body.error.details?.dropped ?? body.dropped).toEqual(
      expect.arrayContaining([expect.objectContaining({ provider: named.plain, reason: "unsigned" })]),
    );
  });

  it("loses a checkpoint when its maker removes the key, and regains it with the key", async () => {
    const path = `/v1/supply/owners/${named.acme}/keys/${makerKey}`;
    expect((await app.call(path, undefined, { key: maker.key, method: "DELETE" })).status).toBe(200);
    expect((await act(REQUIRED)).status).toBe(409);
    expect((await offering(signed)).checkpoint.signed).toBe(false);
    expect((await act()).status).toBe(200);
    makerKey = (await keys({ public_key: pemOf(first.publicKey) })).body.id;
    expect((await act(REQUIRED)).status).toBe(200);
  });

  it("loses it when the signed content changes or the name moves to another organization", async () => {
    await app.sql`update offering set bounds = null where id = ${signed}`;
    await eventually(async () => expect((await act(REQUIRED)).status).toBe(409));
    await app.sql`update offering set bounds = ${app.sql.json(BOUNDS)} where id = ${signed}`;
    await eventually(async () => expect((await act(REQUIRED)).status).toBe(200));
    await app.call(`/v1/supply/owners/${named.acme}`, { org_id: host.org }, { admin: ADMIN_TOKEN, method: "PUT" });
    await eventually(async () => expect((await act(REQUIRED)).status).toBe(409));
  });
});
