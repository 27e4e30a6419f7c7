/** One call: its attempts on the ruler of its deadline, who was left out, the money, and how to reproduce it. */
import { useQuery } from "@connectrpc/connect-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import {
  type LogAttempt,
  type LoggedOffering,
  type LoggedPlan,
  type LogRecord,
  LogRecordSchema,
} from "#messages/limber/v1/log_pb.ts";
import { LogService } from "#messages/limber/v1/log_service_pb.ts";
import { duration } from "../../lib/format.ts";
import { restJson } from "../../lib/json.ts";
import { named } from "../../lib/routes.ts";
import { spaced } from "../../lib/words.ts";
import { Bytes, Code, CopyCall, Json, Money, Ms, Pairs, Part, Refused, Status, Time } from "../../parts/basics.tsx";
import { Actor, OfferingName } from "../../parts/names.tsx";
import { Sheet } from "../../parts/sheet.tsx";
import { Ages, Ended } from "../calls.tsx";

/** A call is on record some moments after its answer, and its plan up to a second later. */
const LOOKS = 5;
const BETWEEN_LOOKS_MS = 1_000;

/** The sheet of a call, by any id that it gave. */
export function CallSheet({ id, onClose }: { id: string; onClose: () => void }) {
  const { data, error, refetch } = useQuery(
    LogService.method.getLog,
    { logId: id },
    {
      refetchInterval: ({ state: { data, dataUpdateCount, errorUpdateCount } }) =>
        data?.record?.plan === undefined && dataUpdateCount + errorUpdateCount < LOOKS ? BETWEEN_LOOKS_MS : false,
    },
  );
  const record = data?.record;
  return (
    <Sheet title={<code className="text-base">{id}</code>} onClose={onClose}>
      <Refused error={error} again={() => void refetch()} />
      {record !== undefined && <Called record={record} />}
    </Sheet>
  );
}

function Called({ record }: { record: LogRecord }) {
  const { model, modelRequested, provider, costUsd, hedgeCostUsd, latencyMs, units, unit } = record;
  return (
    <>
      <Pairs
        of={[
          ["outcome", <Ended key="" record={record} />],
          record.errorMessage !== undefined && ["message", record.errorMessage],
          ["ended", <Time key="" at={record.ts} />],
          ["requested model", <Code key="">{modelRequested}</Code>],
          [
            "model",
            model === undefined ? (
              "nothing"
            ) : (
              <Link key="" to="/console/models/$owner/$name" params={named(model)}>
                {model}
              </Link>
            ),
          ],
          provider !== undefined && [
            "provider",
            [provider, record.region, record.precision].filter(Boolean).join(" · "),
          ],
          record.streamId === undefined
            ? ["took", <Ms key="" ms={latencyMs} />]
            : [
                "control loop",
                <span key="">
                  {record.chunks ?? 0} chunks, <Ages of={record} />
                </span>,
              ],
          record.observationAgeMs !== undefined && ["age of observation", <Ms key="" ms={record.observationAgeMs} />],
          record.robotId !== undefined && ["robot", record.robotId],
          record.sessionId !== undefined && ["session", <Code key="">{record.sessionId}</Code>],
          record.preset !== undefined && ["preset", record.preset],
          ["key", <Actor key="" id={record.keyId} />],
          record.inputBytes !== undefined && ["body", <Bytes key="" of={record.inputBytes} />],
          record.traceId !== undefined && ["trace", <Code key="">{record.traceId}</Code>],
        ]}
      />
      <Part title="Attempts">
        <Ruler record={record} />
      </Part>
      {record.plan !== undefined && <Plan plan={record.plan} />}
      {Object.keys(record.holds).length > 0 && (
        <Part title="Holds">
          <Pairs of={Object.entries(record.holds).map(([reason, n]) => [spaced(reason), n] as const)} />
        </Part>
      )}
      <Part title="Money">
        <p>
          charged <Money usd={costUsd} />
          {units !== undefined && ` for ${units} ${spaced(unit ?? "unit")}${units === 1 ? "" : "s"}`}
          {hedgeCostUsd !== undefined && (
            <>
              , <Money usd={hedgeCostUsd} /> of it for the hedge
            </>
          )}
          {record.byok && ", with the organization's own provider key"}
          {record.coldStart && ", including a cold start"}
        </p>
      </Part>
      <Part title="Reproduce this call">
        <p className="mb-2 text-muted">Images, states and instructions are never stored. Insert your own.</p>
        <CopyCall call={{ method: "POST", path: `/v1/${record.contract ?? "act"}`, body: requestOf(record) }} />
      </Part>
      <Json of={restJson(LogRecordSchema, record)} />
    </>
  );
}

/** Who was considered, in which order they were to be tried, and why the others were not. */
function Plan({ plan: { considered, ranks, drops, dropped } }: { plan: LoggedPlan }) {
  const reasons = Object.entries(drops).sort(([, a], [, b]) => b - a);
  const sum = reasons.reduce((all, [, n]) => all + n, 0);
  const of = ({ offeringId, ...named }: LoggedOffering) => <OfferingName id={offeringId} {...named} />;
  return (
    <Part title={`Considered ${considered}, dropped ${sum}`}>
      <ol className="mb-2 list-decimal pl-6">
        {ranks.map((rank) => (
          <li key={rank.offeringId}>{of(rank)}</li>
        ))}
      </ol>
      {reasons.map(([reason, n]) => (
        <details key={reason}>
          <summary>
            {n} dropped: {spaced(reason)}
          </summary>
          <ul className="mb-2 pl-6">
            {dropped
              .filter((offering) => offering.reason === reason)
              .map((offering) => (
                <li key={offering.offeringId}>{of(offering)}</li>
              ))}
            {dropped.every((offering) => offering.reason !== reason) && (
              <li className="text-muted">The log stores only the first few.</li>
            )}
          </ul>
        </details>
      ))}
    </Part>
  );
}

