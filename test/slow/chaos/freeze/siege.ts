/** Two gateways under load while their PostgreSQL stands still again and again: SIGSTOP of all its processes, and SIGCONT. */
import { setTimeout as pause } from "node:timers/promises";
import { ACT_DECLARATION, type Answer, type Caller } from "../../../support/app.ts";
import { seeded } from "../../../support/chance.ts";
import { freeze } from "../../../support/freeze.ts";
import { brokenInvariants } from "../../../support/invariants.ts";
import { type RobotClient, robot } from "../../../support/loop-client.ts";
import { startNats } from "../../../support/nats.ts";
import { Pair } from "../../../support/pair.ts";

/** How hard the siege is. */
export interface FreezeOptions {
  readonly rounds: number;
  readonly seed: number;
  /** The longest freeze, in milliseconds; the shortest is 100. */
  readonly longestMs?: number;
  /** What an answer may take beyond its deadline and what `GET /health` takes meanwhile: a call waits for its key's rate for a second at most. */
  readonly toleranceMs?: number;
  readonly progress?: (line: string) => void;
}

/** What came of it. */
export interface FreezeVerdict {
  readonly wrong: string[];
  readonly rounds: number;
  readonly frozenMs: number;
  /** Answers by what was called and how it was answered. */
  readonly answers: Readonly<Record<string, number>>;
  /** Stops that were ordered during a freeze, and loops that they cut. */
  readonly stops: number;
  readonly cut: number;
}

/** Without a deadline a call still ends: the credit leaser calls the store away after four seconds, and clients of the database after three. */
const BOUND_MS = 15_000;
const TOLERANCE_MS = 1_500;
const LONGEST_MS = 10_000;
const CALLERS = 3;
const WARM_UP_MS = 3_000;

/** A call that failed, and whether its answer can be fetched. */
interface Failed {
  readonly requestId: string;
  readonly what: string;
}

