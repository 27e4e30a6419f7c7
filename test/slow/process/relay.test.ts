/** Events on their way to NATS: at least once, one id, the order of each organisation; whatever happens to NATS. */
import { create, toBinary } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { dial } from "../../../src/events/nats/connect.ts";
import { NatsLink } from "../../../src/events/nats/link.ts";
import { Relay, type RelayDeps } from "../../../src/events/relay.ts";
import { Notifications } from "../../../src/store/database/notifications.ts";
import { connect, tx } from "../../../src/store/database/tx.ts";
import { appendEvents, carryEvents, unsentEvents } from "../../../src/store/events/outbox.ts";
import { openApp } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { changeStream, type Heard, hear, makeStream, openNats, startNats, streamed } from "../../support/nats.ts";

const forgotten: (() => Promise<unknown>)[] = [];
/** Closes it at the end of the test, before what was there earlier. */
function kept<T extends { close(): Promise<unknown> }>(thing: T): T {
  forgotten.unshift(() => thing.close());
  return thing;
}
const forget = async (): Promise<void> => {
  for (const close of forgotten.splice(0)) await close();
};
afterEach(forget);
afterAll(forget);

let db: FreshDatabase;
let warnings: string[];
beforeEach(async () => {
  db = kept(await freshDatabase());
  warnings = [];
});

let relays = 0;
async function relay(url: string, more: Partial<RelayDeps> = {}): Promise<Relay> {
  const notifications = kept(await Notifications.open(db.url));
  const replica = `replica_${String(relays++).padStart(4, "0")}`;
  return kept(new Relay({ sql: db.sql, notifications, url, replica, warn: (text) => warnings.push(text), ...more }));
}

let told = 0;
/** Writes events of an organisation, each in a transaction of its own; answers their ids. */
async function happen(orgId: string, count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, () => `evt_${String(told++).padStart(6, "0")}`);
  for (const id of ids) {
    const payload = toBinary(EventSchema, create(EventSchema, { id, orgId }));
    await tx(db.sql, (tx) => appendEvents(tx, [{ id, name: "key.created", orgId, payload }]));
  }
  return ids;
}
const nothingWaits = (): Promise<unknown> => eventually(async () => expect(await unsentEvents(db.sql, 1)).toEqual([]));

/** The ids of an organisation's events in the order in which each came first. */
const firsts = (heard: readonly Heard[], orgId: string): string[] => [
  ...new Set(heard.filter(({ event }) => event.orgId === orgId).map(({ event }) => event.id)),
];

describe("a NATS subscriber", () => {
  it("receives the event of an API call once, on its organization's subject, decoded by the generated schema", async () => {
    const nats = kept(await openNats());
    const app = kept(await openApp({ database: db, natsUrl: nats.url }));
    const org: string = (await app.admin("/v1/orgs", { name: "test" })).id;
    const { heard } = kept(await hear(nats.url, `limber.v1.${org}.>`));
    const { id } = await app.admin(`/v1/orgs/${org}/keys`, {});
    await eventually(() => expect(heard).toHaveLength(1));
    await nothingWaits();
    expect(heard).toMatchObject([
      {
        subject: `limber.v1.${org}.key.created`,
        contentType: "application/protobuf",
        messageId: heard[0]!.event.id,
        event: { orgId: org, apiVersion: "0.1.0", data: { case: "keyCreated", value: { keyId: id } } },
      },
    ]);
  });

  it("receives every event at least once from two replicas, and each organization's in order", async () => {
    const nats = kept(await startNats());
    const { heard } = kept(await hear(nats.url, "limber.v1.>"));
    const first = await relay(nats.url);
    await relay(nats.url);
    const orgs = ["org_A", "org_B", "org_C"];
    const early = await Promise.all(orgs.map((org) => happen(org, 150)));
    await first.close();
    const late = await Promise.all(orgs.map((org) => happen(org, 150)));
    await nothingWaits();
    await eventually(() => {
      for (const [i, org] of orgs.entries()) expect(firsts(heard, org)).toEqual([...early[i]!, ...late[i]!]);
    });
    expect(warnings).toEqual([]);
  });
});

