/**
 * The mass on a rail once more, now through gateways that are processes: a seeded script makes providers silent, breaks them, drops
 * the robot's connection, drains a gateway and kills another. Which step brings a chunk and which a hold is the script's, so the same
 * seed gives the same trace, whoever served it and wherever.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ACT_DECLARATION } from "../support/app.ts";
import { seeded } from "../support/chance.ts";
import { eventually } from "../support/eventually.ts";
import { brokenInvariants } from "../support/invariants.ts";
import { type RobotClient, robot } from "../support/loop-client.ts";
import type { Model } from "../support/model.ts";
import { Pair } from "../support/pair.ts";
import { openModel } from "../support/world.ts";

const HORIZON = 30;
const DEADLINE_MS = 1_500;
const STEPS = 110;
/** From here on nothing is broken any more, and the mass has to arrive. */
const QUIET_FROM = 70;
/** What the other model says, which must never move this robot. */
const FOREIGN = 99;

type Mishap = "silent" | "broken" | "both broken" | "cut off" | "drained" | "killed";
const MISHAPS: readonly Mishap[] = ["silent", "broken", "both broken", "cut off", "drained", "killed"];

let pair: Pair;
let twin: Model;
let other: Model;

beforeAll(async () => {
  [pair, twin, other] = await Promise.all([Pair.open(), openModel(), openModel()]);
  const { key } = await pair.caller(0, { role: "supplier" });
  for (const [name, model, { endpoint }] of [
    ["twin", "acme/base", twin],
    ["other", "other/base", other],
  ] as const) {
    await pair.well(0, "/v1/supply/providers", { name }, { key });
    const declared = { ...ACT_DECLARATION, model, endpoint };
    const { id } = await pair.well(0, `/v1/supply/providers/${name}/models`, declared, { key });
    await pair.well(0, `/v1/supply/offerings/${id}/verify`, {}, { key });
    // It is another organisation that owns the name of the twin's model.
    const known = { standing: "verified", note: "known to the test" };
    await pair.admin(`/v1/supply/providers/${name}/review`, known);
  }
  other.script.act = ({ horizon }, answer) => answer(Array.from({ length: horizon }, () => [FOREIGN, FOREIGN]));
});
afterAll(async () => {
  await Promise.all([pair.close(), twin.close(), other.close()]);
});

/** What happens to both providers of the model at the next calls. */
const fate = { silent: false, broken: 0 };

function obey(model: Model): void {
  model.script.act = ({ horizon, observations }, answer, { stream }) => {
    if (fate.silent) return;
    if (fate.broken > 0) {
      fate.broken -= 1;
      stream.close(2);
      return;
    }
    const [x = 0, v = 0] = observations.at(-1)?.proprio ?? [];
    const force = Math.max(-1, Math.min(1, -0.6 * x - 1.1 * v));
    answer(Array.from({ length: horizon }, (_, i) => [force * 0.7 ** i, 0]));
  };
}

/** By step: one mishap of each kind at least, none right after another. */
function scriptOf(seed: number): ReadonlyMap<number, Mishap> {
  const chance = seeded(seed);
  const kinds = [...MISHAPS, "broken", "cut off"] as Mishap[];
  const script = new Map<number, Mishap>();
  const room = Math.floor((QUIET_FROM - 4) / kinds.length);
  for (let place = 0; kinds.length > 0; place++) {
    const [kind] = kinds.splice(Math.floor(chance() * kinds.length), 1);
    script.set(3 + place * room + Math.floor(chance() * (room - 2)), kind!);
  }
  return script;
}

/** One robot's episode from beginning to end. */
class Episode {
  readonly faults: string[] = [];
  readonly trace: string[] = [];
  readonly #key: string;
  readonly #session: string;
  #place = 0;
  #loop: RobotClient | undefined;
  #chunk: { start: number; validUntil: number; forces: readonly number[] } | undefined;
  #x = 4;
  #v = 0;

  constructor(key: string, session: string) {
    this.#key = key;
    this.#session = session;
  }

  get x(): number {
    return this.#x;
  }

