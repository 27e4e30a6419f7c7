/** Evaluations whose episodes run in several gateways on one database and one nats-server. */

import { afterEach, expect, it } from "vitest";
import { CallErrorCode } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { closing } from "../../support/closing.ts";
import { freshDatabase } from "../../support/database.ts";
import { beginEvaluation, endedEvaluation } from "../../support/evaluations.ts";
import { eventually } from "../../support/eventually.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { honestSteps, type Model, startModel } from "../../support/model.ts";
import { startNats } from "../../support/nats.ts";

const { kept, closeAll } = closing();
afterEach(closeAll);

const SLOW = 240_000;
/** Fewer calls per episode, which take long instead. */
const MANY = { policy_endpoint: "acme/base", episodes: 24, seed: 31, horizon: 64, replan_steps: 64 };
const CALL_MS = 1_500;

/** One gateway, its model, and a function that opens another gateway beside it. */
async function opened(): Promise<{ app: App; caller: Caller; model: Model; join(): Promise<App> }> {
  const database = kept(await freshDatabase());
  const { url: natsUrl } = kept(await startNats());
  const options = { database, natsUrl, roles: new Set(["api", "worker"] as const) };
  const app = kept(await openApp(options));
  const model = kept(await startModel());
  await app.supply({
    provider: "acme",
    model: "acme/base",
    endpoint: model.endpoint,
    about: { data_collection: "deny" },
  });
  return { app, caller: await app.caller(100), model, join: async () => kept(await openApp(options)) };
}

/** Lanes of an evaluation's own worker by default. */
const LANES = 4;

/** The sessions that called, each with the names of its episodes. The first ones are lanes of the evaluation's own worker. */
class Sessions extends Map<string, Set<string>> {
  note({ sessionId = "" }: { sessionId?: string }): string {
    const session = sessionId.replace(/-\d+$/, "");
    this.set(session, (this.get(session) ?? new Set()).add(sessionId));
    return session;
  }

  get shares(): string[] {
    return [...this.keys()].slice(LANES);
  }

  /** Notes a call; returns whether a share makes it. */
  isShare(call: { sessionId?: string }): boolean {
    const session = this.note(call);
    return this.shares.includes(session);
  }

  /** Whether a share has ended an episode: it calls in the next one. */
  get isSpread(): boolean {
    return this.shares.some((session) => this.get(session)!.size > 1);
  }
}

/** Answers slowly until a share has ended an episode, and quickly afterwards. */
function slowly(model: Model): Sessions {
  const sessions = new Sessions();
  model.script.act = (call, answer) => {
    sessions.note(call);
    const steps = honestSteps(call, 2);
    if (sessions.isSpread) answer(steps);
    else setTimeout(() => answer(steps), CALL_MS);
  };
  return sessions;
}

const holdersOf = async ({ sql }: App, id: string): Promise<Set<string>> =>
  new Set(
    (await sql<{ holder: string }[]>`select holder from job_item where job_id = ${id}`).map(({ holder }) => holder),
  );
const openShares = ({ sql }: App) =>
  sql<{ id: string; owner: string | null }[]>`select id, owner from job where kind = 'share'`;

it(
  "an evaluation spreads over two gateways, with the hash, order, scores and charge of one",
  async () => {
    const { app, caller, model, join } = await opened();
    const { key } = caller;
    const alone = await endedEvaluation(app, await beginEvaluation(app, key, MANY), key);
    expect([alone.status, (await holdersOf(app, alone.id)).size]).toEqual(["completed", 1]);

    await join();
    const sessions = slowly(model);
    const id = await beginEvaluation(app, key, MANY);
    await eventually(() => expect(sessions.isSpread).toBe(true), { timeout: 120_000 });
    const owners = await app.sql<{ owner: string }[]>`
    select distinct owner from job where (id = ${id} or parent = ${id}) and owner is not null`;
    expect(owners).toHaveLength(2);
    const spread = await endedEvaluation(app, id, key);
    expect(spread.status).toBe("completed");
    expect((await holdersOf(app, id)).size).toBeGreaterThan(1);
    expect(spread.reproducibility.hash).toBe(alone.reproducibility.hash);
    expect(spread.usage).toEqual(alone.usage);
    expect(spread.scores.success_rate).toEqual(alone.scores.success_rate);
    const seeds = (end: { per_episode: { seed: number }[] }) => end.per_episode.map(({ seed }) => seed);
    expect(seeds(spread)).toEqual(seeds(alone));
    expect(await openShares(app)).toEqual([]);
  },
  SLOW,
);

