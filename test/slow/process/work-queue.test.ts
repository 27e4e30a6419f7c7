/** Jobs and webhooks by messages of a real nats-server: none is lost, none is done twice, and the database alone does where NATS does not. */
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import type { NatsConnection } from "nats";
import { afterEach, describe, expect, it } from "vitest";
import { dial } from "../../../src/events/nats/connect.ts";
import { WorkFeeder, WorkQueue } from "../../../src/events/work-queue.ts";
import { newId } from "../../../src/ids.ts";
import { type JobWork, Worker } from "../../../src/jobs/worker.ts";
import { Notifications } from "../../../src/store/database/notifications.ts";
import { tx } from "../../../src/store/database/tx.ts";
import { claimNamed, noteFailed } from "../../../src/store/events/webhooks.ts";
import { advance, createJob } from "../../../src/store/jobs/jobs.ts";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { closing } from "../../support/closing.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type Nats, startNats } from "../../support/nats.ts";
import { freePort } from "../../support/owners.ts";
import { type Receiver, startReceiver } from "../../support/receiver.ts";

const { closers, kept, closeAll } = closing();
afterEach(closeAll);

const nats = async (config?: string): Promise<Nats> => kept(await startNats(config));
const receiver = async (): Promise<Receiver> => kept(await startReceiver());
const openWorker = async (natsUrl: string | undefined, database?: FreshDatabase): Promise<App> =>
  kept(await openApp({ natsUrl, roles: new Set(["api", "worker"]), ...(database && { database }) }));

const STREAM = "LIMBER_WORK";
async function connected(url: string): Promise<NatsConnection> {
  return kept(await dial(url));
}
/** How many messages wait or are being worked on; undefined where there is no stream. */
async function waiting(connection: NatsConnection): Promise<number | undefined> {
  const manager = await jetstreamManager(connection);
  return manager.streams.info(STREAM).then(
    ({ state }) => state.messages,
    () => undefined,
  );
}
/** A message that no gateway sent. */
const forge = async (connection: NatsConnection, kind: string, text: string): Promise<void> =>
  void (await jetstream(connection).publish(`limber.work.v1.${kind}`, text));

async function registered(app: App, { key }: Caller, to: Receiver): Promise<string> {
  const { body } = await app.call("/v1/webhooks", { url: to.url, events: ["key.created"] }, { key });
  return body.id;
}
const happen = (app: App, { org }: Caller) => app.key(org, { role: "viewer" });
const countOf = (to: Receiver, type = "key.created"): number =>
  to.received.filter(({ json }) => json.type === type).length;
const states = async (app: App): Promise<string[]> =>
  (await app.sql<{ state: string }[]>`select state from webhook_delivery order by position`).map(({ state }) => state);

