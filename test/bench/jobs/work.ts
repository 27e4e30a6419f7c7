/** A hundred workers on one database: what a job and a delivery ask of PostgreSQL, and how fast they are claimed, with NATS and without. */
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as rest } from "node:timers/promises";
import { startPostgres } from "../../../src/embedded/postgres.ts";
import { WebhookSender } from "../../../src/events/webhooks.ts";
import { WorkFeeder, WorkQueue } from "../../../src/events/work-queue.ts";
import { newId } from "../../../src/ids.ts";
import { Worker } from "../../../src/jobs/worker.ts";
import { migrate } from "../../../src/store/database/migrate.ts";
import { Notifications } from "../../../src/store/database/notifications.ts";
import { connect, type Sql, tx } from "../../../src/store/database/tx.ts";
import { advance, createJob } from "../../../src/store/jobs/jobs.ts";
import { startNats } from "../../support/nats.ts";
import { cpuMicros, seconds } from "./gateway.ts";

const WORKERS = Number(process.env.WORKERS ?? 100);
const JOBS = Number(process.env.JOBS ?? 1_000);
const ORGS = 20;
const HOOKS = 50;
const EVENTS = 40;
/** Work that is there at once, and work that comes one after the other, with this pause. */
const PAUSE_MS = 20;
const TRICKLE = 50;

/** What a run came to. */
interface Came {
  readonly a_second: number;
  readonly statements_each: number;
  readonly cpu_us_each: number;
}

/** Prints claims a second and statements for each job and delivery; all workers are in this process, so that ratios alone are worth something. */
export async function work(): Promise<void> {
  for (const hasNats of [false, true]) {
    const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
    const settings = { max_connections: "200", shared_preload_libraries: "pg_stat_statements" };
    const postgres = await startPostgres({ dataDir: join(folder, "postgres"), settings });
    const nats = hasNats ? await startNats() : undefined;
    const sql = connect(postgres.url, { max: 40 });
    await migrate(sql);
    await sql`create extension pg_stat_statements`;
    const crew = await hire(sql, postgres.url, nats?.url);
    try {
      for (const [what, come] of Object.entries({ jobs, deliveries })) {
        for (const pauseMs of [0, PAUSE_MS]) {
          const { a_second, statements_each, cpu_us_each } = await come(sql, crew, pauseMs);
          const how = pauseMs === 0 ? "at once" : `one every ${pauseMs} ms`;
          console.log(
            `${what}, ${how}, ${WORKERS} workers ${hasNats ? "with" : "without"} NATS: ${a_second.toFixed(0)} a second, ${statements_each.toFixed(2)} statements each, ${cpu_us_each.toFixed(0)} us of CPU each for all workers`,
          );
        }
      }
    } finally {
      await crew.close();
      await sql.end();
      await nats?.close();
      await postgres.stop();
      rmSync(folder, { recursive: true, force: true });
    }
  }
}

/** All workers, and what they have done. */
interface Crew {
  jobsDone: number;
  delivered: number;
  close(): Promise<void>;
}

async function hire(sql: Sql, url: string, natsUrl: string | undefined): Promise<Crew> {
  const notifications = await Notifications.open(url);
  const closers: (() => Promise<unknown>)[] = [() => notifications.close()];
  const crew: Crew = {
    jobsDone: 0,
    delivered: 0,
    async close() {
      await Promise.all(closers.slice(1).map((close) => close()));
      await closers[0]?.();
    },
  };
  const warn = (text: string, cause: unknown): void => console.error(text, cause);
  const queues: WorkQueue[] = [];
  for (let i = 0; i < WORKERS; i++) {
    const owner = newId("replica");
    const queue = natsUrl === undefined ? undefined : new WorkQueue({ url: natsUrl, replica: owner, copies: 1, warn });
    const parts = [
      new Worker({
        ...{ sql, notifications, owner, warn, atOnce: 4 },
        queue: queue && { of: queue, kind: "evaluation" },
        work: {
          evaluation: async (job) => {
            await tx(sql, (tx) => advance(tx, job, "completed"));
            crew.jobsDone += 1;
          },
        },
      }),
      new WebhookSender({
        ...{ sql, notifications, queue, warn },
        async post() {
          crew.delivered += 1;
          return { status: 204, retryAfterS: undefined };
        },
        textOf: () => "{}",
        secretsOf: () => [`whsec_${Buffer.alloc(24, 7).toString("base64")}`],
        disabled: async () => {},
      }),
      ...(queue ? [new WorkFeeder({ sql, notifications, queue, warn })] : []),
    ];
    closers.push(async () => {
      await Promise.all(parts.map((part) => part.close()));
      await queue?.close();
    });
    if (queue) queues.push(queue);
  }
  while (queues.some(({ isUp }) => !isUp) || (queues.length > 0 && !queues.some(({ leads }) => leads))) await rest(50);
  return crew;
}

async function measured(sql: Sql, count: number, happen: () => Promise<void>, done: () => boolean): Promise<Came> {
  await sql`select pg_stat_statements_reset()`;
  const [began, before] = [performance.now(), process.cpuUsage()];
  await happen();
  while (!done()) await rest(5);
  const took = seconds(began);
  const cpu = cpuMicros(before);
  // What begins and ends a transaction counts: it is a round trip like any other.
  const [{ calls } = { calls: 0 }] = await sql<{ calls: number }[]>`
    select sum(calls)::float8 as calls from pg_stat_statements
    where dbid = (select oid from pg_database where datname = current_database()) and toplevel
      and query not like 'insert into outbox%' and query not like 'insert into job%'`;
  return { a_second: count / took, statements_each: calls / count, cpu_us_each: cpu / count };
}

async function jobs(sql: Sql, crew: Crew, pauseMs: number): Promise<Came> {
  const count = pauseMs === 0 ? JOBS : TRICKLE;
  const goal = crew.jobsDone + count;
  const ask = (i: number): Promise<string> =>
    tx(sql, (tx) =>
      createJob(tx, {
        ...{ kind: "evaluation", orgId: `org_${i % ORGS}`, keyId: "key_1", workspaceId: undefined },
        ...{ request: {}, items: [], lifeS: 3_600 },
      }),
    );
  return measured(
    sql,
    count,
    async () => {
      if (pauseMs === 0) await Promise.all(Array.from({ length: count }, (_, i) => ask(i)));
      for (let i = 0; pauseMs > 0 && i < count; i++) {
        await ask(i);
        await rest(pauseMs);
      }
    },
    () => crew.jobsDone >= goal,
  );
}

async function deliveries(sql: Sql, crew: Crew, pauseMs: number): Promise<Came> {
  const [events, hooks] = pauseMs === 0 ? [EVENTS, HOOKS] : [TRICKLE, 1];
  const org = newId("org");
  for (let i = 0; i < hooks; i++)
    await sql`insert into webhook (id, org_id, url, events, secret) values (${newId("wh")}, ${org}, 'http://127.0.0.1:9/', '{*}', ${randomBytes(32)})`;
  const goal = crew.delivered + events * hooks;
  return measured(
    sql,
    events * hooks,
    async () => {
      for (let i = 0; i < events; i++) {
        await sql`insert into outbox (event_id, name, org_id, payload) values (${newId("evt")}, 'key.created', ${org}, ${Buffer.from([])})`;
        if (pauseMs > 0) await rest(pauseMs);
      }
    },
    () => crew.delivered >= goal,
  );
}
