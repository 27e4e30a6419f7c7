/** Calls: what was called, what became of it, and why it went where it went. */
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import { LogKindSchema, type LogRecord } from "#messages/limber/v1/log_pb.ts";
import { LogService } from "#messages/limber/v1/log_service_pb.ts";
import { count, percent } from "../lib/format.ts";
import { useList } from "../lib/list.ts";
import { numberOfCode, spaced, wordOf } from "../lib/words.ts";
import { Empty, Facts, Head, Money, Ms, None, Refused, Status, Time } from "../parts/basics.tsx";
import { Filters, Find, Pick } from "../parts/filters.tsx";
import { Histogram, type Outcome } from "../parts/histogram.tsx";
import { ModelName } from "../parts/names.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { CallSheet } from "./calls/sheet.tsx";

/** How many records are asked for at once. */
const PAGE = 200;

const OUTCOMES: readonly Outcome[] = [
  { name: "answered", tone: "good" },
  { name: "after a fallback", tone: "wait" },
  { name: "refused", tone: "off" },
  { name: "failed", tone: "bad" },
];

/** Which of the outcomes a call had: what the caller did wrong is refused, what the supply did wrong has failed. */
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
] as const;

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
    cell: ({ contract, kind }) => contract ?? wordOf(LogKindSchema, kind),
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
    id: "tries",
    title: "tries",
    width: 56,
    right: true,
    wide: true,
    cell: ({ attempts }) => attempts.length || <None />,
    value: ({ attempts }) => attempts.length,
  },
  {
    id: "latency",
    title: "latency",
    width: 84,
    phone: 76,
    right: true,
    cell: ({ latencyMs }) => <Ms ms={latencyMs} />,
    value: ({ latencyMs }) => latencyMs ?? 0,
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
      sinceMinutes: numberOf(search.since),
    }),
    [
      search.kind,
      search.status,
      search.http,
      search.model,
      search.provider,
      search.robot,
      search.session,
      search.since,
    ],
  );
  const logs = useList(LogService.method.listLogs, request);
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
  const points = useMemo(() => records.map((record) => ({ at: record.ts, outcome: outcomeOf(record) })), [records]);
  const newest = records[0]?.ts ?? 0;
  const oldest = records.at(-1)?.ts ?? newest;
  const { failed, cost, p50, p95 } = useMemo(() => figuresOf(rows), [rows]);
  return (
    <>
      <Head
        title="Calls"
        facts={
          rows.length > 0 && (
            <Facts
              of={[
                `${count(rows.length)}${logs.more ? " newest" : ""} calls`,
                `${percent(failed / rows.length)} refused or failed`,
                <span key="p50">
                  p50 <Ms ms={p50} />
                </span>,
                <span key="p95">
                  p95 <Ms ms={p95} />
                </span>,
                <Money key="cost" usd={cost} />,
              ]}
            />
          )
        }
      >
        <button type="button" className="button" onClick={logs.again}>
          Refresh
        </button>
      </Head>
      <Filters>
        <Find
          label="Model"
          value={search.model}
          onChange={(model) => filter({ model })}
          placeholder="Model, whole"
          width="w-52"
        />
        <Pick label="Contract" value={search.kind} onChange={(kind) => filter({ kind })} options={KINDS} />
        <Pick
          label="Ended"
          value={search.status}
          onChange={(status) => filter({ status })}
          options={["settled", "failed", "unmetered", "done"]}
        />
        <Pick
          label="Time"
          value={search.since}
          onChange={(since) => filter({ since, from: undefined, until: undefined })}
          options={SINCE}
          any="all"
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
      {records.length > 0 && (
        <Histogram
          from={oldest}
          until={newest + 1}
          points={points}
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
        more={logs.more}
        empty={
          <Empty command={FIRST_CALL()}>
            {Object.keys(search).length > 0
              ? "No call matches these filters."
              : "Each call of act, predict and ground makes a row here. The playground makes one by a click, and this command too."}
          </Empty>
        }
      />
      {search.call !== undefined && <CallSheet id={search.call} onClose={() => filter({ call: undefined })} />}
    </>
  );
}

/** What the calls of a list are together. */
function figuresOf(rows: readonly LogRecord[]) {
  const latencies = Float64Array.from(rows.flatMap(({ latencyMs = [] }) => latencyMs)).sort();
  const at = (share: number): number | undefined =>
    latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))];
  return {
    failed: rows.filter((record) => outcomeOf(record) >= 2).length,
    cost: rows.reduce((sum, { costUsd }) => sum + costUsd, 0),
    p50: at(0.5),
    p95: at(0.95),
  };
}

const numberOf = (text: string | undefined): number | undefined =>
  text === undefined ? undefined : Number(text) || undefined;

const FIRST_CALL = (): string =>
  `curl -s ${location.origin}/v1/act -H "authorization: Bearer $LIMBER_KEY" -H 'content-type: application/json' \\
  -d '{"model": "service/auto", "action_space": "base_twist_2d",
       "observations": [{"proprio": [0, 0, 0, 1, 1, 0], "proprio_names": ["x", "y", "yaw", "goal_x", "goal_y", "goal_yaw"]}]}'`;
