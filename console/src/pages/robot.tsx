/** One robot: its cameras, its current chunk, ages, holds and failovers on one time axis, its last hour, and STOP. */
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { HoldReasonSchema } from "#messages/limber/v1/control_loop_pb.ts";
import { LoopState, type RunningLoop, RunningLoopSchema } from "#messages/limber/v1/loop_pb.ts";
import { moment } from "../lib/format.ts";
import { restJson } from "../lib/json.ts";
import { named } from "../lib/routes.ts";
import { useMay } from "../lib/session.ts";
import { spaced, wordOf } from "../lib/words.ts";
import { Code, Facts, Head, Json, Money, Pairs, Part, Refused, Status, Time } from "../parts/basics.tsx";
import { Chart, type Mark } from "../parts/chart.tsx";
import { Actor } from "../parts/names.tsx";
import { StopDialog, type StopTarget } from "../parts/stop.tsx";
import { ChunkNow, Way } from "./robots/chunk.tsx";
import { type SeenAction, useActions, usePictures } from "./robots/details.ts";
import { Age, Cost, Rate } from "./robots/figures.tsx";
import { type History, robotKey, useHistories } from "./robots/history.ts";
import { holdsOf, KEPT_S, nameOf, type Sample, useLoops, type WatchedLoop } from "./robots/loops.ts";
import { State } from "./robots/state.tsx";

/** The target of a stop of this robot: its id, or its session's where it has none, or its key's. */
function targetOf({ robotId, sessionId, keyId }: RunningLoop): StopTarget {
  if (robotId !== undefined) return { case: "robotId", value: robotId };
  if (sessionId !== undefined) return { case: "sessionId", value: sessionId };
  return { case: "keyId", value: keyId };
}

/** The page. */
export function RobotPage() {
  const { robot } = useParams({ from: "/console/robots/$robot" });
  const search = useSearch({ from: "/console/robots/$robot" });
  const navigate = useNavigate({ from: "/console/robots/$robot" });
  const { loops, known, lost } = useLoops({});
  const { histories } = useHistories({ robotId: robot });
  const named = loops.filter(({ loop }) => nameOf(loop) === robot);
  // Of several streams with one name, the chosen one, or else the newest.
  const watched = named.find(({ loop }) => loop.id === search.loop) ?? named.at(-1);
  const history = watched ? histories.get(robotKey(watched.loop)) : [...histories.values()][0];
  const [stopping, setStopping] = useState(false);
  const mayStop = useMay("robots.stop");
  const target: StopTarget = watched ? targetOf(watched.loop) : { case: "robotId", value: robot };
  return (
    <>
      <Head title={robot} facts={watched && <LoopFacts watched={watched} />}>
        {named.length > 1 && (
          <select
            aria-label="Stream"
            className="input"
            value={watched?.loop.id}
            onChange={({ target: { value: loop } }) => void navigate({ search: { loop }, replace: true })}
          >
            {named.map(({ loop }) => (
              <option key={loop.id} value={loop.id}>
                {loop.workspaceId ?? loop.id}
              </option>
            ))}
          </select>
        )}
        <Link
          to="/console/calls"
          search={
            watched?.loop.robotId === undefined && watched?.loop.sessionId !== undefined
              ? { session: watched.loop.sessionId }
              : { robot }
          }
          className="button text-ink"
        >
          Calls
        </Link>
        {mayStop && (
          <button type="button" className="button button-bad font-semibold" onClick={() => setStopping(true)}>
            STOP {robot}
          </button>
        )}
      </Head>
      {lost !== undefined && (
        <>
          <p role="status">
            <Status tone="wait">Connection lost. These are the last figures; reconnecting.</Status>
          </p>
          <Refused error={lost} />
        </>
      )}
      {watched !== undefined ? (
        <Live key={watched.loop.id} watched={watched} history={history} />
      ) : (
        known && (
          <p className="mb-4 text-muted">
            Not running.
            {history !== undefined && (
              <>
                {" "}
                Last seen <Time at={history.minutes.at(-1)?.at} />.
              </>
            )}
          </p>
        )
      )}
      {history !== undefined && <Hours history={history} />}
      <StopDialog open={stopping} onClose={() => setStopping(false)} target={target} what={robot} />
    </>
  );
}

const LoopFacts = ({ watched }: { watched: WatchedLoop }) => {
  const { loop } = watched;
  return (
    <Facts
      of={[
        <State key="state" loop={loop} />,
        loop.model === undefined ? (
          <code key="model">{loop.modelRequested}</code>
        ) : (
          <Link key="model" to="/console/models/$owner/$name" params={named(loop.model)}>
            {loop.model}
          </Link>
        ),
        [loop.provider, loop.region, loop.precision].filter(Boolean).join(" "),
        <Rate key="rate" watched={watched} />,
        <Age key="age" watched={watched} />,
        <Cost key="cost" watched={watched} />,
        `episode ${loop.episode}`,
      ]}
    />
  );
};

