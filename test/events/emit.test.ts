/** What happened is written with its cause: in one transaction, once. */
import { fromBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Event, EventSchema } from "../../gen/limber/v1/event_pb.ts";
import { EVENT_NAMES } from "../../src/events/emit.ts";
import { type OutboxEvent, pruneUnsent, unsentEvents } from "../../src/store/events/outbox.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, type App } from "../support/app.ts";
import { setClock } from "../support/clocks.ts";
import { startModel } from "../support/model.ts";
import { SettableWall } from "../support/money.ts";
import { ownGateway } from "../support/world.ts";

let app: App;
beforeAll(async () => {
  app = await ownGateway({ publicSignup: true });
});
afterAll(() => app.close());

const outbox = async (org: string): Promise<{ row: OutboxEvent; event: Event }[]> =>
  (await unsentEvents(app.sql, 1_000))
    .filter(({ orgId }) => orgId === org)
    .map((row) => ({ row, event: fromBinary(EventSchema, row.payload) }));
const organisation = async (): Promise<string> => (await app.admin("/v1/orgs", { name: "test" })).id;
const keysOf = async (org: string): Promise<number> => (await app.sql`select from key where org_id = ${org}`).count;

describe("the event types", () => {
  it("are named by their case, with a dot for the first underscore", () => {
    const names = [...EVENT_NAMES.values()];
    for (const name of names) expect(name).toMatch(/^[a-z]+(\.[a-z_]+)?$/);
    expect(names).toEqual(expect.arrayContaining(["key.created", "offering.circuit_opened", "session.pin_lost"]));
  });
});

describe("an API call", () => {
  it("that creates a key causes one event, which names the key and contains no secret", async () => {
    const org = await organisation();
    setClock(new SettableWall(1_900_000_000_000));
    const made = await app.admin(`/v1/orgs/${org}/keys`, { name: "robot" });
    const events = await outbox(org);
    expect(events.map(({ row, event }) => [row.name, row.id, event.orgId, event.apiVersion, event.data])).toMatchObject(
      [["key.created", events[0]?.event.id, org, "0.1.0", { case: "keyCreated", value: { keyId: made.id } }]],
    );
    expect(events[0]?.event.createdAt).toBe(1_900_000_000);
    expect(Buffer.from(events[0]!.row.payload).toString("latin1")).not.toContain(made.key);
  });

  it("that signs up causes the event of its first key", async () => {
    const { status, body } = await app.call("/v1/orgs", { name: "newcomer" });
    expect(status).toBe(201);
    expect((await outbox(body.id)).map(({ event }) => event.data)).toMatchObject([{ value: { keyId: body.key.id } }]);
  });

  it("that verifies an offering causes one event with the probe's outcome", async () => {
    const model = await startModel();
    const { org, key } = await app.caller(0, { role: "supplier" });
    await app.call("/v1/supply/providers", { name: "telling" }, { key });
    const verify = async (endpoint: string) => {
      const path = "/v1/supply/providers/telling/models";
      const { body } = await app.call(path, { ...ACT_DECLARATION, model: "telling/base", endpoint }, { key });
      return (await app.call(`/v1/supply/offerings/${body.id}/verify`, {}, { key })).body;
    };
    const passed = await verify(model.endpoint);
    await model.close();
    const failed = await verify(model.endpoint);
    const told = (await outbox(org)).filter(({ row }) => row.name.startsWith("offering."));
    expect(told.map(({ row, event }) => [row.name, event.data.value])).toMatchObject([
      ["offering.verified", { offeringId: passed.offering.id, reportId: passed.report.id }],
      ["offering.rejected", { offeringId: failed.offering.id, reportId: failed.report.id }],
    ]);
  });

  it("that is refused causes no event", async () => {
    const org = await organisation();
    expect((await app.call(`/v1/orgs/${org}/keys`, {})).status).toBe(401);
    expect((await app.call(`/v1/orgs/${org}/keys`, { expires_at: 1 }, { admin: "wrong" })).status).toBeGreaterThan(400);
    expect(await outbox(org)).toEqual([]);
  });
});

describe("a cause and its event", () => {
  it("are both rolled back if the transaction cannot be committed", async () => {
    const org = await organisation();
    await app.sql`create function refuse_key() returns trigger language plpgsql as 'begin raise exception ''no''; end'`;
    await app.sql`create constraint trigger late after insert on key deferrable initially deferred
      for each row execute function refuse_key()`;
    const { status } = await app.call(`/v1/orgs/${org}/keys`, {}, { admin: ADMIN_TOKEN });
    await app.sql`drop trigger late on key`;
    expect([status, await keysOf(org), await outbox(org)]).toEqual([500, 0, []]);
  });

  it("are both rolled back if the event cannot be written", async () => {
    const org = await organisation();
    await app.sql`alter table outbox add constraint closed check (false) not valid`;
    const { status } = await app.call(`/v1/orgs/${org}/keys`, {}, { admin: ADMIN_TOKEN });
    await app.sql`alter table outbox drop constraint closed`;
    expect([status, await keysOf(org), await outbox(org)]).toEqual([500, 0, []]);
  });
});

describe("without NATS,", () => {
  it("events stay in the outbox, and are deleted after the configured days", async () => {
    const { org } = await app.caller(0);
    const [kept] = await outbox(org);
    await app.caller(0);
    await app.sql`update outbox set created = now() - interval '8 days' where event_id = ${kept!.row.id}`;
    expect(await pruneUnsent(app.sql, 7)).toBe(1);
    expect(await outbox(org)).toEqual([]);
    expect((await unsentEvents(app.sql, 1_000)).length).toBeGreaterThan(0);
  });
});
