/** Calls: what was called, what became of it, and why it went where it went. */
import { useQuery } from "@connectrpc/connect-query";
import { keepPreviousData } from "@tanstack/react-query";
import { type RegisteredRouter, useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import { LogKindSchema, type LogRecord } from "#messages/limber/v1/log_pb.ts";
import { LogService } from "#messages/limber/v1/log_service_pb.ts";
import { type QuerySeriesResponse, SeriesService } from "#messages/limber/v1/series_service_pb.ts";
import { count, percent } from "../lib/format.ts";
import { useList } from "../lib/list.ts";
import { useMay } from "../lib/session.ts";
import { numberOfCode, spaced, wordOf } from "../lib/words.ts";
import { Empty, Facts, Head, Measure, Money, Ms, None, Refused, Status, Time } from "../parts/basics.tsx";
import { Filters, Find, Pick } from "../parts/filters.tsx";
import { Histogram, type Outcome, type Point } from "../parts/histogram.tsx";
import { ModelName } from "../parts/names.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Views } from "../parts/views.tsx";
import { CallSheet } from "./calls/sheet.tsx";

/** How many records are asked for at once. */
const PAGE = 200;

/** The fewest steps that the histogram shows, so that the first calls of an organization are no block. */
const MIN_BARS = 12;

/** How often a live list is read again, in milliseconds. */
const LIVE_MS = 2_000;

const OUTCOMES: readonly Outcome[] = [
  { name: "answered", tone: "good" },
  { name: "refused or failed", tone: "bad" },
];

/** The outcome of a call: 0 answered, 1 answered after a fallback, 2 refused because of the caller, 3 failed because of the supply. */
function outcomeOf({ status, fallbackUsed, httpStatus = 200 }: LogRecord): number {
  if (status === "settled" || status === "done") return fallbackUsed ? 1 : 0;
  return httpStatus < 500 ? 2 : 3;
}

const KINDS = ["act", "predict", "ground", "evaluate", "batch", "preview"] as const;
const SINCE = [
  ["15", "last 15 min"],
  ["60", "last hour"],
  ["1440", "last day"],
  ["10080", "last week"],
  ["43200", "last 30 days"],
  ["all", "all"],
] as const;
const USUAL_SINCE = "1440";

/** How a call ended, in a word. */
export function Ended({ record }: { record: LogRecord }) {
  const outcome = outcomeOf(record);
  const word =
    outcome === 0
      ? record.simulated
        ? "simulated"
        : "answered"
      : outcome === 1
        ? "fallback"
        : spaced(record.errorCode ?? record.status);
  const tone = outcome === 0 && record.simulated ? "sim" : (["good", "wait", "off", "bad"] as const)[outcome];
  return <Status tone={tone ?? "off"}>{word}</Status>;
}

const COLUMNS: readonly Column<LogRecord>[] = [
  { id: "ts", title: "ended", width: 120, phone: 76, cell: ({ ts }) => <Time at={ts} />, value: ({ ts }) => ts },
  {
    id: "ended",
    title: "outcome",
    width: "2fr",
    phone: 92,
    cell: (record) => <Ended record={record} />,
    value: outcomeOf,
  },
  {
    id: "kind",
    title: "contract",
    width: 84,
    wide: true,
    cell: ({ contract, kind, streamId }) =>
      streamId === undefined ? (contract ?? wordOf(LogKindSchema, kind)) : "loop",
    value: ({ contract, kind }) => contract ?? wordOf(LogKindSchema, kind),
  },
  {
    id: "model",
    title: "model",
    width: "3fr",
    cell: ({ model, modelRequested }) => <ModelName of={model ?? modelRequested} />,
    value: ({ model, modelRequested }) => model ?? modelRequested ?? "",
  },
  {
    id: "provider",
    title: "provider",
    width: "2fr",
    wide: true,
    cell: ({ provider }) => provider ?? <None />,
    value: ({ provider }) => provider ?? "",
  },
  {
    id: "robot",
    title: "robot",
    width: "2fr",
    wide: true,
    cell: ({ robotId }) => robotId ?? <None />,
    value: ({ robotId }) => robotId ?? "",
  },
  {
    id: "attempts",
    title: "attempts",
    width: 104,
    right: true,
    wide: true,
    cell: ({ attempts, chunks }) =>
      chunks === undefined ? attempts.length || <None /> : <Measure value={count(chunks)} unit="chunks" />,
    value: ({ attempts, chunks }) => chunks ?? attempts.length,
  },
  {
    id: "latency",
    title: "latency or age",
    width: 148,
    phone: 76,
    right: true,
    cell: (record) => (record.streamId === undefined ? <Ms ms={record.latencyMs} /> : <Ages of={record} />),
    value: ({ latencyMs, ageP50Ms, streamId }) => (streamId === undefined ? latencyMs : ageP50Ms) ?? 0,
  },
  {
    id: "cost",
    title: "cost",
    width: 92,
    right: true,
    wide: true,
    cell: ({ costUsd }) => <Money usd={costUsd} />,
    value: ({ costUsd }) => costUsd,
  },
];

/** Ages of a loop's observations when their chunks were sent: the median, and where there is room the 99th percentile. */
export const Ages = ({ of: { ageP50Ms, ageP99Ms } }: { of: LogRecord }) =>
  ageP50Ms === undefined ? (
    <None />
  ) : (
    <span title="age of the observation when its chunk was sent: median and 99th percentile">
      <span className="text-muted max-[700px]:hidden">age </span>
      <Ms ms={ageP50Ms} />
      <span className="max-[700px]:hidden">
        {" / "}
        <Ms ms={ageP99Ms} />
      </span>
    </span>
  );

/** The first id that a request can have after a moment in Unix seconds: ids begin with their time, in Crockford's base 32. */
function idAt(seconds: number): string {
  const LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  let time = seconds * 1000;
  let text = "";
  for (let i = 0; i < 10; i++) {
    text = LETTERS[time % 32] + text;
    time = Math.floor(time / 32);
  }
  return `req_${text}${"0".repeat(16)}`;
}

/** Figures of all calls that the filters admit, from the server; undefined if a filter is set that figures are not kept by. */
function useFigures(search: Search, live: boolean) {
  const may = useMay("usage.read");
  const { session, status, http, kind, model, provider, robot, by } = search;
  const since = search.since ?? USUAL_SINCE;
  const isKept =
    session === undefined && status === undefined && http === undefined && by === undefined && kind !== "preview";
  const { data } = useQuery(
    SeriesService.method.querySeries,
    {
      since: Math.max(0, minuteOf(Date.now() / 1000) - (since === "all" ? 399 * 1440 : Number(since)) * 60),
      model,
      provider,
      robotId: robot,
      contract: kind,
    },
    { enabled: may && isKept, placeholderData: keepPreviousData, refetchInterval: live ? LIVE_MS : false },
  );
  return may && isKept ? data : undefined;
}

/** The beginning of a minute: within one, the same figures are asked for. */
const minuteOf = (seconds: number): number => Math.floor(seconds / 60) * 60;

/** The page. */
export function CallsPage() {
  const search = useSearch({ from: "/console/calls" });
  const navigate = useNavigate({ from: "/console/calls" });
  const filter = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const request = useMemo(
    () => ({
      limit: PAGE,
      kind: numberOfCode(LogKindSchema, search.kind ?? ""),
      status: search.status,
      httpStatus: numberOf(search.http),
      model: search.model,
      provider: search.provider,
      robotId: search.robot,
      sessionId: search.session,
      direct: search.by === undefined ? undefined : true,
      sinceMinutes: numberOf(search.since ?? USUAL_SINCE),
      cursor: search.until === undefined ? undefined : idAt(Number(search.until)),
    }),
    [
      search.until,
      search.kind,
      search.status,
      search.http,
      search.model,
      search.provider,
      search.robot,
      search.session,
      search.by,
      search.since,
    ],
  );
  const [live, setLive] = useState(false);
  const logs = useList(LogService.method.listLogs, request, live ? { refetchInterval: LIVE_MS } : {});
  const figures = useFigures(search, live);
  const records = logs.rows;
  const picked = useMemo(
    () =>
      search.from !== undefined && search.until !== undefined
        ? { from: Number(search.from), until: Number(search.until) }
        : undefined,
    [search.from, search.until],
  );
  const rows = useMemo(
    () => (picked === undefined ? records : records.filter(({ ts }) => ts >= picked.from && ts < picked.until)),
    [records, picked],
  );
  const points = useMemo(() => pointsOf(figures, records), [figures, records]);
  const newest = figures === undefined ? (records[0]?.ts ?? 0) : figures.until - 1;
  const first = figures?.series[0]?.points[0]?.at;
  const oldest =
    figures === undefined || first === undefined
      ? (records.at(-1)?.ts ?? newest)
      : Math.max(figures.since, Math.min(first, figures.until - MIN_BARS * figures.stepS));
  const ofRows = useMemo(() => figuresOf(rows), [rows]);
  const total = picked === undefined ? (figures?.total ?? ofRows) : ofRows;
  const { call: _, from: __, until: ___, ...filters } = search;
  const isWhole = total !== ofRows || logs.more === undefined;
  // Rows before the chosen bar are not loaded.
  const more = picked !== undefined && (records.at(-1)?.ts ?? 0) < picked.from ? undefined : logs.more;
  return (
    <>
      <Head
        title="Calls"
        facts={
          total.calls > 0 && (
            <Facts
              of={[
                `${count(total.calls)}${isWhole ? "" : " newest"} calls`,
                `${percent(total.failed / total.calls)} refused or failed`,
                <span key="p50">
                  p50 <Ms ms={total.latencyP50Ms} />
                </span>,
                <span key="p95">
                  p95 <Ms ms={total.latencyP95Ms} />
                </span>,
                <Money key="cost" usd={total.costUsd} />,
              ]}
            />
          )
        }
      >
        <Views page="calls" filters={filters} onChoose={(view) => void navigate({ search: view, replace: true })} />
        <button
          type="button"
          className="button aria-pressed:border-accent aria-pressed:text-accent"
          aria-pressed={live}
          onClick={() => setLive(!live)}
        >
          Live
        </button>
        <button type="button" className="button" onClick={logs.again}>
          Refresh
        </button>
      </Head>
      <Filters active={FILTERS.filter((name) => search[name] !== undefined).length}>
        <Find
          label="Model"
          value={search.model}
          onChange={(model) => filter({ model })}
          placeholder="Search by model"
          width="w-52"
        />
        <Pick label="Contract" value={search.kind} onChange={(kind) => filter({ kind })} options={KINDS} />
        <Pick
          label="Status"
          value={search.status}
          onChange={(status) => filter({ status })}
          options={["settled", "failed", "unmetered", "done"]}
        />
        <Pick
          label="Made by"
          value={search.by}
          onChange={(by) => filter({ by })}
          options={[["clients", "clients only"]]}
          any="clients, evaluations and batches"
        />
        <Pick
          label="Time"
          value={search.since ?? USUAL_SINCE}
          onChange={(since) => filter({ since, from: undefined, until: undefined })}
          options={SINCE}
          any={undefined}
        />
        <Find label="Provider" value={search.provider} onChange={(provider) => filter({ provider })} />
        <Find label="Robot" value={search.robot} onChange={(robot) => filter({ robot })} />
        <Find label="Session" value={search.session} onChange={(session) => filter({ session })} />
        {picked !== undefined && (
          <button type="button" className="button" onClick={() => filter({ from: undefined, until: undefined })}>
            <Time at={picked.from} /> to <Time at={picked.until} /> ×
          </button>
        )}
      </Filters>
      <Refused error={logs.error} again={logs.again} />
      {points.length > 0 && (
        <Histogram
          from={oldest}
          until={newest + 1}
          points={points}
          stepS={figures?.stepS ?? 1}
          outcomes={OUTCOMES}
          what="Calls"
          picked={picked}
          onPick={(bar) => filter({ from: bar?.from.toString(), until: bar?.until.toString() })}
        />
      )}
      <Table
        label="calls"
        tall
        columns={COLUMNS}
        rows={rows}
        keyOf={({ id }) => id}
        open={search.call}
        onOpen={({ id }) => filter({ call: id })}
        loading={logs.loading}
        more={more}
        empty={
          <Empty command={FIRST_CALL()}>
            {Object.keys(search).length > 0
              ? "No call matches these filters."
              : "No calls yet. Run one in the playground, or with this command."}
          </Empty>
        }
      />
      {search.call !== undefined && <CallSheet id={search.call} onClose={() => filter({ call: undefined })} />}
    </>
  );
}

/** The filters that a phone folds away. */
const FILTERS = ["kind", "status", "by", "since", "provider", "robot", "session"] as const;

type Search = ReturnType<typeof useSearch<RegisteredRouter, "/console/calls">>;

/** The points of the histogram: from the server's figures, or else from the loaded records. */
function pointsOf(figures: QuerySeriesResponse | undefined, records: readonly LogRecord[]): Point[] {
  if (figures === undefined)
    return records.map((record) => ({ at: record.ts, outcome: outcomeOf(record) < 2 ? 0 : 1, calls: 1 }));
  return figures.series.flatMap(({ points }) =>
    points.flatMap(({ at, figures: { calls = 0, failed = 0 } = {} }) => [
      { at, outcome: 0, calls: calls - failed },
      { at, outcome: 1, calls: failed },
    ]),
  );
}

/** Figures of the loaded calls. */
function figuresOf(rows: readonly LogRecord[]) {
  const latencies = Float64Array.from(
    rows.flatMap(({ latencyMs = [], streamId }) => (streamId === undefined ? latencyMs : [])),
  ).sort();
  const at = (share: number): number | undefined =>
    latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))];
  return {
    calls: rows.length,
    failed: rows.filter((record) => outcomeOf(record) >= 2).length,
    costUsd: rows.reduce((sum, { costUsd }) => sum + costUsd, 0),
    latencyP50Ms: at(0.5),
    latencyP95Ms: at(0.95),
  };
}

const numberOf = (text: string | undefined): number | undefined =>
  text === undefined ? undefined : Number(text) || undefined;

const FIRST_CALL = (): string =>
  `curl -s ${location.origin}/v1/act -H "authorization: Bearer $LIMBER_KEY" -H 'content-type: application/json' \\
  -d '{"model": "service/auto", "action_space": "base_twist_2d",
       "observations": [{"proprio": [0, 0, 0, 1, 1, 0], "proprio_names": ["x", "y", "yaw", "goal_x", "goal_y", "goal_yaw"]}]}'`;
