/** NATS dies, stays away and loses its store while calls come in: no caller feels it, and every event is heard on every way, under one id. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { ADMIN_TOKEN, type App, type Caller, openApp } from "../../support/app.ts";
import { freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type Model, startModel } from "../../support/model.ts";
import { hear, makeStream, type Nats, type Subscriber, startNats, streamed } from "../../support/nats.ts";
import { BOUNDLESS } from "../../support/pair.ts";
import { type Receiver, startReceiver } from "../../support/receiver.ts";

const UNTIL = { timeout: 60_000, interval: 50 };
/** Seconds that NATS is away at the least; `NATS_AWAY_S=60 npm test -- test/slow/chaos/events.test.ts` makes a minute of it. */
const AWAY_S = Number(process.env.NATS_AWAY_S ?? 0);

let nats: Nats;
let apps: App[];
let model: Model;
let receiver: Receiver;
let subscriber: Subscriber;
let caller: Caller;
beforeAll(async () => {
  [nats, model, receiver] = await Promise.all([startNats(), startModel(), startReceiver()]);
  await makeStream(nats.url);
  const database = await freshDatabase({ max: 4 });
  const options = { database, natsUrl: nats.url, roles: new Set(["api", "worker"] as const) };
  apps = [await openApp(options), await openApp(options)];
  await apps[0]!.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  caller = await apps[0]!.caller(100, { role: "owner", rate_limit: BOUNDLESS });
  subscriber = await hear(nats.url, `limber.v1.${caller.org}.>`);
  // What happened before the webhook was there is none of its business.
  await apps[0]!.sql`delete from outbox`;
  await apps[0]!.call("/v1/webhooks", { url: receiver.url }, { key: caller.key });
}, 120_000);
afterAll(async () => {
  await subscriber.close();
  for (const app of apps) await app.gateway.close(0);
  await apps[0]?.database.close();
  await Promise.all([nats.close(), model.close(), receiver.close()]);
});

const ACT = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
/** What callers do all the time; whatever isn't answered well is kept. */
class Load {
  readonly failed: string[] = [];
  answers = 0;
  #over = false;
  readonly #callers = Array.from({ length: 6 }, (_, number) => this.#stay(number));

  async end(): Promise<void> {
    this.#over = true;
    await Promise.all(this.#callers);
  }

  /** Waits until so many more calls were answered. */
  async goesOn(count: number): Promise<void> {
    const goal = this.answers + count;
    await eventually(() => expect(this.answers).toBeGreaterThanOrEqual(goal), UNTIL);
  }

  async #stay(number: number): Promise<void> {
    for (let i = number; !this.#over; i++) {
      const app = apps[i % 2]!;
      const what = CALLS[i % CALLS.length]!;
      const told = await what(app).catch((error) => ({ status: 0, text: String(error) }));
      this.answers++;
      if (told.status >= 300 || told.status === 0) this.failed.push(`${told.status} ${told.text}`);
    }
  }
}
const CALLS = [
  (app: App) => app.call("/v1/act", ACT, { key: caller.key }),
  (app: App) => app.call(`/v1/orgs/${caller.org}/keys`, { role: "viewer" }, { admin: ADMIN_TOKEN }),
  (app: App) => app.call("/v1/usage?limit=5", undefined, { key: caller.key }),
];

const told = async (): Promise<{ id: string; sent: boolean }[]> =>
  apps[0]!.sql<{ id: string; sent: boolean }[]>`
    select event_id as id, sent_at is not null as sent from outbox where org_id = ${caller.org} order by position`;
const nothingWaits = () =>
  eventually(async () => expect((await told()).filter(({ sent }) => !sent)).toEqual([]), UNTIL);
const batch = async (): Promise<string> =>
  (await apps[1]!.call("/v1/batch", { contract: "act", requests: Array(40).fill(ACT) }, { key: caller.key })).body.id;
const ended = (id: string) =>
  eventually(async () => {
    const { body } = await apps[0]!.call(`/v1/batch/${id}`, undefined, { key: caller.key });
    expect(body).toMatchObject({ status: "completed", request_counts: { completed: 40 } });
  }, UNTIL);
/** Every event has come to the webhook; one that came twice came under one id with the same words. */
const hookHeardAll = async (): Promise<void> => {
  const ids = (await told()).map(({ id }) => id);
  await eventually(() => {
    const got = new Set(receiver.received.map(({ headers }) => headers["webhook-id"]));
    expect(ids.filter((id) => !got.has(id))).toEqual([]);
  }, UNTIL);
  const words = new Map<string, string>();
  for (const { headers, body } of receiver.received) {
    const id = headers["webhook-id"]!;
    expect(words.get(id) ?? body).toBe(body);
    words.set(id, body);
  }
};

it("while NATS is down under load no call fails, jobs and webhooks run, and its stream gets every event afterwards", async () => {
  const load = new Load();
  await load.goesOn(30);
  await nats.kill();
  const back = performance.now() + AWAY_S * 1000;
  const id = await batch();
  await load.goesOn(150);
  while (performance.now() < back) await load.goesOn(30);
  await ended(id);
  expect((await told()).filter(({ sent }) => !sent).length).toBeGreaterThan(10);
  await hookHeardAll();

  await nats.start();
  await load.goesOn(30);
  await load.end();
  expect(load.failed.slice(0, 3)).toEqual([]);
  await nothingWaits();
  await hookHeardAll();
  const ids = (await told()).map(({ id }) => id);
  const stored = (await streamed(nats.url)).filter((each) => ids.includes(each));
  // Keys are made side by side, so that none of them is before another.
  expect([...new Set(stored)].sort()).toEqual(ids.sort());
}, 180_000);

it("when NATS loses its store under load, no job or webhook is lost, and the outbox sends every event again under its id", async () => {
  const load = new Load();
  await load.goesOn(30);
  await nats.wipe();
  const id = await batch();
  await load.goesOn(60);
  await nats.start();
  await load.goesOn(30);
  await ended(id);
  await load.end();
  expect(load.failed.slice(0, 3)).toEqual([]);
  await nothingWaits();
  await hookHeardAll();

  // What an operator does, as the gateway's documents say.
  await makeStream(nats.url);
  await subscriber.connected();
  await apps[0]!.sql`update outbox set sent_at = null where org_id = ${caller.org}`;
  await apps[0]!.sql`select pg_notify('outbox', '')`;
  await nothingWaits();
  const ids = (await told()).map(({ id }) => id);
  expect((await streamed(nats.url)).filter((each) => ids.includes(each))).toEqual(ids);
  await eventually(() => {
    const got = new Set(subscriber.heard.map(({ messageId }) => messageId));
    expect(ids.filter((each) => !got.has(each))).toEqual([]);
  }, UNTIL);
  for (const { messageId, event } of subscriber.heard) expect(event.id).toBe(messageId);
  const kinds = await apps[0]!.sql<
    { name: string }[]
  >`select distinct name from outbox where org_id = ${caller.org} order by 1`;
  expect(kinds.map(({ name }) => name)).toEqual(["batch.completed", "key.created"]);
}, 180_000);
