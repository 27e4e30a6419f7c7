/** All attacks in their order, against one gateway that lives through them, or against the next where it does not. */
import { type Attack, assail, type Outcome, SLACK_BYTES, told } from "./attack.ts";
import { bombAttacks } from "./bombs.ts";
import { cutAttacks, TRANSPORTS } from "./cuts.ts";
import { floodAttacks } from "./floods.ts";
import { rowAttacks } from "./rows.ts";
import { slotAttacks } from "./slots.ts";
import { slowFirstAttacks } from "./slow-first.ts";
import { openTarget, type Target } from "./target.ts";
import { tlsAttacks, tlsSettings } from "./tls.ts";

/** Every attack, and the gateways that they are run against. */
export class Suite {
  readonly #target = new Replaceable(() => openTarget());
  readonly #tls = new Replaceable(() => openTarget(tlsSettings()));
  readonly attacks: readonly Attack[] = [
    ...cutAttacks(TRANSPORTS),
    ...tlsAttacks(),
    ...rowAttacks(),
    ...floodAttacks(),
    ...bombAttacks(),
    ...slowFirstAttacks(),
    ...slotAttacks(),
  ];

  async run(attack: Attack, seed: number, whole: boolean): Promise<Outcome> {
    const places = { tls: this.#tls, usual: this.#target };
    return assail(await places[attack.place ?? "usual"].get(), attack, seed, whole);
  }

  async stop(): Promise<void> {
    await Promise.all([this.#target, this.#tls].map((each) => each.stop()));
  }
}

/** A gateway that is started when it is needed, and anew when it has died. */
class Replaceable {
  readonly #start: () => Promise<Target>;
  #running: Promise<Target> | undefined;

  constructor(start: () => Promise<Target>) {
    this.#start = start;
  }

  async get(): Promise<Target> {
    const running = await this.#running;
    if (running !== undefined && running.end() === undefined) return running;
    await running?.stop();
    this.#running = this.#start();
    return this.#running;
  }

  async stop(): Promise<void> {
    await (await this.#running)?.stop();
  }
}

/** An outcome in one line. */
export function lineOf({
  name,
  seed,
  findings,
  counts,
  goodAnswers,
  after,
  longestTurnMs,
  peakBytes,
}: Outcome): string {
  const facts = Object.entries(counts).map(([kind, count]) => `${kind} ${count}`);
  const memory = after === undefined ? "dead" : `${told(after)}, peak ${Math.round(peakBytes / 2 ** 20)} MiB`;
  const verdict = findings.length === 0 ? "held" : `${findings.length} findings`;
  return `${verdict}: ${name} (seed ${seed}): ${[...facts, `good answers ${goodAnswers}`, memory, `longest turn ${Math.round(longestTurnMs)} ms`].join(", ")}`;
}

/** Whether memory has drifted since the first minutes: what a forced collection leaves of heap and buffers together. */
export function driftOf(first: Outcome, last: Outcome, most: number): string | undefined {
  if (first.after === undefined || last.after === undefined) return undefined;
  const [was, is] = [first.after, last.after].map(({ heapUsed, external }) => heapUsed + external) as [number, number];
  return is <= was * most + SLACK_BYTES ? undefined : `memory drifted: ${told(first.after)}, then ${told(last.after)}`;
}