describe("webhooks on the work queue", () => {
  it("are delivered once each by messages over two workers, and no message remains", async () => {
    const { url } = await nats();
    const one = await openWorker(url);
    await openWorker(url, one.database);
    const connection = await connected(url);
    await eventually(async () => expect(await waiting(connection)).toBe(0));
    const [to, caller] = [await receiver(), await one.caller()];
    await registered(one, caller, to);
    for (let i = 0; i < 20; i++) await happen(one, caller);
    await eventually(async () => expect(new Set(await states(one))).toEqual(new Set(["delivered"])));
    expect(countOf(to)).toBe(20);
    await eventually(async () => expect(await waiting(connection)).toBe(0));
    const [{ count } = { count: 0 }] = await one.sql<{ count: number }[]>`
      select count(*)::int as count from webhook_delivery where queued_until is not null`;
    expect(count).toBe(21);
  });

  it("are retried by redelivery, whose message waits with its row", async () => {
    const { url } = await nats();
    const app = await openWorker(url);
    const [to, caller, connection] = [await receiver(), await app.caller(), await connected(url)];
    await eventually(async () => expect(await waiting(connection)).toBe(0));
    await registered(app, caller, to);
    await eventually(() => expect(countOf(to, "ping")).toBe(1));
    to.answer((_, response) => response.writeHead(to.received.length < 3 ? 503 : 204).end());
    await happen(app, caller);
    await eventually(() => expect(countOf(to)).toBe(1));
    await eventually(async () => {
      const [row] = await app.sql<{ after: number }[]>`
        select extract(epoch from queued_until - due)::int as after from webhook_delivery where state = 'pending' and tries = 1 and claimed_until is null`;
      expect(row?.after).toBe(120);
    });
    expect(await waiting(connection)).toBe(1);
    await eventually(async () => expect(await states(app)).toEqual(["delivered", "delivered"]));
    expect(countOf(to)).toBe(2);
    await eventually(async () => expect(await waiting(connection)).toBe(0));
  });

  it("ignore and remove messages of finished or unknown deliveries and without content", async () => {
    const { url } = await nats();
    const app = await openWorker(url);
    const [to, caller, connection] = [await receiver(), await app.caller(), await connected(url)];
    await eventually(async () => expect(await waiting(connection)).toBe(0));
    const hook = await registered(app, caller, to);
    await eventually(async () => expect(await states(app)).toEqual(["delivered"]));
    const [{ id } = { id: "" }] = await app.sql<{ id: string }[]>`select id from webhook_delivery`;
    for (const text of [
      `${id} ${hook}`,
      `dlv_gone ${hook}`,
      "",
      " ",
      "\u0000 \u0000",
      "x".repeat(10_000),
      `${id} ${hook}`,
    ])
      await forge(connection, "webhook", text);
    for (const text of ["job_gone", "", "\u0000", "x".repeat(10_000)]) await forge(connection, "batch", text);
    await eventually(async () => expect(await waiting(connection)).toBe(0));
    expect(to.received).toHaveLength(1);
    await happen(app, caller);
    await eventually(() => expect(countOf(to)).toBe(1));
  });

  it("fail for an event that cannot be written as JSON like any other attempt, and delay no other", async () => {
    const { url } = await nats();
    const app = await openWorker(url);
    const [to, caller] = [await receiver(), await app.caller()];
    const hook = await registered(app, caller, to);
    await app.sql`insert into webhook_delivery (hook_id, event_id, event, payload) values (${hook}, 'evt_bad', 'key.created', '\\xff')`;
    await happen(app, caller);
    await eventually(() => expect(countOf(to)).toBe(1));
    await eventually(async () => {
      const [row] = await app.sql`select last_error, tries from webhook_delivery where event_id = 'evt_bad'`;
      expect(row).toMatchObject({ lastError: "unreadable", tries: 1 });
    });
  });

  it("write no failure of an expired claim over the next claim's result", async () => {
    const app = kept(await openApp());
    const [to, caller] = [await receiver(), await app.caller()];
    await registered(app, caller, to);
    const [{ id } = { id: "" }] = await app.sql<{ id: string }[]>`select id from webhook_delivery`;
    const claim = () => claimNamed(app.sql, { taken: [], ids: [id] });
    const [first] = (await claim()).claimed;
    const { claimed, others } = await claim();
    expect(claimed).toEqual([]);
    expect(others.get(id)).toBeGreaterThan(50_000);
    await app.sql`update webhook_delivery set claimed_until = now()`;
    const [second] = (await claim()).claimed;
    const failed = { status: 500, error: "bad_status", retryMs: 5_000 };
    expect(await tx(app.sql, (tx) => noteFailed(tx, first!, failed))).toBeUndefined();
    expect(await app.sql`select from webhook_delivery where claimed_until > now() and tries = 2`).toHaveLength(1);
    expect(await tx(app.sql, (tx) => noteFailed(tx, second!, failed))).toBe(0);
    expect(await app.sql`select from webhook where consecutive_failures = 1`).toHaveLength(1);
  });

  it("to an unresponsive target delay neither another target's nor another worker", async () => {
    const { url } = await nats();
    const one = await openWorker(url);
    await openWorker(url, one.database);
    const [slow, good, caller] = [await receiver(), await receiver(), await one.caller()];
    slow.answer(() => {});
    await registered(one, caller, slow);
    for (let i = 0; i < 40; i++) await happen(one, caller);
    await registered(one, caller, good);
    await happen(one, caller);
    await eventually(() => expect(countOf(good)).toBe(1));
  });
});

