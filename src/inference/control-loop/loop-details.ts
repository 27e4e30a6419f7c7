/**
 * What watched control loops do now: their last chunks, and small pictures of their cameras. A loop keeps its newest observation only while
 * its pictures are watched; without watchers nothing is kept, sent or scaled, and no timer runs. Nothing is stored anywhere.
 */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  DetailsReportSchema,
  DetailsWantedSchema,
  type DetailTalk,
  DetailTalkSchema,
} from "../../../gen/limber/replica/v1/loop_details_pb.ts";
import { type LoopAction, type LoopPicture, LoopPictureSchema } from "../../../gen/limber/v1/loop_pb.ts";
import type { Frame } from "../../../gen/limber/v1/observation_pb.ts";
import type { Signal } from "../../cancellation.ts";
import { every, steadyNow } from "../../clock.ts";
import { thumbnailOf } from "../../upstream/pictures/thumbnail.ts";
import type { Carried } from "./loop-registry.ts";

/** Dependencies of the details. */
interface LoopDetailsDeps {
  /** The name of this replica. */
  readonly replica: string;
  readonly loops: { each(visit: (loop: Carried) => void): void };
  /** Sends a message to all replicas. Messages can be lost. */
  readonly sender: { readonly mostBytes: number; say(word: Uint8Array): Promise<void> };
}

/** What is watched of a loop. */
export type DetailKind = "action" | "pictures";

/** What is known of a loop. */
export interface LoopDetail {
  /** The workspace of the loop's key. */
  readonly workspaceId: string | undefined;
  readonly robotId: string | undefined;
  /** Its last chunk; undefined before the first one, and if pictures are watched. */
  readonly action: LoopAction | undefined;
  readonly pictures: readonly LoopPicture[];
  /** The organization retains no data, so its pictures are not shown. */
  readonly withheld: boolean;
}

/** A watch of some loops. */
interface DetailWatch {
  /** Resolves at the next tick, half a second after the last. Rejects with the signal's reason. */
  next(signal: Signal): Promise<void>;
  /** The newest detail of a loop, with a version that grows when it changes; undefined while it is unknown. */
  of(id: string): { readonly detail: LoopDetail; readonly version: number } | undefined;
  /** Ends the watch. */
  close(): void;
}

/** Two a second at most: the rate at which people can follow pictures. */
const TICK_MS = 500;
/** Milliseconds for which another replica's request, and a loop's own watch, stays valid. */
const WANTED_MS = 2_500;
const STALE_MS = 3_000;
/** Maximum number of cameras of one loop. */
const MOST_CAMERAS = 4;
/** Maximum number of pictures scaled per tick on this replica; loops take turns beyond. */
const MOST_SCALED = 8;
/** Maximum bytes of pictures per tick on this replica; loops take turns beyond. */
const MOST_BYTES = 1 << 20;
const ENVELOPE = 256;
/** Pictures are sent only over a transport whose messages are at least this large, which PostgreSQL's are not. */
const LEAST_BYTES = 100_000;

interface Known {
  readonly detail: LoopDetail;
  readonly version: number;
  readonly at: number;
}

/** One loop's detail while it is watched here. */
interface View {
  watchers: number;
  known: Known | undefined;
}

const keyOf = (orgId: string, kind: DetailKind, id: string): string => `${kind} ${orgId} ${id}`;

/** The details of one replica. */
export class LoopDetails {
  readonly #deps: LoopDetailsDeps;
  readonly #views = new Map<string, View>();
  /** Until when another replica requests a detail. */
  readonly #wanted = new Map<string, number>();
  /** Loops whose pictures are being scaled. */
  readonly #scaling = new Set<string>();
  readonly #waiting = new Set<() => void>();
  #rest: (() => void) | undefined;
  #version = 0;
  /** The loop with which the next tick begins. */
  #turn = 0;
  #closed = false;

  constructor(deps: LoopDetailsDeps) {
    this.#deps = deps;
  }

  /** Whether the timer runs. */
  get isActive(): boolean {
    return this.#rest !== undefined;
  }

