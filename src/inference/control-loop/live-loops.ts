/**
 * A live view of the control loops of all replicas. A replica with watchers announces them once a second; the others then send it the state
 * of their loops once a second. Without watchers nothing is sent and no timer runs.
 */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  type LoopsTold,
  LoopsToldSchema,
  LoopsWantedSchema,
  type LoopTalk,
  LoopTalkSchema,
} from "../../../gen/limber/replica/v1/loops_pb.ts";
import { type RunningLoop, RunningLoopSchema } from "../../../gen/limber/v1/loop_pb.ts";
import type { Signal } from "../../cancellation.ts";
import { after, every, steadyNow } from "../../clock.ts";
import { inSlices, type Sliced } from "../../slices.ts";
import type { Carried } from "./loop-registry.ts";

/** Dependencies of the live view. */
interface LiveLoopsDeps {
  /** The name of this replica. */
  readonly replica: string;
  readonly loops: { each(visit: (loop: Carried) => void): void };
  /** Sends a message to all replicas. Messages can be lost. */
  readonly sender: { readonly mostBytes: number; say(word: Uint8Array): Promise<void> };
  /** The names of the other live replicas. */
  others(): Promise<readonly string[]>;
}

const TICK_MS = 1_000;
/** Milliseconds for which another replica's request stays valid. */
const WANTED_MS = 3_500;
/** Milliseconds after which a loop of another replica is dropped if nothing more is received about it. */
const STALE_MS = 3_500;
/** Milliseconds for which a view is kept after its last watcher, for clients that poll. */
const LINGER_MS = 3_000;
/** Maximum number of loops of one organization that a replica sends: those opened first. */
const MOST_TOLD = 2_000;
/** Bytes of framing around one loop, around an organization's name, and around a message. */
const FRAMING = 8;
const NAME = 80;
const ENVELOPE = 160;

/** A loop in the view. */
interface Entry {
  readonly loop: RunningLoop;
  /** The tick of its last change. */
  readonly version: number;
  /** The replica that runs it. */
  readonly replica: string;
  readonly heardAt: number;
}

/** One report of another replica, which may have several parts. */
interface Round {
  readonly round: number;
  readonly parts: Set<number>;
  readonly ids: Set<string>;
}

/** The known loops of one organization while it is watched. */
class OrgView {
  watchers = 0;
  /** When the last watcher left. */
  leftAt = Number.NEGATIVE_INFINITY;
  /** Number of ticks. */
  version = 1;
  readonly entries = new Map<string, Entry>();
  /** Replicas that have sent a complete report since the watch began. */
  readonly answered = new Set<string>();
  readonly #rounds = new Map<string, Round>();
  readonly #waiting = new Set<() => void>();

  /** Runs a function once, at the next tick or report. The returned function cancels it. */
  wait(run: () => void): () => void {
    this.#waiting.add(run);
    return () => this.#waiting.delete(run);
  }

