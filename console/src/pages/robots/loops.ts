/** The control loops that run, as they are watched: the newest state of each, and the last minutes of its figures. */
import { createClient } from "@connectrpc/connect";
import { useEffect, useState } from "react";
import type { RunningLoop } from "#messages/limber/v1/loop_pb.ts";
import { LoopService } from "#messages/limber/v1/loop_service_pb.ts";
import { transport } from "../../lib/api.ts";

/** What one second of a loop was. */
export interface Sample {
  readonly at: number;
  readonly rate: number;
  readonly asked: number | undefined;
  readonly p50: number | undefined;
  readonly p99: number | undefined;
  readonly holds: number;
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

/** How many seconds are kept of each loop. */
const KEPT = 300;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

const client = createClient(LoopService, transport);

/** How often a robot of this loop was told to hold, for whatever reason. */
export const holdsOf = ({ holds }: RunningLoop): number => Object.values(holds).reduce((sum, n) => sum + n, 0);

function sampled({ past }: { past: readonly Sample[] }, loop: RunningLoop, at: number): WatchedLoop {
  const sample = {
    at,
    rate: loop.rateHz,
    asked: loop.askedHz,
    p50: loop.ageP50Ms,
    p99: loop.ageP99Ms,
    holds: holdsOf(loop),
    costUsd: loop.costUsd,
  };
  return { loop, past: [...past.slice(-KEPT), sample] };
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
 * Watches loops while the page is seen: nobody looks at a hidden tab, which may stay open for days. A stream that is lost is opened again,
 * after longer and longer waits.
 */
export function useLoops(filter: {
  readonly workspaceId?: string | undefined;
  readonly robotId?: string | undefined;
}): Watched {
  const [watched, setWatched] = useState<Watched>({ loops: [], more: 0, lost: undefined, known: false });
  const { workspaceId, robotId } = filter;
  useEffect(() => {
    const ended = new AbortController();
    const loops = new Map<string, WatchedLoop>();
    let more = 0;
    const show = (lost?: unknown): void => setWatched({ loops: [...loops.values()], more, lost, known: true });
    const take = (list: readonly RunningLoop[]): void => {
      const at = Date.now() / 1000;
      for (const loop of list) loops.set(loop.id, sampled(loops.get(loop.id) ?? { past: [] }, loop, at));
    };
    const watch = async (): Promise<void> => {
      let wait = FIRST_WAIT_MS;
      for (;;) {
        await seen(ended.signal);
        const signal = untilHidden(ended.signal);
        try {
          for await (const { event } of client.watchLoops({ workspaceId, robotId }, { signal })) {
            wait = FIRST_WAIT_MS;
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
          }
        } catch (error) {
          if (!signal.aborted) show(error);
        }
        if (ended.signal.aborted) return;
        if (signal.aborted) continue;
        await new Promise((resolve) => setTimeout(resolve, wait));
        wait = Math.min(wait * 2, LONGEST_WAIT_MS);
      }
    };
    void watch();
    return () => ended.abort();
  }, [workspaceId, robotId]);
  return watched;
}

/** US dollars a minute, over the last minute that was seen. */
export function costPerMinute({ past }: WatchedLoop): number | undefined {
  const last = past.at(-1);
  const first = last && past.find(({ at }) => at >= last.at - 60);
  if (last === undefined || first === undefined || last.at - first.at < 2) return undefined;
  return ((last.costUsd - first.costUsd) / (last.at - first.at)) * 60;
}
