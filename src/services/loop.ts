/** Running control loops: lists and live views. */
import { create } from "@bufbuild/protobuf";
import {
  type RobotHistory,
  RobotHistorySchema,
  type RobotMinute,
  RobotMinuteSchema,
  type RunningLoop,
} from "../../gen/limber/v1/loop_pb.ts";
import {
  type LoopService,
  LoopsChangeSchema,
  LoopsSnapshotSchema,
  QueryLoopHistoryResponseSchema,
  WatchLoopActionsResponseSchema,
  WatchLoopPicturesResponseSchema,
  type WatchLoopsResponse,
  WatchLoopsResponseSchema,
} from "../../gen/limber/v1/loop_service_pb.ts";
import { toUsd } from "../billing/price.ts";
import { type Call, type Implementation, shared } from "../call.ts";
import { nowSeconds, steadyNow } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import type { LiveLoops, LoopWatch } from "../inference/control-loop/live-loops.ts";
import type { DetailKind, LoopDetail, LoopDetails } from "../inference/control-loop/loop-details.ts";
import type { Sql } from "../store/database/tx.ts";
import { type RobotMinuteRow, readRobotMinutes } from "../store/history/series.ts";
import { readPage } from "./pages.ts";
import { quantilesOf } from "./quantiles.ts";
import { assertReachable, confinedTo, robotFor, robotOf } from "./reach.ts";

/** Dependencies of the loop RPCs. */
export interface LoopDeps {
  sql: Sql;
  live: LiveLoops;
  details: LoopDetails;
  /** Resolves once the calls that this replica finished so far are recorded. */
  caughtUp(): Promise<unknown>;
}

/** Timeout for other replicas' responses, in milliseconds. */
const SETTLE_MS = 1_000;
/** Longest interval between messages to a watcher, in milliseconds, which shows that the stream is alive. */
const QUIET_MS = 10_000;
const DEFAULT_LISTED = 100;
const DEFAULT_WATCHED = 500;
const MINUTE_S = 60;
const DEFAULT_MINUTES = 60;

/** The filters of a request for loops. */
interface Wanted {
  readonly orgId?: string | undefined;
  readonly workspaceId?: string | undefined;
  readonly robotId?: string | undefined;
}

/** The loop RPCs. */
export function loopService({ sql, live, details, caughtUp }: LoopDeps): Implementation<typeof LoopService> {
  const open = async (wanted: Wanted, call: Call) => {
    const orgId = await orgOf(sql, wanted.orgId, call);
    return { isWanted: filterOf(wanted, call), watch: live.watch(orgId) };
  };

  /** The details of some loops that changed since the last ones; possibly none at first and every 10 s. A slow reader skips ticks. */
  async function* changes(
    { loopIds, ...wanted }: Wanted & { readonly loopIds: readonly string[] },
    kind: DetailKind,
    call: Call,
  ): AsyncIterable<[id: string, detail: LoopDetail][]> {
    const orgId = await orgOf(sql, wanted.orgId, call);
    const own = confinedTo(call);
    const ownRobot = robotOf(call);
    const ids = [...new Set(loopIds)];
    const watch = details.watch(orgId, kind, ids);
    const shown = new Map<string, number>();
    try {
      // The first message is sent at once, so that a stream over HTTP has its headers.
      for (let sentAt = Number.NEGATIVE_INFINITY; ; await watch.next(call.signal)) {
        const news = ids.flatMap((id): [string, LoopDetail][] => {
          const known = watch.of(id);
          if (known === undefined || known.version === shown.get(id)) return [];
          if (own !== undefined && known.detail.workspaceId !== own) return [];
          if (ownRobot !== undefined && known.detail.robotId !== ownRobot) return [];
          shown.set(id, known.version);
          return [[id, known.detail]];
        });
        if (news.length === 0 && steadyNow() - sentAt < QUIET_MS) continue;
        sentAt = steadyNow();
        yield news;
      }
    } finally {
      watch.close();
    }
  }

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
        return { ...page, data: records, replicas, silentReplicas: silent };
      } finally {
        watch.close();
      }
    },

    async *watchLoops({ limit = DEFAULT_WATCHED, ...wanted }, call) {
      const { isWanted, watch } = await open(wanted, call);
      try {
        const { replicas, silent } = await watch.settled(SETTLE_MS, call.signal);
        const view = viewOf(watch, shownTo(wanted, call), isWanted, limit);
        let shown = view.now();
        const { loops, more } = shown;
        const first = create(LoopsSnapshotSchema, { loops: [...loops], more, replicas, silentReplicas: silent });
        yield create(WatchLoopsResponseSchema, { event: { case: "snapshot", value: first } });
        for (let sentAt = steadyNow(); ; ) {
          // A slow reader skips ticks: it gets the current state once it reads again.
          await watch.next(call.signal);
          const before = shown;
          shown = view.now();
          const { message, isNews } = shown.since(before);
          if (!isNews && steadyNow() - sentAt < QUIET_MS) continue;
          sentAt = steadyNow();
          yield message;
        }
      } finally {
        watch.close();
      }
    },

    async *watchLoopActions(request, call) {
      for await (const details of changes(request, "action", call))
        yield create(WatchLoopActionsResponseSchema, {
          actions: { actions: details.flatMap(([, { action }]) => (action === undefined ? [] : [action])) },
        });
    },

    async *watchLoopPictures(request, call) {
      for await (const details of changes(request, "pictures", call))
        yield create(WatchLoopPicturesResponseSchema, {
          pictures: {
            pictures: details.flatMap(([, { pictures }]) => pictures),
            withheld: details.flatMap(([id, { withheld }]) => (withheld ? [id] : [])),
          },
        });
    },

    async queryLoopHistory({ minutes = DEFAULT_MINUTES, limit = DEFAULT_WATCHED, ...wanted }, call) {
      const orgId = await orgOf(sql, wanted.orgId, call);
      const workspaceId = workspaceOf(wanted, call);
      const robotId = robotFor(call, wanted.robotId, "control loops");
      const until = (Math.floor(nowSeconds() / MINUTE_S) + 1) * MINUTE_S;
      const since = until - minutes * MINUTE_S;
      await caughtUp();
      const rows = await readRobotMinutes(sql, orgId, { since, until, workspaceId, robotId, limit });
      const robots = historiesOf(rows);
      const more = Math.max(0, (rows[0]?.robots ?? 0) - robots.length);
      return create(QueryLoopHistoryResponseSchema, { object: "loop_history", since, until, robots, more });
    },
  };
}

