import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Reason } from "../../src/errors.ts";
import { createOrg } from "../../src/store/account/orgs.ts";
import { Notifications } from "../../src/store/database/notifications.ts";
import { tx } from "../../src/store/database/tx.ts";
import { appendEvents, markSent, pruneEvents, unsentEvents } from "../../src/store/events/outbox.ts";
import {
  addModel,
  createOffering,
  createProvider,
  findOffering,
  findProvider,
  type ModelRecord,
  type OfferingDeclaration,
  putModels,
  setOfferingStatus,
} from "../../src/store/supply/supply.ts";
import { SupplyReader } from "../../src/store/supply/supply-reader.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

let db: FreshDatabase;
let orgId: string;
let providerId: string;
beforeAll(async () => {
  db = await freshDatabase();
  orgId = (await createOrg(db.sql, { name: "partner" })).id;
  const provider = {
    orgId,
    name: "partner",
    displayName: "Partner",
    contactEmail: null,
    homepage: null,
    regions: ["eu"],
    retainsFrames: false,
  };
  providerId = (await createProvider(db.sql, provider)).id;
  await putModels(db.sql, [model]);
});
afterAll(() => db.close());

const model: ModelRecord = {
  slug: "owner/policy",
  name: "Policy",
  summary: "Picks things up.",
  limits: "One arm.",
  kind: "policy",
  domain: "embodied",
  family: "vla",
  tier: "servable",
  era: "current",
  contracts: ["act"],
  actionSpaces: ["joint_pos_7"],
  embodiments: ["arm"],
  featured: true,
};

const declaration = (): OfferingDeclaration => ({
  orgId,
  providerId,
  model: model.slug,
  runtime: "openpi-ws",
  bounds: null,
  input: null,
  actions: null,
  checkpoint: null,
  ownRetention: null,
  undeclared: [],
  endpoint: "ws://policy.example.com:8000",
  hardware: "A100-40GB",
  contracts: ["act", "predict"],
  actionSpaces: ["joint_pos_7"],
  actionDim: 7,
  embodiments: ["arm"],
  precision: "bf16",
  region: "eu-west",
  priceFrameNano: 250_000,
  priceStepNano: 100_000,
  priceTokenNano: null,
  priceEpisodeNano: null,
  maxHorizon: 64,
  dtMs: 50,
  profile: {
    preset: "openpi/droid",
    frames: [{ camera: "", key: "a.b", width: 224, height: 224 }],
    note: 'quotes " and \\',
  },
  authType: "bearer",
  authSecret: new Uint8Array([0, 1, 255]),
  p50Ms: 40.5,
  p95Ms: null,
  unitsPerS: 100,
  uptime30d: 0.995,
  timeoutS: 30,
  coldTimeoutS: null,
  costNanoPerSecond: 700_000,
  scaledownS: 0,
  parameters: ["seed"],
  note: "radians",
});

