/** The control loops of this replica and their figures: checked once a second, looked up by session, ended together. */

import { create } from "@bufbuild/protobuf";
import { HoldReason, HoldReasonSchema, type LoopChunk } from "../../../gen/limber/v1/control_loop_pb.ts";
import { type LoopAction, LoopState, type RunningLoop, RunningLoopSchema } from "../../../gen/limber/v1/loop_pb.ts";
import type { Frame } from "../../../gen/limber/v1/observation_pb.ts";
import { toUsd } from "../../billing/price.ts";
import type { KeyPrincipal } from "../../call.ts";
import { every, sleep, steadyNow } from "../../clock.ts";
import { failureWord } from "../../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { bucketOf, LiveGauge, type LoopFigures, LoopGauge, type PlanStep, type Try } from "../../routing/index.ts";
import type { Charge, LoopStretch } from "../call-billing.ts";
import type { ActiveStops, Mover } from "../stops.ts";

/** The last charged chunk of a session's stream. */
export interface ResumedChunk {
  readonly chunk: LoopChunk;
  /** When it had this age, on the steady clock in milliseconds. */
  readonly toldAt: number;
}

/** The state that a stream leaves to its session's next stream. */
export interface LeftBehind {
  /** Number of its last episode. */
  readonly episode: number;
  /** The last chunk of that episode; undefined if there was none. */
  readonly last: ResumedChunk | undefined;
}

/** A loop in the registry. */
export interface Carried {
  /** The stream's id. */
  readonly id: string;
  /** The state for the session's next stream; undefined while the previous stream's is unknown. */
  readonly left: LeftBehind | undefined;
  /** The serving offering; undefined before the first. */
  readonly offeringId: string | undefined;
  /** Figures with the present offering. */
  readonly gauge: LoopGauge;
  /** Figures since its start, with all offerings. */
  readonly whole: LoopGauge;
  /** The state shown to watchers, at a time of the steady clock in milliseconds. */
  shown(at: number): RunningLoop;
  /** The last chunk, for watchers; undefined before the first one, or after a reset. */
  lastAction(at: number): LoopAction | undefined;
  /** Whether its organization retains no data. */
  readonly isPrivate: boolean;
  /**
   * The pictures of the newest observation, if it is new; undefined if it is not. Observations are kept for that until `until`, on the steady
   * clock in milliseconds, so the first call returns none.
   */
  newestFrames(until: number): readonly Frame[] | undefined;
  /** The session with its organization; undefined if none was named. */
  readonly session: string | undefined;
  /** The key, session and robot names by which emergency stops match it. */
  readonly mover: Mover;
  /** Called once a second. */
  tidy(): void;
  /** Ends once no response is pending. */
  drain(): void;
  /** Ends at once. */
  cut(refusal: Refusal): void;
}

const TIDY_MS = 1_000;
/**
 * Milliseconds between two loops that are moved: opening a stream costs the client, the balancer and the next replica a few milliseconds
 * each.
 */
const MOVE_MS = 20;

/** Figures of one loop, for the log. */
interface LoopSummary extends LoopFigures {
  readonly requestId: string;
  readonly keyId: string;
  readonly offeringId: string | undefined;
}

/** Figures of one offering's loops. */
interface OfferingLoops extends LoopFigures {
  readonly offeringId: string;
  /** Number of loops that it serves now. */
  readonly loops: number;
}

/** Figures of one loop. */
interface SessionLoop extends LoopFigures {
  readonly stream: string;
  /** The session's name, unique among all organizations; empty if it has none. */
  readonly session: string;
}

/** Maximum number of loops reported individually: each is a metrics series. */
const MOST_TOLD = 1_000;

/** All loops of one replica. */
export class LoopRegistry {
  readonly #loops = new Set<Carried>();
  readonly #sessions = new Map<string, Carried>();
  readonly #rest: () => void;
  /** By offering: counts of loops that have ended or changed offering. */
  readonly #past = new Map<string, LoopGauge>();
  #draining = false;

