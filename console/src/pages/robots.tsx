/** Robots, live: which loops run, which hold and why, and STOP. */
import { useMutation } from "@connectrpc/connect-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import { BudgetInterval, Environment } from "#messages/limber/v1/account_pb.ts";
import { AccountService } from "#messages/limber/v1/account_service_pb.ts";
import { LoopState } from "#messages/limber/v1/loop_pb.ts";
import { type RobotStop, StopScopeSchema } from "#messages/limber/v1/robot_pb.ts";
import { RobotService } from "#messages/limber/v1/robot_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { plain, roughDollars } from "../lib/format.ts";
import { useList } from "../lib/list.ts";
import { useMay, useWho } from "../lib/session.ts";
import { wordOf } from "../lib/words.ts";
import { Code, Empty, Facts, Head, None, Part, Refused, Status, Sure, Time } from "../parts/basics.tsx";
import { Filters, Find, Pick } from "../parts/filters.tsx";
import { Actor } from "../parts/names.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { RobotCard } from "./robots/card.tsx";
import { Checklist } from "./robots/checklist.tsx";
import { usePictures } from "./robots/details.ts";
import { Age, Cost, Hour, Rate } from "./robots/figures.tsx";
import { type History, robotKey, useHistories } from "./robots/history.ts";
import { costPerMinute, holdsOf, nameOf, useLoops, type WatchedLoop } from "./robots/loops.ts";
import { State } from "./robots/state.tsx";

/** Up to how many robots are shown as cards, unless the reader chooses. */
const MOST_CARDS = 24;

const columnsOf = (histories: ReadonlyMap<string, History>): readonly Column<WatchedLoop>[] => [
  {
    id: "robot",
    title: "robot",
    width: "2fr",
    cell: ({ loop }) => nameOf(loop),
    value: ({ loop }) => nameOf(loop),
  },
  {
    id: "state",
    phone: 96,
    title: "state",
    width: "2fr",
    cell: ({ loop }) => <State loop={loop} />,
    value: ({ loop }) => loop.state,
  },
  {
    id: "model",
    title: "model",
    width: "3fr",
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
    title: "rate / target",
    width: 128,
    phone: 104,
    right: true,
    cell: (watched) => <Rate watched={watched} />,
    value: ({ loop }) => loop.rateHz,
  },
  {
    id: "age",
    title: "age p99 / deadline",
    width: 152,
    right: true,
    wide: true,
    cell: (watched) => <Age watched={watched} />,
    value: ({ loop }) => loop.ageP99Ms ?? 0,
  },
  {
    id: "holds",
    title: "holds",
    width: 72,
    phone: 48,
    right: true,
    cell: ({ loop }) => holdsOf(loop),
    value: ({ loop }) => holdsOf(loop),
  },
  {
    id: "cost",
    title: "cost",
    width: 124,
    right: true,
    wide: true,
    cell: (watched) => <Cost watched={watched} />,
    value: (watched) => costPerMinute(watched) ?? 0,
  },
  {
    id: "spark",
    title: "last hour",
    width: 136,
    wide: true,
    cell: ({ loop }) => <Hour history={histories.get(robotKey(loop))} target={loop.askedHz} />,
  },
];

/** Whether a loop's robot, model or provider contains a text. */
function matches({ loop }: WatchedLoop, text: string): boolean {
  const wanted = text.toLowerCase();
  return [nameOf(loop), loop.sessionId, loop.model, loop.provider].some((word) => word?.toLowerCase().includes(wanted));
}