  async run(script: ReadonlyMap<number, Mishap>): Promise<void> {
    await this.#join();
    for (let step = 0; step < STEPS; step++) {
      const mishap = script.get(step);
      if (mishap) await this.#suffer(mishap);
      const kind = await this.#sense(step);
      Object.assign(fate, { silent: false, broken: 0 });
      this.#move(step);
      this.trace.push(`${step} ${mishap ?? "-"} ${kind} ${this.#x} ${this.#v}`);
    }
    this.#loop?.leave();
  }

  async #suffer(mishap: Mishap): Promise<void> {
    const place = this.#place;
    if (mishap === "silent") fate.silent = true;
    else if (mishap === "broken") fate.broken = 1;
    else if (mishap === "both broken") fate.broken = 2;
    else if (mishap === "cut off") {
      this.#loop?.leave();
      await this.#join();
    } else if (mishap === "drained") {
      const [told] = await Promise.all([this.#loop!.next(), pair.restart(place)]);
      if (told?.kind !== "ended" || told.value.code !== "not_ready") this.faults.push(`a drain said ${told?.kind}`);
      this.#place = 1 - place;
      await this.#join();
    } else {
      await pair.kill(place);
      this.#place = 1 - place;
      await this.#join();
      await pair.start(place);
    }
  }

  /** Opens the loop where the robot is, as soon as it is let in. */
  async #join(): Promise<void> {
    const open = {
      model: "acme/base",
      actionSpace: "base_twist_2d",
      horizon: HORIZON,
      provider: { sessionId: this.#session, deadlineMs: DEADLINE_MS },
    };
    this.#loop = await eventually(async () => {
      const loop = robot({ url: pair.urlOf(this.#place)! }, this.#key, open);
      await loop.expect("opened");
      return loop;
    });
  }

  /** Tells what is seen and hears what to do. */
  async #sense(step: number): Promise<string> {
    this.#loop!.observe(step, { observations: [{ proprio: [this.#x, this.#v] }] });
    const told = await this.#loop!.next();
    if (told?.kind === "hold") return `hold ${told.value.reason}`;
    if (told?.kind !== "chunk") {
      this.faults.push(`step ${step}: ${told?.kind}`);
      return "nothing";
    }
    const { startStep, validUntilStep, observationAgeMs, replayed, episodeBreak, action } = told.value;
    const forces = action!.steps.map(({ values }) => values[0]!);
    if (startStep !== step || validUntilStep !== step + HORIZON) this.faults.push(`step ${step}: ${startStep}`);
    if (observationAgeMs >= DEADLINE_MS || replayed) this.faults.push(`step ${step} is stale`);
    if (episodeBreak || forces.includes(FOREIGN)) this.faults.push(`step ${step} is another model's`);
    this.#chunk = { start: startStep, validUntil: validUntilStep, forces };
    return "chunk";
  }

  /** The mass moves for one step: by the newest chunk while that is valid, else it brakes. */
  #move(step: number): void {
    const chunk = this.#chunk && step < this.#chunk.validUntil ? this.#chunk : undefined;
    const force = chunk ? chunk.forces[step - chunk.start]! : -0.5 * this.#v;
    this.#v += 0.2 * force;
    this.#x += 0.2 * this.#v;
  }
}

describe("a plant behind two gateways", () => {
  it("never moves by an expired chunk or another model's, arrives, is charged correctly, and repeats its trace for its seed", async () => {
    for (const model of [pair.model, twin]) obey(model);
    const traces: string[][] = [];
    for (const [seed, session] of [
      [7, "first"],
      [7, "again"],
    ] as const) {
      const { key } = await pair.caller(100);
      await eventually(async () => pair.well(1, "/v1/key", undefined, { key }));
      const episode = new Episode(key, session);
      await episode.run(scriptOf(seed));
      expect(episode.faults).toEqual([]);
      expect(Math.abs(episode.x)).toBeLessThan(0.5);
      traces.push(episode.trace);
    }
    expect(traces[1]).toEqual(traces[0]);
    // Where nobody answers, and where both fail.
    expect(traces[0]!.filter((line) => line.includes("hold"))).toHaveLength(2);
    expect(pair.mishaps).toEqual([]);
    await eventually(async () => expect(await brokenInvariants(pair.sql)).toEqual([]));
  }, 180_000);
});
