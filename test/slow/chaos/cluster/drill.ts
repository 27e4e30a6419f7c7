/**
 * A cluster of three nats-servers with JetStream in three copies and a leaf node, under work: jobs and deliveries come all the time, and the
 * server that leads the stream is killed again and again. Workers are on the cluster and behind the leaf.
 */
import { randomBytes } from "node:crypto";
import { setTimeout as rest } from "node:timers/promises";
import { jetstreamManager } from "@nats-io/jetstream";
import { dial } from "../../../../src/events/nats/connect.ts";
import { WebhookSender } from "../../../../src/events/webhooks.ts";
import { WorkFeeder, WorkQueue } from "../../../../src/events/work-queue.ts";
import { newId } from "../../../../src/ids.ts";
import { Worker } from "../../../../src/jobs/worker.ts";
import { Notifications } from "../../../../src/store/database/notifications.ts";
import { type Sql, tx } from "../../../../src/store/database/tx.ts";
import { advance, createJob } from "../../../../src/store/jobs/jobs.ts";
import { closing } from "../../../support/closing.ts";
import { type Nats, startNats } from "../../../support/nats.ts";
import { freePort } from "../../../support/owners.ts";
import { until } from "../jobs/until.ts";

/** What is to be done. */
export interface Drill {
  /** A database with the gateway's tables that nobody else uses. */
  readonly sql: Sql;
  readonly databaseUrl: string;
  readonly kills: number;
  readonly progress?: (line: string) => void;
}

/** What came of it. */
export interface Drilled {
  readonly kills: number;
  readonly jobs: number;
  readonly deliveries: number;
  /** Work that was done more than once: the second time before the first was written down. */
  readonly repeated: number;
  /** Deliveries and jobs of which NATS had a message. */
  readonly byMessage: number;
  /** Everything that should not have been, in words. */
  readonly wrong: string[];
}

const SERVERS = 3;
const STREAM = "LIMBER_WORK";
const PAUSE_MS = 20;

