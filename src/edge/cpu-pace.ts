/**
 * Keeps ordinary work a little below the CPU quota of the process. A process that has used up its quota stands still for the rest of the
 * kernel's period, mostly 100 ms, and nobody is answered: no probe of health, no emergency stop. So calls are begun while the quota has
 * something left, and then rest. Whatever never rests (health, readiness, metrics, emergency stops, running control loops) is served
 * meanwhile at once, from the part of the quota that is kept back.
 *
 * A token bucket of processor time: it fills at a share of the quota and pays for all that was used, whoever used it. The period of the
 * kernel needs not be known. Where there is no quota, or one that the process can't exceed, nothing is measured and nothing rests.
 */
import { after, cpuMs, every, steadyNow, threadCpuMs } from "../clock.ts";
import type { CpuQuota } from "./cpu-quota.ts";

/** The share of the quota that ordinary work may use: the rest is for what never rests, and for what was begun and costs more than was left. */
const SHARE = 0.85;
/** What a process may use at once after it was idle, and what it has at least when it goes on after a rest, in parts of 100 ms of the quota. */
const BURST = 0.8;
const CHUNK = 0.5;
const PERIOD_MS = 100;
/** No rest is longer, whatever is measured. */
const MOST_REST_MS = 500;
/** Other threads and processes take so much of the quota at most, as far as this counts them: the first thread always has its part. */
const MOST_OTHERS = 0.5;
/** How often the usage of the first thread and of the group are read, at most. */
const LOOK_MS = 1;
const GROUP_MS = 25;
/** How often the quota is looked for. It may be changed while the process runs. */
const FIND_MS = 2_000;

/** What the pace is measured by. */
export interface PaceSources {
  /** The quota that stands at this moment, where the process could exceed it. */
  find(): CpuQuota | undefined;
  /** Milliseconds of processor time of the first thread, and of the whole process. */
  threadMs?(): number;
  processMs?(): number;
}

/** What is shown of the pace. */
export interface PaceFigures {
  /** The quota that the process keeps below; undefined where there is none. */
  readonly cores: number | undefined;
  /** Milliseconds of all rests. */
  readonly restedMs: number;
}

/** The pace, for work that rests. */
export interface Pace {
  /** Whether there is a quota to keep below. */
  readonly isPaced: boolean;
  readonly figures: PaceFigures;
  /** Whether work should wait. */
  rests(): boolean;
  /** Runs this after the rest; in the next turn of the event loop where there is none. In the order in which they came. */
  whenOpen(run: () => void): void;
}

/** The pace of this process. */
export class CpuPace implements Pace {
  readonly #sources: Required<PaceSources>;
  readonly #forget: () => void;
  #quota: CpuQuota | undefined;
  /** Milliseconds of the processor that ordinary work has left; below zero where more was used. */
  #leftMs = 0;
  #lookedAt = 0;
  #threadMs = 0;
  #groupLookedAt = 0;
  /** Of the group, and of the first thread at the same moment. */
  #groupMs = 0;
  #groupThreadMs = 0;
  #restsSince: number | undefined;
  #restedMs = 0;
  #waiting: (() => void)[] = [];

  constructor(sources: PaceSources) {
    this.#sources = { threadMs: threadCpuMs, processMs: cpuMs, ...sources };
    this.#forget = every(FIND_MS, () => this.#find());
    this.#find();
  }

  get isPaced(): boolean {
    return this.#quota !== undefined;
  }

  get figures(): PaceFigures {
    return { cores: this.#quota?.cores, restedMs: this.#restedMs };
  }

  rests(): boolean {
    if (this.#quota === undefined) return false;
    const at = steadyNow();
    if (at - this.#lookedAt >= LOOK_MS) this.#look(this.#quota, at);
    if (this.#restsSince === undefined && this.#leftMs <= 0) {
      this.#restsSince = at;
      this.#wakeLater(this.#quota, at);
    }
    return this.#restsSince !== undefined;
  }

  whenOpen(run: () => void): void {
    if (this.#restsSince === undefined) setImmediate(run);
    else this.#waiting.push(run);
  }

  /** Nothing rests any more. */
  close(): void {
    this.#forget();
    this.#take(undefined);
  }

  #find(): void {
    const found = this.#sources.find();
    if (found?.place !== this.#quota?.place || found?.cores !== this.#quota?.cores) this.#take(found);
  }

  #take(quota: CpuQuota | undefined): void {
    const at = steadyNow();
    this.#quota?.close();
    this.#quota = quota;
    if (quota === undefined) {
      this.#open(at);
      return;
    }
    this.#leftMs = burstOf(quota);
    this.#lookedAt = at;
    this.#threadMs = this.#sources.threadMs();
    this.#groupLookedAt = at;
    this.#groupMs = this.#groupNow(quota);
    this.#groupThreadMs = this.#threadMs;
  }

  /** The usage of all under the quota; of this process alone where the kernel does not tell. */
  #groupNow(quota: CpuQuota): number {
    return quota.readUsedMs() ?? this.#sources.processMs();
  }

  /** Pays for what was used since the last look. */
  #look(quota: CpuQuota, at: number): void {
    const threadMs = this.#sources.threadMs();
    let usedMs = Math.max(0, threadMs - this.#threadMs);
    if (at - this.#groupLookedAt >= GROUP_MS) {
      const groupMs = this.#groupNow(quota);
      const othersMs = groupMs - this.#groupMs - (threadMs - this.#groupThreadMs);
      usedMs += Math.max(0, Math.min(othersMs, (at - this.#groupLookedAt) * quota.cores * MOST_OTHERS));
      this.#groupLookedAt = at;
      this.#groupMs = groupMs;
      this.#groupThreadMs = threadMs;
    }
    const filled = Math.min(burstOf(quota), this.#leftMs + (at - this.#lookedAt) * rateOf(quota));
    this.#leftMs = Math.max(-MOST_REST_MS * rateOf(quota), filled - usedMs);
    this.#lookedAt = at;
    this.#threadMs = threadMs;
  }

  #wakeLater(quota: CpuQuota, at: number): void {
    const most = (this.#restsSince ?? at) + MOST_REST_MS - at;
    after(Math.max(1, Math.min(most, Math.ceil((chunkOf(quota) - this.#leftMs) / rateOf(quota)))), this.#wake);
  }

  readonly #wake = (): void => {
    const quota = this.#quota;
    if (quota === undefined || this.#restsSince === undefined) return;
    const at = steadyNow();
    this.#look(quota, at);
    // What was begun before the rest goes on in it, and is paid for.
    const least = chunkOf(quota) / 2;
    if (this.#leftMs < least && at - this.#restsSince < MOST_REST_MS) {
      this.#wakeLater(quota, at);
      return;
    }
    this.#leftMs = Math.max(this.#leftMs, least);
    this.#open(at);
  };

  /** Lets those go on who wait, as far as there is something left. */
  #open(at: number): void {
    if (this.#restsSince !== undefined) this.#restedMs += at - this.#restsSince;
    this.#restsSince = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    let next = 0;
    try {
      while (next < waiting.length && !this.rests()) waiting[next++]?.();
    } finally {
      // Before those that have come meanwhile.
      this.#waiting = [...waiting.slice(next), ...this.#waiting];
    }
  }
}

/** Processor time that comes to ordinary work in each millisecond. */
const rateOf = ({ cores }: CpuQuota): number => cores * SHARE;
const burstOf = ({ cores }: CpuQuota): number => cores * PERIOD_MS * BURST;
const chunkOf = ({ cores }: CpuQuota): number => cores * PERIOD_MS * CHUNK;