it(
  "an evaluation with zero data retention seals the episodes of its shares",
  async () => {
    const { app, caller, model, join } = await opened();
    const { key, org } = caller;
    const settings = await app.call(`/v1/orgs/${org}/settings`, { zdr: true }, { key, method: "PATCH" });
    expect(settings.status, settings.text).toBe(200);
    await join();
    const sessions = slowly(model);
    const id = await beginEvaluation(app, key, MANY);
    await eventually(() => expect(sessions.isSpread).toBe(true), { timeout: 120_000 });
    const items = await app.sql<{ response: object }[]>`
    select response from job_item where job_id = ${id} and holder <> ${id} and response is not null`;
    expect(items.length).toBeGreaterThan(0);
    for (const { response } of items) expect(Object.keys(response)).toEqual(["sealed"]);
    const end = await endedEvaluation(app, id, key);
    expect(end).toMatchObject({ status: "completed", scores: { success_rate: { n: MANY.episodes } } });
  },
  SLOW,
);

it(
  "the shares of a canceled evaluation end with it",
  async () => {
    const { app, caller, model, join } = await opened();
    const { key } = caller;
    await join();
    const sessions = new Sessions();
    model.script.act = (call, answer) => {
      // A share's first call is never answered.
      if (!sessions.isShare(call)) setTimeout(() => answer(honestSteps(call, 2)), CALL_MS);
    };
    const id = await beginEvaluation(app, key, MANY);
    await eventually(() => expect(sessions.shares).not.toEqual([]), { timeout: 120_000 });
    const calls = model.cancelled();
    await app.call(`/v1/evaluate/${id}`, undefined, { key, method: "DELETE" });
    const end = await endedEvaluation(app, id, key);
    expect(end.status).toBe("cancelled");
    expect(end.usage.episodes).toBe(end.scores.success_rate.n);
    expect(await openShares(app)).toEqual([]);
    await eventually(() => expect(model.cancelled()).toBeGreaterThan(calls));
    expect(await brokenInvariants(app.sql)).toEqual([]);
  },
  SLOW,
);

it(
  "an evaluation whose shares find no place at the policy's server completes in its own lanes, without a fault",
  async () => {
    const { app, caller, model, join } = await opened();
    const { key } = caller;
    await join();
    const sessions = new Sessions();
    let refused = 0;
    model.script.act = (call, answer, _, fail) => {
      if (!sessions.isShare(call))
        return void setTimeout(() => answer(honestSteps(call, 2)), refused === 0 ? CALL_MS : 0);
      refused += 1;
      fail("full", CallErrorCode.BUSY);
    };
    const id = await beginEvaluation(app, key, MANY);
    const end = await endedEvaluation(app, id, key);
    expect(end).toMatchObject({ status: "completed", episodes: { completed: MANY.episodes, errored: 0 } });
    expect(refused).toBeGreaterThan(0);
    const items = await app.sql`select distinct holder, tries from job_item where job_id = ${id}`;
    expect(items).toEqual([{ holder: id, tries: 1 }]);
  },
  SLOW,
);

it(
  "an evaluation whose server becomes busy withdraws its shares, and completes in one lane without a fault",
  async () => {
    const { app, caller, model, join } = await opened();
    const { key } = caller;
    const alone = await endedEvaluation(app, await beginEvaluation(app, key, MANY), key);
    await join();
    const sessions = new Sessions();
    let refused = 0;
    model.script.act = (call, answer, _, fail) => {
      const isSpread = sessions.isShare(call) || sessions.shares.length > 0;
      const [first] = sessions.keys();
      if (!isSpread) return void setTimeout(() => answer(honestSteps(call, 2)), CALL_MS);
      // The shares' calls are never answered. Of the others, the server serves the first session alone.
      if (sessions.isShare(call)) return;
      if (sessions.note(call) === first) return answer(honestSteps(call, 2));
      refused += 1;
      fail("full", CallErrorCode.BUSY);
    };
    const end = await endedEvaluation(app, await beginEvaluation(app, key, MANY), key);
    expect(end).toMatchObject({ status: "completed", episodes: { completed: MANY.episodes, errored: 0 } });
    expect(end.reproducibility.hash).toBe(alone.reproducibility.hash);
    expect(end.usage.episodes).toBe(MANY.episodes);
    expect(refused).toBeGreaterThan(0);
    const items = await app.sql`select distinct holder from job_item where job_id = ${end.id}`;
    expect(items).toEqual([{ holder: end.id }]);
    expect(await brokenInvariants(app.sql)).toEqual([]);
  },
  SLOW,
);
