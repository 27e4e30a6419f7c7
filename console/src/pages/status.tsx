/** Status: the health of what serves, breaker by breaker, and of the gateway itself. */
import { useQuery } from "@connectrpc/connect-query";
import { useMemo } from "react";
import {
  BreakerState,
  BreakerStateSchema,
  HealthTierSchema,
  type OfferingStatusRecord,
  OperationsService,
} from "#messages/limber/v1/operations_service_pb.ts";
import { AttemptFailureSchema } from "#messages/limber/v1/route_pb.ts";
import { count, duration, percent } from "../lib/format.ts";
import { spaced, wordOf } from "../lib/words.ts";
import { Empty, Facts, Head, Ms, None, Pairs, Part, Refused, Time, Word } from "../parts/basics.tsx";
import { tailOf } from "../parts/names.tsx";
import { type Column, Table } from "../parts/table.tsx";

interface Row extends OfferingStatusRecord {
  readonly provider: string;
}

const COLUMNS: readonly Column<Row>[] = [
  {
    id: "model",
    title: "model",
    width: "2fr",
    cell: ({ model, offeringId }) => (
      <span className="block truncate" title={`${model} ${offeringId}`}>
        <code>{model}</code> <code className="text-muted max-sm:hidden">…{tailOf(offeringId)}</code>
      </span>
    ),
    value: ({ model }) => model,
  },
  {
    id: "provider",
    title: "provider",
    width: "1fr",
    wide: true,
    cell: ({ provider }) => provider,
    value: ({ provider }) => provider,
  },
  {
    id: "tier",
    title: "health",
    width: 112,
    phone: 96,
    cell: ({ tier }) => <Word>{wordOf(HealthTierSchema, tier)}</Word>,
    value: ({ tier }) => tier,
  },
  {
    id: "state",
    title: "circuit",
    width: 128,
    wide: true,
    phone: 96,
    cell: ({ state }) => <Word>{wordOf(BreakerStateSchema, state)}</Word>,
    value: ({ state }) => state,
  },
  {
    id: "fails",
    title: "failures 5 min",
    width: 104,
    right: true,
    wide: true,
    cell: ({ failureRate5m }) => percent(failureRate5m),
    value: ({ failureRate5m }) => failureRate5m,
  },
  {
    id: "error",
    title: "last failure",
    width: "1fr",
    wide: true,
    cell: ({ lastErrorCode }) => wordOf(AttemptFailureSchema, lastErrorCode) || <None />,
  },
  {
    id: "retry",
    title: "retry at",
    width: 112,
    wide: true,
    cell: ({ retryAt, state }) => (state === BreakerState.OPEN ? <Time at={retryAt} /> : <None />),
  },
  {
    id: "p50",
    title: "p50",
    width: 76,
    right: true,
    wide: true,
    cell: ({ p50Ms }) => <Ms ms={p50Ms} />,
    value: ({ p50Ms }) => p50Ms ?? 0,
  },
  {
    id: "p95",
    title: "p95",
    width: 76,
    right: true,
    cell: ({ p95Ms }) => <Ms ms={p95Ms} />,
    value: ({ p95Ms }) => p95Ms ?? 0,
  },
  {
    id: "p99",
    title: "p99",
    width: 76,
    right: true,
    wide: true,
    cell: ({ p99Ms }) => <Ms ms={p99Ms} />,
    value: ({ p99Ms }) => p99Ms ?? 0,
  },
  {
    id: "uptime",
    title: "uptime 1 d",
    width: 92,
    right: true,
    wide: true,
    cell: ({ uptime1d }) => (uptime1d === undefined ? <None /> : percent(uptime1d)),
    value: ({ uptime1d }) => uptime1d ?? 0,
  },
];

/** The page. */
export function StatusPage() {
  const status = useQuery(OperationsService.method.getStatus, {}, { refetchInterval: 5_000 });
  const platform = useQuery(OperationsService.method.getPlatform, {}, { refetchInterval: 15_000 });
  const rows = useMemo(
    () =>
      status.data?.providers.flatMap(({ provider, offerings }) =>
        offerings.map((offering): Row => ({ ...offering, provider })),
      ) ?? [],
    [status.data],
  );
  const jobs = status.data?.jobs;
  const up = platform.data && duration(platform.data.uptimeS * 1000);
  return (
    <>
      <Head
        title="Status"
        facts={
          status.data && (
            <Facts
              of={[
                <Word key="w">{wordOf(HealthTierSchema, status.data.status)}</Word>,
                `${rows.length} live offerings`,
                `${rows.filter(({ state }) => state === BreakerState.OPEN || state === BreakerState.FORCED_OPEN).length} resting after failures`,
                jobs && `${jobs.queued} jobs queued, ${jobs.running} running, ${jobs.failed24h} failed in 24 h`,
                platform.data && `${platform.data.replicas} ${platform.data.replicas === 1 ? "replica" : "replicas"}`,
                up && `up for ${up.value} ${up.unit}`,
              ]}
            />
          )
        }
      />
      <Refused error={status.error ?? platform.error} again={() => void status.refetch()} />
      <Table
        label="offerings"
        columns={COLUMNS}
        rows={rows}
        keyOf={({ offeringId }) => offeringId}
        loading={status.isPending}
        empty={<Empty>No live offering. Register a server on the Supply page.</Empty>}
      />
      {platform.data !== undefined && (
        <div className="mt-6 grid gap-6 *:mt-0 sm:grid-cols-2">
          <Part title="Features">
            <Pairs
              of={Object.entries(platform.data.features).map(
                ([name, on]) => [spaced(name), <Word key="">{on ? "enabled" : "off"}</Word>] as const,
              )}
            />
          </Part>
          <Part title="Limits">
            <Pairs
              of={Object.entries(platform.data.limits).map(([name, limit]) => [spaced(name), count(limit)] as const)}
            />
          </Part>
        </div>
      )}
    </>
  );
}
