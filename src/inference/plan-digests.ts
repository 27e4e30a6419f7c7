/**
 * Digests of plans for the log. Calls that ask for the same thing share one, which is made at most once a second and written apart from them, so
 * that a call pays for looking it up alone; a call's own record has the digest's name and the order of its plan.
 */
import { createHash } from "node:crypto";
import { after, steadyNow } from "../clock.ts";
import type { GivenInput } from "../contracts/inputs.ts";
import { digestOf, type Plan, type PlanArgs, type PlanDigest } from "../routing/index.ts";

/** What a call's record has of its plan. */
interface LoggedPlan {
  /** Names the digest. */
  readonly id: string;
  /** The plan in its order, divided by spaces: places among what the digest says could serve, or names of offerings that it does not name. */
  readonly ranks: string;
}

/** A digest with its name. */
export interface NamedDigest {
  readonly id: string;
  readonly digest: PlanDigest;
}

/** A digest is made anew after this long: breakers and measured figures change. */
const FRESH_MS = 1_000;
/** Making digests takes at most this share of the time; then older ones stand, and calls that have none have none. */
const MOST_SHARE = 0.02;
/** Kinds of requests whose digest is remembered. */
const MOST_KINDS = 1_024;
/** What asks for more in words is remembered by its hash. */
const LONGEST_KIND = 1_024;
/** Digests that are known to be written, and those that wait for it. */
const MOST_WRITTEN = 10_000;
const MOST_UNWRITTEN = 1_000;
const WRITE_MS = 1_000;
/** What is written again after this long, so that no digest is forgotten that calls still name. */
const USED_MS = 12 * 3_600_000;
/** Steps of a plan whose order is kept. */
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
  /** Milliseconds that may be spent, and when that was last reckoned. */
  #leftMs = 0;
  #at = Number.NEGATIVE_INFINITY;
  #writing: Promise<void> | undefined;
  #forgetTimer: (() => void) | undefined;

  /** `write` keeps digests; one that is there already stays. */
  constructor(write: (digests: readonly NamedDigest[]) => Promise<void>) {
    this.#write = write;
  }

  /** What the log keeps of a plan; of a request that nothing may serve, where there is none. Undefined where there is no time for it. */
  of(args: PlanArgs, plan: Plan | undefined): LoggedPlan | undefined {
    const kind = kindOf(args);
    let known = this.#known.get(kind);
    if (known === undefined || known.snapshot !== args.snapshot || args.now - known.madeAt >= FRESH_MS)
      known = this.#make(kind, args) ?? known;
    if (known === undefined) return undefined;
    return { id: known.id, ranks: plan === undefined ? "" : ranksOf(plan, known.places) };
  }

  /** Writes what waits, and no more after that. */
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
    // What is not written now is when it is next made: no call waits for it.
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

/** What alike requests have in common: all that offerings are dropped by, but for figures of the moment. */
function kindOf({ intent, scope, ownKeys, readPicture, meaning }: PlanArgs): string {
  const { contract, model, models, preference, provider, actionSpace, embodiment, units, extent, parameters } = intent;
  const wanted = provider && { ...provider, sessionId: undefined };
  const { models: allowed, environment, orgId, reach, settings } = scope;
  const asked = [contract, model, models, preference, wanted, actionSpace, embodiment, units, extent, parameters];
  const may = [orgId, allowed, environment, reach, settings?.zdr, settings?.allowedRegions, ownKeys !== undefined];
  const kind = JSON.stringify([asked, may, intent.given && shapeOf(intent.given, readPicture), meaning]);
  return kind.length <= LONGEST_KIND ? kind : createHash("sha256").update(kind).digest("base64url");
}

/** What input contracts are held against, without the pictures and numbers themselves. */
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
