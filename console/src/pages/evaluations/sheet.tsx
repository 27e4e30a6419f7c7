/** One evaluation, episode by episode while it runs. */
import { createClient } from "@connectrpc/connect";
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useEffect, useMemo, useState } from "react";
import { type EpisodeRecord, EvaluationSchema } from "#messages/limber/v1/evaluation_pb.ts";
import { EvaluationService } from "#messages/limber/v1/evaluation_service_pb.ts";
import { JobStatus, JobStatusSchema } from "#messages/limber/v1/job_pb.ts";
import { refresh, transport } from "../../lib/api.ts";
import { percent, plain } from "../../lib/format.ts";
import { restJson } from "../../lib/json.ts";
import { useMay } from "../../lib/session.ts";
import { spaced, wordOf } from "../../lib/words.ts";
import { Code, Json, Money, Ms, Pairs, Part, Refused, Status, Sure, Time, Word } from "../../parts/basics.tsx";
import { Sheet } from "../../parts/sheet.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { Films } from "./films.tsx";
import { Interval } from "./interval.tsx";
import { lookAgain } from "./runs.ts";

const client = createClient(EvaluationService, transport);
const RUNS = new Set<JobStatus>([
  JobStatus.QUEUED,
  JobStatus.PROVISIONING,
  JobStatus.RUNNING,
  JobStatus.IN_PROGRESS,
  JobStatus.SCORING,
]);

const COLUMNS: readonly Column<EpisodeRecord>[] = [
  { id: "index", title: "number", width: 68, right: true, cell: ({ index }) => index + 1, value: ({ index }) => index },
  {
    id: "how",
    title: "ended",
    width: "2fr",
    cell: ({ success, termination }) => <Status tone={success ? "good" : "bad"}>{spaced(termination)}</Status>,
    value: ({ success }) => (success ? 1 : 0),
  },
  {
    id: "progress",
    title: "progress",
    width: 72,
    right: true,
    cell: ({ progress }) => percent(progress),
    value: ({ progress }) => progress,
  },
  {
    id: "steps",
    title: "steps",
    width: 60,
    right: true,
    wide: true,
    cell: ({ steps }) => steps,
    value: ({ steps }) => steps,
  },
  {
    id: "latency",
    title: "mean latency",
    width: 96,
    right: true,
    wide: true,
    cell: ({ meanLatencyMs }) => <Ms ms={meanLatencyMs} />,
    value: ({ meanLatencyMs }) => meanLatencyMs,
  },
  {
    id: "seed",
    title: "seed",
    width: 84,
    right: true,
    wide: true,
    cell: ({ seed }) => seed,
    value: ({ seed }) => seed,
  },
];

/** The sheet. */
export function EvaluationSheet({ id, onClose }: { id: string; onClose: () => void }) {
  const { data, error, refetch } = useQuery(
    EvaluationService.method.getEvaluation,
    { jobId: id },
    { refetchInterval: lookAgain },
  );
  const cancel = useMutation(EvaluationService.method.cancelEvaluation);
  const may = useMay("jobs.write");
  const [watched, setWatched] = useState<readonly EpisodeRecord[]>([]);
  const evaluation = data?.evaluation;
  const runs = evaluation !== undefined && RUNS.has(evaluation.status);
  useEffect(() => {
    if (!runs) return;
    const ended = new AbortController();
    const watch = async (): Promise<void> => {
      const seen = new Map<number, EpisodeRecord>();
      for await (const { event } of client.watchEvaluation({ jobId: id }, { signal: ended.signal })) {
        if (event.case === "episode") seen.set(event.value.index, event.value);
        setWatched([...seen.values()]);
        if (event.case === "done") await refresh();
      }
    };
    // What is not watched is asked for by the list every few seconds.
    void watch().catch(() => undefined);
    return () => ended.abort();
  }, [id, runs]);
  const episodes = useMemo(() => {
    const all =
      evaluation !== undefined && evaluation.perEpisode.length >= watched.length ? evaluation.perEpisode : watched;
    return [...all].sort((a, b) => Number(a.success) - Number(b.success) || a.index - b.index);
  }, [evaluation, watched]);
  const scores = evaluation?.scores;
  return (
    <Sheet
      title={evaluation?.policy?.endpoint ?? id}
      onClose={onClose}
      actions={
        runs &&
        may && (
          <Sure
            label="Cancel it"
            question="Cancel the evaluation? Episodes that ended keep their scores."
            onSure={() => void cancel.mutateAsync({ jobId: id }).then(refresh, () => undefined)}
          />
        )
      }
    >
      <Refused error={error ?? cancel.error} again={() => void refetch()} />
      {evaluation !== undefined && (
        <>
          <Pairs
            of={[
              ["state", <Word key="">{wordOf(JobStatusSchema, evaluation.status)}</Word>],
              ["scenario", `${evaluation.scenario?.id} ${evaluation.scenario?.version}`],
              ["action space", <Code key="">{evaluation.scenario?.actionSpace}</Code>],
              [
                "episodes",
                `${Math.max(evaluation.progress?.completed ?? 0, watched.length)} of ${evaluation.progress?.total ?? 0}`,
              ],
              ["requested", <Time key="" at={evaluation.createdAt} />],
              ["finished", <Time key="" at={evaluation.finishedAt} />],
              ["cost", <Money key="" usd={evaluation.usage?.totalCostUsd} />],
            ]}
          />
          {evaluation.error !== undefined && evaluation.error.message !== "" && (
            <p className="mt-2 text-bad">{evaluation.error.message}</p>
          )}
          {scores?.successRate !== undefined && (
            <Part title="Scores">
              <Pairs
                of={[
                  [
                    "success",
                    `${percent(scores.successRate.value)}, ${scores.successRate.successes} of ${scores.successRate.n}`,
                  ],
                  ["95 % interval", <Interval key="" of={scores.successRate} />],
                  scores.progressScore !== undefined && ["mean progress", percent(scores.progressScore.mean)],
                  scores.timeToSuccessS !== undefined && [
                    "time to success, median",
                    `${plain(scores.timeToSuccessS.median, 2)} s`,
                  ],
                  scores.policyLatencyMs !== undefined && [
                    "latency",
                    <span key="">
                      <Ms ms={scores.policyLatencyMs.p50} />, p95 <Ms ms={scores.policyLatencyMs.p95} />
                    </span>,
                  ],
                  scores.safety !== undefined && ["collisions", scores.safety.collisions],
                  ...Object.entries(scores.terminations).map(([how, n]) => [`ended: ${spaced(how)}`, n] as const),
                ]}
              />
            </Part>
          )}
          <Films evaluation={evaluation} episodes={episodes} />
          <Part title="Episodes, failures first">
            <Table label="episodes" columns={COLUMNS} rows={episodes} keyOf={({ index }) => String(index)} />
          </Part>
          <Json of={restJson(EvaluationSchema, evaluation, 200)} />
        </>
      )}
    </Sheet>
  );
}
