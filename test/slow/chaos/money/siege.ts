/** Kills parts of a running pair at random moments under load, and judges what is left. */
import { setTimeout as rest } from "node:timers/promises";
import { seeded } from "../../../support/chance.ts";
import { Pair, type PairOptions } from "../../../support/pair.ts";
import { StripeServer } from "../../../support/stripe.ts";
import { Callers } from "./callers.ts";
import { Payers } from "./payers.ts";
import { verdict } from "./verdict.ts";

/** How to besiege. */
export interface Siege extends PairOptions {
  readonly kills: number;
  readonly seed: number;
  /** The share of kills that hit PostgreSQL. */
  readonly postgresShare?: number;
  readonly callers?: number;
  /** The share of kills that hit a gateway in the moment in which it has answered. */
  readonly aimedShare?: number;
  /** At the end the time of the dead is over at once, instead of when it is. */
  readonly hasten?: boolean;
  /** When aborted, no more is killed: what came until then is judged. */
  readonly enough?: AbortSignal;
  /** Told after every kill. */
  readonly progress?: (line: string) => void;
}

/** What came of it. */
export interface Outcome {
  readonly wrong: readonly string[];
  readonly kills: { readonly gateway: number; readonly postgres: number };
  readonly calls: number;
  readonly answers: number;
  /** Calls under a key that got nothing but connection errors to the end. */
  readonly unheard: number;
  readonly charged: number;
  readonly unmetered: number;
  readonly payments: number;
  readonly seconds: number;
}

const CREDIT_USD = 1_000;
/** Between two kills this many calls are answered, most times. */
const ANSWERS = 8;
/** Some kills come at once after another, while what died is still coming up; more of them when that was the database. */
const AT_ONCE = { gateway: 0.15, postgres: 0.5 };
/** Both gateways and the database may have to come up again, on a machine that does much else. */
const STUCK_MS = 90_000;
const PAYERS = 2;
const AIMED = 0.25;

/** Opens a pair, kills as told, ends it and judges. */
export async function besiege(siege: Siege): Promise<Outcome> {
  const stripe = await StripeServer.start();
  const { secretKey, webhookSecret, apiBase } = stripe.settings;
  const env = { STRIPE_SECRET_KEY: secretKey, STRIPE_WEBHOOK_SECRET: webhookSecret, STRIPE_API_BASE: apiBase };
  const pair = await Pair.open({ ...siege, env });
  try {
    return await underSiege(pair, stripe, siege);
  } finally {
    await pair.close();
    await stripe.close();
  }
}

async function underSiege(pair: Pair, stripe: StripeServer, siege: Siege): Promise<Outcome> {
  const began = performance.now();
  // The kills have chances of their own, so that a seed names the same victims however the calls went.
  const random = seeded(siege.seed);
  const { org, key } = await pair.caller(CREDIT_USD);
  const callers = new Callers(pair, key, seeded(siege.seed + 1));
  const payers = new Payers(pair, stripe, key, seeded(siege.seed + 2));
  const kills = { gateway: 0, postgres: 0 };
  const keepers = [0, 1].map((place) => new Keeper(pair, place));
  const share = siege.postgresShare ?? 0.05;
  let atOnce = 0;
  callers.start(siege.callers ?? 16);
  payers.start(PAYERS);

  for (let killed = 0; killed < siege.kills && !siege.enough?.aborted; killed++) {
    if (random() >= atOnce && !(await answered(pair, callers, ANSWERS))) break;
    const aimed = random() < (siege.aimedShare ?? AIMED);
    if (!aimed) await rest(random() * 300);
    // The one in the middle does in any case, so that no siege goes without.
    if (share > 0 && (killed === siege.kills >> 1 || random() < share)) {
      kills.postgres++;
      atOnce = AT_ONCE.postgres;
      pair.killPostgres();
    } else {
      const chosen = random() < 0.5 ? 0 : 1;
      const place = aimed ? ((await callers.nextAnswer(STUCK_MS)) ?? chosen) : chosen;
      kills.gateway++;
      atOnce = AT_ONCE.gateway;
      await keepers[place]!.kill();
    }
    const { answers } = callers;
    const faults = callers.faults.length + payers.faults.length + pair.mishaps.length;
    siege.progress?.(`${killed + 1}/${siege.kills} kills, ${answers} answers, ${faults} faults`);
  }

  await Promise.all(keepers.map(({ up }) => up));
  if (siege.hasten) await buryTheDead(pair);
  await Promise.all([callers.stop(), payers.stop()]);
  const wrong = [...pair.mishaps, ...payers.faults];
  for (const { code, stderr } of await pair.stop())
    if (code !== 0) wrong.push(`a gateway ended with ${code} when it was asked to: ${stderr}`);
  // The time of those that were killed is over; another gateway finds what they left.
  await pair.sql`update leaser set alive_until = now() where fenced_at is null`;
  await pair.start(0);
  await pair.stop();
  wrong.push(...(await verdict(pair.sql, org, callers, CREDIT_USD * 1e6 + payers.netMicro)));
  const [count] = await pair.sql<{ charged: number; unmetered: number; payments: number }[]>`
    select count(*) filter (where status = 'settled') as charged, count(*) filter (where status = 'unmetered') as unmetered,
      (select count(*) from payment where org_id = ${org}) as payments
    from request where org_id = ${org}`;
  const seconds = Math.round((performance.now() - began) / 100) / 10;
  return {
    wrong,
    kills,
    calls: callers.told.size,
    answers: callers.answers,
    unheard: callers.unheard.length,
    ...count!,
    seconds,
  };
}