/** Freezes the database `rounds` times. */
export async function besiegeFrozen(options: FreezeOptions): Promise<FreezeVerdict> {
  const { rounds, seed, longestMs = LONGEST_MS, toleranceMs = TOLERANCE_MS, progress } = options;
  const chance = seeded(seed);
  const nats = await startNats();
  const pair = await Pair.open({ env: { NATS_URL: nats.url } });
  const wrong: string[] = [];
  const answers: Record<string, number> = {};
  const failed: Failed[] = [];
  const keyed = new Set<string>();
  let over = false;
  let warm = false;
  let calls = 0;
  let [frozenMs, stops, cut] = [0, 0, 0];

  try {
    await supplyFilm(pair);
    const owner = await pair.caller(1_000);
    const load: Promise<void>[] = [];

    // What waits for nothing says how long the machine itself lets everybody wait.
    const healthy: { at: number; took: number }[] = [];
    const healthSince = (began: number): number =>
      Math.max(0, ...healthy.filter(({ at }) => at >= began).map(({ took }) => took));
    for (const place of [0, 1])
      load.push(
        (async () => {
          while (!over) {
            const began = performance.now();
            await pair
              .call(place, "/health")
              .catch((error: unknown) => wrong.push(`health was not answered: ${error}`));
            const at = performance.now();
            healthy.push({ at, took: at - began });
            if (healthy.length > 400) healthy.shift();
            await pause(25);
          }
        })(),
      );

    const note = (what: string, took: number, limitMs: number, { status, headers, body, text }: Answer): void => {
      const code = status === 200 ? "ok" : `${status} ${body?.error?.code}`;
      const name = `${what}: ${code}`;
      answers[name] = (answers[name] ?? 0) + 1;
      const lateMs = Math.round(took - limitMs - healthSince(performance.now() - took));
      if (warm && lateMs > toleranceMs) wrong.push(`${what} was answered ${code} ${lateMs} ms late`);
      if (status >= 500 && status !== 503 && status !== 504) wrong.push(`${what} was answered ${status}: ${text}`);
      if (/may still be charged/.test(text)) wrong.push(`${what} was told that it may still be charged`);
      if (status !== 200 && what !== "keyed act") failed.push({ requestId: headers.get("x-request-id") ?? "", what });
    };
    const call = async (
      what: string,
      place: number,
      limitMs: number,
      path: string,
      body?: object,
    ): Promise<Answer | undefined> => {
      const began = performance.now();
      const answer = await pair.call(place, path, body, { key: owner.key }).catch((error: unknown) => {
        wrong.push(`${what} was not answered: ${error}`);
        return undefined;
      });
      if (answer) note(what, performance.now() - began, limitMs, answer);
      return answer;
    };

    const kinds: ((place: number, name: string) => Promise<unknown>)[] = [
      (place) => call("act", place, 500, "/v1/act", { ...ACT, provider: { deadline_ms: 500 } }),
      (place) => call("act without a deadline", place, BOUND_MS, "/v1/act", ACT),
      async (place, name) => {
        keyed.add(name);
        const body = { ...ACT, idempotency_key: name, metadata: { call: name }, provider: { deadline_ms: 800 } };
        await call("keyed act", place, 800, "/v1/act", body);
      },
      (place) =>
        call("predict stream", place, 2_000, "/v1/predict/stream", { ...FILM, provider: { deadline_ms: 2_000 } }),
      (place) => call("status", place, 1_000, "/v1/status"),
      (place) => call("models", place, 1_000, "/v1/models?limit=1"),
      (place) => call("balance", place, BOUND_MS, "/v1/billing/balance"),
    ];
    for (let caller = 0; caller < CALLERS; caller++) {
      for (const [at, kind] of kinds.entries()) {
        load.push(
          (async () => {
            for (let n = caller; !over; n++) {
              await kind(n % 2, `call-${at}-${calls++}`);
              await pause(20);
            }
          })(),
        );
      }
    }

    // What is called for the first time is compiled: that is slow by itself.
    await pause(WARM_UP_MS);
    warm = true;
    for (let round = 0; round < rounds; round++) {
      const loops = await Promise.all([0, 1].map((place) => openLoop(pair, place, owner, `r${round}`)));
      await pause(200 + chance() * 400);
      // The first outlasts the deadline of an act. Of the others half are shorter than a second: most of what waits then is answered after all.
      const random = (chance() < 0.5 ? 0.1 : 1) * chance();
      const ms = Math.round(100 + (round === 0 ? 0.5 : random) * (longestMs - 100));
      const thaw = freeze(pair.postgres.pid);
      frozenMs += ms;
      const ends = pause(ms).then(thaw);
      try {
        await pause(Math.min(ms / 2, 500));
        const stopped = await call("stop", round % 2, 1_000, "/v1/robots/stop", { robot_id: `r${round}` });
        stops++;
        if (stopped?.status !== 200) wrong.push(`a stop was answered ${stopped?.status}: ${stopped?.text}`);
        else {
          if (stopped.body.durable === false && stopped.body.replicas.length < 2)
            wrong.push(`a stop that is not written is held by ${stopped.body.replicas.length} replica alone`);
          for (const end of await Promise.all(loops.map(endOf))) {
            if (end === "robot_stopped") cut++;
            else wrong.push(`a loop went on, or ended with ${end}, though its robot was stopped`);
          }
        }
        await ends;
        if (stopped?.status === 200) await release(pair, owner, `r${round}`, wrong);
      } finally {
        await ends;
        for (const loop of loops) loop.leave();
      }
      progress?.(`${round + 1} of ${rounds} freezes, ${ms} ms, ${wrong.length} wrong`);
    }
    over = true;
    await Promise.all(load);
    for (const name of keyed) await fetchKept(pair, owner, name, wrong);
    await pair.stop();
    wrong.push(...(await moneyOf(pair, owner, failed, keyed)), ...pair.mishaps);
    return { wrong, rounds, frozenMs, answers, stops, cut };
  } finally {
    over = true;
    await pair.close();
    await nats.close();
  }
}

const ACT = { model: "acme/base", action_space: "base_twist_2d", horizon: 4, observations: [{ proprio: [0] }] };
const FILM = { model: "film/world", horizon: 2, observations: [{ proprio: [0] }] };

