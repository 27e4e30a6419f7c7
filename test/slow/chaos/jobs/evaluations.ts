/** Kills workers in the middle of evaluations that several of them run, and judges the results. */
import type { Caller } from "../../../support/app.ts";
import { seeded } from "../../../support/chance.ts";
import { Crew } from "../../../support/crew.ts";
import { brokenInvariants } from "../../../support/invariants.ts";
import { honestSteps } from "../../../support/model.ts";
import { until } from "./until.ts";

/** What came of it. */
interface Outcome {
  /** Whatever is wrong, in words. */
  readonly wrong: readonly string[];
  readonly evaluations: number;
  /** Kills of the worker that held the evaluation; the others ran only shares of it. */
  readonly holders: number;
  /** Episodes that were begun again. */
  readonly begunAgain: number;
  /** Episodes that shares ended. */
  readonly byShares: number;
}

const EPISODES = 40;
const EPISODE_MICRO = 10_000;
const CALL_MS = 300;
const ASKED = {
  policy_endpoint: "acme/base",
  scenario: "base-nav",
  episodes: EPISODES,
  seed: 51,
  horizon: 64,
  replan_steps: 64,
  policy_timeout_ms: 20_000,
};

/** Kills a worker of two `kills` times while an evaluation runs in both, lets the evaluations end, and judges. */
export async function besiegeEvaluations({ kills, seed }: { kills: number; seed: number }): Promise<Outcome> {
  const crew = await Crew.open({ workers: 2 });
  try {
    return await underSiege(crew, kills, seeded(seed));
  } finally {
    await crew.close();
  }
}

async function underSiege(crew: Crew, kills: number, random: () => number): Promise<Outcome> {
  const caller = await crew.caller(1_000);
  const begin = async (more: object = {}): Promise<string> =>
    (await crew.well("/v1/evaluate", { ...ASKED, ...more }, caller)).id;
  const ended = async (id: string) => {
    const shown = () => crew.well(`/v1/evaluate/${id}`, undefined, caller);
    await until(`the end of ${id}`, async () => crew.hasEnded(await shown()));
    return shown();
  };
  const calm = await ended(await begin({ parallel_episodes: 1 }));
  crew.model.script.act = (call, answer) => void setTimeout(() => answer(honestSteps(call, 2)), CALL_MS);

  const ids = [await begin()];
  let holders = 0;
  for (let killed = 0; killed < kills; killed++) {
    const goal = (await endedItems(crew)) + 4;
    let victim = 0;
    await until("an evaluation in both workers", async () => {
      const id = ids.at(-1)!;
      if ((await crew.sql`select from job where id = ${id} and rank < 9`).length === 0) ids.push(await begin());
      const places = await placesOf(crew, id);
      victim = places.at(Math.floor(random() * places.length))!;
      return places.length === 2 && (await endedItems(crew)) >= goal;
    });
    if ((await crew.holderOf(ids.at(-1)!)).place === victim) holders += 1;
    await crew.bury(await crew.kill(victim));
    await crew.hire(victim);
  }
  const ends = [];
  for (const id of ids) ends.push(await ended(id));
  return { ...(await judge(crew, caller, calm, ends)), evaluations: ids.length, holders };
}

const endedItems = async ({ sql }: Crew): Promise<number> =>
  (await sql<{ n: number }[]>`select count(*)::int as n from job_item where rank = 9`)[0]?.n ?? 0;

/** The workers that run an episode of the evaluation now. */
async function placesOf(crew: Crew, id: string): Promise<number[]> {
  const owners = await crew.sql<{ owner: string }[]>`
    select distinct owner from job_item join job on job.id = holder
    where job_id = ${id} and state = 'running' and job_item.epoch = job.epoch and lease_until > now()`;
  return crew.hands.flatMap(({ replica }, place) => (owners.some(({ owner }) => owner === replica) ? [place] : []));
}

/** An evaluation as the API shows it. */
type Shown = Awaited<ReturnType<Crew["well"]>>;

async function judge(
  crew: Crew,
  caller: Caller,
  calm: Shown,
  ends: readonly Shown[],
): Promise<Pick<Outcome, "wrong" | "begunAgain" | "byShares">> {
  const wrong = await brokenInvariants(crew.sql);
  for (const { id, status, usage, episodes, reproducibility, scores } of ends) {
    const seen = `${id} ${status} ${JSON.stringify([usage, episodes])}`;
    if (status !== "completed" || episodes.completed !== EPISODES || episodes.errored !== 0)
      wrong.push(`did not end well: ${seen}`);
    if (usage.episodes !== EPISODES || Math.round(usage.cost_usd * 1e6) !== EPISODES * EPISODE_MICRO)
      wrong.push(`has another cost: ${seen}`);
    if (reproducibility.hash !== calm.reproducibility.hash) wrong.push(`${id} has another hash`);
    if (JSON.stringify(scores.return) !== JSON.stringify(calm.scores.return)) wrong.push(`${id} has other scores`);
  }
  const [bill] = await crew.sql<{ rows: number; micro: number }[]>`
    select count(*)::int as rows, coalesce(sum(cost_micro), 0)::int as micro from request
    where org_id = ${caller.org} and status = 'settled' and contract = 'evaluate'`;
  const expected = (ends.length + 1) * EPISODES;
  if (bill?.rows !== expected || bill.micro !== expected * EPISODE_MICRO)
    wrong.push(`${bill?.rows} episodes are charged, ${bill?.micro} in all, of ${expected}`);
  const shares = await crew.sql`select from job where kind = 'share'`;
  if (shares.length > 0) wrong.push(`${shares.length} shares are left`);
  const [row] = await crew.sql<{ again: number; byShares: number }[]>`
    select coalesce(sum(tries - 1), 0)::int as again, (count(*) filter (where holder <> job_id))::int as by_shares from job_item`;
  return { wrong, begunAgain: row?.again ?? 0, byShares: row?.byShares ?? 0 };
}
