/** The newest evaluations of the organization, each with its scores; those that run are read again. */
import { createQueryOptions, useTransport } from "@connectrpc/connect-query";
import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Evaluation } from "#messages/limber/v1/evaluation_pb.ts";
import { EvaluationService } from "#messages/limber/v1/evaluation_service_pb.ts";
import { JobKind } from "#messages/limber/v1/job_pb.ts";
import { JobService } from "#messages/limber/v1/job_service_pb.ts";
import { useList } from "../../lib/list.ts";

/** How many evaluations are shown; each is asked for by itself. */
const SHOWN = 50;
const LOOK_MS = 4_000;

/** How soon an evaluation is read again: while it runs, or its films are rendered. */
export function lookAgain({
  state: { data },
}: {
  readonly state: { readonly data?: { readonly evaluation?: Evaluation | undefined } | undefined };
}): number | false {
  const { evaluation } = data ?? {};
  if (evaluation === undefined) return false;
  return evaluation.finishedAt === undefined || isFilming(evaluation) ? LOOK_MS : false;
}

/** Whether films of an evaluation are still being rendered. */
export const isFilming = ({ films }: Evaluation): boolean =>
  films !== undefined && films.ready + films.failed < films.total;

/** Reads them. */
export function useRuns({ enabled = true }: { enabled?: boolean } = {}) {
  const transport = useTransport();
  const jobs = useList(
    JobService.method.listJobs,
    { kind: JobKind.EVALUATION, limit: SHOWN },
    { enabled, refetchInterval: LOOK_MS },
  );
  const ids = useMemo(() => jobs.rows.slice(0, SHOWN), [jobs.rows]);
  const asked = useQueries({
    queries: ids.map(({ id, finishedAt }) => ({
      ...createQueryOptions(EvaluationService.method.getEvaluation, { jobId: id }, { transport }),
      staleTime: finishedAt === undefined ? 0 : Number.POSITIVE_INFINITY,
      refetchInterval: lookAgain,
    })),
  });
  const rows = asked.flatMap(({ data }) => (data?.evaluation === undefined ? [] : [data.evaluation]));
  return {
    rows,
    error: jobs.error,
    again: jobs.again,
    loading: jobs.isPending || (rows.length === 0 && ids.length > 0),
  };
}
