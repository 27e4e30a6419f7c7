/** Workers that are killed, paused, or lose their database in the middle of jobs: every part has one outcome and one charge. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Caller } from "../../support/app.ts";
import { Crew } from "../../support/crew.ts";
import { eventually } from "../../support/eventually.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { honestSteps } from "../../support/model.ts";
import { IS_LONG } from "../../support/runs.ts";
import { besiegeEvaluations } from "./jobs/evaluations.ts";
import { besiegeJobs } from "./jobs/siege.ts";

/** `npm run chaos jobs` kills as often as it is told to. */
const KILLS = IS_LONG ? 6 : 2;

it(`through ${KILLS} kills of workers each item has one result and one charge, and each job ends once`, async () => {
  const { wrong, begunAgain } = await besiegeJobs({ kills: KILLS, seed: 3 });
  expect(wrong).toEqual([]);
  expect(begunAgain).toBeGreaterThan(0);
}, 300_000);

const EVALUATION_KILLS = IS_LONG ? 20 : 2;

it(`through ${EVALUATION_KILLS} kills of workers an evaluation in both keeps its hash, and each episode is charged once`, async () => {
  const { wrong, ...figures } = await besiegeEvaluations({ kills: EVALUATION_KILLS, seed: 5 });
  expect(wrong).toEqual([]);
  expect(figures.begunAgain).toBeGreaterThan(0);
  expect(figures.byShares).toBeGreaterThan(0);
}, 900_000);

describe("one worker of two", () => {
  let crew: Crew;
  let caller: Caller;
  beforeAll(async () => {
    crew = await Crew.open({ workers: 2 });
    caller = await crew.caller(100);
    crew.model.script.act = (call, answer) => void setTimeout(() => answer(honestSteps(call, 2)), 100);
  }, 120_000);
  afterAll(async () => {
    expect(await brokenInvariants(crew.sql)).toEqual([]);
    await crew.close();
  });

  const ITEMS = 400;
  const PRICE_USD = 0.0002;
  const act = (i: number) => ({
    model: "acme/base",
    action_space: "base_twist_2d",
    horizon: 2,
    observations: [{ proprio: [i / 10] }],
  });
  const batch = async (items = ITEMS): Promise<string> => {
    const requests = Array.from({ length: items }, (_, i) => act(i));
    return (await crew.well("/v1/batch", { contract: "act", requests }, caller)).id;
  };
  const shown = (path: string) => crew.well(path, undefined, caller);
  const ended = (path: string) =>
    eventually(
      async () => {
        const body = await shown(path);
        expect(crew.hasEnded(body), JSON.stringify(body).slice(0, 300)).toBe(true);
        return body;
      },
      { timeout: 90_000, interval: 100 },
    );
  /** The worker that holds a job of which `count` parts have ended. */
  const middle = (id: string, count: number): Promise<number> =>
    eventually(
      async () => {
        const { place, running } = await crew.holderOf(id);
        const [done] = await crew.sql<{ n: number }[]>`
          select count(*)::int as n from job_item where job_id = ${id} and state = 'completed'`;
        expect([place >= 0, running > 0, (done?.n ?? 0) >= count]).toEqual([true, true, true]);
        return place;
      },
      { timeout: 60_000, interval: 10 },
    );
  const charges = async (contract: string): Promise<{ rows: number; micro: number }> => {
    const [row] = await crew.sql<{ rows: number; micro: number }[]>`
      select count(*)::int as rows, coalesce(sum(cost_micro), 0)::int as micro from request
      where org_id = ${caller.org} and status = 'settled' and contract = ${contract}`;
    return row!;
  };
  const rowsOf = (id: string) => crew.sql`select * from job_item where job_id = ${id} order by index`;

  it("that is paused past its lease writes nothing when resumed, and continues with other work", async () => {
    const before = await charges("act");
    const id = await batch();
    const place = await middle(id, 20);
    const hand = crew.hands[place]!;
    process.kill(hand.process.pid, "SIGSTOP");
    await crew.bury(hand);
    const end = await ended(`/v1/batch/${id}`);
    expect(end).toMatchObject({ status: "completed", request_counts: { completed: ITEMS, failed: 0 } });
    const rows = await rowsOf(id);

    const other = 1 - place;
    await crew.bury(await crew.kill(other));
    process.kill(hand.process.pid, "SIGCONT");
    const next = await batch(40);
    expect(await ended(`/v1/batch/${next}`)).toMatchObject({ status: "completed", request_counts: { completed: 40 } });
    expect(await rowsOf(id)).toEqual(rows);
    const after = await charges("act");
    expect(after.rows - before.rows).toBe(ITEMS + 40);
    expect(after.micro - before.micro).toBe(Math.round((ITEMS + 40) * PRICE_USD * 1e6));
    await crew.hire(other);
  }, 240_000);

  it("that loses the database during a batch still completes it with an exact charge", async () => {
    const before = await charges("act");
    const id = await batch();
    await middle(id, 20);
    process.kill(crew.postgres.pid, "SIGKILL");
    const end = await ended(`/v1/batch/${id}`);
    expect(end).toMatchObject({ status: "completed", request_counts: { completed: ITEMS, failed: 0 } });
    expect(end.cost_usd).toBeCloseTo(ITEMS * PRICE_USD, 6);
    const after = await charges("act");
    expect(after.rows - before.rows).toBe(ITEMS);
  }, 240_000);

  it("that dies during parallel episodes is replaced by another, with the scores and the charge of a serial evaluation", async () => {
    const NAV = {
      policy_endpoint: "acme/base",
      scenario: "base-nav",
      episodes: 4,
      seed: 11,
      policy_timeout_ms: 20_000,
    };
    crew.model.script.act = undefined;
    const { id: calm } = await crew.well("/v1/evaluate", NAV, caller);
    const { reproducibility, scores } = await ended(`/v1/evaluate/${calm}`);
    const before = await charges("evaluate");
    crew.model.script.act = (call, answer) => void setTimeout(() => answer(honestSteps(call, 2)), 10);
    const { id } = await crew.well("/v1/evaluate", { ...NAV, parallel_episodes: 3 }, caller);
    const killed = await middle(id, 1);
    await crew.bury(await crew.kill(killed));
    await crew.hire(killed);
    const end = await ended(`/v1/evaluate/${id}`);
    expect(end).toMatchObject({
      status: "completed",
      progress: { completed: 4, total: 4 },
      episodes: { requested: 4, completed: 4, errored: 0 },
      usage: { episodes: 4, cost_usd: 0.04 },
      scores: { success_rate: { n: 4 } },
    });
    expect(end.reproducibility.hash).toBe(reproducibility.hash);
    expect(end.scores.success_rate).toEqual(scores.success_rate);
    const after = await charges("evaluate");
    expect(after).toEqual({ rows: before.rows + 4, micro: before.micro + 40_000 });
  }, 240_000);
});
