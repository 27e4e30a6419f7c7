/** One of everything that happens later, with the reference provider, workers that die in the middle, and everyone who hears of it. */

import { EVENT_NAMES } from "../../../../src/events/emit.ts";
import { spanIdOf } from "../../../../src/events/spans.ts";
import { REFERENCE_MODELS } from "../../../../src/reference/models.ts";
import { BUILT_IN } from "../../../../src/scenarios/index.ts";
import { clopperPearson, wilson } from "../../../../src/scenarios/scores.ts";
import type { Caller } from "../../../support/app.ts";
import { Crew } from "../../../support/crew.ts";
import { brokenInvariants } from "../../../support/invariants.ts";
import { hear, type Nats, startNats } from "../../../support/nats.ts";
import { type ReceivedSpan, startOtlpReceiver } from "../../../support/otlp-receiver.ts";
import { startReceiver } from "../../../support/receiver.ts";
import { solverOf } from "../../../support/solvers.ts";
import { until } from "../jobs/until.ts";

/** How much of it. */
export interface Season {
  readonly items: number;
  readonly episodes: number;
  /** The cases of `CASES`, by place; all of them when absent. */
  readonly cases?: readonly number[];
  /** Told after every part. */
  readonly progress?: (line: string) => void;
}

/** What came of it. */
export interface SeasonOutcome {
  /** Whatever is wrong, in words. */
  readonly wrong: readonly string[];
  readonly kills: number;
  readonly items: number;
  readonly evaluations: number;
  readonly episodes: number;
  readonly costUsd: number;
  readonly events: number;
  readonly spans: number;
  readonly seconds: number;
}

/** Every built-in scenario in each of its action spaces. */
export const CASES = BUILT_IN.flatMap(({ id, variants }) => variants.map(({ actionSpace }) => ({ id, actionSpace })));

/** By name: `*` leaves out those of calls. */
const EVENTS = [...EVENT_NAMES.values()];
const EPISODE_USD = 0.01;
const STEP_USD = 0.0001;
const HORIZON = 8;
const ENDED_MS = 900_000;
const NAV = REFERENCE_MODELS.find(({ slug }) => slug === "reference/potential-nav")!;
const NAMES = NAV.actions.find(({ space }) => space === "base_twist_2d")!.proprioLayouts[0]!;
const CALL = {
  model: NAV.slug,
  action_space: "base_twist_2d",
  horizon: HORIZON,
  observations: [{ proprio: NAMES.map((name) => (name.includes("goal") ? 0.3 : 0)), proprio_names: NAMES }],
};
/** Spans of the last second are lost with a worker, and a little more on a busy machine. */
const SPANS_LOST_MS = 2_000;

/** Runs it, and judges. */
export async function liveThrough(season: Season): Promise<SeasonOutcome> {
  const nats = await startNats();
  const crew = await Crew.open({ workers: 2, env: { NATS_URL: nats.url }, reference: true });
  try {
    return await new Run(crew, nats, season).finish();
  } finally {
    await crew.close();
    await nats.close();
  }
}

class Run {
  readonly #crew: Crew;
  readonly #nats: Nats;
  readonly #season: Season;
  readonly #wrong: string[] = [];
  readonly #killedAt: number[] = [];

  constructor(crew: Crew, nats: Nats, season: Season) {
    this.#crew = crew;
    this.#nats = nats;
    this.#season = season;
  }

