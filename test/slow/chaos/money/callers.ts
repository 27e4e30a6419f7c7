/** Callers that call whatever dies, and write down what they were told: the log that the ledger is held against. */
import { setTimeout as rest } from "node:timers/promises";
import { type Answer, callRest } from "../../../support/app.ts";
import { honestSteps } from "../../../support/model.ts";
import type { Pair } from "../../../support/pair.ts";

/** What one caller knows of one call of its. The call's name goes upstream as its instruction, and into the log as metadata. */
export interface Told {
  readonly id: string;
  /** It carries an idempotency key. */
  readonly keyed: boolean;
  /** The request under which each answer says it ran, and what it says it cost. */
  readonly answered: Map<string, number>;
  /** Request ids that were told that every attempt failed. */
  readonly failed: Set<string>;
  /** The first answer, as it was written. */
  text: string | undefined;
  /** What became of it when it was last asked. */
  last: string;
}

/** What became of a call that no gateway took, or whose gateway died with it: its caller knows that it knows nothing. */
const NOBODY_LISTENED = "nobody listened";
const BROKE = "the connection broke";
const NOT_ASKED = "not asked";

/** How long a call may take until its caller gives up on it. */
const PATIENCE_MS = 20_000;
/** The last calls may take as long as they like, as long as some are answered. */
const STUCK_MS = 60_000;
/** Every so many calls the model answers with the wrong dimension. */
const FAULTS = 0.03;

/** The request under which an answer ran: its own name ends as the request's does. */
const runOf = ({ id }: { id: string }): string => `req${id.slice(id.indexOf("_"))}`;

/** The log of all callers. */
export type Log = Pick<Callers, "told" | "runs" | "faults" | "unheard">;

/** Callers of one organisation at both gateways of a pair. */
export class Callers {
  readonly told = new Map<string, Told>();
  /** How often the model was asked for each call. */
  readonly runs = new Map<string, number>();
  /** What should not have happened, in words. */
  readonly faults: string[] = [];
  answers = 0;
  /** Calls under a key that got nothing but connection errors to the end: nothing may have been charged for them. */
  readonly unheard: Told[] = [];
  readonly #pair: Pair;
  readonly #key: string;
  readonly #random: () => number;
  readonly #replayable: Told[] = [];
  #backlog: Told[] = [];
  #listening: ((place: number) => void)[] = [];
  #stopped = false;
  #running: Promise<unknown> = Promise.resolve();

  constructor(pair: Pair, key: string, random: () => number) {
    this.#pair = pair;
    this.#key = key;
    this.#random = random;
    pair.model.script.act = (call, answer) => {
      const { instruction: id } = call;
      this.runs.set(id, (this.runs.get(id) ?? 0) + 1);
      const known = this.told.get(id);
      if (known?.keyed && known.text !== undefined) this.faults.push(`${id} ran again after it was answered`);
      const steps = honestSteps(call, random() < FAULTS ? 3 : 2);
      const delay = random() < 0.3 ? 0 : random() * 20;
      if (delay === 0) answer(steps);
      else setTimeout(() => answer(steps), delay);
    };
  }

  /** Begins to call, `count` callers at once. */
  start(count: number): void {
    const callers = Array.from({ length: count }, (_, number) => this.#call(number));
    this.#running = Promise.all([...callers, this.#clear()]);
  }

  /** Begins no new call, and brings every call with an idempotency key to its answer. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
    let end = performance.now() + STUCK_MS;
    while (this.#backlog.length > 0 && performance.now() < end) {
      const { answers } = this;
      await this.#retry();
      if (this.answers > answers) end = performance.now() + STUCK_MS;
    }
    for (const told of this.#backlog) {
      if (told.last === NOBODY_LISTENED || told.last === BROKE) this.unheard.push(told);
      else this.faults.push(`${told.id} was never answered: ${told.last}`);
    }
  }

  async #call(number: number): Promise<void> {
    for (let i = 0; !this.#stopped; i++) {
      // A call that nobody hears proves nothing.
      while (this.#pair.urlOf(0) === undefined && this.#pair.urlOf(1) === undefined) await rest(20);
      const id = `call-${number}-${i}`;
      const told: Told = {
        id,
        keyed: this.#random() < 0.5,
        answered: new Map(),
        failed: new Set(),
        text: undefined,
        last: NOT_ASKED,
      };
      this.told.set(id, told);
      await this.#ask(told);
      if (this.#replayable.length > 0 && this.#random() < 0.1)
        await this.#ask(this.#replayable[Math.floor(this.#random() * this.#replayable.length)]!);
      await rest(this.#random() * 30);
    }
  }

  /** Whatever was not answered is asked again under its key, now and then. */
  async #clear(): Promise<void> {
    while (!this.#stopped) {
      await rest(300);
      await this.#retry();
    }
  }

