/** Running control loops: listed, and shown while they run. */
import { create } from "@bufbuild/protobuf";
import type { RunningLoop } from "../../gen/limber/v1/loop_pb.ts";
import {
  ListLoopsResponseSchema,
  type LoopService,
  LoopsChangeSchema,
  LoopsSnapshotSchema,
  type WatchLoopsResponse,
  WatchLoopsResponseSchema,
} from "../../gen/limber/v1/loop_service_pb.ts";
import { type Call, type Implementation, shared } from "../call.ts";
import { steadyNow } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import type { LiveLoops, LoopWatch } from "../inference/control-loop/live-loops.ts";
import type { Sql } from "../store/database/tx.ts";
import { readPage } from "./pages.ts";
import { assertReachable, confinedTo } from "./reach.ts";

/** What the loop RPCs depend on. */
export interface LoopDeps {
  sql: Sql;
  live: LiveLoops;
}

/** How long the other replicas have to answer, in milliseconds. */
const SETTLE_MS = 1_000;
/** A watcher hears something at least this often, in milliseconds, and so knows that its stream lives. */
const QUIET_MS = 10_000;
const DEFAULT_LISTED = 100;
const DEFAULT_WATCHED = 500;

/** Which loops somebody asks for. */
interface Wanted {
  readonly orgId?: string | undefined;
  readonly workspaceId?: string | undefined;
  readonly robotId?: string | undefined;
}

/** The loop RPCs. */
export function loopService({ sql, live }: LoopDeps): Implementation<typeof LoopService> {
  const open = async (wanted: Wanted, call: Call) => {
    const orgId = await orgOf(sql, wanted.orgId, call);
    return { isWanted: filterOf(wanted, call), watch: live.watch(orgId) };
  };

  return {
    async listLoops({ limit = DEFAULT_LISTED, cursor = "", ...wanted }, call) {
      const { isWanted, watch } = await open(wanted, call);
      try {
        const { replicas, silent } = await watch.settled(SETTLE_MS, call.signal);
        const { records, ...page } = await readPage(
          limit,
          async (most) =>
            loopsOf(watch, isWanted)
              .filter(({ id }) => id > cursor)
              .slice(0, most),
          ({ id }) => id,
        );
        return create(ListLoopsResponseSchema, { ...page, data: records, replicas, silentReplicas: silent });
      } finally {
        watch.close();
      }
    },

    async *watchLoops({ limit = DEFAULT_WATCHED, ...wanted }, call) {
      const { isWanted, watch } = await open(wanted, call);
      try {
        const { replicas, silent } = await watch.settled(SETTLE_MS, call.signal);
        const view = viewOf(watch, { ...wanted, workspaceId: wanted.workspaceId ?? confinedTo(call) }, isWanted, limit);
        let shown = view.now();
        const { loops, more } = shown;
        const first = create(LoopsSnapshotSchema, { loops: [...loops], more, replicas, silentReplicas: silent });
        yield create(WatchLoopsResponseSchema, { event: { case: "snapshot", value: first } });
        for (let saidAt = steadyNow(); ; ) {
          // Who reads slowly asks again when there is room, and gets what is so by then.
          await watch.next(call.signal);
          const before = shown;
          shown = view.now();
          const { message, isNews } = shown.since(before);
          if (!isNews && steadyNow() - saidAt < QUIET_MS) continue;
          saidAt = steadyNow();
          yield message;
        }
      } finally {
        watch.close();
      }
    },
  };
}

/** A change, as all who were shown the same before are told of it. */
interface SharedChange {
  readonly message: WatchLoopsResponse;
  readonly isNews: boolean;
}

/** What is shown at one tick. What has changed since an earlier one is made, and written, once for all who were shown that. */
class ShownLoops {
  readonly loops: readonly RunningLoop[];
  /** How many there are beside those that are shown. */
  readonly more: number;
  /** By loop: the version that is shown. */
  readonly #versions: ReadonlyMap<string, number>;
  readonly #changes = new WeakMap<ShownLoops, SharedChange>();

