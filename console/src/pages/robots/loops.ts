/** The control loops that run, as they are watched: the newest state of each, and the last minutes of its figures. */
import { createClient } from "@connectrpc/connect";
import { useEffect, useState } from "react";
import type { LoopState, RunningLoop } from "#messages/limber/v1/loop_pb.ts";
import { LoopService } from "#messages/limber/v1/loop_service_pb.ts";
import { transport } from "../../lib/api.ts";

/** What one second of a loop was. */
export interface Sample {
  /** Unix seconds. */
  readonly at: number;
  readonly state: LoopState;
  readonly rate: number;
  readonly asked: number | undefined;
  readonly p50: number | undefined;
  readonly p99: number | undefined;
  /** Counts since the loop opened. */
  readonly holds: number;
  readonly failovers: number;
  readonly costUsd: number;
}

/** A loop with what was seen of it since the page was opened. */
export interface WatchedLoop {
  readonly loop: RunningLoop;
  readonly past: readonly Sample[];
}

/** What is watched. */
export interface Watched {
  readonly loops: readonly WatchedLoop[];
  /** More loops than are shown. */
  readonly more: number;
  /** Undefined while the stream stands; else why it does not. */
  readonly lost: unknown;
  /** The first answer has come. */
  readonly known: boolean;
}

/** The most that one watch can show. */
const MOST_LOOPS = 2_000;
/** How many seconds are kept of each loop. */
export const KEPT_S = 300;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

const client = createClient(LoopService, transport);

/** How often a robot of this loop was told to hold, for whatever reason. */
export const holdsOf = ({ holds }: RunningLoop): number => Object.values(holds).reduce((sum, n) => sum + n, 0);

function sampled({ past }: { past: readonly Sample[] }, loop: RunningLoop, at: number): WatchedLoop {
  const sample = {
    at,
    state: loop.state,
    rate: loop.rateHz,
    asked: loop.askedHz,
    p50: loop.ageP50Ms,
    p99: loop.ageP99Ms,
    holds: holdsOf(loop),
    failovers: loop.failovers,
    costUsd: loop.costUsd,
  };
  return { loop, past: [...past.slice(-KEPT_S), sample] };
}

/** Resolves when the page is seen, or `signal` is aborted. */
async function seen(signal: AbortSignal): Promise<void> {
  while (document.visibilityState === "hidden" && !signal.aborted)
    await new Promise<void>((resolve) => {
      const go = (): void => {
        document.removeEventListener("visibilitychange", go);
        signal.removeEventListener("abort", go);
        resolve();
      };
      document.addEventListener("visibilitychange", go);
      signal.addEventListener("abort", go);
    });
}

/** Is aborted when the page is not seen any more, or `ended` is. */
function untilHidden(ended: AbortSignal): AbortSignal {
  const hidden = new AbortController();
  const look = (): void => {
    if (document.visibilityState === "hidden") hidden.abort();
  };
  document.addEventListener("visibilitychange", look, { signal: AbortSignal.any([ended, hidden.signal]) });
  look();
  return AbortSignal.any([ended, hidden.signal]);
}

/**
 * Follows a stream while the page is visible; a hidden tab can stay open for days. A lost stream is opened again, after
 * longer and longer waits. Returns what ends it.
 */
export function follow<T>(
  open: (signal: AbortSignal) => AsyncIterable<T>,
  take: (message: T) => void,
  lost: (error: unknown) => void = () => {},
): () => void {
  const ended = new AbortController();
  const watch = async (): Promise<void> => {
    let wait = FIRST_WAIT_MS;
    for (;;) {
      await seen(ended.signal);
      const signal = untilHidden(ended.signal);
      try {
        for await (const message of open(signal)) {
          wait = FIRST_WAIT_MS;
          take(message);
        }
      } catch (error) {
        if (!signal.aborted) lost(error);
      }
      if (ended.signal.aborted) return;
      if (signal.aborted) continue;
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
  };
  void watch();
  return () => ended.abort();
}

/** Watches all loops that the reader may see, or those of a workspace. */
export function useLoops(filter: { readonly workspaceId?: string | undefined }): Watched {
  const [watched, setWatched] = useState<Watched>({ loops: [], more: 0, lost: undefined, known: false });
  const { workspaceId } = filter;
  useEffect(() => {
    const loops = new Map<string, WatchedLoop>();
    let more = 0;
    const show = (lost?: unknown): void => setWatched({ loops: [...loops.values()], more, lost, known: true });
    const take = (list: readonly RunningLoop[]): void => {
      const at = Date.now() / 1000;
      for (const loop of list) loops.set(loop.id, sampled(loops.get(loop.id) ?? { past: [] }, loop, at));
    };
    return follow(
      (signal) => client.watchLoops({ workspaceId, limit: MOST_LOOPS }, { signal }),
      ({ event }) => {
        if (event.case === "snapshot") {
          const known = new Set(event.value.loops.map(({ id }) => id));
          for (const id of loops.keys()) if (!known.has(id)) loops.delete(id);
          take(event.value.loops);
          more = event.value.more;
        } else if (event.case === "change") {
          for (const id of event.value.ended) loops.delete(id);
          take(event.value.loops);
          more = event.value.more;
        }
        show();
      },
      show,
    );
  }, [workspaceId]);
  return watched;
}

/** Seconds over which a cost says something about a minute. */
const LEAST_S = 10;

/**
 * US dollars per minute: over the last minute that was seen, or since the loop opened where the page has not seen enough of it. Undefined
 * for a loop that has just opened, whose cost is not known yet.
 */
export function costPerMinute({ loop, past }: WatchedLoop): number | undefined {
  const last = past.at(-1);
  const first = last && past.find(({ at }) => at >= last.at - 60);
  if (last === undefined || first === undefined) return undefined;
  if (last.at - first.at >= LEAST_S) return ((last.costUsd - first.costUsd) / (last.at - first.at)) * 60;
  const seconds = last.at - loop.since;
  return seconds >= LEAST_S ? (last.costUsd / seconds) * 60 : undefined;
}

/** What a robot is called: its id, or its session's, or that of its stream. */
export const nameOf = ({ robotId, sessionId, id }: RunningLoop): string => robotId ?? sessionId ?? id;
