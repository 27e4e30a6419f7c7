/** GET /v1/audit and its check. */
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway({ publicSignup: true }), openModel()]);
});

const byOperator = { admin: ADMIN_TOKEN };
const read = (query: string, options: object = byOperator) => app.call(`/v1/audit${query}`, undefined, options);
type Row = { action: string; actor: string; subject: string; seq: number };

describe("200", () => {
  it("records each action of an organization once, with actor and call", async () => {
    const { org, key } = await app.caller(5);
    const { body: own } = await app.call("/v1/key", undefined, { key });
    const made = await app.call(`/v1/orgs/${org}/keys`, { name: "second", role: "viewer" }, { key });
    const grant = { amount_usd: 1, idempotency_key: "once" };
    for (let i = 0; i < 2; i++) await app.admin(`/v1/orgs/${org}/credits`, grant);
    const { status, body } = await read(`?org_id=${org}`);
    expect(status).toBe(200);
    expect(body.data.map(({ seq, actor, action }: Row) => [seq, actor, action])).toEqual([
      [5, "admin", "credits.added"],
      [4, own.id, "key.created"],
      [3, "admin", "key.created"],
      [2, "admin", "credits.added"],
      [1, "admin", "org.created"],
    ]);
    expect(body.data[1]).toEqual({
      id: expect.stringMatching(/^aud_/),
      org_id: org,
      seq: 4,
      created: expect.any(Number),
      actor: own.id,
      action: "key.created",
      subject: made.body.id,
      details: { name: "second", role: "viewer", environment: "simulation", parent_id: expect.stringMatching(/^key_/) },
      request_id: made.headers.get("x-request-id"),
      previous: body.data[2].hash,
      hash: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    expect(body.has_more).toBe(false);
    const check = await app.call(`/v1/audit/verify?org_id=${org}`, undefined, byOperator);
    expect(check.body).toEqual({ org_id: org, intact: true, faults: [] });
  });

  it("records signup and supply changes", async () => {
    const { body: org } = await app.call("/v1/orgs", { name: "Newcomer" });
    const signedUp = await read("", { key: org.key.key });
    expect(signedUp.body.data.map(({ actor, action }: Row) => [actor, action])).toEqual([
      ["public", "key.created"],
      ["public", "org.created"],
    ]);
    const offering = await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
    const [row] = await app.sql`select org_id from offering where id = ${offering}`;
    const { body } = await read(`?org_id=${row?.orgId}&limit=4`);
    expect(body.data.map(({ action }: Row) => action)).toEqual([
      "offering.verified",
      "offering.declared",
      "provider.reviewed",
      "provider.registered",
    ]);
    expect([body.data[0].subject, body.data[1].subject]).toEqual([offering, offering]);
  });

  it("pages with a cursor and filters by action, actor and subject", async () => {
    const { org } = await app.caller(0);
    for (let i = 0; i < 5; i++) await app.key(org);
    const seen: number[] = [];
    let cursor = "";
    do {
      const { body } = await read(`?org_id=${org}&limit=3${cursor && `&cursor=${cursor}`}`);
      seen.push(...body.data.map(({ seq }: Row) => seq));
      cursor = body.next_cursor ?? "";
    } while (cursor !== "");
    expect(seen).toEqual([7, 6, 5, 4, 3, 2, 1]);
    const count = async (query: string) => (await read(`?org_id=${org}&${query}`)).body.data.length;
    expect(await count("action=key.created")).toBe(6);
    expect(await count("actor=admin")).toBe(7);
    expect(await count("actor=nobody")).toBe(0);
    expect(await count(`subject=${org}`)).toBe(1);
  });

  it("is readable by owners and admins of that organization", async () => {
    const [mine, other] = [await app.caller(0), await app.caller(0)];
    for (const role of ["owner", "admin"])
      expect((await read("", { key: await app.key(mine.org, { role }) })).body.data[0].org_id).toBe(mine.org);
    for (const role of ["developer", "operator", "billing", "viewer", "supplier"])
      expect((await read("", { key: await app.key(mine.org, { role }) })).status, role).toBe(403);
    expect((await read(`?org_id=${other.org}`, { key: mine.key })).status).toBe(404);
    expect((await app.call(`/v1/audit/verify?org_id=${other.org}`, undefined, { key: mine.key })).status).toBe(404);
    expect((await read("?org_id=org_nobody")).status).toBe(404);
    expect((await read("", {})).status).toBe(401);
  });

  it("reports where a chain is broken", async () => {
    const { org } = await app.caller(1);
    await app.sql.unsafe(`
      alter table audit disable trigger audit_append_only;
      update audit set details = '{"amount_usd": 1000}' where org_id = '${org}' and seq = 2;
      alter table audit enable trigger audit_append_only`);
    const { body } = await app.call(`/v1/audit/verify?org_id=${org}`, undefined, byOperator);
    expect(body).toEqual({
      org_id: org,
      intact: false,
      faults: [{ org_id: org, seq: 2, fault: "the record was changed" }],
    });
  });
});

describe("422", () => {
  it("accepts a limit from 1 to 500, a valid cursor, and an organization from the operator", async () => {
    const { org } = await app.caller(0);
    for (const query of ["?limit=1", `?org_id=${org}&limit=0`, `?org_id=${org}&limit=501`, `?org_id=${org}&cursor=x`])
      expect((await read(query)).status, query).toBe(422);
  });
});