  wake(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const run of waiting) run();
  }

  /** Stores all loops of this replica and removes those that have ended. */
  putOwn(loops: readonly RunningLoop[], replica: string, at: number): void {
    for (const loop of loops) this.#put(loop, { replica, heardAt: at, version: this.version });
    for (const [id, entry] of this.entries)
      if (entry.replica === replica && entry.heardAt < at) this.entries.delete(id);
  }

  /** Stores a part of another replica's report. Loops missing from the complete report have ended. */
  hear(replica: string, { round, part, parts, loops }: LoopsTold, at: number): void {
    let telling = this.#rounds.get(replica);
    if (telling && round < telling.round) return;
    if (!telling || round > telling.round) telling = { round, parts: new Set(), ids: new Set() };
    this.#rounds.set(replica, telling);
    telling.parts.add(part);
    for (const bytes of loops) {
      const loop = readLoop(bytes);
      if (!loop) continue;
      telling.ids.add(loop.id);
      // What arrives between two ticks counts as changed at the next.
      this.#put(loop, { replica, heardAt: at, version: this.version + 1 });
    }
    if (telling.parts.size < parts) return;
    for (const [id, entry] of this.entries)
      if (entry.replica === replica && !telling.ids.has(id)) this.entries.delete(id);
    if (this.answered.has(replica)) return;
    this.answered.add(replica);
    this.wake();
  }

  #put(loop: RunningLoop, told: Omit<Entry, "loop">): void {
    const before = this.entries.get(loop.id);
    if (before && isAlike(before.loop, loop)) this.entries.set(loop.id, { ...before, heardAt: told.heardAt });
    else this.entries.set(loop.id, { loop, ...told });
  }

  /** Drops loops and reports of replicas that no longer send any. */
  sweep(at: number): void {
    const heard = new Set<string>();
    for (const [id, { heardAt, replica }] of this.entries) {
      if (at - heardAt < STALE_MS) heard.add(replica);
      else this.entries.delete(id);
    }
    for (const replica of this.#rounds.keys())
      if (!heard.has(replica) && this.#rounds.size > MOST_ROUNDS) this.#rounds.delete(replica);
  }
}

/** Whether the visible figures of a loop are unchanged. */
const isAlike = (a: RunningLoop, b: RunningLoop): boolean =>
  a.chunks === b.chunks &&
  a.state === b.state &&
  a.rateHz === b.rateHz &&
  a.worstHz === b.worstHz &&
  a.ageP99Ms === b.ageP99Ms &&
  a.ageP50Ms === b.ageP50Ms &&
  a.droppedObservations === b.droppedObservations &&
  a.episode === b.episode &&
  sumOf(a.holds) === sumOf(b.holds);

function sumOf(holds: Readonly<Record<string, number>>): number {
  let sum = 0;
  for (const count of Object.values(holds)) sum += count;
  return sum;
}

/** Maximum number of replicas whose last reports are kept. */
const MOST_ROUNDS = 256;

/** A watch of one organization's loops. */
export interface LoopWatch {
  /**
   * Resolves when every replica has reported, or after `ms`, with the number of replicas that have and have not. Rejects with the signal's
   * reason.
   */
  settled(ms: number, signal: Signal): Promise<{ replicas: number; silent: number }>;
  /** Resolves at the next tick, one second after the last. Rejects with the signal's reason. */
  next(signal: Signal): Promise<void>;
  /** The known loops by id, each with a version that grows when it changes. */
  readonly loops: ReadonlyMap<string, { readonly loop: RunningLoop; readonly version: number }>;
  /** Number of ticks. The view also changes between ticks, as reports arrive. */
  readonly tick: number;
  /** Ends the watch. */
  close(): void;
}

/** The live view of one replica. */
export class LiveLoops {
  readonly #deps: LiveLoopsDeps;
  readonly #views = new Map<string, OrgView>();
  /** By organization: until when another replica requests reports. */
  readonly #wanted = new Map<string, number>();
  #round = 0;
  #rest: (() => void) | undefined;
  #telling: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(deps: LiveLoopsDeps) {
    this.#deps = deps;
  }

  /** Whether the timer runs. */
  get isActive(): boolean {
    return this.#rest !== undefined;
  }

  /** Starts to watch an organization's loops. */
  watch(orgId: string): LoopWatch {
    let view = this.#views.get(orgId);
    if (view === undefined) {
      view = new OrgView();
      this.#views.set(orgId, view);
      this.#want([orgId], true);
      const at = steadyNow();
      view.putOwn(this.#shown(new Set([orgId]), at).get(orgId) ?? [], this.#deps.replica, at);
      this.#run();
    }
    return this.#watchOn(view);
  }

  /** Handles a message and returns whether another replica sent it. Ignores messages that it cannot read. */
  hear(word: Uint8Array): boolean {
    const talk = read(word);
    if (!talk || talk.replica === "" || talk.replica === this.#deps.replica || this.#closed) return false;
    const { replica, message } = talk;
    const at = steadyNow();
    if (message.case === "told") this.#views.get(message.value.orgId)?.hear(replica, message.value, at);
    else if (message.case === "wanted") {
      const { orgIds, now } = message.value;
      for (const orgId of orgIds) this.#wanted.set(orgId, at + WANTED_MS);
      if (now) this.#tell(new Set(orgIds), at);
      this.#run();
    }
    return true;
  }

  /** Stops sending and receiving. */
  close(): void {
    this.#closed = true;
    this.#rest?.();
    this.#rest = undefined;
    for (const view of this.#views.values()) view.wake();
  }

  #watchOn(view: OrgView): LoopWatch {
    view.watchers += 1;
    let isOver = false;
    const { others } = this.#deps;
    const waitFor = (signal: Signal, ms: number | undefined, isDone: () => boolean): Promise<void> =>
      new Promise((resolve, reject) => {
        if (signal.aborted) return reject(signal.reason);
        const end = (settle: () => void): void => {
          forgetWake();
          forgetTime();
          signal.removeEventListener("abort", leave);
          settle();
        };
        const leave = (): void => end(() => reject(signal.reason));
        const look = (): void => {
          if (isDone()) end(resolve);
          else forgetWake = view.wait(look);
        };
        let forgetWake = view.wait(look);
        const forgetTime = ms === undefined ? nothing : after(ms, () => end(resolve));
        signal.addEventListener("abort", leave, { once: true });
      });
    return {
      loops: view.entries,
      get tick() {
        return view.version;
      },
      async settled(ms, signal) {
        const awaited = await others().catch((): readonly string[] => []);
        const silent = (): number => awaited.filter((replica) => !view.answered.has(replica)).length;
        if (silent() > 0) await waitFor(signal, ms, () => silent() === 0);
        return { replicas: 1 + awaited.length - silent(), silent: silent() };
      },
      next: (signal) => {
        const { version } = view;
        return waitFor(signal, undefined, () => view.version !== version || this.#closed);
      },
      close() {
        if (isOver) return;
        isOver = true;
        view.watchers -= 1;
        view.leftAt = steadyNow();
      },
    };
  }

  #run(): void {
    if (!this.#closed) this.#rest ??= every(TICK_MS, () => this.#tick());
  }

  #tick(): void {
    const at = steadyNow();
    for (const [orgId, { watchers, leftAt }] of this.#views)
      if (watchers === 0 && at - leftAt >= LINGER_MS) this.#views.delete(orgId);
    for (const [orgId, until] of this.#wanted) if (at >= until) this.#wanted.delete(orgId);
    if (this.#views.size === 0 && this.#wanted.size === 0) {
      this.#rest?.();
      this.#rest = undefined;
      return;
    }
    this.#want([...this.#views.keys()], false);
    const own = this.#shown(this.#views, at);
    for (const [orgId, view] of this.#views) {
      view.version += 1;
      view.putOwn(own.get(orgId) ?? [], this.#deps.replica, at);
      view.sweep(at);
      view.wake();
    }
    this.#tell(this.#wanted, at);
  }

  /** Returns the present loops of some organizations on this replica. */
  #shown(orgs: { has(orgId: string): boolean }, at: number): Map<string, RunningLoop[]> {
    const shown = new Map<string, RunningLoop[]>();
    this.#deps.loops.each((loop) => {
      const { orgId } = loop.mover.key;
      if (!orgs.has(orgId)) return;
      const known = shown.get(orgId) ?? [];
      shown.set(orgId, known);
      if (known.length < MOST_TOLD) known.push(loop.shown(at));
    });
    return shown;
  }

  #want(orgIds: readonly string[], now: boolean): void {
    const most = Math.max(1, Math.floor((this.#deps.sender.mostBytes - ENVELOPE) / NAME));
    for (let from = 0; from < orgIds.length; from += most)
      this.#say({ case: "wanted", value: create(LoopsWantedSchema, { orgIds: orgIds.slice(from, from + most), now }) });
  }

  /** Sends the loops of some organizations, one report after the other. */
  #tell(orgs: ReadonlySet<string> | ReadonlyMap<string, number>, at: number): void {
    if (orgs.size === 0) return;
    const shown = this.#shown(orgs, at);
    const all = [...orgs.keys()].map((orgId) => [orgId, shown.get(orgId) ?? []] as const);
    this.#telling = this.#telling.then(async () => {
      for (const [orgId, loops] of all) {
        const parts = await inSlices(partsOf(loops, this.#deps.sender.mostBytes - ENVELOPE));
        const round = ++this.#round;
        parts.forEach((bytes, part) => {
          const told = create(LoopsToldSchema, { orgId, round, part, parts: parts.length, loops: bytes });
          this.#say({ case: "told", value: told });
        });
      }
    });
  }

  #say(message: LoopTalk["message"]): void {
    const talk = create(LoopTalkSchema, { replica: this.#deps.replica, message });
    if (!this.#closed) void this.#deps.sender.say(toBinary(LoopTalkSchema, talk));
  }
}

/** Encodes loops in parts that each fit into a message; an empty list gives one part. */
function* partsOf(loops: readonly RunningLoop[], mostBytes: number): Sliced<Uint8Array[][]> {
  const parts: Uint8Array[][] = [[]];
  let size = 0;
  for (const loop of loops) {
    const bytes = toBinary(RunningLoopSchema, loop);
    if (size > 0 && size + bytes.length + FRAMING > mostBytes) {
      parts.push([]);
      size = 0;
    }
    parts.at(-1)!.push(bytes);
    size += bytes.length + FRAMING;
    yield;
  }
  return parts;
}

function read(word: Uint8Array): LoopTalk | undefined {
  try {
    return fromBinary(LoopTalkSchema, word);
  } catch {
    return undefined;
  }
}

function readLoop(bytes: Uint8Array): RunningLoop | undefined {
  try {
    return fromBinary(RunningLoopSchema, bytes);
  } catch {
    return undefined;
  }
}

const nothing = (): void => {};