/** The page. */
export function RobotsPage() {
  const search = useSearch({ from: "/console/" });
  const navigate = useNavigate({ from: "/console/" });
  const who = useWho();
  const filter = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const watched = useLoops({ workspaceId: search.workspace });
  const { histories } = useHistories({ workspaceId: search.workspace });
  const columns = useMemo(() => columnsOf(histories), [histories]);
  const { loops } = watched;
  const { robot = "" } = search;
  const shown = useMemo(
    () =>
      loops
        .filter((each) => matches(each, robot))
        .sort((a, b) => nameOf(a.loop).localeCompare(nameOf(b.loop), undefined, { numeric: true })),
    [loops, robot],
  );
  const at = (state: LoopState): number => loops.filter(({ loop }) => loop.state === state).length;
  const chunks = loops.reduce((sum, { loop }) => sum + loop.rateHz, 0);
  const costs = loops.flatMap((loop) => costPerMinute(loop) ?? []);
  const find = useCallback((text: string | undefined) => filter({ robot: text }), [filter]);
  const view = search.view ?? (loops.length > MOST_CARDS ? "rows" : "cards");
  const show = useCallback(
    ({ loop }: WatchedLoop) =>
      void navigate({ to: "/console/robots/$robot", params: { robot: nameOf(loop) }, search: { loop: loop.id } }),
    [navigate],
  );
  const maySee = useMay("robots.pictures");
  const withCameras = maySee && search.cameras !== undefined && view === "cards";
  const { pictures } = usePictures(withCameras ? shown.map(({ loop }) => loop.id) : []);
  return (
    <>
      <Head
        title="Robots"
        facts={
          watched.known &&
          loops.length > 0 && (
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
                `${plain(chunks, 1)} chunks/s`,
                costs.length > 0 && `${roughDollars(costs.reduce((a, b) => a + b, 0))}/min`,
                watched.more > 0 && `${watched.more} more not shown`,
              ]}
            />
          )
        }
      />
      {watched.known && <Checklist hasLoops={loops.length + histories.size > 0} />}
      {(loops.length > 0 || robot !== "") && (
        <Filters>
          <Find label="Search robots" value={search.robot} onChange={find} />
          {who.workspaces.length > 0 && who.reachesOrganisation && (
            <Pick
              label="Workspace"
              value={search.workspace}
              onChange={(workspace) => filter({ workspace })}
              options={who.workspaces.map(({ workspaceId, name }) => [workspaceId, name] as const)}
            />
          )}
          {maySee && view === "cards" && (
            <button
              type="button"
              className="button aria-pressed:bg-chosen aria-pressed:font-medium"
              aria-pressed={withCameras}
              onClick={() => filter({ cameras: withCameras ? undefined : "1" })}
            >
              Cameras
            </button>
          )}
          <fieldset className="ml-auto flex shrink-0 max-sm:ml-0">
            <legend className="sr-only">View</legend>
            {(["cards", "rows"] as const).map((each) => (
              <button
                key={each}
                type="button"
                aria-pressed={view === each}
                className="button rounded-none first-of-type:rounded-l last-of-type:rounded-r last-of-type:border-l-0 aria-pressed:bg-chosen aria-pressed:font-medium"
                onClick={() => filter({ view: each })}
              >
                {each === "cards" ? "Cards" : "Rows"}
              </button>
            ))}
          </fieldset>
        </Filters>
      )}
      {watched.lost !== undefined && (
        <div>
          <p role="status">
            <Status tone="wait">Connection lost. These are the last figures; reconnecting.</Status>
          </p>
          <Refused error={watched.lost} />
        </div>
      )}
      {view === "cards" && shown.length > 0 ? (
        <ul aria-label="control loops" className="grid grid-cols-[repeat(auto-fill,minmax(min(100%,288px),1fr))] gap-3">
          {shown.map((each) => (
            <RobotCard
              key={each.loop.id}
              watched={each}
              history={histories.get(robotKey(each.loop))}
              picture={withCameras ? (pictures.get(each.loop.id)?.[0] ?? null) : undefined}
              onOpen={show}
            />
          ))}
        </ul>
      ) : (
        <Table
          label="control loops"
          columns={columns}
          rows={shown}
          keyOf={({ loop }) => loop.id}
          onOpen={show}
          loading={!watched.known}
          empty={loops.length > 0 ? <Empty>No running robot matches.</Empty> : <FirstLoop />}
        />
      )}
      <Recent loops={loops} histories={histories} known={watched.known} />
      <Stops />
    </>
  );
}

/** Robots of the last hour that do not run now. */
function Recent({
  loops,
  histories,
  known,
}: {
  loops: readonly WatchedLoop[];
  histories: ReadonlyMap<string, History>;
  known: boolean;
}) {
  const running = new Set(loops.map(({ loop }) => robotKey(loop)));
  const gone = known
    ? [...histories].flatMap(([key, history]) => (running.has(key) || history.minutes.length === 0 ? [] : [history]))
    : [];
  if (gone.length === 0) return null;
  const columns: readonly Column<History>[] = [
    {
      id: "robot",
      title: "robot",
      width: "2fr",
      cell: ({ robotId }) => (
        <Link to="/console/robots/$robot" params={{ robot: robotId }}>
          {robotId}
        </Link>
      ),
      value: ({ robotId }) => robotId,
    },
    {
      id: "last",
      title: "last seen",
      width: "1fr",
      phone: 112,
      cell: ({ minutes }) => <Time at={minutes.at(-1)?.at} />,
      value: ({ minutes }) => minutes.at(-1)?.at ?? 0,
    },
    {
      id: "holds",
      title: "holds",
      width: 72,
      right: true,
      cell: ({ minutes }) => minutes.reduce((sum, { holds }) => sum + holds, 0),
    },
    { id: "spark", title: "last hour", width: 136, wide: true, cell: (history) => <Hour history={history} /> },
  ];
  return (
    <Part title="Ended within the hour">
      <Table label="ended robots" columns={columns} rows={gone} keyOf={robotKey} />
    </Part>
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
              Create a key for it: one day, one dollar
            </button>
          )
        }
      >
        No robot is running. Start the example in the gateway's folder; it appears here within a second.
      </Empty>
      <Refused error={make.error} />
    </>
  );
}

/** The active stops, and their release. */
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
    { id: "by", title: "by", width: "1fr", wide: true, cell: ({ createdBy }) => <Actor id={createdBy} /> },
    { id: "since", title: "since", width: 112, wide: true, cell: ({ created }) => <Time at={created} /> },
    {
      id: "release",
      title: "",
      width: 96,
      right: true,
      cell: ({ id, subject }) => (
        <Sure
          label="Release"
          question={`Release ${subject}? Its robots may act again.`}
          busy={release.isPending}
          onSure={() =>
            void release.mutateAsync({ target: { case: "stopId", value: id } }).then(refresh, () => undefined)
          }
        />
      ),
    },
  ];
  return (
    <Part title="Active stops">
      <Refused error={stops.error ?? release.error} />
      <Table label="stops" columns={columns} rows={stops.rows} keyOf={({ id }) => id} />
    </Part>
  );
}