  constructor(watch: LoopWatch, isWanted: (loop: RunningLoop) => boolean, limit: number) {
    const all = loopsOf(watch, isWanted);
    this.loops = all.slice(0, limit);
    this.more = all.length - this.loops.length;
    this.#versions = new Map(this.loops.map(({ id }) => [id, watch.loops.get(id)?.version ?? 0]));
  }

  /** What is news to those who were shown another tick before. */
  since(before: ShownLoops): SharedChange {
    const known = this.#changes.get(before);
    if (known) return known;
    const loops = this.loops.filter(({ id }) => before.#versions.get(id) !== this.#versions.get(id));
    const ended = [...before.#versions.keys()].filter((id) => !this.#versions.has(id));
    const value = shared(create(LoopsChangeSchema, { loops, ended, more: this.more }));
    const made = {
      message: shared(create(WatchLoopsResponseSchema, { event: { case: "change", value } })),
      isNews: loops.length > 0 || ended.length > 0 || before.more !== this.more,
    };
    this.#changes.set(before, made);
    return made;
  }
}

/** What watchers with the same filters share: one picture of each tick. */
class LoopsView {
  readonly #make: () => ShownLoops;
  readonly #watch: LoopWatch;
  #tick = -1;
  #shown: ShownLoops | undefined;

  constructor(watch: LoopWatch, make: () => ShownLoops) {
    this.#watch = watch;
    this.#make = make;
  }

  /** What is shown at this tick. */
  now(): ShownLoops {
    if (this.#shown === undefined || this.#tick !== this.#watch.tick) this.#shown = this.#make();
    this.#tick = this.#watch.tick;
    return this.#shown;
  }
}

/** By the loops that are watched, which are one object for each organization; then by the filters. They go with it. */
const views = new WeakMap<LoopWatch["loops"], Map<string, WeakRef<LoopsView>>>();

function viewOf(
  watch: LoopWatch,
  { workspaceId, robotId }: Wanted,
  isWanted: (loop: RunningLoop) => boolean,
  limit: number,
): LoopsView {
  const known = views.get(watch.loops) ?? new Map<string, WeakRef<LoopsView>>();
  views.set(watch.loops, known);
  const filters = JSON.stringify([workspaceId ?? null, robotId ?? null, limit]);
  const there = known.get(filters)?.deref();
  if (there) return there;
  // Those of watchers that have left.
  for (const [key, view] of known) if (view.deref() === undefined) known.delete(key);
  const made = new LoopsView(watch, () => new ShownLoops(watch, isWanted, limit));
  known.set(filters, new WeakRef(made));
  return made;
}

/** The loops that are wanted, the one that was opened first first: ids are in the order of their making. */
const loopsOf = ({ loops }: LoopWatch, isWanted: (loop: RunningLoop) => boolean): RunningLoop[] =>
  [...loops.values()]
    .map(({ loop }) => loop)
    .filter(isWanted)
    .sort((a, b) => (a.id < b.id ? -1 : 1));

function filterOf({ workspaceId, robotId }: Wanted, call: Call): (loop: RunningLoop) => boolean {
  const own = confinedTo(call);
  if (own !== undefined && (workspaceId ?? own) !== own)
    throw refuse(Reason.SCOPE_DENIED, "a key of a workspace reaches control loops of that workspace alone");
  const wanted = workspaceId ?? own;
  return (loop) =>
    (wanted === undefined || loop.workspaceId === wanted) && (robotId === undefined || loop.robotId === robotId);
}

/** The organization that a call is about: a key's own, or the one that the operator names. */
async function orgOf(sql: Sql, named: string | undefined, call: Call): Promise<string> {
  const { principal } = call;
  const orgId = named ?? (principal.kind === "key" ? principal.orgId : undefined);
  if (orgId === undefined) throw violation("org_id", "is required from the operator", "missing");
  await assertReachable(sql, orgId, call);
  return orgId;
}