  async #retry(): Promise<void> {
    const waiting = this.#backlog.splice(0);
    for (let i = 0; i < waiting.length; i += 8)
      await Promise.all(waiting.slice(i, i + 8).map((told) => this.#ask(told)));
    if (this.#backlog.length > 0) await rest(300);
  }

  /** Resolves with the place of the gateway that answers next, at once when it does; undefined when none does for `ms`. */
  nextAnswer(ms: number): Promise<number | undefined> {
    const { promise, resolve } = Promise.withResolvers<number | undefined>();
    this.#listening.push(resolve);
    return Promise.race([promise, rest(ms, undefined, { ref: false })]);
  }

  /** What became last of the calls that have no answer yet, and how many there are of each. */
  get waiting(): Record<string, number> {
    const open = [...this.told.values()].filter(({ text, answered }) => text === undefined && answered.size === 0);
    const counts = Map.groupBy(open, ({ last }) => last);
    return Object.fromEntries([...counts].map(([last, calls]) => [last, calls.length]));
  }

  async #ask(told: Told): Promise<void> {
    const first = this.#random() < 0.5 ? 0 : 1;
    const place = this.#pair.urlOf(first) === undefined ? 1 - first : first;
    const url = this.#pair.urlOf(place);
    if (url === undefined) await rest(50);
    const answer = await this.#tryToPost(url, told);
    if (answer?.status === 200) for (const tell of this.#listening.splice(0)) tell(place);
    if (answer === undefined || !this.#hear(told, answer)) {
      if (told.keyed && told.text === undefined) this.#backlog.push(told);
    }
  }

  /** A connection that breaks is what a kill looks like; one that stays open without an answer is a fault. */
  async #tryToPost(url: string | undefined, told: Told): Promise<Answer | undefined> {
    told.last = NOBODY_LISTENED;
    if (url === undefined) return undefined;
    try {
      return await this.#post(url, told);
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      if (error.name === "TimeoutError") {
        told.last = `hung for ${PATIENCE_MS / 1000} s`;
        this.faults.push(`${told.id} ${told.last}`);
      } else if (!/ECONNREFUSED/.test(String(error.cause))) told.last = BROKE;
      return undefined;
    }
  }

  #post(url: string, { id, keyed }: Told): Promise<Answer> {
    const body = {
      model: "acme/base",
      action_space: "base_twist_2d",
      horizon: 2,
      observations: [{ proprio: [0.5] }],
      instruction: id,
      metadata: { call: id },
    };
    const headers = keyed ? { "idempotency-key": id } : {};
    return callRest(url, "/v1/act", body, { key: this.#key, headers, signal: AbortSignal.timeout(PATIENCE_MS) });
  }

  /** Writes an answer down; answers whether it was the last word on the call. */
  #hear(told: Told, { status, headers, text, body }: Answer): boolean {
    const requestId = headers.get("x-request-id") ?? "";
    if (status === 200) {
      this.answers++;
      if (told.text === undefined) {
        told.text = firstOf(text);
        // A replay comes under a request id of its own; in it stands the one under which the call ran.
        told.answered.set(runOf(body), Math.round(body.usage.cost_usd * 1e6));
        if (told.keyed) this.#replayable.push(told);
      } else if (told.text !== firstOf(text)) this.faults.push(`${told.id} was answered in two ways`);
      return true;
    }
    const code = body?.error?.code;
    told.last = `refused with ${code}`;
    if (code === "all_attempts_failed") told.failed.add(requestId);
    else if (told.text !== undefined && !COMES_AGAIN.has(code))
      this.faults.push(`${told.id} was answered, and then refused with ${code}`);
    if (!EXPECTED.has(code)) this.faults.push(`${told.id} was refused with ${status} ${text}`);
    return code === "all_attempts_failed" && !told.keyed;
  }
}

/** How a call may be refused that was answered before: by a gateway that cannot look at the moment. */
const COMES_AGAIN: ReadonlySet<string> = new Set(["store_unavailable", "not_ready"]);

/** How a call may be refused while things die around it. */
const EXPECTED = new Set([
  "all_attempts_failed",
  "idempotency_in_progress",
  "store_unavailable",
  "not_ready",
  "capacity_exhausted",
]);

/** An answer without what a replay adds to the first one: that it is replayed, whether it has expired, and its age. */
function firstOf(text: string): string {
  const { replayed: _, expired: __, observation_age_ms: ___, ...first } = JSON.parse(text) as Record<string, unknown>;
  return JSON.stringify(first);
}