  async finish(): Promise<SeasonOutcome> {
    const began = performance.now();
    const { items, episodes, cases = CASES.keys(), progress } = this.#season;
    const [hook, otlp] = await Promise.all([startReceiver(), startOtlpReceiver()]);
    const caller = await this.#crew.caller(1_000);
    const heard = await hear(this.#nats.url, `limber.v1.${caller.org}.>`);
    await this.#crew.well("/v1/webhooks", { url: hook.url, events: EVENTS }, caller);
    const filter = { models: [CALL.model], contracts: ["act"] };
    await this.#crew.well("/v1/broadcast", { name: "ours", endpoint: otlp.url, filter, events: true }, caller);

    const batchUsd = await this.#batch(caller, items);
    progress?.(`a batch of ${items}: ${batchUsd.toFixed(4)} USD`);
    // Evaluations call models by sessions; what they cost beside their episodes is on the ledger alone.
    let evaluated = 0;
    for (const place of cases) {
      const told = await this.#evaluation(caller, CASES[place]!, episodes);
      evaluated++;
      progress?.(told);
    }
    const ids = await this.#everyoneHeard(caller, heard.heard, hook.received, otlp.spans);
    const spans = await this.#spansOf(caller, otlp.spans);
    const episodesBilled = await this.#settled(caller, "evaluate");
    if (episodesBilled !== evaluated * episodes)
      this.#wrong.push(`${episodesBilled} of ${evaluated * episodes} episodes are on the bill`);
    this.#wrong.push(...(await brokenInvariants(this.#crew.sql)));
    await Promise.all([heard.close(), hook.close(), otlp.close()]);
    return {
      wrong: this.#wrong,
      kills: this.#killedAt.length,
      items,
      evaluations: evaluated,
      episodes: evaluated * episodes,
      costUsd: batchUsd + episodesBilled * EPISODE_USD,
      events: ids.length,
      spans,
      seconds: Math.round((performance.now() - began) / 100) / 10,
    };
  }

  /** Kills the worker that has a job, once `count` of its parts have ended and others run. */
  async #kill(jobId: string, count: number): Promise<void> {
    let place = -1;
    let over = false;
    await until(`a worker in the middle of ${jobId}`, async () => {
      const [job] = await this.#crew.sql<{ done: number; over: boolean }[]>`
        select (select count(*)::int from job_item where job_id = job.id and rank = 9) as done, rank = 9 as over
        from job where id = ${jobId}`;
      over = job?.over ?? false;
      const held = await this.#crew.holderOf(jobId);
      place = held.place;
      return over || (place >= 0 && held.running > 0 && (job?.done ?? 0) >= count);
    });
    if (over) {
      this.#wrong.push(`${jobId} ended before its worker was killed`);
      return;
    }
    const killed = await this.#crew.kill(place);
    this.#killedAt.push(Date.now());
    await this.#crew.bury(killed);
    await this.#crew.hire(place);
  }

  // biome-ignore lint/suspicious/noExplicitAny: a job's record, of whichever kind.
  async #ended(path: string, caller: Caller): Promise<any> {
    // biome-ignore lint/suspicious/noExplicitAny: as above.
    let body: any;
    const hasEnded = async (): Promise<boolean> => {
      body = await this.#crew.well(path, undefined, caller);
      return this.#crew.hasEnded(body);
    };
    await until(`the end of ${path}`, hasEnded, ENDED_MS);
    return body;
  }

  async #settled(caller: Caller, contract: string): Promise<number> {
    const [row] = await this.#crew.sql<{ n: number }[]>`
      select count(*)::int as n from request
      where org_id = ${caller.org} and status = 'settled' and contract = ${contract}`;
    return row?.n ?? 0;
  }

  async #batch(caller: Caller, items: number): Promise<number> {
    const requests = Array.from({ length: items }, (_, i) => ({ ...CALL, custom_id: `item-${i}` }));
    const { id } = await this.#crew.well("/v1/batch", { contract: "act", requests }, caller);
    await this.#kill(id, Math.floor(items / 20));
    const { status, request_counts: counts, cost_usd } = await this.#ended(`/v1/batch/${id}`, caller);
    const expected = items * HORIZON * STEP_USD;
    const told = `${status} ${JSON.stringify(counts)} ${cost_usd}`;
    if (status !== "completed" || counts.completed !== items || counts.total !== items)
      this.#wrong.push(`the batch did not end well: ${told}`);
    if (Math.abs(cost_usd - expected) > 1e-9) this.#wrong.push(`the batch cost ${cost_usd}, not ${expected}`);
    if ((await this.#settled(caller, "act")) !== items) this.#wrong.push(`not each item is on the bill once: ${told}`);
    const { text } = await this.#crew.call(`/v1/batch/${id}/results`, undefined, caller);
    const lines = text.trimEnd().split("\n");
    const inOrder = lines.every((line, i) => JSON.parse(line).custom_id === `item-${i}`);
    if (lines.length !== items || !inOrder) this.#wrong.push(`the batch lists ${lines.length} lines`);
    return cost_usd;
  }

  async #evaluation(caller: Caller, { id: scenario, actionSpace }: (typeof CASES)[number], episodes: number) {
    const model = solverOf(scenario, actionSpace);
    const request = { policy_endpoint: model, scenario, action_space: actionSpace, episodes, seed: 5 };
    const { id } = await this.#crew.well("/v1/evaluate", { ...request, policy_timeout_ms: 30_000 }, caller);
    await this.#kill(id, Math.floor(episodes / 4));
    const body = await this.#ended(`/v1/evaluate/${id}`, caller);
    const name = `${scenario} in ${actionSpace}`;
    const rate = body.scores?.success_rate;
    const told = `${name}: ${body.status}, ${rate?.successes} of ${rate?.n} [${rate?.ci95.low.toFixed(3)}, ${rate?.ci95.high.toFixed(3)}], ${body.usage?.cost_usd} USD`;
    const counts = { requested: episodes, completed: episodes, errored: 0 };
    if (body.status !== "completed" || JSON.stringify(body.episodes) !== JSON.stringify(counts))
      this.#wrong.push(`did not end well: ${told} ${JSON.stringify(body.error ?? body.episodes)}`);
    if (Math.abs(body.usage.cost_usd - episodes * EPISODE_USD) > 1e-9) this.#wrong.push(`has another cost: ${told}`);
    const seeds = body.per_episode.map(({ seed }: { seed: number }) => seed - 5);
    if (seeds.length !== episodes || seeds.some((seed: number, i: number) => seed !== i))
      this.#wrong.push(`lists other episodes: ${told}`);
    const successes = body.per_episode.filter(({ success }: { success: boolean }) => success).length;
    for (const [given, known] of [
      [rate.ci95, wilson(successes, episodes)],
      [rate.ci95_exact, clopperPearson(successes, episodes)],
    ])
      if (given.low !== known.low || given.high !== known.high || rate.successes !== successes || rate.n !== episodes)
        this.#wrong.push(`has another interval: ${told}`);
    return told;
  }

  /** The subscriber, the webhook and the receiver of OTLP heard the same events under the same names, and nothing else; answers their ids. */
  async #everyoneHeard(
    { org }: Caller,
    heard: readonly { messageId: string; subject: string }[],
    received: readonly { headers: Record<string, string>; json: { type: string } }[],
    spans: readonly Pick<ReceivedSpan, "attributes">[],
  ): Promise<string[]> {
    const rows = await this.#crew.sql<{ id: string; name: string }[]>`
      select event_id as id, name from outbox where org_id = ${org} and created > (select created from webhook where org_id = ${org})
      order by position`;
    const expected = rows.map(({ id, name }) => `${id} ${name}`);
    const first = `limber.v1.${org}.`;
    const ways: Readonly<Record<string, () => string[]>> = {
      "the subscriber": () => heard.map(({ messageId, subject }) => `${messageId} ${subject.slice(first.length)}`),
      "the receiver of OTLP": () =>
        spans.flatMap(({ attributes: told }) =>
          "limber.event.id" in told ? [`${told["limber.event.id"]} ${told["limber.event.name"]}`] : [],
        ),
      "the webhook": () => received.map(({ headers, json }) => `${headers["webhook-id"]} ${json.type}`),
    };
    for (const [who, told] of Object.entries(ways)) {
      const missing = (): string[] => {
        const got = new Set(told());
        return expected.filter((each) => !got.has(each));
      };
      await until(`${who} to hear all`, async () => missing().length === 0).catch(() => {});
      for (const each of missing()) this.#wrong.push(`${who} did not hear ${each}`);
      const known = new Set(expected);
      for (const each of told())
        if (!known.has(each) && !each.endsWith(" ping") && !each.endsWith(" key.created"))
          this.#wrong.push(`${who} heard ${each}, which is not in the outbox`);
    }
    const jobs = rows.filter(({ name }) => name === "batch.completed" || name === "evaluation.completed").length;
    const [row] = await this.#crew.sql<
      { n: number }[]
    >`select count(*)::int as n from job where org_id = ${org} and kind <> 'verification'`;
    if (jobs !== row?.n) this.#wrong.push(`${jobs} ends of ${row?.n} jobs were told`);
    return rows.map(({ id }) => id);
  }

  /** Every settled call of the batch has its root span, but for the last second of the worker that was killed; no span is of another call. */
  async #spansOf({ org }: Caller, spans: readonly { name: string; spanId: string }[]): Promise<number> {
    const rows = await this.#crew.sql<{ id: string; created: Date }[]>`
      select request_id as id, created from request
      where org_id = ${org} and contract = 'act' and model = ${CALL.model} and status = 'settled'`;
    const isLost = (ended: number): boolean =>
      this.#killedAt.some((at) => ended > at - SPANS_LOST_MS && ended < at + SPANS_LOST_MS);
    const expected = new Map(rows.map(({ id, created }) => [spanIdOf(id, "root"), isLost(created.getTime())]));
    const roots = (): Set<string> =>
      new Set(spans.filter(({ name }) => name === "gateway.act").map(({ spanId }) => spanId));
    const missing = (): number => {
      const got = roots();
      return [...expected].filter(([id, lost]) => !lost && !got.has(id)).length;
    };
    await until("all spans", async () => missing() === 0, 15_000).catch(() => {});
    if (missing() > 0) this.#wrong.push(`${missing()} of ${expected.size} calls have no span, and their worker lived`);
    return roots().size;
  }
}