describe("several relays", () => {
  const LEAD = "limber.replica.v1.lead.events";
  /** Longer than any test: whoever waits for it is not heard of. */
  const PATIENT = { patienceMs: 3_600_000 };
  /** Hears who says that it leads; `fake` says so itself, and does nothing else. */
  const leaders = async (url: string, fake?: string) => {
    const connection = kept(await dial(url));
    const heard: string[] = [];
    connection.subscribe(LEAD, {
      callback: (_, message) => {
        heard.push(message.string());
        if (fake !== undefined && message.string() === "?") connection.publish(LEAD, fake);
      },
    });
    await connection.flush();
    if (fake !== undefined) {
      const beats = setInterval(() => connection.publish(LEAD, fake), 200);
      kept({ close: async () => clearInterval(beats) });
    }
    return heard;
  };
  /** A connection of a relay's own, and what it was last asked and when, once it waits for no more. */
  const watched = async () => {
    const sql = connect(db.url, { max: 1 });
    kept({ close: () => sql.end() });
    const pid = await tx(sql, async (tx) => (await tx<{ pid: number }[]>`select pg_backend_pid() as pid`)[0]!.pid);
    const asked = async (): Promise<string | undefined> => {
      const [row] = await db.sql<{ asked: string }[]>`
        select query_start || query as asked from pg_stat_activity where pid = ${pid} and state = 'idle'`;
      return row?.asked;
    };
    return { sql, asked };
  };

  it("elect one that polls the database, and the next takes over when it leaves", async () => {
    const nats = kept(await startNats());
    const words = await leaders(nats.url);
    const first = await relay(nats.url, { replica: "replica_first", ...PATIENT });
    await eventually(() => expect(words).toContain("replica_first"));
    const { sql, asked } = await watched();
    const unasked = await asked();
    await relay(nats.url, { replica: "replica_second", sql, ...PATIENT });
    const before = await eventually(async () => {
      const once = await asked();
      expect([undefined, unasked]).not.toContain(once);
      return once;
    });
    await happen("org_A", 50);
    await nothingWaits();
    expect(await asked()).toBe(before);
    expect(words).not.toContain("replica_second");
    const writing = happen("org_A", 50);
    await first.close();
    await writing;
    await nothingWaits();
    expect(words).toContain("replica_second");
    expect(await asked()).not.toBe(before);
  });

  it("replace a leader that freezes", async () => {
    const nats = kept(await startNats());
    const words = await leaders(nats.url, "replica_fake");
    const { heard } = kept(await hear(nats.url, "limber.v1.>"));
    await relay(nats.url, { replica: "replica_next" });
    await eventually(() => expect(words).toContain("?"));
    const ids = await happen("org_A", 50);
    await nothingWaits();
    await eventually(() => expect(firsts(heard, "org_A")).toEqual(ids));
    expect(words).not.toContain("replica_next");
  });

  it("poll the database themselves if they cannot receive each other's messages", async () => {
    const nats = kept(await startNats(USERS));
    const url = nats.url.replace("//", "//alone:secret@");
    await relay(url, PATIENT);
    await relay(url, PATIENT);
    await happen("org_A", 100);
    await nothingWaits();
    expect(warnings).toEqual([]);
  });
});