async function supplyFilm(pair: Pair): Promise<void> {
  const { key } = await pair.caller(0, { role: "supplier" });
  await pair.well(0, "/v1/supply/providers", { name: "film" }, { key });
  const { action_spaces: _, price_per_action_step: __, ...rest } = ACT_DECLARATION;
  const film = { ...rest, contracts: ["predict"], price_per_frame: 0.0001, model: "film/world" };
  const { id } = await pair.well(
    0,
    "/v1/supply/providers/film/models",
    { ...film, endpoint: pair.model.endpoint },
    { key },
  );
  const { offering } = await pair.well(0, `/v1/supply/offerings/${id}/verify`, {}, { key });
  if (offering.status !== "live") throw new Error("the film was not let in");
}

/** A loop on one gateway that moves a robot: it observes ten times a second. */
async function openLoop(pair: Pair, place: number, { key }: Caller, robotId: string): Promise<RobotClient> {
  const url = pair.urlOf(place);
  if (url === undefined) throw new Error("the gateway is down");
  const loop = robot({ url }, key, { model: "acme/base", actionSpace: "base_twist_2d", horizon: 4, robotId });
  await loop.expect("opened");
  let step = 0;
  const observe = setInterval(() => loop.observe(++step), 100);
  return {
    ...loop,
    leave: () => {
      clearInterval(observe);
      loop.leave();
    },
  };
}

/** How a loop ends; it has ten seconds for that. */
async function endOf(loop: RobotClient): Promise<string> {
  const ended = (async () => {
    try {
      for (;;) {
        const told = await loop.next();
        if (told === undefined) return "nothing";
      }
    } catch (error) {
      return /emergency stop/.test(String(error)) ? "robot_stopped" : String(error);
    }
  })();
  return Promise.race([ended, pause(10_000).then(() => "nothing in ten seconds")]);
}

/** A stop that was answered is written once the database is back, and is released. */
async function release(pair: Pair, { key }: Caller, robotId: string, wrong: string[]): Promise<void> {
  for (let tries = 0; tries < 100; tries++) {
    const { status, body } = await pair.call(0, "/v1/robots/stops", undefined, { key });
    const stop = status === 200 && body.data.find(({ subject }: { subject: string }) => subject === robotId);
    if (stop && (await pair.call(1, "/v1/robots/release", { stop_id: stop.id }, { key })).status === 200) return;
    await pause(200);
  }
  wrong.push(`the stop of ${robotId} was never written, or could not be released`);
}

/** A call with an idempotency key is answered to who asks again. */
async function fetchKept(pair: Pair, { key }: Caller, name: string, wrong: string[]): Promise<void> {
  const body = { ...ACT, idempotency_key: name, metadata: { call: name }, provider: { deadline_ms: 800 } };
  let last = "";
  for (let tries = 0; tries < 100; tries++) {
    const { status, text } = await pair.call(0, "/v1/act", body, { key });
    if (status === 200) return;
    last = text;
    await pause(100);
  }
  wrong.push(`${name} was never answered: ${last}`);
}

/** What is wrong with the money when nothing runs any more. */
async function moneyOf(
  { sql }: Pair,
  { org }: Caller,
  failed: readonly Failed[],
  keyed: ReadonlySet<string>,
): Promise<string[]> {
  const wrong = await brokenInvariants(sql);
  const rows = await sql<{ requestId: string; cost: number; call: string | null }[]>`
    select request_id, cost_micro as cost, log::json -> 'metadata' ->> 'call' as call from request
    where org_id = ${org} and status = 'settled'`;
  const charged = new Map(rows.map(({ requestId, cost }) => [requestId, cost]));
  for (const { requestId, what } of failed)
    if ((charged.get(requestId) ?? 0) > 0) wrong.push(`${what} ${requestId} failed and was charged`);
  const times = new Map<string, number>();
  for (const { call } of rows) if (call !== null) times.set(call, (times.get(call) ?? 0) + 1);
  for (const name of keyed) if (times.get(name) !== 1) wrong.push(`${name} was charged ${times.get(name) ?? 0} times`);
  return wrong;
}
