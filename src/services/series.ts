/** Time series of calls. */
import { create } from "@bufbuild/protobuf";
import {
  type Series,
  SeriesDimension,
  type SeriesFigures,
  SeriesFiguresSchema,
  SeriesPointSchema,
  SeriesSchema,
} from "../../gen/limber/v1/series_pb.ts";
import type { QuerySeriesRequest, SeriesService } from "../../gen/limber/v1/series_service_pb.ts";
import { toUsd } from "../billing/price.ts";
import { type Implementation, keyOf } from "../call.ts";
import { nowSeconds } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import type { Sql } from "../store/database/tx.ts";
import { MINUTES_KEPT_S, readSeries, type SeriesBy, type SeriesRow } from "../store/history/series.ts";
import { quantilesOf } from "./quantiles.ts";
import { workspaceFor } from "./reach.ts";

/** Dependencies of the series. */
export interface SeriesDeps {
  sql: Sql;
  /** Resolves once the calls that this replica finished so far are recorded. */
  caughtUp(): Promise<unknown>;
}

const DAY_S = 86_400;
const STEPS_S = [60, 300, 900, 3_600, 21_600, DAY_S] as const;
/** Default number of steps per chart. */
const USUAL_STEPS = 200;
const MOST_STEPS = 1_000;
const DEFAULT_SERIES = 10;

const BY: Readonly<Record<SeriesDimension, SeriesBy>> = {
  [SeriesDimension.UNSPECIFIED]: undefined,
  [SeriesDimension.MODEL]: "model",
  [SeriesDimension.PROVIDER]: "provider",
  [SeriesDimension.KEY]: "key",
  [SeriesDimension.WORKSPACE]: "workspace",
  [SeriesDimension.ROBOT]: "robot",
  [SeriesDimension.CONTRACT]: "contract",
};

/** The series RPCs. */
export function seriesService({ sql, caughtUp }: SeriesDeps): Implementation<typeof SeriesService> {
  return {
    async querySeries(request, call) {
      const { by = SeriesDimension.UNSPECIFIED, limit = DEFAULT_SERIES } = request;
      const { model, provider, keyId, robotId, contract } = request;
      const { orgId } = keyOf(call);
      const workspaceId = workspaceFor(call, request.workspaceId, "usage");
      const span = spanOf(request);
      await caughtUp();
      const filters = { model, provider, keyId, workspaceId, robotId, contract };
      const rows = await readSeries(sql, orgId, { ...span, by: BY[by], limit, ...filters });
      return {
        object: "series",
        ...span,
        series: seriesOf(rows),
        total: figuresOf(rows),
      };
    },
  };
}

/** The requested time range, aligned to steps. Refuses too many steps, and steps finer than the stored data. */
function spanOf({ since: from, until: to, stepS: asked }: QuerySeriesRequest): {
  since: number;
  until: number;
  stepS: number;
} {
  const now = nowSeconds();
  const end = to ?? now;
  const begin = from ?? Math.max(0, end - DAY_S);
  if (begin >= end) throw violation("since", "must be before `until`", "value_error");
  const stepS =
    asked ?? STEPS_S.find((step) => isKept(begin, step, now) && (end - begin) / step <= USUAL_STEPS) ?? DAY_S;
  if (stepS % 60 !== 0) throw violation("step_s", "must be a multiple of 60", "multiple_of");
  const since = Math.floor(begin / stepS) * stepS;
  const until = Math.ceil(end / stepS) * stepS;
  const steps = (until - since) / stepS;
  if (steps > MOST_STEPS)
    throw violation("step_s", `must split the range into at most ${MOST_STEPS} steps, got ${steps}`, "greater_than");
  if (!isKept(begin, stepS, now))
    throw violation("step_s", "must be a multiple of 3600 for data older than two days", "value_error");
  return { since, until, stepS };
}

/** Whether steps of this many seconds are stored since a time. Before the oldest data, there is nothing. */
const isKept = (since: number, stepS: number, now: number): boolean =>
  stepS % 3600 === 0 || since >= now - MINUTES_KEPT_S;

function seriesOf(rows: readonly SeriesRow[]): Series[] {
  const cost = (steps: readonly SeriesRow[]): number => steps.reduce((sum, { costMicro }) => sum + costMicro, 0);
  const calls = (steps: readonly SeriesRow[]): number => steps.reduce((sum, { calls }) => sum + calls, 0);
  return [...Map.groupBy(rows, ({ name }) => name)]
    .sort(([a, one], [b, other]) => {
      if (a === null || b === null) return Number(a === null) - Number(b === null);
      return cost(other) - cost(one) || calls(other) - calls(one) || (a < b ? -1 : 1);
    })
    .map(([name, steps]) =>
      create(SeriesSchema, {
        name: name ?? "",
        other: name === null,
        total: figuresOf(steps),
        points: steps.map((step) => create(SeriesPointSchema, { at: step.at, figures: figuresOf([step]) })),
      }),
    );
}

/** The sum of several steps. */
function figuresOf(rows: readonly SeriesRow[]): SeriesFigures {
  const failures: Record<string, number> = {};
  const holds: Record<string, number> = {};
  const latency: [string, number][] = [];
  let [calls, failed, costMicro] = [0, 0, 0];
  for (const row of rows) {
    calls += row.calls;
    failed += row.failed;
    costMicro += row.costMicro;
    for (const [part, count] of Object.entries(row.parts)) {
      const word = part.slice(2);
      if (part.startsWith("f:")) failures[word] = (failures[word] ?? 0) + count;
      else if (part.startsWith("h:")) holds[word] = (holds[word] ?? 0) + count;
      else if (part.startsWith("l:")) latency.push([word, count]);
    }
  }
  const { p50, p95, p99 } = quantilesOf(latency);
  return create(SeriesFiguresSchema, {
    calls,
    failed,
    failures,
    holds,
    costUsd: toUsd(costMicro),
    ...(p50 !== undefined && { latencyP50Ms: p50 }),
    ...(p95 !== undefined && { latencyP95Ms: p95 }),
    ...(p99 !== undefined && { latencyP99Ms: p99 }),
  });
}