describe("the outbox", () => {
  it("hands events to one relay at a time, and again to the next if that one fails", async () => {
    const ids = await happen("org_A", 3);
    const asked = Promise.withResolvers<void>();
    const carrying = Promise.withResolvers<void>();
    const first = carryEvents(db.sql, 10, () => {
      asked.resolve();
      return carrying.promise;
    });
    await asked.promise;
    const unwanted = vi.fn(async () => {});
    expect((await carryEvents(db.sql, 10, unwanted)).count).toBe(0);
    expect(unwanted).not.toHaveBeenCalled();
    carrying.reject(new Error("NATS is gone"));
    await expect(first).rejects.toThrow("NATS is gone");
    const carried: string[] = [];
    const carry = async (events: readonly { id: string }[]) => void carried.push(...events.map(({ id }) => id));
    const counts = [(await carryEvents(db.sql, 2, carry)).count, (await carryEvents(db.sql, 2, carry)).count];
    expect(counts).toEqual([2, 1]);
    expect(carried).toEqual(ids);
  });

  /** Writes an event, and keeps its transaction open until it's told how to end. */
  const begin = async (orgId: string) => {
    const id = `evt_${String(told++).padStart(6, "0")}`;
    const written = Promise.withResolvers<void>();
    const end = Promise.withResolvers<void>();
    const over = tx(db.sql, async (tx) => {
      await appendEvents(tx, [{ id, name: "key.created", orgId, payload: new Uint8Array() }]);
      written.resolve();
      await end.promise;
    });
    await Promise.race([written.promise, over]);
    const endBy = (how: () => void): Promise<unknown> => {
      how();
      return over.catch(() => {});
    };
    return { id, commit: () => endBy(end.resolve), undo: () => endBy(() => end.reject(new Error("undone"))) };
  };
  const carriedNow = async (): Promise<{ ids: string[]; heldBack: boolean }> => {
    const ids: string[] = [];
    const carry = async (events: readonly { id: string }[]) => void ids.push(...events.map(({ id }) => id));
    const { heldBack } = await carryEvents(db.sql, 10, carry);
    return { ids, heldBack };
  };

  it("keeps the order of an organization whose transactions overlap, and delays no other organization", async () => {
    const slow = await begin("org_A");
    const [later] = await happen("org_A", 1);
    const [other] = await happen("org_B", 1);
    expect(await carriedNow()).toEqual({ ids: [other], heldBack: true });
    await slow.commit();
    expect(await carriedNow()).toEqual({ ids: [slow.id, later], heldBack: false });
  });

  it("continues when an awaited transaction is rolled back", async () => {
    const nats = kept(await openNats());
    const { heard } = kept(await hear(nats.url, "limber.v1.org_C.>"));
    await relay(nats.url);
    const undone = await begin("org_C");
    const [later] = await happen("org_C", 1);
    expect((await carriedNow()).ids).toEqual([]);
    await undone.undo();
    await eventually(() => expect(firsts(heard, "org_C")).toEqual([later]));
  });
});

describe("a gateway without NATS", () => {
  it("fails no call, logs one line about waiting events, and relays all in order once NATS is available", async () => {
    const nats = kept(await startNats());
    await nats.kill();
    const app = kept(await openApp({ database: db, natsUrl: nats.url }));
    await relay(nats.url);
    const org: string = (await app.admin("/v1/orgs", { name: "test" })).id;
    const keys: string[] = [];
    for (let i = 0; i < 5; i++) keys.push((await app.admin(`/v1/orgs/${org}/keys`, {})).id);
    await eventually(() => expect(warnings).toHaveLength(1));
    await nats.start();
    await makeStream(nats.url);
    await nothingWaits();
    const rows = await db.sql<{ eventId: string }[]>`select event_id from outbox order by position`;
    expect(await streamed(nats.url)).toEqual(rows.map((row) => row.eventId));
    expect(rows).toHaveLength(keys.length);
    expect(warnings).toEqual([expect.stringContaining("events wait in the outbox")]);
  });
});

describe("NATS that is killed with kill -9 while events flow", () => {
  it("loses no event that its stream stored, and the stream has each once and in order", async () => {
    const nats = kept(await startNats());
    await makeStream(nats.url);
    await relay(nats.url);
    const expected: string[] = [];
    for (let round = 0; round < 4; round++) {
      const writing = happen("org_A", 120);
      await eventually(async () => expect((await streamed(nats.url)).length).toBeGreaterThan(expected.length));
      await nats.kill();
      expected.push(...(await writing));
      await nats.start();
      await nothingWaits();
    }
    expect(await streamed(nats.url)).toEqual(expected);
  });

  it("delivers all waiting events in order if its subscribers return before a relay does", async () => {
    const nats = kept(await startNats());
    const subscriber = kept(await hear(nats.url, "limber.v1.>"));
    const relaying = await relay(nats.url);
    const before = await happen("org_A", 20);
    await nothingWaits();
    await nats.kill();
    await relaying.close();
    const meanwhile = await happen("org_A", 250);
    await nats.start();
    await eventually(() => subscriber.connected());
    await relay(nats.url);
    const after = await happen("org_A", 20);
    await eventually(() => expect(firsts(subscriber.heard, "org_A")).toEqual([...before, ...meanwhile, ...after]));
  });
});

