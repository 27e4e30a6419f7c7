/**
 * Plan digests for the request log. Equal requests share one digest, built at most once a second and written in the background, so that a
 * call pays only for a lookup. A call's record has the digest's name and the order of its plan.
 */
import { createHash } from "node:crypto";
import { after, steadyNow } from "../clock.ts";
import type { GivenInput } from "../contracts/inputs.ts";
import { digestOf, type Plan, type PlanArgs, type PlanDigest } from "../routing/index.ts";

/** The part of a call's record that describes its plan. */
interface LoggedPlan {
  /** The digest's name. */
  readonly id: string;
  /**
   * The plan's offerings in order, separated by spaces: indexes into the digest's eligible offerings, or ids of offerings that it does not
   * list.
   */
  readonly ranks: string;
}

/** A digest with its name. */
export interface NamedDigest {
  readonly id: string;
  readonly digest: PlanDigest;
}

/** Age after which a digest is rebuilt: breakers and measured figures change. */
const FRESH_MS = 1_000;
/** Maximum share of time spent on building digests. Beyond it, older digests are used, or none. */
const MOST_SHARE = 0.02;
/** Maximum number of request kinds with a cached digest. */
const MOST_KINDS = 1_024;
/** Longer keys are replaced by their hash. */
const LONGEST_KIND = 1_024;
/** Maximum number of digests known to be written, and of those waiting. */
const MOST_WRITTEN = 10_000;
const MOST_UNWRITTEN = 1_000;
const WRITE_MS = 1_000;
/** Age after which a digest is written again, so that retention does not delete one that calls still name. */
const USED_MS = 12 * 3_600_000;
/** Maximum number of plan steps whose order is recorded. */
const MOST_RANKS = 16;

interface Known {
  readonly snapshot: PlanArgs["snapshot"];
  readonly madeAt: number;
  readonly id: string;
  readonly places: ReadonlyMap<string, number>;
}

/** The digests of one replica. */
export class PlanDigests {
  readonly #write: (digests: readonly NamedDigest[]) => Promise<void>;
  readonly #known = new Map<string, Known>();
  readonly #written = new Map<string, number>();
  readonly #unwritten = new Map<string, PlanDigest>();
  /** Time budget in milliseconds, and when it was last updated. */
  #leftMs = 0;
  #at = Number.NEGATIVE_INFINITY;
  #writing: Promise<void> | undefined;
  #forgetTimer: (() => void) | undefined;

  /** `write` stores digests; existing ones stay. */
  constructor(write: (digests: readonly NamedDigest[]) => Promise<void>) {
    this.#write = write;
  }

  /** Returns the log's description of a plan, or of a request without a plan; undefined if the time budget is used up. */
  of(args: PlanArgs, plan: Plan | undefined): LoggedPlan | undefined {
    const kind = kindOf(args);
    let known = this.#known.get(kind);
    if (known === undefined || known.snapshot !== args.snapshot || args.now - known.madeAt >= FRESH_MS)
      known = this.#make(kind, args) ?? known;
    if (known === undefined) return undefined;
    return { id: known.id, ranks: plan === undefined ? "" : ranksOf(plan, known.places) };
  }

  /** Writes the waiting digests and accepts no more. */
  async close(): Promise<void> {
    this.#forgetTimer?.();
    await this.#writing;
    await this.#writeAll();
  }

  #make(kind: string, args: PlanArgs): Known | undefined {
    const at = steadyNow();
    this.#leftMs = Math.min(FRESH_MS * MOST_SHARE, this.#leftMs + (at - this.#at) * MOST_SHARE);
    this.#at = at;
    if (this.#leftMs <= 0) return undefined;
    const digest = digestOf(args);
    if (digest === undefined) return undefined;
    const id = nameOf(digest);
    const places = new Map(digest.able.map(({ offering_id }, place) => [offering_id, place]));
    const known = { snapshot: args.snapshot, madeAt: args.now, id, places };
    this.#known.delete(kind);
    this.#known.set(kind, known);
    if (this.#known.size > MOST_KINDS) this.#known.delete(this.#known.keys().next().value!);
    this.#keep(id, digest, at);
    this.#leftMs -= steadyNow() - at;
    return known;
  }

  #keep(id: string, digest: PlanDigest, at: number): void {
    const writtenAt = this.#written.get(id);
    if (writtenAt !== undefined && at - writtenAt < USED_MS) return;
    if (this.#unwritten.size >= MOST_UNWRITTEN) return;
    this.#unwritten.set(id, digest);
    this.#forgetTimer ??= after(WRITE_MS, () => {
      this.#forgetTimer = undefined;
      this.#writing = this.#writeAll();
    });
  }

  async #writeAll(): Promise<void> {
    const waiting = [...this.#unwritten].map(([id, digest]) => ({ id, digest }));
    if (waiting.length === 0) return;
    this.#unwritten.clear();
    const at = steadyNow();
    // A failed write is repeated when the digest is next built; no call waits for it.
    const isWritten = await this.#write(waiting).then(yes, no);
    if (!isWritten) return;
    for (const { id } of waiting) {
      this.#written.delete(id);
      this.#written.set(id, at);
      if (this.#written.size > MOST_WRITTEN) this.#written.delete(this.#written.keys().next().value!);
    }
  }
}

const yes = (): boolean => true;
const no = (): boolean => false;

/** The shared part of equal requests: everything that offerings are dropped for, except measured figures. */
function kindOf({ intent, scope, ownKeys, readPicture, meaning }: PlanArgs): string {
  const { contract, model, models, preference, provider, actionSpace, embodiment, units, extent, parameters } = intent;
  const wanted = provider && { ...provider, sessionId: undefined };
  const { models: allowed, environment, orgId, reach, settings } = scope;
  const asked = [contract, model, models, preference, wanted, actionSpace, embodiment, units, extent, parameters];
  const may = [orgId, allowed, environment, reach, settings?.zdr, settings?.allowedRegions, ownKeys !== undefined];
  const kind = JSON.stringify([asked, may, intent.given && shapeOf(intent.given, readPicture), meaning]);
  return kind.length <= LONGEST_KIND ? kind : createHash("sha256").update(kind).digest("base64url");
}

/** The part of the input that input contracts check, without images and numbers themselves. */
function shapeOf(
  { observations, instruction, goalImage }: GivenInput,
  readPicture: PlanArgs["readPicture"],
): unknown[] {
  const seen = observations.at(-1);
  const cameras = seen?.frames.map((frame) => {
    const { width, height, format } = readPicture?.(frame) ?? frame;
    return [frame.camera, width, height, format];
  });
  const words = (instruction ?? "") !== "";
  return [observations.length, cameras, seen?.proprio.length, seen?.proprioNames, words, goalImage !== undefined];
}

const nameOf = (digest: PlanDigest): string =>
  `pl_${createHash("sha256").update(JSON.stringify(digest)).digest("base64url").slice(0, 22)}`;

function ranksOf({ steps }: Plan, places: ReadonlyMap<string, number>): string {
  let ranks = "";
  const most = Math.min(steps.length, MOST_RANKS);
  for (let i = 0; i < most; i++) {
    const { id } = steps[i]!.offering;
    ranks += `${i === 0 ? "" : " "}${places.get(id) ?? id}`;
  }
  return ranks;
}