  readonly #told: (told: LoopSummary) => void;

  /** `told` is called with the figures of each loop that ends. */
  constructor(told: (told: LoopSummary) => void = () => {}) {
    this.#told = told;
    this.#rest = every(TIDY_MS, () => {
      for (const loop of this.#loops) loop.tidy();
    });
  }

  /** Adds a loop. Returns the loop that has its session, which the new one supersedes. */
  enter(loop: Carried): Carried | undefined {
    this.#loops.add(loop);
    if (loop.session === undefined) return undefined;
    const before = this.#sessions.get(loop.session);
    this.#sessions.set(loop.session, loop);
    return before;
  }

  /** Removes a loop that has ended with this outcome. */
  leave(loop: Carried, told: LoopFigures): void {
    if (!this.#loops.has(loop)) return;
    this.#told({ requestId: loop.id, keyId: loop.mover.key.keyId, offeringId: loop.offeringId, ...told });
    this.#loops.delete(loop);
    if (loop.session !== undefined && this.#sessions.get(loop.session) === loop) this.#sessions.delete(loop.session);
  }

  /** The stream that has a session on this replica. */
  streamOf(session: string): string | undefined {
    return this.#sessions.get(session)?.id;
  }

  /** Ends the loop of a session that a stream on another replica has taken. */
  taken(session: string, stream: string): void {
    const loop = this.#sessions.get(session);
    if (loop && loop.id !== stream) loop.cut(takenOver());
  }

  /** Keeps a loop's counts for an offering that no longer serves it. */
  keep(offeringId: string, gauge: LoopGauge): void {
    this.#past.set(offeringId, sum([this.#past.get(offeringId), gauge]));
  }

  /** The figures of each running loop since it started; only the oldest loops if there are very many. */
  *sessions(): IterableIterator<SessionLoop> {
    let left = MOST_TOLD;
    for (const { id, session, whole } of this.#loops) {
      if (left-- === 0) return;
      yield { stream: id, session: session ?? "", ...whole.figures };
    }
  }

  /** The figures of each offering's loops since the start: rate, share of late chunks, jitter, missed deadlines. */
  *offerings(): IterableIterator<OfferingLoops> {
    const gauges = new Map([...this.#past].map(([id, gauge]) => [id, { gauge: sum([gauge]), loops: 0 }]));
    for (const { offeringId, gauge } of this.#loops) {
      if (offeringId === undefined) continue;
      const known = gauges.get(offeringId);
      gauges.set(offeringId, { gauge: sum([known?.gauge, gauge]), loops: (known?.loops ?? 0) + 1 });
    }
    for (const [offeringId, { gauge, loops }] of gauges) yield { offeringId, loops, ...gauge.figures };
  }

  /** Calls `visit` for every loop, which may remove itself. */
  each(visit: (loop: Carried) => void): void {
    for (const loop of [...this.#loops]) visit(loop);
  }

  /** Number of running loops. */
  get size(): number {
    return this.#loops.size;
  }

  /** Whether new loops are refused. */
  get draining(): boolean {
    return this.#draining;
  }

  /** Ends every running loop once no response is pending in it. */
  move(): void {
    this.each((loop) => loop.drain());
  }

  /**
   * The same, one loop after the other within `ms` milliseconds, so that robots do not all reconnect at once. Resolves when each loop has
   * been notified.
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

  /** The same, and refuses new loops. */
  drain(): void {
    this.#draining = true;
    this.move();
  }

  /** From now on, cuts every loop that an emergency stop covers. */
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
  refuse(Reason.SESSION_TAKEN_OVER, "another stream of the same session was opened and has taken over");

/** The refusal of a stream on a replica that is shutting down. */
export const draining = (): Refusal =>
  refuse(Reason.NOT_READY, "the gateway is shutting down; open the stream again", {}, { retryAfter: 1 });

function sum(gauges: readonly (LoopGauge | undefined)[]): LoopGauge {
  const all = new LoopGauge();
  for (const gauge of gauges) if (gauge) all.add(gauge);
  return all;
}

/** The counters of one loop. */
export class LoopCounts {
  /** The serving offering; undefined before the first. */
  offering: PlanStep["offering"] | undefined;
  /** Counts for the present offering. */
  gauge = new LoopGauge();
  /** Counts in total. */
  readonly whole = new LoopGauge();
  /** Present values. */
  readonly live: LiveGauge;
  /** Number of changes of the offering. */
  failovers = 0;
  /** Number of hedged chunks. */
  hedges = 0;
  readonly #registry: LoopRegistry;
  #steps = 0;
  #gpuSeconds = 0;
  #costMicro = 0;

  /** `at` is the start on the steady clock, in milliseconds. */
  constructor(registry: LoopRegistry, at: number) {
    this.#registry = registry;
    this.live = new LiveGauge(at);
  }

  get offeringId(): string | undefined {
    return this.offering?.id;
  }

  /** Counts a chunk sent at `at` (steady clock, milliseconds) for an observation of this age. */
  chunk(at: number, ageMs: number, { step, units, costMicro, hedgeMicro }: Charge, gpuSeconds: number): void {
    if (step.offering.id !== this.offeringId) this.#moveTo(step.offering);
    this.gauge.chunk(at);
    this.whole.chunk(at);
    this.live.chunk(at, ageMs);
    this.#steps += units;
    this.#gpuSeconds += gpuSeconds;
    this.#costMicro += costMicro + (hedgeMicro ?? 0);
    if (hedgeMicro !== undefined) this.hedges += 1;
  }

  /** Counts a hold. */
  hold(reason: HoldReason): void {
    const isLate = reason === HoldReason.LATE;
    this.gauge.hold(isLate);
    this.whole.hold(isLate);
    this.live.hold(reason);
  }

  /** Total units and charges. */
  get usage(): { actionSteps: number; gpuSeconds: number; costUsd: number } {
    return { actionSteps: this.#steps, gpuSeconds: this.#gpuSeconds, costUsd: toUsd(this.#costMicro) };
  }

  /** Passes its counts to the registry. */
  close(): void {
    if (this.offeringId !== undefined) this.#registry.keep(this.offeringId, this.gauge);
  }

  #moveTo(offering: PlanStep["offering"]): void {
    this.close();
    if (this.offering !== undefined) {
      this.gauge = new LoopGauge();
      this.failovers += 1;
    }
    this.offering = offering;
  }
}

/** Attempts with equal outcomes. */
interface AlikeTries {
  readonly offeringId: string;
  readonly status: Try["status"];
  readonly reason: Try["reason"];
  count: number;
  latencyMs: number;
}

/** Maximum number of outcome groups in one record. */
const MOST_KINDS = 32;

/** Counts the outcomes of observations for the next record. */
export class StretchCounts {
  /** Undefined before the first hold. */
  #holds: Map<HoldReason, number> | undefined;
  /** Number of chunks, by the bucket of their observation's age. */
  #ages: Record<number, number> | undefined;
  #tries: AlikeTries[] = [];

  /** Counts a chunk for an observation of this age, and its attempts. */
  chunk(tries: readonly Try[], ageMs: number): void {
    this.#ages ??= {};
    const bucket = bucketOf(ageMs);
    this.#ages[bucket] = (this.#ages[bucket] ?? 0) + 1;
    for (const tried of tries) this.#add(tried);
  }

  /** Counts a hold and its attempts. */
  hold(reason: HoldReason, tries: readonly Try[]): void {
    this.#holds ??= new Map();
    this.#holds.set(reason, (this.#holds.get(reason) ?? 0) + 1);
    for (const tried of tries) this.#add(tried);
  }

  /** Returns and clears the counts; undefined if there are none. */
  take(): LoopStretch | undefined {
    if (this.#holds === undefined && this.#tries.length === 0) return undefined;
    const holds =
      this.#holds && Object.fromEntries([...this.#holds].map(([reason, count]) => [wordOfHold(reason), count]));
    const attempts = this.#tries.map(({ offeringId, status, reason, count, latencyMs }) => ({
      offering_id: offeringId,
      status,
      reason: failureWord(reason),
      latency_ms: Math.round((latencyMs / count) * 1000) / 1000,
      count,
    }));
    const ages = this.#ages;
    this.#holds = undefined;
    this.#ages = undefined;
    this.#tries = [];
    return { attempts, ...(holds && { holds }), ...(ages && { ages }) };
  }

  #add({ step, status, reason, latencyMs }: Try): void {
    const offeringId = step.offering.id;
    for (const known of this.#tries) {
      if (known.offeringId !== offeringId || known.status !== status || known.reason !== reason) continue;
      known.count += 1;
      known.latencyMs += latencyMs;
      return;
    }
    if (this.#tries.length < MOST_KINDS) this.#tries.push({ offeringId, status, reason, count: 1, latencyMs });
  }
}

/** The name of a reason, such as `late`. */
const wordOfHold = (reason: HoldReason): string =>
  HoldReasonSchema.value[reason]?.name.slice("HOLD_REASON_".length).toLowerCase() ?? "";

/** The constant facts of a loop. */
export interface LoopFacts {
  readonly id: string;
  readonly key: Pick<KeyPrincipal, "orgId" | "keyId" | "workspaceId">;
  readonly robotId: string | undefined;
  /** The caller's name for it. */
  readonly sessionId: string | undefined;
  readonly modelRequested: string;
  readonly actionSpace: string;
  readonly deadlineMs: number;
  /** Unix seconds. */
  readonly since: number;
}

const STATES = { running: LoopState.RUNNING, holding: LoopState.HOLDING, waiting: LoopState.WAITING } as const;

/** The state of a loop at a time of the steady clock, in milliseconds. */
export function runningLoopOf(
  { id, key, robotId, sessionId, modelRequested, actionSpace, deadlineMs, since }: LoopFacts,
  tally: LoopCounts,
  { at, dropped, episode }: { at: number; dropped: number; episode: number },
): RunningLoop {
  const { state, lastHold, rateHz, worstHz, askedHz, ageP50Ms, ageP99Ms } = tally.live.figures(at);
  const { chunks, effectiveHz } = tally.whole.figures;
  const { offering } = tally;
  const serving = offering && {
    model: offering.model,
    provider: offering.provider,
    offeringId: offering.id,
    precision: offering.precision,
    region: offering.region,
    ...(offering.dtMs > 0 && { dtMs: offering.dtMs }),
    ...(offering.revision !== undefined && { revision: offering.revision }),
  };
  return create(RunningLoopSchema, {
    id,
    object: "control_loop",
    orgId: key.orgId,
    keyId: key.keyId,
    modelRequested,
    actionSpace,
    deadlineMs,
    since,
    ...serving,
    ...(key.workspaceId !== undefined && { workspaceId: key.workspaceId }),
    ...(robotId !== undefined && { robotId }),
    ...(sessionId !== undefined && { sessionId }),
    state: STATES[state],
    ...(lastHold !== undefined && { lastHold }),
    rateHz,
    averageHz: rounded(effectiveHz),
    ...(worstHz !== undefined && { worstHz }),
    ...(askedHz !== undefined && { askedHz: rounded(askedHz) }),
    ...(ageP50Ms !== undefined && { ageP50Ms: rounded(ageP50Ms) }),
    ...(ageP99Ms !== undefined && { ageP99Ms: rounded(ageP99Ms) }),
    chunks,
    holds: holdsOf(tally.live.holds),
    failovers: tally.failovers,
    hedges: tally.hedges,
    droppedObservations: dropped,
    costUsd: tally.usage.costUsd,
    episode,
  });
}

function holdsOf(counts: readonly number[]): Record<string, number> {
  const holds: Record<string, number> = {};
  counts.forEach((count, reason) => {
    holds[wordOfHold(reason as HoldReason)] = count; // the gauge counts by the numbers of reasons
  });
  return holds;
}

const rounded = (figure: number): number => Math.round(figure * 1000) / 1000;