/** What runs now, or ran at the chosen moment of the last five minutes. */
function Live({ watched, history }: { watched: WatchedLoop; history: History | undefined }) {
  const { loop, past } = watched;
  const actions = useActions(loop.id);
  /** A moment that the reader chose, with the samples as they were then; undefined while it is live. */
  const [paused, setPaused] = useState<
    { readonly at: number; readonly past: readonly Sample[]; readonly actions: readonly SeenAction[] } | undefined
  >();
  const newest = past.at(-1)?.at ?? 0;
  const shown = paused?.past ?? past;
  const end = shown.at(-1)?.at ?? newest;
  const from = end - KEPT_S;
  const at = paused?.at ?? newest;
  const pause = (moment_: number): void =>
    setPaused((before) => ({ ...(before ?? { past, actions }), at: Math.min(Math.max(moment_, from), end) }));
  const seen = (paused?.actions ?? actions).findLast((each) => each.at <= at);
  const laterMs = seen === undefined ? 0 : (at - seen.at) * 1000;
  return (
    <div className="grid grid-cols-[minmax(0,1fr)] items-start gap-x-6 xl:grid-cols-[minmax(0,1fr)_minmax(0,520px)]">
      <section aria-label="Last five minutes">
        <div className="mb-2 flex items-center gap-3">
          <button
            type="button"
            className="button w-20 justify-center"
            onClick={() => (paused === undefined ? pause(newest) : setPaused(undefined))}
          >
            {paused === undefined ? "Pause" : "Go live"}
          </button>
          <input
            type="range"
            aria-label="Moment"
            aria-valuetext={moment(new Date(at * 1000), new Date())}
            className="min-w-0 flex-1 accent-accent"
            min={from}
            max={end}
            step={0.5}
            value={at}
            onChange={({ target: { value } }) => pause(Number(value))}
          />
          <span className="w-20 text-right text-sm whitespace-nowrap text-muted">
            {paused === undefined ? <Status tone="good">Live</Status> : moment(new Date(at * 1000), new Date())}
          </span>
        </div>
        <Timeline
          loop={loop}
          past={shown}
          history={history}
          span={[from, end]}
          at={paused === undefined ? undefined : at}
        />
      </section>
      <div>
        <Cameras loopId={loop.id} isLive={paused === undefined} />
        <Part title="Current chunk">
          {seen === undefined ? (
            <p className="text-muted">{paused === undefined ? "No chunk yet." : "No chunk was seen at this moment."}</p>
          ) : (
            <>
              <ChunkNow action={seen.action} laterMs={laterMs} />
              <div className="mt-3">
                <Way action={seen.action} laterMs={laterMs} />
              </div>
            </>
          )}
        </Part>
        <About watched={watched} />
      </div>
    </div>
  );
}

/** Ages, rates, holds and failovers on one axis: each second since the page opened, and before that each minute. */
function Timeline({
  loop,
  past,
  history,
  span,
  at,
}: {
  loop: RunningLoop;
  past: readonly Sample[];
  history: History | undefined;
  span: readonly [number, number];
  at: number | undefined;
}) {
  const opened = past[0]?.at ?? span[1];
  const [from] = span;
  const rows = useMemo(() => {
    const before = (history?.minutes ?? [])
      .filter((minute) => minute.at + 60 > from && minute.at + 30 < opened)
      .map(({ at: since, rateHz, p50, p99 }) => ({ at: since + 30, rate: rateHz, asked: undefined, p50, p99 }));
    return [...before, ...past];
  }, [history, past, from, opened]);
  const times = useMemo(() => rows.map((row) => row.at), [rows]);
  const ages = useMemo(
    () => [
      { name: "p50", values: rows.map(({ p50 }) => p50), colour: "accent" as const },
      { name: "p99", values: rows.map(({ p99 }) => p99), colour: "wait" as const },
      { name: "deadline", values: rows.map(() => loop.deadlineMs), colour: "bad" as const, dashed: true },
    ],
    [rows, loop.deadlineMs],
  );
  const rates = useMemo(
    () => [
      { name: "chunks", values: rows.map(({ rate }) => rate), colour: "accent" as const },
      { name: "observations", values: rows.map(({ asked }) => asked), colour: "muted" as const, dashed: true },
    ],
    [rows],
  );
  const marks = useMemo((): Mark[] => {
    const now: Mark[] = at === undefined ? [] : [{ from: at, colour: "muted" }];
    const minutes = (history?.minutes ?? []).flatMap(({ at: since, holds }): Mark[] =>
      holds > 0 && since < opened ? [{ from: since, until: Math.min(since + 60, opened), colour: "wait" }] : [],
    );
    const seconds = past.flatMap((sample, i): Mark[] => {
      const before = past[i - 1];
      if (before === undefined) return [];
      return [
        ...(sample.state === LoopState.HOLDING || sample.holds > before.holds
          ? [{ from: before.at, until: sample.at, colour: "wait" } as const]
          : []),
        ...(sample.failovers > before.failovers ? [{ from: sample.at, colour: "bad" } as const] : []),
      ];
    });
    return [...minutes, ...seconds, ...now];
  }, [past, history, opened, at]);
  return (
    <>
      <Chart
        title="Age of the observation when its chunk is sent"
        unit="ms"
        height={170}
        times={times}
        lines={ages}
        together={loop.id}
        span={span}
        marks={marks}
      />
      <Chart
        title="Chunks and observations"
        unit="per second"
        height={130}
        times={times}
        lines={rates}
        together={loop.id}
        span={span}
        marks={marks}
      />
      <p className="mb-4 flex flex-wrap gap-x-4 text-sm text-muted">
        <span className="inline-flex items-center gap-1.5">
          <span aria-hidden="true" className="h-[5px] w-3 bg-wait" /> hold
        </span>
        <span className="inline-flex items-center gap-1.5">
          <span aria-hidden="true" className="h-3 w-px bg-bad" /> failover
        </span>
        <span>One point per minute before this page was opened.</span>
      </p>
    </>
  );
}

