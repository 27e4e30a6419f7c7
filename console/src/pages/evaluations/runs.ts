/** The newest evaluations of the organization, each with its scores; those that run are read again. */
import { createQueryOptions, useTransport } from "@connectrpc/connect-query";
import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { EvaluationService } from "#messages/limber/v1/evaluation_service_pb.ts";
import { JobKind } from "#messages/limber/v1/job_pb.ts";
import { JobService } from "#messages/limber/v1/job_service_pb.ts";
import { useList } from "../../lib/list.ts";

/** How many evaluations are shown; each is asked for by itself. */
const SHOWN = 50;
const LOOK_MS = 4_000;

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
      refetchInterval: finishedAt === undefined ? LOOK_MS : (false as const),
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