describe("stored supply", () => {
  it("is read as declared, pending, with its provider's name and settings", async () => {
    const offering = await createOffering(db.sql, declaration());
    expect(offering).toMatchObject({
      ...declaration(),
      authSecret: Buffer.from([0, 1, 255]),
      status: "pending",
      report: null,
    });
    expect(offering).toMatchObject({ provider: "partner", retainsFrames: false });
    expect(await findOffering(db.sql, offering.id)).toEqual(offering);
    const supply = await new SupplyReader(db.sql).read();
    expect(supply.offerings).toContainEqual(offering);
    expect(supply.models).toEqual([model]);
    expect(supply.providers).toMatchObject([{ name: "partner", regions: ["eu"], orgId }]);
  });

  it("has no two providers of one name", async () => {
    const again = {
      orgId,
      name: "partner",
      displayName: "",
      contactEmail: null,
      homepage: null,
      regions: [],
      retainsFrames: true,
    };
    await expect(createProvider(db.sql, again)).rejects.toMatchObject({ reason: Reason.ALREADY_EXISTS });
    expect(await findProvider(db.sql, "partner")).toMatchObject({ displayName: "Partner" });
    expect(await findProvider(db.sql, "nobody")).toBeUndefined();
  });

  it("changes an offering's status only from the named statuses, once under concurrent calls", async () => {
    const { id } = await createOffering(db.sql, declaration());
    const moves = Array.from({ length: 8 }, () =>
      setOfferingStatus(db.sql, id, { from: ["pending"], to: "verifying" }),
    );
    expect((await Promise.all(moves)).filter((moved) => moved !== undefined)).toHaveLength(1);
    const report = { passed: true, checks: [{ name: "reachable", passed: true }] };
    expect(await setOfferingStatus(db.sql, id, { from: ["verifying"], to: "live", report })).toMatchObject({
      status: "live",
      report,
    });
    expect(await setOfferingStatus(db.sql, "off_none", { from: ["live"], to: "removed" })).toBeUndefined();
  });

  it("excludes removed offerings", async () => {
    const { id } = await createOffering(db.sql, declaration());
    await setOfferingStatus(db.sql, id, { from: ["pending"], to: "removed" });
    expect((await new SupplyReader(db.sql).read()).offerings.map((offering) => offering.id)).not.toContain(id);
  });

  it("is read again in its current state, and unchanged parts are the identical objects", async () => {
    const reader = new SupplyReader(db.sql);
    const made = await Promise.all(Array.from({ length: 3 }, () => createOffering(db.sql, declaration())));
    const [kept, moved, gone] = made.map(({ id }) => id) as [string, string, string];
    const byId = ({ offerings }: Awaited<ReturnType<SupplyReader["read"]>>) =>
      new Map(offerings.map((offering) => [offering.id, offering]));
    const before = await reader.read();
    await setOfferingStatus(db.sql, moved, { from: ["pending"], to: "verifying" });
    await setOfferingStatus(db.sql, gone, { from: ["pending"], to: "removed" });
    const { id: fresh } = await createOffering(db.sql, declaration());
    const after = await reader.read();
    expect(after).toEqual(await new SupplyReader(db.sql).read());
    expect(byId(after).get(kept)).toBe(byId(before).get(kept));
    expect(byId(after).get(moved)).toMatchObject({ status: "verifying" });
    expect([byId(after).has(gone), byId(after).has(fresh)]).toEqual([false, true]);
    for (const [i, model] of after.models.entries()) expect(model).toBe(before.models[i]);

    // What a provider says of itself is part of each of its offerings.
    await db.sql`update provider set retains_frames = not retains_frames where name = 'partner'`;
    const last = await reader.read();
    expect(last).toEqual(await new SupplyReader(db.sql).read());
    expect(byId(last).get(kept)?.retainsFrames).toBe(!byId(after).get(kept)?.retainsFrames);
    await db.sql`update provider set retains_frames = not retains_frames where name = 'partner'`;
  });

  it("is the identical object if a row was rewritten without changes, and another after a change", async () => {
    const reader = new SupplyReader(db.sql);
    await createOffering(db.sql, declaration());
    const before = await reader.read();
    await db.sql`update offering set note = note`;
    await db.sql`update model set summary = summary`;
    const same = await reader.read();
    expect(same).toEqual(before);
    for (const [i, each] of same.offerings.entries()) expect(each).toBe(before.offerings[i]);
    for (const [i, each] of same.models.entries()) expect(each).toBe(before.models[i]);
    for (const [i, each] of same.providers.entries()) expect(each).toBe(before.providers[i]);
    await db.sql`update model set summary = 'Puts things down.' where slug = ${model.slug}`;
    const after = await reader.read();
    expect(after.models).toContainEqual({ ...model, summary: "Puts things down." });
    expect(after).toEqual(await new SupplyReader(db.sql).read());
    await putModels(db.sql, [model]);
  });

  it("replaces catalog models, and keeps a known model when another declares it", async () => {
    await putModels(db.sql, [{ ...model, slug: "owner/other", summary: "old" }]);
    await putModels(db.sql, [{ ...model, slug: "owner/other", summary: "new", featured: false }]);
    await addModel(db.sql, { ...model, slug: "owner/other", summary: "declared" });
    await addModel(db.sql, { ...model, slug: "owner/third" });
    const { models } = await new SupplyReader(db.sql).read();
    expect(models.map(({ slug, summary }) => [slug, summary]).sort()).toEqual([
      ["owner/other", "new"],
      ["owner/policy", "Picks things up."],
      ["owner/third", "Picks things up."],
    ]);
  });

  it("notifies every replica of a committed change, and of none that is rolled back", async () => {
    const notifications = await Notifications.open(db.url);
    let heard = 0;
    notifications.on("supply_changed", () => heard++);
    const failed = tx(db.sql, async (tx) => {
      await createOffering(tx, declaration());
      throw new Error("no");
    });
    await expect(failed).rejects.toThrow("no");
    await createOffering(db.sql, declaration());
    await expect.poll(() => heard).toBe(1);
    await notifications.close();
  });
});

describe("the outbox", () => {
  const event = (id: string) => ({ id, name: "offering.verified", orgId, payload: new Uint8Array([0, 10, 255]) });

  it("returns events in order until they are marked as sent, and none of a transaction that was rolled back", async () => {
    await tx(db.sql, (tx) => appendEvents(tx, [event("evt_1"), event("evt_2")]));
    await tx(db.sql, async (tx) => {
      await appendEvents(tx, [event("evt_3")]);
      throw new Error("no");
    }).catch(() => {});
    const events = await unsentEvents(db.sql, 10);
    expect(
      events.map(({ id, name, orgId, payload }) => ({ id, name, orgId, payload: new Uint8Array(payload) })),
    ).toEqual([event("evt_1"), event("evt_2")]);
    await markSent(db.sql, [events[0]!.position]);
    expect((await unsentEvents(db.sql, 10)).map(({ id }) => id)).toEqual(["evt_2"]);
    await db.sql`update outbox set sent_at = now() - interval '8 days' where sent_at is not null`;
    expect(await pruneEvents(db.sql, 7)).toBe(1);
  });

  it("notifies the relays", async () => {
    const notifications = await Notifications.open(db.url);
    let heard = 0;
    notifications.on("outbox", () => heard++);
    await appendEvents(db.sql, [event("evt_4")]);
    await expect.poll(() => heard).toBe(1);
    await notifications.close();
  });
});