/** The cameras, once the reader asks for them. */
function Cameras({ loopId, isLive }: { loopId: string; isLive: boolean }) {
  const may = useMay("robots.pictures");
  const [on, setOn] = useState(false);
  const { pictures, withheld, error } = usePictures(may && on && isLive ? [loopId] : []);
  if (!may) return null;
  const shown = pictures.get(loopId);
  return (
    <Part
      title="Cameras"
      aside={
        <button type="button" className="button" aria-pressed={on} onClick={() => setOn(!on)}>
          {on ? "Hide" : "Show"}
        </button>
      }
    >
      {!on ? (
        <p className="text-muted">Shown live at up to 2 pictures per second. Never recorded.</p>
      ) : !isLive ? (
        <p className="text-muted">Pictures are not kept. Go live to see them.</p>
      ) : withheld.has(loopId) ? (
        <p className="text-muted">This workspace retains no data, so pictures are not shown.</p>
      ) : shown === undefined ? (
        <p className="text-muted">No picture yet.</p>
      ) : (
        <div className="flex flex-wrap gap-2">
          {shown.map(({ camera, url }, i) => (
            <figure key={`${camera} ${i}`}>
              <img src={url} alt={`camera ${camera || "1"}`} className="h-36 rounded-sm bg-panel" />
              <figcaption className="text-sm text-muted">{camera || "camera"}</figcaption>
            </figure>
          ))}
        </div>
      )}
      <Refused error={error} />
    </Part>
  );
}

function About({ watched: { loop } }: { watched: WatchedLoop }) {
  const holds = Object.entries(loop.holds).filter(([, n]) => n > 0);
  return (
    <Part title="Stream">
      <Pairs
        of={[
          ["requested", <Code key="">{loop.modelRequested}</Code>],
          ["action space", <Code key="">{loop.actionSpace}</Code>],
          ["opened", <Time key="" at={loop.since} />],
          ["chunks", loop.chunks],
          [
            "holds",
            holds.length === 0
              ? "none"
              : `${holdsOf(loop)}: ${holds.map(([reason, n]) => `${n} ${spaced(reason)}`).join(", ")}`,
          ],
          loop.lastHold !== undefined && ["last hold", wordOf(HoldReasonSchema, loop.lastHold)],
          ["failovers", loop.failovers],
          ["hedges", loop.hedges],
          ["dropped observations", loop.droppedObservations],
          ["cost", <Money key="" usd={loop.costUsd} />],
          ["key", <Actor key="" id={loop.keyId} />],
        ]}
      />
      <Json of={restJson(RunningLoopSchema, loop)} />
    </Part>
  );
}

/** The last hour from the gateway. */
function Hours({ history: { minutes, since, until } }: { history: History }) {
  const times = useMemo(() => minutes.map(({ at }) => at), [minutes]);
  const lines = useMemo(
    () => [{ name: "chunks", values: minutes.map(({ rateHz }) => rateHz), colour: "accent" as const, filled: true }],
    [minutes],
  );
  const marks = useMemo(
    () => minutes.flatMap(({ at, holds }): Mark[] => (holds > 0 ? [{ from: at, until: at + 60, colour: "wait" }] : [])),
    [minutes],
  );
  return (
    <Part title="Last hour">
      <Chart
        title="Chunks"
        unit="per second"
        height={110}
        times={times}
        lines={lines}
        span={[since, until]}
        marks={marks}
        stepped
      />
    </Part>
  );
}