/** A leaser that has not renewed its life for so long is dead, and the gateways find that themselves. */
const LIFE_MS = 15_000;

/** Lets the time of the leasers be over that renew nothing any more. Under load each of two living gateways renews its life with every batch. */
async function buryTheDead(pair: Pair): Promise<void> {
  const lives = async (): Promise<Map<string, number>> => {
    const rows = await pair.sql<{ id: string; until: number }[]>`
      select id, extract(epoch from alive_until)::float8 as until from leaser where fenced_at is null`;
    return new Map(rows.map(({ id, until }) => [id, until]));
  };
  const before = await lives();
  const renewed = async (): Promise<string[]> =>
    [...(await lives())].filter(([id, until]) => until > (before.get(id) ?? 0)).map(([id]) => id);
  const end = performance.now() + LIFE_MS;
  let living = await renewed();
  while (living.length < 2 && performance.now() < end) {
    await rest(20);
    living = await renewed();
  }
  await pair.sql`select leaser_recover(id, true) from leaser where fenced_at is null and id <> all(${living})`;
}

/** Brings one gateway up again whenever it was killed, never two at its place. */
class Keeper {
  readonly #pair: Pair;
  readonly #place: number;
  #kills = 0;
  /** Resolves when it's up, or was killed again. */
  up: Promise<void> = Promise.resolve();

  constructor(pair: Pair, place: number) {
    this.#pair = pair;
    this.#place = place;
  }

  async kill(): Promise<void> {
    const kill = ++this.#kills;
    await this.#pair.kill(this.#place);
    this.up = this.up.then(() => this.#start(kill));
    this.up.catch(() => {}); // told where it's awaited
  }

  /** A start that PostgreSQL's death interrupts is made again. */
  async #start(kill: number): Promise<void> {
    for (let tries = 0; kill === this.#kills; tries++) {
      try {
        await this.#pair.start(this.#place);
        return;
      } catch (error) {
        if (tries === 60) throw error;
        await rest(200);
      }
    }
  }
}

/** Waits for `count` more answers; answers false, and it's a fault, when none come any more. */
async function answered(pair: Pair, callers: Callers, count: number): Promise<boolean> {
  const goal = callers.answers + count;
  let { answers } = callers;
  let end = performance.now() + STUCK_MS;
  while (callers.answers < goal) {
    if (callers.answers > answers) {
      answers = callers.answers;
      end = performance.now() + STUCK_MS;
    }
    if (performance.now() > end) {
      callers.faults.push(`no call was answered for ${STUCK_MS / 1000} s\n${await stateOf(pair, callers)}`);
      return false;
    }
    await rest(5);
  }
  return true;
}

/** What everything is waiting for, for who has to find out. */
async function stateOf(pair: Pair, callers: Callers): Promise<string> {
  const database = await Promise.race([
    pair.sql`
      select state, wait_event, left(query, 80) as query, extract(epoch from now() - query_start)::int as seconds, count(*)::int
      from pg_stat_activity where datname = current_database() group by 1, 2, 3, 4 order by 5 desc limit 20`.catch(
      String,
    ),
    rest(5_000, "no answer in 5 s"),
  ]);
  const gateways = [0, 1].map((place) => ({ url: pair.urlOf(place), stderr: pair.stderrOf(place) }));
  const { postgres, mishaps } = pair;
  const server = { pid: postgres.pid, restarts: postgres.restarts };
  return JSON.stringify({ gateways, server, database, calls: callers.waiting, mishaps }, null, 2);
}