describe("NATS as work queue", () => {
  it("that is unavailable at startup is replaced by the database, and carries the remaining work once it is available", async () => {
    const server = await nats();
    await server.kill();
    const app = await openWorker(server.url);
    const [to, caller] = [await receiver(), await app.caller()];
    await registered(app, caller, to);
    await happen(app, caller);
    await eventually(() => expect(countOf(to)).toBe(1));
    await server.start();
    const connection = await connected(server.url);
    await eventually(async () => expect(await waiting(connection)).toBe(0));
    await eventually(async () => {
      await happen(app, caller);
      const rows = await app.sql`select from webhook_delivery where queued_until is not null and state = 'delivered'`;
      expect(rows.length).toBeGreaterThan(0);
    });
    await eventually(async () => expect(await waiting(connection)).toBe(0));
    await eventually(async () => expect(countOf(to)).toBe((await states(app)).length - 1));
  });

  it("that dies and returns empty receives all waiting work again", async () => {
    const server = await nats();
    const app = await openWorker(server.url);
    const [to, caller, connection] = [await receiver(), await app.caller(), await connected(server.url)];
    await eventually(async () => expect(await waiting(connection)).toBe(0));
    await registered(app, caller, to);
    await server.kill();
    await happen(app, caller);
    await eventually(() => expect(countOf(to)).toBe(1));
    await server.wipe();
    await server.start();
    const again = await connected(server.url);
    await eventually(async () => expect(await waiting(again)).toBe(0));
    await happen(app, caller);
    await eventually(() => expect(countOf(to)).toBe(2));
  });

  it("whose stream is deleted during work gets another stream with the waiting work", async () => {
    const { url } = await nats();
    const app = await openWorker(url);
    const [to, caller, connection] = [await receiver(), await app.caller(), await connected(url)];
    await eventually(async () => expect(await waiting(connection)).toBe(0));
    to.answer((_, response) => response.writeHead(503).end());
    await registered(app, caller, to);
    await eventually(async () =>
      expect(await app.sql`select from webhook_delivery where last_status = 503`).toHaveLength(1),
    );
    await (await jetstreamManager(connection)).streams.delete(STREAM);
    to.answer((_, response) => response.writeHead(204).end());
    await happen(app, caller);
    await eventually(async () => expect(await states(app)).toEqual(["delivered", "delivered"]));
    await eventually(async () => expect(await waiting(connection)).toBe(0));
  });

  it("whose stream is purged gets the lost work again after its timeout", async () => {
    const { url } = await nats();
    const app = await openWorker(url);
    const [to, caller, connection] = [await receiver(), await app.caller(), await connected(url)];
    await eventually(async () => expect(await waiting(connection)).toBe(0));
    to.answer((_, response) => response.writeHead(503).end());
    await registered(app, caller, to);
    await eventually(async () =>
      expect(await app.sql`select from webhook_delivery where last_status = 503`).toHaveLength(1),
    );
    await eventually(async () => expect(await waiting(connection)).toBe(1));
    await (await jetstreamManager(connection)).streams.purge(STREAM);
    to.answer((_, response) => response.writeHead(204).end());
    await app.sql`update webhook_delivery set due = now(), queued_until = now()`;
    await happen(app, caller);
    await eventually(async () => expect(await states(app)).toEqual(["delivered", "delivered"]));
  });

  it.each([
    ["the account has no JetStream", ""],
    [
      "its user cannot create a stream",
      "jetstream: enabled, ",
      `permissions { publish { allow: ["limber.>", "_INBOX.>", "$JS.API.INFO"] } }`,
    ],
    [
      "its user cannot receive messages",
      "jetstream: enabled, ",
      `permissions { publish { allow: ["limber.>", "$JS.API.INFO", "$JS.API.STREAM.>", "$JS.API.CONSUMER.DURABLE.>", "$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.INFO.>"] } }`,
    ],
  ])("is replaced by the database if %s", async (_, enabled, permissions = "") => {
    const { url } = await nats(
      `accounts { A { ${enabled}users = [ { user: limited, password: secret, ${permissions} } ] } }`,
    );
    const app = await openWorker(url.replace("//", "//limited:secret@"));
    const [to, caller] = [await receiver(), await app.caller()];
    await registered(app, caller, to);
    await eventually(() => expect(countOf(to, "ping")).toBe(1));
    for (let i = 1; i <= 5; i++) {
      await happen(app, caller);
      await eventually(() => expect(countOf(to)).toBe(i));
    }
  });
});

describe("a leaf node with its own JetStream", () => {
  it("is bypassed if the address names the hub's domain: work waits only in the hub's stream", async () => {
    const port = await freePort();
    const hub = kept(await startNats(`server_name: hub\nleafnodes { listen: "127.0.0.1:${port}" }`, { domain: "hub" }));
    const leaf = kept(
      await startNats(
        `server_name: leaf\nleafnodes { reconnect: 1, remotes: [ { urls: ["nats-leaf://127.0.0.1:${port}"] } ] }`,
        { domain: "leaf" },
      ),
    );
    const open = (url: string, replica: string): WorkQueue =>
      kept(new WorkQueue({ url, replica, copies: 1, warn: () => {} }));
    const queues = [open(hub.url, "a"), open(`${leaf.url}?domain=hub`, "b")] as const;
    await eventually(() => expect(queues.map(({ isUp }) => isUp)).toEqual([true, true]));
    expect(await queues[1].born()).toBe(await queues[0].born());
    await queues[1].send([{ kind: "batch", text: "job_1", name: "job_1" }]);
    const [atHub, atLeaf] = [await connected(hub.url), await connected(leaf.url)];
    expect(await waiting(atHub)).toBe(1);
    expect(await waiting(atLeaf)).toBeUndefined();
    // Without the domain its own JetStream is the one that answers.
    const own = open(leaf.url, "c");
    await eventually(() => expect(own.isUp).toBe(true));
    expect(await own.born()).not.toBe(await queues[0].born());
  });
});

