/** Kills workers in the middle of batches, and judges what is left. */
import { setTimeout as rest } from "node:timers/promises";
import type { Caller } from "../../../support/app.ts";
import { seeded } from "../../../support/chance.ts";
import { Crew } from "../../../support/crew.ts";
import { brokenInvariants } from "../../../support/invariants.ts";
import { honestSteps } from "../../../support/model.ts";
import { until } from "./until.ts";

/** How to besiege. */
export interface JobSiege {
  readonly kills: number;
  readonly seed: number;
  readonly workers?: number;
  /** Told after every kill. */
  readonly progress?: (line: string) => void;
}

/** What came of it. */
export interface JobOutcome {
  /** Whatever is wrong, in words. */
  readonly wrong: readonly string[];
  readonly kills: number;
  readonly jobs: number;
  readonly items: number;
  /** Parts that were begun again because their worker died. */
  readonly begunAgain: number;
  readonly seconds: number;
}

const ITEMS = 200;
/** So many batches are open at one time; enough for several workers, few enough for each to be hit. */
const OPEN = 3;
const HORIZON = 2;
const ITEM_MICRO = HORIZON * 100;
const MODEL_MS = 400;

/** Opens a crew, kills workers as told while batches run, lets all of them end, and judges. */
export async function besiegeJobs(siege: JobSiege): Promise<JobOutcome> {
  const crew = await Crew.open({ workers: siege.workers ?? 2 });
  try {
    return await underSiege(crew, siege);
  } finally {
    await crew.close();
  }
}

async function underSiege(crew: Crew, { kills, seed, progress }: JobSiege): Promise<JobOutcome> {
  const began = performance.now();
  const random = seeded(seed);
  const callers = [await crew.caller(1_000), await crew.caller(1_000)];
  crew.model.script.act = (call, answer) => void setTimeout(() => answer(honestSteps(call, 2)), MODEL_MS);
  const jobs: { id: string; caller: Caller }[] = [];
  const give = async (): Promise<void> => {
    const caller = callers[jobs.length % callers.length]!;
    const { id } = await crew.well("/v1/batch", { contract: "act", requests: requestsOf(jobs.length) }, caller);
    jobs.push({ id, caller });
  };

  const refill = async (): Promise<void> => {
    while ((await openJobs(crew)).length < OPEN) await give();
  };
  for (let killed = 0; killed < kills; killed++) {
    await refill();
    await completed(crew, 5 + Math.floor(random() * 60));
    await rest(random() * MODEL_MS);
    const place = await inTheMiddle(crew, refill);
    await crew.bury(await crew.kill(place));
    progress?.(`${killed + 1}/${kills} kills, ${jobs.length} batches`);
    await crew.hire(place);
  }
  const wrong = await allEnd(crew);
  const items = jobs.length * ITEMS;
  wrong.push(...(await judge(crew, jobs)), ...(await brokenInvariants(crew.sql)));
  const [row] = await crew.sql<{ again: number }[]>`select coalesce(sum(tries - 1), 0)::int as again from job_item`;
  const seconds = Math.round((performance.now() - began) / 100) / 10;
  return { wrong, kills, jobs: jobs.length, items, begunAgain: row?.again ?? 0, seconds };
}

const requestsOf = (batch: number): object[] =>
  Array.from({ length: ITEMS }, (_, i) => ({
    custom_id: `${batch}-${i}`,
    model: "acme/base",
    action_space: "base_twist_2d",
    horizon: HORIZON,
    observations: [{ proprio: [i / 100] }],
    metadata: { call: `${batch}-${i}` },
  }));

const openJobs = (crew: Crew) => crew.sql<{ id: string }[]>`select id from job where rank < 9`;

/** Waits until `count` more parts have ended. */
async function completed(crew: Crew, count: number): Promise<void> {
  const done = async (): Promise<number> =>
    (await crew.sql<{ n: number }[]>`select count(*)::int as n from job_item where rank = 9`)[0]?.n ?? 0;
  const goal = (await done()) + count;
  await until(`${count} more items`, async () => (await done()) >= goal || (await openJobs(crew)).length === 0);
}

/** A worker that works on a part at this moment; the last batch may end while it's looked for. */
async function inTheMiddle(crew: Crew, refill: () => Promise<void>): Promise<number> {
  let found = 0;
  await until("a worker in the middle of a batch", async () => {
    await refill();
    for (const { id } of await openJobs(crew)) {
      const { place, running } = await crew.holderOf(id);
      if (place >= 0 && running > 0) {
        found = place;
        return true;
      }
    }
    return false;
  });
  return found;
}

async function allEnd(crew: Crew): Promise<string[]> {
  try {
    await until("the end of every batch", async () => (await openJobs(crew)).length === 0);
    return [];
  } catch (error) {
    return [String(error)];
  }
}

/** What is wrong with how the batches ended: the callers' records held against the ledger. */
export async function judge(crew: Crew, jobs: readonly { id: string; caller: Caller }[]): Promise<string[]> {
  const wrong: string[] = [];
  for (const { id, caller } of jobs) {
    const { status, request_counts: counts, cost_usd } = await crew.well(`/v1/batch/${id}`, undefined, caller);
    const told = `${id} ${status} ${JSON.stringify(counts)} ${cost_usd}`;
    if (status !== "completed" || counts.completed !== ITEMS) wrong.push(`did not end well: ${told}`);
    if (Math.round(cost_usd * 1e6) !== ITEMS * ITEM_MICRO) wrong.push(`has another cost: ${told}`);
    const { text } = await crew.call(`/v1/batch/${id}/results`, undefined, caller);
    const lines = text.trimEnd().split("\n");
    const indices = lines.map((line) => JSON.parse(line).index as number);
    if (lines.length !== ITEMS || indices.some((index, i) => index !== i))
      wrong.push(`${id} lists ${lines.length} lines`);
  }
  // A call that died before it was settled leaves a row without a charge; the one that counts is settled, once.
  const charged = await crew.sql<{ call: string | null; times: number; micro: number }[]>`
    select log::json -> 'metadata' ->> 'call' as call, count(*)::int as times, sum(cost_micro)::int as micro
    from request where status = 'settled' group by 1`;
  for (const { call, times, micro } of charged)
    if (call === null || times !== 1 || micro !== ITEM_MICRO)
      wrong.push(`${call} was charged ${times} times, ${micro} in all`);
  if (charged.length !== jobs.length * ITEMS)
    wrong.push(`${charged.length} of ${jobs.length * ITEMS} items are on the bill`);
  const ends = await crew.sql<{ job: string; times: number }[]>`
    select job.id as job, count(outbox.event_id)::int as times from job left join outbox on outbox.name like 'batch.%'
      and position(convert_to(job.id, 'UTF8') in outbox.payload) > 0 where job.kind = 'batch' group by job.id having count(outbox.event_id) <> 1`;
  for (const { job, times } of ends) wrong.push(`the end of ${job} was told ${times} times`);
  return wrong;
}
