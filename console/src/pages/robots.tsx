/** Robots, live: which loops run, which hold and why, and STOP. */
import { useMutation } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";
import { BudgetInterval, Environment } from "#messages/limber/v1/account_pb.ts";
import { AccountService } from "#messages/limber/v1/account_service_pb.ts";
import { LoopState } from "#messages/limber/v1/loop_pb.ts";
import { type RobotStop, StopScopeSchema } from "#messages/limber/v1/robot_pb.ts";
import { RobotService } from "#messages/limber/v1/robot_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { dollars, plain } from "../lib/format.ts";
import { useList } from "../lib/list.ts";
import { useMay, useWho } from "../lib/session.ts";
import { wordOf } from "../lib/words.ts";
import { Code, Empty, Facts, Head, Money, None, Part, Refused, Status, Sure, Time } from "../parts/basics.tsx";
import { Filters, Find, Pick } from "../parts/filters.tsx";
import { Spark } from "../parts/spark.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { costPerMinute, holdsOf, useLoops, type WatchedLoop } from "./robots/loops.ts";
import { LoopSheet } from "./robots/sheet.tsx";
import { State } from "./robots/state.tsx";

const rate = (hz: number | undefined): string => (hz === undefined ? "–" : plain(hz, 1));

const COLUMNS: readonly Column<WatchedLoop>[] = [
  {
    id: "robot",
    title: "robot",
    width: "2fr",
    cell: ({ loop }) => loop.robotId ?? loop.sessionId ?? <code>{loop.id}</code>,
    value: ({ loop }) => loop.robotId ?? loop.id,
  },
  {
    id: "state",
    phone: 84,
    title: "state",
    width: "2fr",
    cell: ({ loop }) => <State loop={loop} />,
    value: ({ loop }) => loop.state,
  },
  {
    id: "model",
    title: "model",
    width: "2fr",
    wide: true,
    cell: ({ loop }) => <Code>{loop.model ?? loop.modelRequested}</Code>,
    value: ({ loop }) => loop.model ?? "",
  },
  {
    id: "provider",
    title: "provider",
    width: "1fr",
    wide: true,
    cell: ({ loop }) => loop.provider ?? <None />,
    value: ({ loop }) => loop.provider ?? "",
  },
  {
    id: "rate",
    title: "rate now / avg / worst",
    width: 168,
    phone: 120,
    right: true,
    cell: ({ loop }) => (
      <>
        {rate(loop.rateHz)} / {rate(loop.averageHz)} / {rate(loop.worstHz)} <span className="text-muted">Hz</span>
      </>
    ),
    value: ({ loop }) => loop.worstHz ?? 0,
  },
  {
    id: "age",
    title: "age p50 / p99 of deadline",
    width: 184,
    right: true,
    wide: true,
    cell: ({ loop }) => (
      <span className={(loop.ageP99Ms ?? 0) > loop.deadlineMs ? "text-bad" : ""}>
        {rate(loop.ageP50Ms)} / {rate(loop.ageP99Ms)}{" "}
        <span className="text-muted">of {Math.round(loop.deadlineMs)} ms</span>
      </span>
    ),
    value: ({ loop }) => loop.ageP99Ms ?? 0,
  },
  {
    id: "holds",
    title: "holds",
    width: 64,
    phone: 48,
    right: true,
    cell: ({ loop }) => holdsOf(loop),
    value: ({ loop }) => holdsOf(loop),
  },
  {
    id: "cost",
    title: "$ / min",
    width: 84,
    right: true,
    wide: true,
    cell: (watched) => <Money usd={costPerMinute(watched)} />,
    value: (watched) => costPerMinute(watched) ?? 0,
  },
  {
    id: "spark",
    title: "last minute",
    width: 136,
    wide: true,
    cell: ({ loop, past }) => (
      <Spark
        values={past.slice(-60).map(({ rate }) => rate)}
        most={Math.max(loop.askedHz ?? 0, loop.averageHz, loop.rateHz) * 1.1}
      />
    ),
  },
];

