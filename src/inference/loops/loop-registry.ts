/** The control loops that this replica carries: looked after once a second, found by session, ended together. */
import type { RunningLoop } from "../../../gen/limber/v1/loop_pb.ts";
import { every, sleep, steadyNow } from "../../clock.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { type LoopFigures, LoopGauge } from "../../routing/index.ts";
import type { ActiveStops, Mover } from "../stops/active-stops.ts";
import type { LeftBehind } from "./resumption.ts";

/** A loop as the registry has it. */
export interface Carried {
  /** The stream's identifier. */
  readonly id: string;
  /** What it leaves to the next stream of its session; undefined while it does not know what it found itself. */
  readonly left: LeftBehind | undefined;
  /** The offering that serves it; undefined before any did. */
  readonly offeringId: string | undefined;
  /** Its figures with the present offering. */
  readonly gauge: LoopGauge;
  /** Its figures since it began, with any offering. */
  readonly whole: LoopGauge;
  /** What is shown of it to those who watch, at a moment of the steady clock in milliseconds. */
  shown(at: number): RunningLoop;
  /** The session with its organisation; undefined where none was named. */
  readonly session: string | undefined;
  /** Whom it moves, as emergency stops know it. */
  readonly mover: Mover;
  /** A second has passed. */
  tidy(): void;
  /** Ends as soon as no answer is awaited. */
  drain(): void;
  /** Ends at once. */
  cut(refusal: Refusal): void;
}

const TIDY_MS = 1_000;
/** Milliseconds between two loops that are asked to move: to open a stream costs its caller, the balancer and the next replica a few each. */
const MOVE_MS = 20;

/** How a loop did, for the log. */
export interface LoopSummary extends LoopFigures {
  readonly requestId: string;
  readonly keyId: string;
  readonly offeringId: string | undefined;
}

/** How the loops of one offering do. */
export interface OfferingLoops extends LoopFigures {
  readonly offeringId: string;
  /** Loops that it serves at the moment. */
  readonly loops: number;
}

/** How one loop does. */
export interface SessionLoop extends LoopFigures {
  readonly stream: string;
  /** Its session's name among those of all organisations; empty where it has none. */
  readonly session: string;
}

/** Loops that are reported one by one: metrics make a series of each. */
const MOST_TOLD = 1_000;

/** All loops of one replica. */
export class LoopRegistry {
  readonly #loops = new Set<Carried>();
  readonly #sessions = new Map<string, Carried>();
  readonly #rest: () => void;
  /** What loops counted that have ended or moved on, by offering. */
  readonly #past = new Map<string, LoopGauge>();
  #draining = false;

  readonly #told: (told: LoopSummary) => void;

  /** `told` is called with how each loop ended. */
  constructor(told: (told: LoopSummary) => void = () => {}) {
    this.#told = told;
    this.#rest = every(TIDY_MS, () => {
      for (const loop of this.#loops) loop.tidy();
    });
  }

  /** Takes a loop in; one that has its session is answered, for the new one takes over. */
  enter(loop: Carried): Carried | undefined {
    this.#loops.add(loop);
    if (loop.session === undefined) return undefined;
    const before = this.#sessions.get(loop.session);
    this.#sessions.set(loop.session, loop);
    return before;
  }

  /** Lets a loop go that has come to this. */
  leave(loop: Carried, told: LoopFigures): void {
    if (!this.#loops.has(loop)) return;
    this.#told({ requestId: loop.id, keyId: loop.mover.key.keyId, offeringId: loop.offeringId, ...told });
    this.#loops.delete(loop);
    if (loop.session !== undefined && this.#sessions.get(loop.session) === loop) this.#sessions.delete(loop.session);
  }

  /** The stream that a session is in here. */
  streamOf(session: string): string | undefined {
    return this.#sessions.get(session)?.id;
  }

  /** Ends the loop that a session is in, where another stream has taken it on another replica. */
  taken(session: string, stream: string): void {
    const loop = this.#sessions.get(session);
    if (loop && loop.id !== stream) loop.cut(takenOver());
  }

  /** Keeps what a loop counted with an offering that serves it no longer. */
  keep(offeringId: string, gauge: LoopGauge): void {
    this.#past.set(offeringId, sum([this.#past.get(offeringId), gauge]));
  }

  /** How each loop that runs did since it began, the oldest ones where there are very many. */
  *sessions(): IterableIterator<SessionLoop> {
    let left = MOST_TOLD;
    for (const { id, session, whole } of this.#loops) {
      if (left-- === 0) return;
      yield { stream: id, session: session ?? "", ...whole.figures };
    }
  }

  /** How loops did with each offering since the start: rate, share of late answers, jitter, missed deadlines. */
  *offerings(): IterableIterator<OfferingLoops> {
    const gauges = new Map([...this.#past].map(([id, gauge]) => [id, { gauge: sum([gauge]), loops: 0 }]));
    for (const { offeringId, gauge } of this.#loops) {
      if (offeringId === undefined) continue;
      const known = gauges.get(offeringId);
      gauges.set(offeringId, { gauge: sum([known?.gauge, gauge]), loops: (known?.loops ?? 0) + 1 });
    }
    for (const [offeringId, { gauge, loops }] of gauges) yield { offeringId, loops, ...gauge.figures };
  }

  /** Calls `visit` for every loop; they may leave meanwhile. */
  each(visit: (loop: Carried) => void): void {
    for (const loop of [...this.#loops]) visit(loop);
  }

  /** How many there are. */
  get size(): number {
    return this.#loops.size;
  }

  /** Whether no new loops are taken in. */
  get draining(): boolean {
    return this.#draining;
  }

  /** Ends every loop that runs now as soon as no answer is awaited in it. */
  move(): void {
    this.each((loop) => loop.drain());
  }

  /**
   * The same, one loop after the other and at most for `ms` milliseconds: robots that all move in one moment wait for each other where they go.
   * Resolves when each was asked.
   */
  async moveOver(ms: number): Promise<void> {
    const loops = [...this.#loops];
    const paceMs = Math.min(MOVE_MS, ms / loops.length);
    const began = steadyNow();
    for (const [i, loop] of loops.entries()) {
      const early = began + i * paceMs - steadyNow();
      if (early > 0) await sleep(early);
      if (this.#loops.has(loop)) loop.drain();
    }
  }

  /** The same, and takes in no other. */
  drain(): void {
    this.#draining = true;
    this.move();
  }

  /** Cuts, from now on, every loop that an emergency stop covers. */
  obey(stops: ActiveStops): void {
    stops.follow(() =>
      this.each((loop) => {
        const refusal = stops.refusalOf(loop.mover);
        if (refusal) loop.cut(refusal);
      }),
    );
  }

  /** Stops its timers. */
  close(): void {
    this.#rest();
  }
}

/** The refusal of a stream whose session another one has taken. */
export const takenOver = (): Refusal =>
  refuse(Reason.SESSION_TAKEN_OVER, "another stream of the same session was opened; it goes on there");

/** The refusal of a stream on a replica that is closing. */
export const draining = (): Refusal =>
  refuse(Reason.NOT_READY, "the gateway is closing; open the stream again elsewhere", {}, { retryAfter: 1 });

function sum(gauges: readonly (LoopGauge | undefined)[]): LoopGauge {
  const all = new LoopGauge();
  for (const gauge of gauges) if (gauge) all.add(gauge);
  return all;
}