describe("an event that NATS does not accept", () => {
  it("waits if a stream refuses it, and follows in order when there is space", async () => {
    const nats = kept(await startNats());
    await makeStream(nats.url, { max_msgs: 2, discard: "new" });
    await relay(nats.url);
    const ids = await happen("org_A", 4);
    await eventually(() => expect(warnings).toHaveLength(1));
    expect(await streamed(nats.url)).toEqual(ids.slice(0, 2));
    await changeStream(nats.url, { max_msgs: 10, discard: "new" });
    await nothingWaits();
    expect(await streamed(nats.url)).toEqual(ids);
  });

  it("waits if the relay's user cannot publish it", async () => {
    const nats = kept(await startNats(USERS));
    await relay(nats.url.replace("//", "//mute:secret@"));
    await happen("org_A", 1);
    await eventually(() => expect(warnings).toHaveLength(1));
    expect(await unsentEvents(db.sql, 10)).toHaveLength(1);
    expect(warnings[0]).not.toContain("secret");
  });

  it("waits if the relay's user cannot receive the stream's acknowledgments", async () => {
    const nats = kept(await startNats(USERS));
    await makeStream(nats.url.replace("//", "//keeps:secret@"));
    await relay(nats.url.replace("//", "//deaf:secret@"));
    const [id] = await happen("org_A", 1);
    await eventually(() => expect(warnings).toHaveLength(1));
    expect((await unsentEvents(db.sql, 10)).map((event) => event.id)).toEqual([id]);
    expect(warnings[0]).not.toContain("secret");
  });

  it("is published without JetStream if the account has none", async () => {
    const nats = kept(await startNats(USERS));
    await relay(nats.url.replace("//", "//free:secret@"));
    await happen("org_A", 1);
    await nothingWaits();
    expect(warnings).toEqual([]);
  });
});

const USERS = `accounts { A { users = [
  { user: free, password: secret }
  { user: alone, password: secret, permissions: { publish: { deny: "limber.replica.>" } } }
  { user: mute, password: secret, permissions: { publish: { deny: "limber.>" } } }
] }, B { jetstream: enabled, users = [
  { user: keeps, password: secret }
  { user: deaf, password: secret, permissions: { subscribe: { deny: "_INBOX.>" } } }
] } }`;

describe("a JetStream stream", () => {
  /** Publishes events of one organisation over a connection of their own. */
  const publish = async (url: string, ids: readonly string[]): Promise<void> => {
    const link = kept(await NatsLink.dial(url));
    const event = { name: "key.created", orgId: "org_A", position: 0 };
    await link.publish(
      ids.map((id) => ({ ...event, id, payload: toBinary(EventSchema, create(EventSchema, { id, orgId: "org_A" })) })),
    );
  };

  it.each([
    ["new ones after old ones", ["a", "b"], ["a", "b", "c", "d"], ["a", "b", "c", "d"]],
    ["new ones between and before old ones", ["b", "d"], ["a", "b", "c", "d"], ["b", "d", "a", "c"]],
    ["old ones alone", ["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"]],
    ["new ones before an old one", ["c"], ["a", "b", "c"], ["c", "a", "b"]],
  ])("that stored part of a batch before stores the remainder: %s", async (_, before, batch, stored) => {
    const nats = kept(await startNats());
    await makeStream(nats.url);
    await publish(nats.url, before);
    await publish(nats.url, batch);
    expect(await streamed(nats.url)).toEqual(stored);
  });

  it("that keeps only some subjects preserves every subscriber's order", async () => {
    const nats = kept(await startNats());
    await makeStream(nats.url, { subjects: ["limber.v1.*.batch.>"] });
    const { heard } = kept(await hear(nats.url, "limber.v1.>"));
    const link = kept(await NatsLink.dial(nats.url));
    const ids = Array.from({ length: 30 }, (_, i) => `mixed-${i}`);
    await link.publish(
      ids.map((id, i) => ({
        id,
        orgId: "org_A",
        position: 0,
        name: i % 7 < 4 ? "key.created" : "batch.completed",
        payload: toBinary(EventSchema, create(EventSchema, { id, orgId: "org_A" })),
      })),
    );
    await eventually(() => expect(firsts(heard, "org_A")).toEqual(ids));
    expect(await streamed(nats.url)).toEqual(ids.filter((_, i) => i % 7 >= 4));
  });

  it("with other publishers accepts a batch", async () => {
    const nats = kept(await startNats());
    await makeStream(nats.url);
    await publish(nats.url, ["a"]);
    const others = Array.from({ length: 20 }, (_, i) => publish(nats.url, [`other-${i}`]));
    await publish(nats.url, ["b", "c", "d", "e"]);
    await Promise.all(others);
    expect((await streamed(nats.url)).filter((id) => id.length === 1)).toEqual(["a", "b", "c", "d", "e"]);
  });
});
