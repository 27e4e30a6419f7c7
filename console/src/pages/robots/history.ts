/** The last hour of each robot, as the gateway knows it: equal for every reader, and there when the page opens. */
import { useQuery } from "@connectrpc/connect-query";
import { useMemo } from "react";
import type { RobotMinute, RunningLoop } from "#messages/limber/v1/loop_pb.ts";
import { LoopService } from "#messages/limber/v1/loop_service_pb.ts";

/** How often it is read again, in milliseconds. */
const REFRESH_MS = 30_000;
const MINUTE_S = 60;
/** Seconds of the current minute before which its figures say little. */
const LEAST_S = 15;
const MOST_ROBOTS = 2_000;

/** One minute of a robot. */
export interface Minute {
  /** Unix seconds. */
  readonly at: number;
  readonly rateHz: number;
  readonly p50: number | undefined;
  readonly p99: number | undefined;
  readonly holds: number;
  readonly costUsd: number;
}

/** A robot's minutes in a time range; minutes without messages are missing. */
export interface History {
  readonly robotId: string;
  readonly workspaceId: string | undefined;
  /** Unix seconds. */
  readonly since: number;
  readonly until: number;
  readonly minutes: readonly Minute[];
}

/** The names under which loops and histories meet: robots of two workspaces can have one name. */
export const robotKey = ({ robotId = "", workspaceId = "" }: Pick<RunningLoop, "robotId" | "workspaceId">): string =>
  `${workspaceId} ${robotId}`;

const sum = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((a, b) => a + b, 0);

/** A minute; the current one counts for as long as it has lasted, and not at all in its first seconds. */
function minuteOf({ at, chunks, holds, ageP50Ms, ageP99Ms, costUsd }: RobotMinute, now: number): Minute[] {
  const seconds = Math.min(MINUTE_S, now - at);
  if (seconds < LEAST_S) return [];
  return [{ at, rateHz: chunks / seconds, p50: ageP50Ms, p99: ageP99Ms, holds: sum(holds), costUsd }];
}

/** Reads the last hour of all robots, or of one, by `robotKey`. */
export function useHistories(filter: {
  readonly workspaceId?: string | undefined;
  readonly robotId?: string | undefined;
}) {
  const { data, error, dataUpdatedAt } = useQuery(
    LoopService.method.queryLoopHistory,
    { ...filter, limit: MOST_ROBOTS },
    { refetchInterval: REFRESH_MS },
  );
  const histories = useMemo(() => {
    const now = dataUpdatedAt / 1000;
    const { since = 0, until = 0, robots = [] } = data ?? {};
    return new Map<string, History>(
      robots.map(({ robotId, workspaceId, minutes }) => [
        robotKey({ robotId, ...(workspaceId !== undefined && { workspaceId }) }),
        { robotId, workspaceId, since, until, minutes: minutes.flatMap((minute) => minuteOf(minute, now)) },
      ]),
    );
  }, [data, dataUpdatedAt]);
  return { histories, error };
}
