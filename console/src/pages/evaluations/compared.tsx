/** The policies of a comparison: what is known so far, and their films side by side. */
import { createQueryOptions, useQuery, useTransport } from "@connectrpc/connect-query";
import { useQueries } from "@tanstack/react-query";
import { EvaluationService } from "#messages/limber/v1/evaluation_service_pb.ts";
import { JobStatus } from "#messages/limber/v1/job_pb.ts";
import { Part, Refused } from "../../parts/basics.tsx";
import { SideBySide } from "./films.tsx";
import { lookAgain } from "./runs.ts";

const LOOK_MS = 4_000;
const RUNS: ReadonlySet<JobStatus> = new Set([JobStatus.QUEUED, JobStatus.RUNNING]);

/** Shows a comparison. While the policies are hidden, so are their films. */
export function Compared({
  id,
  seed,
  onSeed,
}: {
  id: string;
  seed: string | undefined;
  onSeed: (seed: string) => void;
}) {
  const transport = useTransport();
  const { data, error, refetch } = useQuery(
    EvaluationService.method.getComparison,
    { comparisonId: id },
    { refetchInterval: ({ state }) => (RUNS.has(state.data?.comparison?.status ?? 0) ? LOOK_MS : false) },
  );
  const comparison = data?.comparison;
  const shown = (comparison?.policies ?? []).flatMap(({ label, policy, evaluationId }) =>
    evaluationId === undefined ? [] : [{ label, name: policy?.endpoint ?? "", evaluationId }],
  );
  const evaluations = useQueries({
    queries: shown.map(({ evaluationId }) => ({
      ...createQueryOptions(EvaluationService.method.getEvaluation, { jobId: evaluationId }, { transport }),
      refetchInterval: lookAgain,
    })),
  });
  const contestants = shown.flatMap(({ label, name }, i) => {
    const evaluation = evaluations[i]?.data?.evaluation;
    return evaluation === undefined ? [] : [{ label, name, evaluation }];
  });
  return (
    <Part title="Comparison">
      <Refused error={error} again={() => void refetch()} />
      {comparison !== undefined && <p className="mb-2 max-w-3xl">{comparison.verdict?.text}</p>}
      {comparison !== undefined && shown.length === 0 && (
        <p className="text-muted">The policies and their films are hidden until all evaluations have ended.</p>
      )}
      <SideBySide contestants={contestants} seed={seed} onSeed={onSeed} />
    </Part>
  );
}