  /** Starts to watch some loops of an organization. */
  watch(orgId: string, kind: DetailKind, ids: readonly string[]): DetailWatch {
    const keys = new Map(ids.map((id) => [id, keyOf(orgId, kind, id)]));
    for (const key of keys.values()) {
      const view = this.#views.get(key) ?? { watchers: 0, known: undefined };
      view.watchers += 1;
      this.#views.set(key, view);
    }
    if (!this.#closed) this.#rest ??= every(TICK_MS, () => this.#tick());
    let isOver = false;
    return {
      next: (signal) => this.#next(signal),
      of: (id) => this.#views.get(keys.get(id) ?? "")?.known,
      close: () => {
        if (isOver) return;
        isOver = true;
        for (const key of keys.values()) {
          const view = this.#views.get(key);
          if (view !== undefined && --view.watchers === 0) this.#views.delete(key);
        }
      },
    };
  }

  /** Handles a message and returns whether another replica sent it. Ignores messages that it cannot read. */
  hear(word: Uint8Array): boolean {
    const talk = read(word);
    if (!talk || talk.replica === "" || talk.replica === this.#deps.replica || this.#closed) return false;
    const { message } = talk;
    const at = steadyNow();
    if (message.case === "wanted") {
      for (const key of message.value.keys.slice(0, MOST_WANTED)) this.#wanted.set(key, at + WANTED_MS);
      this.#rest ??= every(TICK_MS, () => this.#tick());
    } else if (message.case === "report") {
      const { key, workspaceId, robotId, action, pictures, withheld } = message.value;
      const view = this.#views.get(key);
      if (view) this.#put(view, { workspaceId, robotId, action, pictures, withheld });
    }
    return true;
  }

  /** Stops sending and receiving. */
  close(): void {
    this.#closed = true;
    this.#rest?.();
    this.#rest = undefined;
    this.#wake();
  }

  #next(signal: Signal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      if (this.#closed) return resolve();
      const leave = (): void => {
        this.#waiting.delete(wake);
        reject(signal.reason);
      };
      const wake = (): void => {
        signal.removeEventListener("abort", leave);
        resolve();
      };
      this.#waiting.add(wake);
      signal.addEventListener("abort", leave, { once: true });
    });
  }

  #wake(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  #tick(): void {
    const at = steadyNow();
    for (const [key, until] of this.#wanted) if (at >= until) this.#wanted.delete(key);
    for (const view of this.#views.values())
      if (view.known !== undefined && at - view.known.at >= STALE_MS) view.known = undefined;
    if (this.#views.size === 0 && this.#wanted.size === 0) {
      this.#rest?.();
      this.#rest = undefined;
      return;
    }
    const missing = new Set(this.#views.keys());
    const pictured: Carried[] = [];
    this.#deps.loops.each((loop) => {
      const { orgId } = loop.mover.key;
      const action = keyOf(orgId, "action", loop.id);
      if (this.#isWanted(action)) this.#report(action, detailOf(loop, { action: loop.lastAction(at) }));
      const pictures = keyOf(orgId, "pictures", loop.id);
      if (this.#isWanted(pictures)) pictured.push(loop);
      missing.delete(action);
      missing.delete(pictures);
    });
    this.#showInTurn(pictured, at);
    this.#want([...missing]);
    this.#wake();
  }

  #isWanted(key: string): boolean {
    return this.#views.has(key) || this.#wanted.has(key);
  }

  /** Shows the pictures of loops, each in its turn, as far as this tick's budget reaches. */
  #showInTurn(loops: readonly Carried[], at: number): void {
    const budget = { bytes: MOST_BYTES, scaled: MOST_SCALED };
    let shown = 0;
    for (; shown < loops.length && budget.bytes > 0 && budget.scaled > 0; shown++) {
      const loop = loops[(this.#turn + shown) % loops.length]!;
      const key = keyOf(loop.mover.key.orgId, "pictures", loop.id);
      if (loop.isPrivate) this.#report(key, detailOf(loop, { withheld: true }));
      else this.#showOne(key, loop, loop.newestFrames(at + WANTED_MS), budget);
    }
    this.#turn = loops.length === 0 ? 0 : (this.#turn + shown) % loops.length;
  }

  #showOne(
    key: string,
    loop: Carried,
    frames: readonly Frame[] | undefined,
    budget: { bytes: number; scaled: number },
  ): void {
    if (frames === undefined || this.#scaling.has(key)) return;
    const made = frames.slice(0, MOST_CAMERAS).map((frame) => ({ camera: frame.camera, small: thumbnailOf(frame) }));
    const ready = (small: (typeof made)[number]["small"]) => (typeof small === "function" ? small() : small);
    budget.scaled -= made.filter(({ small }) => typeof small === "function").length;
    this.#scaling.add(key);
    void Promise.all(made.map(async ({ camera, small }) => ({ camera, small: await ready(small) })))
      .then((all) => {
        const pictures = all.flatMap(({ camera, small }) =>
          small === undefined ? [] : [create(LoopPictureSchema, { loopId: loop.id, camera, ...small })],
        );
        // Pictures of an organization that has just stopped retaining data are dropped.
        if (!loop.isPrivate) this.#report(key, detailOf(loop, { pictures }));
      })
      .finally(() => this.#scaling.delete(key));
    for (const { small } of made) if (typeof small === "object") budget.bytes -= small.data.length;
  }

  #put(view: View, detail: LoopDetail): void {
    view.known = { detail, version: ++this.#version, at: steadyNow() };
  }

  /** Shows a detail to the watchers here, and to those of other replicas. */
  #report(key: string, detail: LoopDetail): void {
    const view = this.#views.get(key);
    if (view) this.#put(view, detail);
    if (!this.#wanted.has(key)) return;
    // The database would spool them to disk.
    if (detail.pictures.length > 0 && this.#deps.sender.mostBytes < LEAST_BYTES) return;
    const { workspaceId, robotId, action, pictures, withheld } = detail;
    const report = create(DetailsReportSchema, {
      key,
      pictures: [...pictures],
      withheld,
      ...(workspaceId !== undefined && { workspaceId }),
      ...(robotId !== undefined && { robotId }),
      ...(action !== undefined && { action }),
    });
    this.#send({ case: "report", value: report });
  }

  #want(keys: readonly string[]): void {
    for (let from = 0; from < keys.length; from += MOST_WANTED)
      this.#send({
        case: "wanted",
        value: create(DetailsWantedSchema, { keys: keys.slice(from, from + MOST_WANTED) }),
      });
  }

  /** Sends what fits into a message. */
  #send(message: DetailTalk["message"]): void {
    const bytes = toBinary(DetailTalkSchema, create(DetailTalkSchema, { replica: this.#deps.replica, message }));
    if (!this.#closed && bytes.length <= this.#deps.sender.mostBytes - ENVELOPE) void this.#deps.sender.say(bytes);
  }
}

/** Maximum number of keys per message. */
const MOST_WANTED = 32;

const detailOf = (loop: Carried, more: Partial<LoopDetail>): LoopDetail => ({
  workspaceId: loop.mover.key.workspaceId,
  robotId: loop.mover.robotIds.find((id) => id !== undefined),
  action: undefined,
  pictures: [],
  withheld: false,
  ...more,
});

function read(word: Uint8Array): DetailTalk | undefined {
  try {
    return fromBinary(DetailTalkSchema, word);
  } catch {
    return undefined;
  }
}