/** The histories of rows, which are sorted by robot and time. */
const historiesOf = (rows: readonly RobotMinuteRow[]): RobotHistory[] =>
  [...Map.groupBy(rows, ({ robot, workspaceId }) => JSON.stringify([robot, workspaceId])).values()].map((of) => {
    const { robot, workspaceId } = of[0]!; // a group has a row
    const minutes = of.map(minuteOf);
    return create(RobotHistorySchema, { robotId: robot, ...(workspaceId !== null && { workspaceId }), minutes });
  });

function minuteOf({ at, costMicro, parts }: RobotMinuteRow): RobotMinute {
  const named = (prefix: string): [string, number][] =>
    Object.entries(parts).flatMap(([part, count]) => (part.startsWith(prefix) ? [[part.slice(2), count]] : []));
  const { count, p50, p99 } = quantilesOf(named("a:"));
  return create(RobotMinuteSchema, {
    at,
    chunks: count,
    holds: Object.fromEntries(named("h:")),
    ...(p50 !== undefined && { ageP50Ms: p50 }),
    ...(p99 !== undefined && { ageP99Ms: p99 }),
    costUsd: toUsd(costMicro),
  });
}

/** A change, shared by all watchers that saw the same earlier tick. */
interface SharedChange {
  readonly message: WatchLoopsResponse;
  readonly isNews: boolean;
}

/** The state at one tick. The difference from an earlier tick is computed and encoded once for all watchers that saw it. */
class ShownLoops {
  readonly loops: readonly RunningLoop[];
  /** The number of further loops beyond those shown. */
  readonly more: number;
  /** The shown version, by loop. */
  readonly #versions: ReadonlyMap<string, number>;
  readonly #changes = new WeakMap<ShownLoops, SharedChange>();

  constructor(watch: LoopWatch, isWanted: (loop: RunningLoop) => boolean, limit: number) {
    const all = loopsOf(watch, isWanted);
    this.loops = all.slice(0, limit);
    this.more = all.length - this.loops.length;
    this.#versions = new Map(this.loops.map(({ id }) => [id, watch.loops.get(id)?.version ?? 0]));
  }

  /** The changes since another tick. */
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

/** Shared by watchers with the same filters: one state per tick. */
class LoopsView {
  readonly #make: () => ShownLoops;
  readonly #watch: LoopWatch;
  #tick = -1;
  #shown: ShownLoops | undefined;

  constructor(watch: LoopWatch, make: () => ShownLoops) {
    this.#watch = watch;
    this.#make = make;
  }

  /** The state at this tick. */
  now(): ShownLoops {
    if (this.#shown === undefined || this.#tick !== this.#watch.tick) this.#shown = this.#make();
    this.#tick = this.#watch.tick;
    return this.#shown;
  }
}

/** Keyed by the watched loops, one object per organization, then by filters. Collected with that object. */
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
  // Ticks of disconnected watchers.
  for (const [key, view] of known) if (view.deref() === undefined) known.delete(key);
  const made = new LoopsView(watch, () => new ShownLoops(watch, isWanted, limit));
  known.set(filters, new WeakRef(made));
  return made;
}

/** The matching loops, oldest first: ids sort by creation. */
const loopsOf = ({ loops }: LoopWatch, isWanted: (loop: RunningLoop) => boolean): RunningLoop[] =>
  [...loops.values()]
    .map(({ loop }) => loop)
    .filter(isWanted)
    .sort((a, b) => (a.id < b.id ? -1 : 1));

/** The workspace of a request: a workspace key can only request its own. */
function workspaceOf({ workspaceId }: Wanted, call: Call): string | undefined {
  const own = confinedTo(call);
  if (own !== undefined && (workspaceId ?? own) !== own)
    throw refuse(Reason.SCOPE_DENIED, "workspace keys can access only their own workspace's control loops");
  return workspaceId ?? own;
}

function filterOf(asked: Wanted, call: Call): (loop: RunningLoop) => boolean {
  const wanted = workspaceOf(asked, call);
  const robotId = robotFor(call, asked.robotId, "control loops");
  return (loop) =>
    (wanted === undefined || loop.workspaceId === wanted) && (robotId === undefined || loop.robotId === robotId);
}

/** A request with what its key is confined to. */
const shownTo = (asked: Wanted, call: Call): Wanted => ({
  ...asked,
  workspaceId: asked.workspaceId ?? confinedTo(call),
  robotId: asked.robotId ?? robotOf(call),
});

/** The organization of a call: the key's own, or the one that the operator names. */
async function orgOf(sql: Sql, named: string | undefined, call: Call): Promise<string> {
  const { principal } = call;
  const orgId = named ?? (principal.kind === "key" ? principal.orgId : undefined);
  if (orgId === undefined) throw violation("org_id", "is required for operator calls", "missing");
  await assertReachable(sql, orgId, call);
  return orgId;
}
