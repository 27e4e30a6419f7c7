/** Evaluations: how well policies do, with the interval that a few episodes leave, and two of them compared. */

import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";
import type { Evaluation } from "#messages/limber/v1/evaluation_pb.ts";
import { JobStatusSchema } from "#messages/limber/v1/job_pb.ts";
import { percent } from "../lib/format.ts";
import { useMay } from "../lib/session.ts";
import { wordOf } from "../lib/words.ts";
import { Code, Empty, Head, Money, None, Refused, Time, Word } from "../parts/basics.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Compared } from "./evaluations/compared.tsx";
import { Comparison } from "./evaluations/comparison.tsx";
import { Interval } from "./evaluations/interval.tsx";
import { NewEvaluation } from "./evaluations/new.tsx";
import { useRuns } from "./evaluations/runs.ts";
import { EvaluationSheet } from "./evaluations/sheet.tsx";

const COLUMNS: readonly Column<Evaluation>[] = [
  {
    id: "policy",
    title: "policy",
    width: "3fr",
    cell: ({ policy }) => <Code>{policy?.endpoint}</Code>,
    value: ({ policy }) => policy?.endpoint ?? "",
  },
  {
    id: "scenario",
    title: "scenario",
    width: "2fr",
    phone: 76,
    cell: ({ scenario }) => scenario?.id,
    value: ({ scenario }) => scenario?.id ?? "",
  },
  {
    id: "status",
    title: "state",
    width: 116,
    wide: true,
    cell: ({ status }) => <Word>{wordOf(JobStatusSchema, status)}</Word>,
    value: ({ status }) => status,
  },
  {
    id: "episodes",
    title: "episodes",
    width: 84,
    right: true,
    wide: true,
    cell: ({ progress }) => `${progress?.completed ?? 0} / ${progress?.total ?? 0}`,
  },
  {
    id: "rate",
    title: "success",
    width: 72,
    right: true,
    cell: ({ scores, progress }) =>
      scores?.successRate === undefined ? (
        progress?.runningSuccessRate === undefined ? (
          <None />
        ) : (
          percent(progress.runningSuccessRate)
        )
      ) : (
        percent(scores.successRate.value)
      ),
    value: ({ scores }) => scores?.successRate?.value ?? -1,
  },
  {
    id: "interval",
    title: "95 % interval, 0 to 100 %",
    width: "3fr",
    wide: true,
    cell: ({ scores }) => <Interval of={scores?.successRate} />,
  },
  {
    id: "cost",
    title: "cost",
    width: 92,
    right: true,
    wide: true,
    cell: ({ usage }) => <Money usd={usage?.totalCostUsd} />,
    value: ({ usage }) => usage?.totalCostUsd ?? 0,
  },
  {
    id: "created",
    title: "created",
    width: 112,
    wide: true,
    cell: ({ createdAt }) => <Time at={createdAt} />,
    value: ({ createdAt }) => createdAt,
  },
];

/** The page. */
export function EvaluationsPage() {
  const search = useSearch({ from: "/console/evaluations" });
  const navigate = useNavigate({ from: "/console/evaluations" });
  const may = useMay("jobs.write");
  const show = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const { rows, error, again, loading } = useRuns();
  // Runs of a comparison are compared with all of its policies, unless another run is chosen.
  const opened = rows.find(({ id }) => id === search.run)?.comparisonId;
  const compared = search.comparison ?? (search.with === undefined ? opened : undefined);
  return (
    <>
      <Head title="Evaluations">
        {may && (
          <button type="button" className="button button-main" onClick={() => show({ new: "1", run: undefined })}>
            Evaluate a policy
          </button>
        )}
      </Head>
      <Refused error={error} again={again} />
      <Table
        label="evaluations"
        columns={COLUMNS}
        rows={rows}
        keyOf={({ id }) => id}
        open={search.run}
        onOpen={({ id }) => show({ run: id, new: undefined })}
        loading={loading}
        empty={
          <Empty
            command={`curl -s ${location.origin}/v1/evaluate -H "authorization: Bearer $LIMBER_KEY" -H 'content-type: application/json' \\\n  -d '{"policy_endpoint": "reference/ik-reach", "scenario": "arm-reach", "episodes": 10, "action_space": "joint_pos_7"}'`}
          >
            No evaluations yet. An evaluation runs a policy in a built-in scenario and reports its success rate.
          </Empty>
        }
      />
      {compared === undefined ? (
        <Comparison
          runs={rows}
          one={search.run}
          other={search.with}
          onChoose={(other) => show({ with: other, seed: undefined })}
          seed={search.seed}
          onSeed={(seed) => show({ seed })}
        />
      ) : (
        <Compared id={compared} seed={search.seed} onSeed={(seed) => show({ seed })} />
      )}
      {search.run !== undefined && <EvaluationSheet id={search.run} onClose={() => show({ run: undefined })} />}
      {search.new !== undefined && <NewEvaluation onClose={(run) => show({ new: undefined, run })} />}
    </>
  );
}