/** What the log knows of the request. */
function requestOf({ modelRequested, model, preset, preference, deadlineMs, sessionId, robotId }: LogRecord): object {
  const provider = {
    ...(deadlineMs !== undefined && { deadline_ms: deadlineMs }),
    ...(sessionId !== undefined && { session_id: sessionId }),
  };
  return {
    model: modelRequested ?? model,
    observations: [{ frames: [{ camera: "wrist", url: "data:image/png;base64,…" }], proprio: [] }],
    instruction: "…",
    ...(preset !== undefined && { preset }),
    ...(preference !== undefined && { preference }),
    ...(Object.keys(provider).length > 0 && { provider }),
    ...(robotId !== undefined && { robot_id: robotId }),
  };
}

/** Model and provider of an attempt, if the logged plan names them. */
function rankOf(plan: LoggedPlan | undefined, { offeringId }: LogAttempt): { model?: string; provider?: string } {
  const rank = plan?.ranks.find((each) => each.offeringId === offeringId);
  return rank === undefined ? {} : { model: rank.model, provider: rank.provider };
}

interface Placed {
  readonly name: ReactNode;
  readonly from: number;
  readonly ms: number;
  readonly kind: "queue" | "ok" | "error" | "cancelled";
  readonly said: string;
}

/** The tries of a call, one bar each, from 0 to its deadline. A hedge runs beside the try that it is to overtake. */
function placed({ queueMs = 0, attempts, hedged, plan }: LogRecord): Placed[] {
  const bars: Placed[] = queueMs >= 0.5 ? [{ name: "queued", from: 0, ms: queueMs, kind: "queue", said: "" }] : [];
  let at = queueMs;
  const last = attempts.at(-1);
  for (const attempt of attempts) {
    const parallel = hedged && attempt !== last && attempt.status === "cancelled" && last !== undefined;
    bars.push({
      name: <OfferingName id={attempt.offeringId} {...rankOf(plan, attempt)} />,
      from: at,
      ms: attempt.latencyMs,
      kind: kindOf(attempt),
      said: attempt.reason ?? "",
    });
    at += parallel ? Math.max(0, attempt.latencyMs - last.latencyMs) : attempt.latencyMs;
  }
  return bars;
}

const kindOf = ({ status }: LogAttempt): Placed["kind"] =>
  status === "ok" ? "ok" : status === "cancelled" ? "cancelled" : "error";

const BAR: Readonly<Record<Placed["kind"], string>> = {
  queue: "bg-line",
  ok: "bg-good",
  error: "border-2 border-bad",
  cancelled: "border-2 border-edge",
};

function Ruler({ record }: { record: LogRecord }) {
  const bars = placed(record);
  // A segment of a loop lasts as long as its chunks; an attempt is one of them.
  const tookMs = record.streamId === undefined ? (record.latencyMs ?? 0) : 0;
  const end = Math.max(record.deadlineMs ?? 0, tookMs, ...bars.map(({ from, ms }) => from + ms), 1);
  if (bars.length === 0) return <p className="text-muted">Rejected before any provider was called.</p>;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => share * end);
  return (
    <div>
      <ol className="grid gap-1.5">
        {bars.map((bar, i) => (
          <li key={i}>
            <div className="flex items-baseline justify-between gap-2 text-sm">
              <span className="truncate">{bar.name}</span>
              <span className="whitespace-nowrap">
                {bar.kind !== "queue" && (
                  <Status tone={bar.kind === "ok" ? "good" : bar.kind === "error" ? "bad" : "off"}>
                    {bar.said === "" ? bar.kind : spaced(bar.said)}
                  </Status>
                )}{" "}
                <Ms ms={bar.ms} />
              </span>
            </div>
            <div className="relative h-3 bg-panel">
              <div
                className={`absolute inset-y-0 ${BAR[bar.kind]}`}
                style={{ left: `${(bar.from / end) * 100}%`, width: `max(3px, ${(bar.ms / end) * 100}%)` }}
              />
              {record.deadlineMs !== undefined && (
                <div
                  className="absolute -inset-y-1 w-0 border-l-2 border-dashed border-bad"
                  style={{ left: `calc(${(record.deadlineMs / end) * 100}% - 2px)` }}
                />
              )}
            </div>
          </li>
        ))}
      </ol>
      <div className="mt-1 flex justify-between text-xs text-muted" aria-hidden="true">
        {ticks.map((ms) => {
          const { value, unit } = duration(ms);
          return <span key={ms}>{ms === 0 ? "0" : `${value} ${unit}`}</span>;
        })}
      </div>
      <p className="mt-1 text-sm text-muted">
        {record.deadlineMs === undefined ? (
          "The call had no deadline."
        ) : (
          <>
            The dashed rule is the deadline, {record.deadlineMs} ms{record.deadlineMissed ? ", which it missed" : ""}.
          </>
        )}
      </p>
    </div>
  );
}
