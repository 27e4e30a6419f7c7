/** Running control loops: listed, and shown while they run. */
import { create } from "@bufbuild/protobuf";
import type { RunningLoop } from "../../gen/limber/v1/loop_pb.ts";
import {
  ListLoopsResponseSchema,
  type LoopService,
  LoopsChangeSchema,
  LoopsSnapshotSchema,
  WatchLoopsResponseSchema,
} from "../../gen/limber/v1/loop_service_pb.ts";
import type { Call, Implementation } from "../call.ts";
import { steadyNow } from "../clock.ts";
import { violation } from "../contracts/conflicts.ts";
import { Reason, refuse } from "../errors.ts";
import type { LiveLoops, LoopWatch } from "../inference/loops/live-loops.ts";
import type { Sql } from "../store/database/tx.ts";
import { assertReachable } from "./account/reach.ts";
import { readPage } from "./pages.ts";
import { confinedTo } from "./workspace-reach.ts";

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
        const shown = new ShownLoops(watch, isWanted, limit);
        const { loops, more } = shown.change();
        const first = create(LoopsSnapshotSchema, { loops, more, replicas, silentReplicas: silent });
        yield create(WatchLoopsResponseSchema, { event: { case: "snapshot", value: first } });
        for (let saidAt = steadyNow(); ; ) {
          // Who reads slowly asks again when there is room, and gets what is so by then.
          await watch.next(call.signal);
          const change = shown.change();
          if (!change.isNews && steadyNow() - saidAt < QUIET_MS) continue;
          saidAt = steadyNow();
          const { loops, ended, more } = change;
          const value = create(LoopsChangeSchema, { loops, ended, more });
          yield create(WatchLoopsResponseSchema, { event: { case: "change", value } });
        }
      } finally {
        watch.close();
      }
    },
  };
}

/** What one watcher was shown. */
class ShownLoops {
  readonly #watch: LoopWatch;
  readonly #isWanted: (loop: RunningLoop) => boolean;
  readonly #limit: number;
  /** By loop: the version that was shown. */
  #shown = new Map<string, number>();
  #more = 0;

  constructor(watch: LoopWatch, isWanted: (loop: RunningLoop) => boolean, limit: number) {
    this.#watch = watch;
    this.#isWanted = isWanted;
    this.#limit = limit;
  }

  /** What is to be shown since it was last asked. */
  change(): { loops: RunningLoop[]; ended: string[]; more: number; isNews: boolean } {
    const all = loopsOf(this.#watch, this.#isWanted);
    const now = new Map<string, number>();
    const loops: RunningLoop[] = [];
    for (const loop of all.slice(0, this.#limit)) {
      const version = this.#watch.loops.get(loop.id)?.version ?? 0;
      now.set(loop.id, version);
      if (this.#shown.get(loop.id) !== version) loops.push(loop);
    }
    const ended = [...this.#shown.keys()].filter((id) => !now.has(id));
    const more = all.length - now.size;
    const isNews = loops.length > 0 || ended.length > 0 || more !== this.#more;
    this.#shown = now;
    this.#more = more;
    return { loops, ended, more, isNews };
  }
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

/** The organisation that a call is about: a key's own, or the one that the operator names. */
async function orgOf(sql: Sql, named: string | undefined, call: Call): Promise<string> {
  const { principal } = call;
  const orgId = named ?? (principal.kind === "key" ? principal.orgId : undefined);
  if (orgId === undefined) throw violation("org_id", "is required from the operator", "missing");
  await assertReachable(sql, orgId, call);
  return orgId;
}