/** Starts everything, kills who leads as often as told, waits for what is left, and judges. */
export async function drill({ sql, databaseUrl, kills, progress }: Drill): Promise<Drilled> {
  const { kept, closeAll } = closing();
  const wrong: string[] = [];
  try {
    const routes = await Promise.all(Array.from({ length: SERVERS }, freePort));
    const leafPorts = await Promise.all(Array.from({ length: SERVERS }, freePort));
    const servers: Nats[] = await Promise.all(
      routes.map(async (route, i) =>
        kept(
          await startNats(
            `
            server_name: s${i}
            cluster { name: limber, listen: "127.0.0.1:${route}", routes: [${routes.map((port) => `"nats-route://127.0.0.1:${port}"`).join(", ")}] }
            leafnodes { listen: "127.0.0.1:${leafPorts[i]}" }`,
            { domain: "hub" },
          ),
        ),
      ),
    );
    const leaf = kept(
      await startNats(
        `server_name: leaf
         leafnodes { reconnect: 1, remotes: [ { urls: [${leafPorts.map((port) => `"nats-leaf://127.0.0.1:${port}"`).join(", ")}] } ] }`,
        { jetstream: false },
      ),
    );
    const cluster = `nats://${servers.map(({ url }) => new URL(url).host).join(",")}`;
    const done = new Map<string, number>();
    const did = (id: string): void => void done.set(id, (done.get(id) ?? 0) + 1);
    const notifications = kept(await Notifications.open(databaseUrl));
    const warn = (text: string, cause: unknown): void => progress?.(`  ${text}: ${cause}`);
    const queues = [cluster, cluster, `${leaf.url}?domain=hub`].map((url) => {
      const owner = newId("replica");
      const queue = kept(new WorkQueue({ url, replica: owner, copies: SERVERS, warn }));
      kept(new WorkFeeder({ sql, notifications, queue, warn }));
      kept(
        new Worker({
          ...{ sql, notifications, owner, warn, atOnce: 8, queue: { of: queue, kind: "evaluation" } },
          work: {
            evaluation: async (job) => {
              did(job.id);
              await tx(sql, (tx) => advance(tx, job, "completed"));
            },
          },
        }),
      );
      kept(
        new WebhookSender({
          ...{ sql, notifications, queue, warn },
          async post(_, headers) {
            did(headers["webhook-id"]!);
            return { status: 204, retryAfterS: undefined };
          },
          textOf: () => "{}",
          secretsOf: () => [`whsec_${Buffer.alloc(24, 7).toString("base64")}`],
          disabled: async () => {},
        }),
      );
      return queue;
    });
    await until("every worker to be on the queue", async () => queues.every(({ isUp }) => isUp));

    const org = newId("org");
    await sql`
      insert into webhook (id, org_id, url, events, secret) values (${newId("wh")}, ${org}, 'http://127.0.0.1:9/', '{*}', ${randomBytes(32)})`;
    const asked: string[] = [];
    let isOver = false;
    const load = (async () => {
      for (let i = 0; !isOver; i++) {
        const event = newId("evt");
        await sql`insert into outbox (event_id, name, org_id, payload) values (${event}, 'key.created', ${org}, ${Buffer.from([])})`;
        const job = await tx(sql, (tx) =>
          createJob(tx, {
            ...{ kind: "evaluation", orgId: `org_${i % 5}`, keyId: "key_1", workspaceId: undefined },
            ...{ request: {}, items: [], lifeS: 3_600 },
          }),
        );
        asked.push(event, job);
        await rest(PAUSE_MS);
      }
    })();

    for (let kill = 0; kill < kills; kill++) {
      const before = done.size;
      await until("work to go on", async () => done.size > before + 40);
      const place = await leaderOf(servers);
      await servers[place]!.kill();
      progress?.(`${kill + 1} of ${kills}: s${place} led and was killed, ${done.size} of ${asked.length} done`);
      await until("work to go on without it", async () => done.size > before + 80);
      await servers[place]!.start();
      await until("every worker to be on the queue again", async () => queues.every(({ isUp }) => isUp));
    }
    isOver = true;
    await load;
    await until("all work to be done", async () => asked.every((id) => done.has(id)));
    await until("all of it to be written down", async () => (await open(sql)) === 0);
    const config = await copiesOf(servers);
    if (config !== SERVERS) wrong.push(`the stream has ${config} copies`);
    const [{ count } = { count: 0 }] = await sql<{ count: number }[]>`
      select ((select count(*) from job where queued_until is not null)
        + (select count(*) from webhook_delivery where queued_until is not null))::int as count`;
    if (count === 0) wrong.push("none of the work had a message");
    const [twice = { count: 0 }] = await sql<{ count: number }[]>`
      select count(*)::int as count from job where status <> 'completed' or epoch > ${kills + 1}`;
    if (twice.count > 0) wrong.push(`${twice.count} jobs did not end as they should`);
    return {
      kills,
      jobs: asked.length / 2,
      deliveries: asked.length / 2,
      repeated: [...done.values()].filter((times) => times > 1).length,
      byMessage: count,
      wrong,
    };
  } finally {
    await closeAll();
  }
}

async function open(sql: Sql): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select ((select count(*) from job where rank < 9) + (select count(*) from webhook_delivery where state = 'pending'))::int as count`;
  return row?.count ?? 0;
}

/** What one of the servers that live says of the stream. */
async function streamOf<T>(servers: readonly Nats[], read: (info: StreamFacts) => T | undefined): Promise<T> {
  for (;;) {
    for (const { url } of servers) {
      const connection = await dial(url).catch(() => undefined);
      if (connection === undefined) continue;
      try {
        const manager = await jetstreamManager(connection);
        const found = read(await manager.streams.info(STREAM));
        if (found !== undefined) return found;
      } catch {
        // No server leads at the moment.
      } finally {
        await connection.close();
      }
    }
    await rest(100);
  }
}

/** Of what NATS answers only this is read. */
interface StreamFacts {
  readonly cluster?: { readonly leader?: string };
  readonly config: { readonly num_replicas: number };
}

/** The place of the server that leads the stream. */
const leaderOf = (servers: readonly Nats[]): Promise<number> =>
  streamOf(servers, ({ cluster }) => {
    const place = Number(cluster?.leader?.slice(1));
    return Number.isInteger(place) ? place : undefined;
  });

const copiesOf = (servers: readonly Nats[]): Promise<number> => streamOf(servers, ({ config }) => config.num_replicas);
