/** Batches and jobs: what runs later, how far it is, and what it cost. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";
import { ContractSchema } from "#messages/limber/v1/contract_pb.ts";
import {
  type BatchItem,
  BatchItemStatusSchema,
  BatchSchema,
  type Job,
  JobKind,
  JobKindSchema,
  JobStatus,
  JobStatusSchema,
} from "#messages/limber/v1/job_pb.ts";
import { JobService } from "#messages/limber/v1/job_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { percent } from "../lib/format.ts";
import { restJson } from "../lib/json.ts";
import { useList } from "../lib/list.ts";
import { useMay } from "../lib/session.ts";
import { codesOf, numberOfCode, wordOf } from "../lib/words.ts";
import { Code, Empty, Head, Json, Money, None, Pairs, Part, Refused, Sure, Time, Word } from "../parts/basics.tsx";
import { Filters, Pick } from "../parts/filters.tsx";
import { tailOf } from "../parts/names.tsx";
import { Sheet } from "../parts/sheet.tsx";
import { type Column, Table } from "../parts/table.tsx";

const LOOK_MS = 3_000;

function Progress({ total, ended }: { total: number; ended: number }) {
  if (total === 0) return <None />;
  return (
    <span className="flex items-center gap-2">
      <progress className="bar h-2 min-w-0 flex-1" max={total} value={ended} aria-label="progress" />
      <span className="whitespace-nowrap">
        {ended} / {total}
      </span>
    </span>
  );
}

const COLUMNS: readonly Column<Job>[] = [
  {
    id: "id",
    title: "job",
    width: "2fr",
    cell: ({ id, kind }) => (
      <span className="block truncate" title={id}>
        {wordOf(JobKindSchema, kind)} <code className="text-muted">…{tailOf(id)}</code>
      </span>
    ),
    value: ({ id }) => id,
  },
  {
    id: "status",
    title: "state",
    width: 112,
    cell: ({ status }) => <Word>{wordOf(JobStatusSchema, status)}</Word>,
    value: ({ status }) => status,
  },
  {
    id: "progress",
    title: "progress",
    width: "2fr",
    phone: 110,
    cell: (job) => <Progress {...job} />,
    value: ({ total, ended }) => (total === 0 ? 0 : ended / total),
  },
  {
    id: "created",
    title: "created",
    width: 112,
    wide: true,
    cell: ({ createdAt }) => <Time at={createdAt} />,
    value: ({ createdAt }) => createdAt,
  },
  {
    id: "finished",
    title: "finished",
    width: 112,
    wide: true,
    cell: ({ finishedAt }) => <Time at={finishedAt} />,
    value: ({ finishedAt }) => finishedAt ?? 0,
  },
  {
    id: "cost",
    title: "cost",
    width: 92,
    right: true,
    wide: true,
    cell: ({ costUsd }) => <Money usd={costUsd} />,
    value: ({ costUsd }) => costUsd,
  },
];

/** The page. */
export function JobsPage() {
  const search = useSearch({ from: "/console/jobs" });
  const navigate = useNavigate();
  const show = useCallback(
    (change: Partial<typeof search>) =>
      void navigate({ to: "/console/jobs", search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const jobs = useList(
    JobService.method.listJobs,
    { limit: 100, kind: numberOfCode(JobKindSchema, search.kind ?? "") },
    { refetchInterval: LOOK_MS },
  );
  const open = (job: Job): void => {
    if (job.kind === JobKind.EVALUATION) void navigate({ to: "/console/evaluations", search: { run: job.id } });
    else show({ job: job.id });
  };
  const isBatch =
    search.job !== undefined &&
    (jobs.rows.find(({ id }) => id === search.job)?.kind ?? JobKind.BATCH) === JobKind.BATCH;
  return (
    <>
      <Head title="Batches and jobs" />
      <Filters>
        <Pick label="Kind" value={search.kind} onChange={(kind) => show({ kind })} options={codesOf(JobKindSchema)} />
      </Filters>
      <Refused error={jobs.error} again={jobs.again} />
      <Table
        label="jobs"
        columns={COLUMNS}
        rows={jobs.rows}
        keyOf={({ id }) => id}
        open={search.job}
        onOpen={open}
        loading={jobs.loading}
        more={jobs.more}
        empty={
          <Empty
            command={`curl -s ${location.origin}/v1/batch -H "authorization: Bearer $LIMBER_KEY" -H 'content-type: application/json' \\\n  -d '{"contract": "act", "requests": [{"model": "service/auto", "action_space": "base_twist_2d", "observations": [\n        {"proprio": [0, 0, 0, 1, 1, 0], "proprio_names": ["x", "y", "yaw", "goal_x", "goal_y", "goal_yaw"]}]}]}'`}
          >
            No jobs yet. A batch runs up to 1,000 requests in the background.
          </Empty>
        }
      />
      {isBatch && search.job !== undefined && <BatchSheet id={search.job} onClose={() => show({ job: undefined })} />}
    </>
  );
}

const ITEMS: readonly Column<BatchItem>[] = [
  { id: "index", title: "number", width: 72, right: true, cell: ({ index }) => index, value: ({ index }) => index },
  {
    id: "own",
    title: "your name",
    width: "2fr",
    cell: ({ customId }) => <Code>{customId}</Code>,
    value: ({ customId }) => customId ?? "",
  },
  {
    id: "status",
    title: "state",
    width: "1fr",
    cell: ({ status }) => <Word>{wordOf(BatchItemStatusSchema, status)}</Word>,
    value: ({ status }) => status,
  },
  {
    id: "cost",
    title: "cost",
    width: 92,
    right: true,
    cell: ({ costUsd }) => <Money usd={costUsd} />,
    value: ({ costUsd }) => costUsd,
  },
];

function BatchSheet({ id, onClose }: { id: string; onClose: () => void }) {
  const { data, error, refetch } = useQuery(
    JobService.method.getBatch,
    { jobId: id, items: true },
    { refetchInterval: LOOK_MS },
  );
  const cancel = useMutation(JobService.method.cancelBatch);
  const may = useMay("jobs.write");
  const batch = data?.batch;
  const counts = batch?.requestCounts;
  const runs = batch !== undefined && batch.completedAt === undefined && batch.status !== JobStatus.FAILED;
  return (
    <Sheet
      title={<code className="text-base">{id}</code>}
      onClose={onClose}
      actions={
        runs &&
        may && (
          <Sure
            label="Cancel it"
            question="Cancel the batch? Finished items are kept."
            onSure={() => void cancel.mutateAsync({ jobId: id }).then(refresh, () => undefined)}
          />
        )
      }
    >
      <Refused error={error ?? cancel.error} again={() => void refetch()} />
      {batch !== undefined && (
        <>
          <Pairs
            of={[
              ["state", <Word key="">{wordOf(JobStatusSchema, batch.status)}</Word>],
              ["contract", wordOf(ContractSchema, batch.contract)],
              counts && [
                "answered",
                `${counts.completed} of ${counts.total}${counts.total > 0 ? `, ${percent(counts.completed / counts.total)}` : ""}`,
              ],
              counts && counts.failed > 0 && ["failed", counts.failed],
              ["asked", <Time key="" at={batch.createdAt} />],
              ["finished", <Time key="" at={batch.completedAt} />],
              ["results are kept until", <Time key="" at={batch.expiresAt} />],
              ["cost", <Money key="" usd={batch.costUsd} />],
              batch.reservedUsd > 0 && ["held", <Money key="" usd={batch.reservedUsd} />],
            ]}
          />
          <p className="mt-3">
            <a href={`/v1/batch/${encodeURIComponent(id)}/results`}>The results, a line of JSON each</a>
          </p>
          {batch.errors.length > 0 && (
            <Part title="What was refused">
              <ul>
                {batch.errors.map(({ index, code, message }) => (
                  <li key={index}>
                    {index}: <code>{code}</code> {message}
                  </li>
                ))}
              </ul>
            </Part>
          )}
          <Part title="Items">
            <Table label="items" columns={ITEMS} rows={batch.items} keyOf={({ index }) => String(index)} />
          </Part>
          <Json of={restJson(BatchSchema, batch, 200)} />
        </>
      )}
    </Sheet>
  );
}