/** The page. */
export function RobotsPage() {
  const search = useSearch({ from: "/console/" });
  const navigate = useNavigate({ from: "/console/" });
  const who = useWho();
  const filter = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const watched = useLoops({ workspaceId: search.workspace, robotId: search.robot });
  const { loops } = watched;
  const at = (state: LoopState): number => loops.filter(({ loop }) => loop.state === state).length;
  const steps = loops.reduce((sum, { loop }) => sum + loop.rateHz, 0);
  const cost = loops.reduce((sum, loop) => sum + (costPerMinute(loop) ?? 0), 0);
  const open = loops.find(({ loop }) => loop.id === search.loop);
  const find = useCallback((robot: string | undefined) => filter({ robot }), [filter]);
  return (
    <>
      <Head
        title="Robots"
        facts={
          watched.known && (
            <Facts
              of={[
                <Status
                  key="r"
                  tone={at(LoopState.RUNNING) > 0 ? "good" : "off"}
                >{`${at(LoopState.RUNNING)} running`}</Status>,
                <Status
                  key="h"
                  tone={at(LoopState.HOLDING) > 0 ? "wait" : "off"}
                >{`${at(LoopState.HOLDING)} holding`}</Status>,
                `${at(LoopState.WAITING)} waiting`,
                `${plain(steps, 1)} chunks/s`,
                `${dollars(Math.round(cost * 1e4) / 1e4)}/min`,
                watched.more > 0 && `${watched.more} more are not shown`,
              ]}
            />
          )
        }
      />
      <Filters>
        <Find label="Robot" value={search.robot} onChange={find} placeholder="Robot, whole name" />
        {who.workspaces.length > 0 && who.reachesOrganisation && (
          <Pick
            label="Workspace"
            value={search.workspace}
            onChange={(workspace) => filter({ workspace })}
            options={who.workspaces.map(({ workspaceId, name }) => [workspaceId, name] as const)}
          />
        )}
      </Filters>
      {watched.lost !== undefined && (
        <div>
          <p role="status">
            <Status tone="wait">The connection was lost. These are the last figures; it is tried again.</Status>
          </p>
          <Refused error={watched.lost} />
        </div>
      )}
      <Table
        label="control loops"
        columns={COLUMNS}
        rows={loops}
        keyOf={({ loop }) => loop.id}
        open={search.loop}
        onOpen={({ loop }) => filter({ loop: loop.id })}
        loading={!watched.known}
        empty={<FirstLoop />}
      />
      <Stops />
      {open !== undefined && <LoopSheet watched={open} onClose={() => filter({ loop: undefined })} />}
    </>
  );
}

/** The command that starts the example's loop, with a key of its own where the reader may make keys. */
function FirstLoop() {
  const { orgId, workspaceId } = useWho();
  const may = useMay("keys.write");
  const make = useMutation(AccountService.method.createKey);
  const key = make.data?.key?.key;
  return (
    <>
      <Empty
        command={`LIMBER_KEY=${key ?? "lmb_sk_…"} node_modules/.bin/node examples/robot-loop.ts 300 ${location.origin}`}
        action={
          may &&
          key === undefined && (
            <button
              type="button"
              className="button"
              disabled={make.isPending}
              onClick={() =>
                void make
                  .mutateAsync({
                    orgId,
                    workspaceId,
                    name: "example robot",
                    role: "operator",
                    environment: Environment.SIMULATION,
                    expiresAt: Math.floor(Date.now() / 1000) + 86_400,
                    budget: { limitUsd: 1, interval: BudgetInterval.LIFETIME },
                  })
                  .catch(() => undefined)
              }
            >
              Make a key for it: one day, one dollar
            </button>
          )
        }
      >
        No control loop runs. Start the example in the gateway's folder, and it is seen here within a second.
      </Empty>
      <Refused error={make.error} />
    </>
  );
}

/** The stops that stand, and their release. */
function Stops() {
  const may = useMay("robots.stop");
  const stops = useList(RobotService.method.listRobotStops, { limit: 50 }, { enabled: may, refetchInterval: 5_000 });
  const release = useMutation(RobotService.method.releaseRobots);
  if (!may || (stops.rows.length === 0 && stops.error === null)) return null;
  const columns: readonly Column<RobotStop>[] = [
    {
      id: "what",
      title: "stopped",
      width: "2fr",
      cell: ({ scope, subject }) => <Status tone="bad">{`${wordOf(StopScopeSchema, scope)} ${subject}`}</Status>,
    },
    { id: "why", title: "why", width: "2fr", cell: ({ reason }) => reason || <None /> },
    { id: "by", title: "by", width: "1fr", wide: true, cell: ({ createdBy }) => <Code>{createdBy}</Code> },
    { id: "since", title: "since", width: 112, wide: true, cell: ({ created }) => <Time at={created} /> },
    {
      id: "release",
      title: "",
      width: 96,
      right: true,
      cell: ({ id, subject }) => (
        <Sure
          label="Release"
          question={`Release ${subject}? Robots under it may act again.`}
          busy={release.isPending}
          onSure={() =>
            void release.mutateAsync({ target: { case: "stopId", value: id } }).then(refresh, () => undefined)
          }
        />
      ),
    },
  ];
  return (
    <Part title="Stops">
      <Refused error={stops.error ?? release.error} />
      <Table label="stops" columns={columns} rows={stops.rows} keyOf={({ id }) => id} />
    </Part>
  );
}
