/** One control loop: its rate and the age of what it acts on, on one axis of time. */
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { HoldReasonSchema } from "#messages/limber/v1/control_loop_pb.ts";
import { RunningLoopSchema } from "#messages/limber/v1/loop_pb.ts";
import { restJson } from "../../lib/json.ts";
import { named } from "../../lib/routes.ts";
import { useMay } from "../../lib/session.ts";
import { spaced, wordOf } from "../../lib/words.ts";
import { Code, Json, Money, Ms, Pairs, Part, Time } from "../../parts/basics.tsx";
import { Chart } from "../../parts/chart.tsx";
import { Sheet } from "../../parts/sheet.tsx";
import { StopDialog, type StopTarget } from "../../parts/stop.tsx";
import { costPerMinute, holdsOf, type WatchedLoop } from "./loops.ts";
import { State } from "./state.tsx";

/** What a stop of this loop's robot stops: the robot, or the session where it has no name, or its key. */
function targetOf({ loop: { robotId, sessionId, keyId } }: WatchedLoop): StopTarget {
  if (robotId !== undefined) return { case: "robotId", value: robotId };
  if (sessionId !== undefined) return { case: "sessionId", value: sessionId };
  return { case: "keyId", value: keyId };
}

/** The sheet. */
export function LoopSheet({ watched, onClose }: { watched: WatchedLoop; onClose: () => void }) {
  const { loop, past } = watched;
  const [stopping, setStopping] = useState(false);
  const may = useMay("robots.stop");
  const times = useMemo(() => past.map(({ at }) => at), [past]);
  const ages = useMemo(
    () => [
      { name: "p50", values: past.map(({ p50 }) => p50), colour: "accent" as const },
      { name: "p99", values: past.map(({ p99 }) => p99), colour: "wait" as const },
      { name: "deadline", values: past.map(() => loop.deadlineMs), colour: "bad" as const, dashed: true },
    ],
    [past, loop.deadlineMs],
  );
  const rates = useMemo(
    () => [
      { name: "chunks", values: past.map(({ rate }) => rate), colour: "accent" as const },
      { name: "observations", values: past.map(({ asked }) => asked), colour: "muted" as const, dashed: true },
      {
        name: "holds",
        values: past.map(({ holds }, i) => (i === 0 ? 0 : holds - (past[i - 1]?.holds ?? holds))),
        colour: "bad" as const,
      },
    ],
    [past],
  );
  const target = targetOf(watched);
  const name = loop.robotId ?? loop.sessionId ?? loop.id;
  return (
    <Sheet
      title={name}
      onClose={onClose}
      actions={
        may && (
          <button type="button" className="button button-bad font-semibold" onClick={() => setStopping(true)}>
            STOP {name}
          </button>
        )
      }
    >
      <Chart
        title="Age of the observation when its chunk left"
        unit="ms"
        times={times}
        lines={ages}
        together={loop.id}
      />
      <Chart title="Chunks, observations and holds" unit="per second" times={times} lines={rates} together={loop.id} />
      <Pairs
        of={[
          ["state", <State key="" loop={loop} />],
          [
            "model",
            loop.model === undefined ? (
              <Code key="">{loop.modelRequested}</Code>
            ) : (
              <Link key="" to="/console/models/$owner/$name" params={named(loop.model)}>
                {loop.model}
              </Link>
            ),
          ],
          ["asked for", <Code key="">{loop.modelRequested}</Code>],
          loop.provider !== undefined && [
            "provider",
            [loop.provider, loop.region, loop.precision].filter(Boolean).join(" · "),
          ],
          ["action space", <Code key="">{loop.actionSpace}</Code>],
          ["deadline", <Ms key="" ms={loop.deadlineMs} />],
          ["since", <Time key="" at={loop.since} />],
          ["episode", loop.episode],
          ["chunks", loop.chunks],
          ["failovers", loop.failovers],
          ["hedges", loop.hedges],
          ["dropped observations", loop.droppedObservations],
          [
            "cost",
            <span key="">
              <Money usd={loop.costUsd} />, <Money usd={costPerMinute(watched)} /> a minute
            </span>,
          ],
          ["key", <Code key="">{loop.keyId}</Code>],
        ]}
      />
      <Part title={`Holds: ${holdsOf(loop)}`}>
        {holdsOf(loop) === 0 ? (
          <p className="text-muted">The robot was never told to hold.</p>
        ) : (
          <Pairs
            of={[
              ...Object.entries(loop.holds).map(([reason, n]) => [spaced(reason), n] as const),
              loop.lastHold !== undefined && ["the last one", wordOf(HoldReasonSchema, loop.lastHold)],
            ]}
          />
        )}
      </Part>
      <p className="mt-4">
        <Link
          to="/console/calls"
          search={loop.robotId === undefined ? { session: loop.sessionId ?? "" } : { robot: loop.robotId }}
        >
          Its stretches in the log
        </Link>
      </p>
      <Json of={restJson(RunningLoopSchema, loop)} />
      <StopDialog open={stopping} onClose={() => setStopping(false)} target={target} what={name} />
    </Sheet>
  );
}