describe("jobs on the work queue", () => {
  let database: FreshDatabase;
  const warnings: string[] = [];
  /** A worker of jobs alone, with a queue of its own. */
  async function begin(
    url: string | undefined,
    evaluation: JobWork,
    atOnce = 1,
  ): Promise<{ queue: WorkQueue | undefined }> {
    const notifications = kept(await Notifications.open(database.url));
    const replica = newId("replica");
    const warn = (text: string): void => void warnings.push(text);
    const queue = url === undefined ? undefined : kept(new WorkQueue({ url, replica, copies: 1, warn }));
    if (queue) {
      await eventually(() => expect(queue.isUp).toBe(true));
      kept(new WorkFeeder({ sql: database.sql, notifications, queue, warn }));
    }
    const of = queue && ({ of: queue, kind: "evaluation" } as const);
    kept(
      new Worker({ sql: database.sql, notifications, owner: replica, work: { evaluation }, atOnce, queue: of, warn }),
    );
    return { queue };
  }
  const asked = (orgId: string): Promise<string> =>
    tx(database.sql, (tx) =>
      createJob(tx, {
        kind: "evaluation",
        orgId,
        keyId: "key_1",
        workspaceId: undefined,
        request: {},
        items: [],
        lifeS: 3600,
      }),
    );
  const start = async (): Promise<void> => {
    database = kept(await freshDatabase());
  };

  it("run once each on workers with one leader, and no message remains", async () => {
    await start();
    const { url } = await nats();
    const connection = await connected(url);
    const done: string[] = [];
    const work: JobWork = async (job) => {
      await tx(database.sql, (tx) => advance(tx, job, "completed"));
      done.push(job.id);
    };
    const queues = [await begin(url, work), await begin(url, work), await begin(url, work)].map(({ queue }) => queue!);
    await eventually(() => expect(queues.filter(({ leads }) => leads)).toHaveLength(1));
    const ids: string[] = [];
    for (let i = 0; i < 30; i++) ids.push(await asked(`org_${i % 3}`));
    await eventually(() => expect(done.toSorted()).toEqual(ids.toSorted()));
    await eventually(async () => expect(await waiting(connection)).toBe(0));
  });

  it("move to the next worker if the leader exits mid-job", async () => {
    await start();
    const { url } = await nats();
    const began: string[] = [];
    const first = await begin(url, async (job, { lost }) => {
      began.push(job.id);
      await new Promise((_, reject) => lost.addEventListener("abort", () => reject(lost.reason)));
    });
    await eventually(() => expect(first.queue!.leads).toBe(true));
    const id = await asked("org_a");
    await eventually(() => expect(began).toEqual([id]));
    const leave = closers.splice(-4);
    const done: string[] = [];
    const second = await begin(url, async (job) => {
      await tx(database.sql, (tx) => advance(tx, job, "completed"));
      done.push(job.id);
    });
    for (const close of leave.reverse()) await close();
    await eventually(() => expect(done).toEqual([id]));
    await eventually(() => expect(second.queue!.leads).toBe(true));
    await asked("org_a");
    await eventually(() => expect(done).toHaveLength(2));
  });

  it("of an organization at its limit wait without repeated queries, and another organization's are claimed meanwhile", async () => {
    await start();
    const { url } = await nats();
    const running: string[] = [];
    const over = Promise.withResolvers<void>();
    const work: JobWork = async (job) => {
      running.push(job.orgId);
      await over.promise;
      await tx(database.sql, (tx) => advance(tx, job, "completed"));
    };
    await begin(url, work, 2);
    for (let i = 0; i < 5; i++) await asked("org_a");
    await eventually(() => expect(running).toEqual(["org_a", "org_a"]));
    over.resolve();
    await eventually(() => expect(running).toHaveLength(5));
  });
});
