/** Where the draft would go if it was sent now, and what keeps the others out. Nothing is run, nothing is charged. */
import { useQuery } from "@connectrpc/connect-query";
import { keepPreviousData } from "@tanstack/react-query";
import { useDeferredValue, useEffect, useState } from "react";
import { InferenceService } from "#messages/limber/v1/inference_service_pb.ts";
import { type DroppedOffering, type DropReason, DropReasonSchema, type PlanStep } from "#messages/limber/v1/plan_pb.ts";
import { spaced, wordOf } from "../../lib/words.ts";
import { Code, Money, Ms, Part, Refused, Status } from "../../parts/basics.tsx";
import { Table } from "../../parts/table.tsx";
import { type Draft, previewOf, relaxationOf } from "./draft.ts";
import type { Planned } from "./reads.ts";

/** How long after the last change the plan is asked for, in milliseconds. */
const SETTLED_MS = 300;

/** The plan of a draft, asked for a moment after its last change. */
export function usePlan(draft: Draft): Planned {
  const latest = useDeferredValue(draft);
  const [settled, setSettled] = useState(draft);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(latest), SETTLED_MS);
    return () => clearTimeout(timer);
  }, [latest]);
  const { data, error, isPlaceholderData } = useQuery(InferenceService.method.previewRoutes, previewOf(settled), {
    placeholderData: keepPreviousData,
  });
  return { data, error, of: isPlaceholderData ? undefined : settled };
}

/** The plan of a draft, as it changes. */
export function LivePlan({
  draft,
  planned: { data, error },
  onRelax,
}: {
  draft: Draft;
  planned: Planned;
  onRelax: (change: Partial<Draft>) => void;
}) {
  if (draft.contract === "ground") return null;
  return (
    <Part title="Where it would go">
      <Refused error={error} />
      {data !== undefined && error === null && (
        <>
          <p className="mb-2 text-muted">
            {data.considered} considered, {data.plan.length} in the plan, {data.dropped.length} dropped
            {data.plan.length > 0 && (
              <>
                {" · "}expected <Money usd={data.estimatedCostUsd?.expected} />, at most{" "}
                <Money usd={data.estimatedCostUsd?.max} />
              </>
            )}
          </p>
          {data.wouldRefuse !== undefined && (
            <p className="mb-2">
              <Status tone="bad">would be refused: {spaced(data.wouldRefuse.code)}</Status>
            </p>
          )}
          {data.plan.length > 0 && (
            <Table label="plan" columns={STEPS} rows={data.plan} keyOf={({ offeringId }) => offeringId} />
          )}
          <Dropped dropped={data.dropped} draft={draft} onRelax={onRelax} />
        </>
      )}
    </Part>
  );
}

const STEPS = [
  { id: "rank", title: "rank", width: 48, cell: ({ rank }: PlanStep) => rank },
  { id: "model", title: "model", width: "2fr", cell: ({ model }: PlanStep) => <Code>{model}</Code> },
  {
    id: "provider",
    title: "provider",
    width: "1fr",
    wide: true,
    cell: ({ provider, region }: PlanStep) => `${provider} · ${region}`,
  },
  {
    id: "cost",
    title: "cost",
    width: 92,
    right: true,
    cell: ({ estimatedCostUsd }: PlanStep) => <Money usd={estimatedCostUsd} />,
  },
  {
    id: "p50",
    title: "p50",
    width: 76,
    right: true,
    wide: true,
    cell: ({ expectedMs }: PlanStep) => <Ms ms={expectedMs?.p50} />,
  },
  { id: "p95", title: "p95", width: 76, right: true, cell: ({ expectedMs }: PlanStep) => <Ms ms={expectedMs?.p95} /> },
  {
    id: "why",
    title: "why here",
    width: "2fr",
    wide: true,
    cell: ({ reasonCodes }: PlanStep) => reasonCodes.map(spaced).join(", "),
  },
] as const;

function Dropped({
  dropped,
  draft,
  onRelax,
}: {
  dropped: readonly DroppedOffering[];
  draft: Draft;
  onRelax: (change: Partial<Draft>) => void;
}) {
  const byReason = Map.groupBy(dropped, ({ reason }) => reason);
  return (
    <ul className="mt-3 grid gap-1">
      {[...byReason].map(([reason, offerings]) => (
        <DroppedFor key={reason} reason={reason} offerings={offerings} draft={draft} onRelax={onRelax} />
      ))}
    </ul>
  );
}

function DroppedFor({
  reason,
  offerings,
  draft,
  onRelax,
}: {
  reason: DropReason;
  offerings: readonly DroppedOffering[];
  draft: Draft;
  onRelax: (change: Partial<Draft>) => void;
}) {
  const relaxation = relaxationOf(reason, draft);
  return (
    <li className="flex items-start justify-between gap-2">
      <details className="min-w-0 flex-1">
        <summary>
          {offerings.length} dropped: {wordOf(DropReasonSchema, reason)}
        </summary>
        <ul
          className="my-1 max-h-48 overflow-auto pl-4 text-sm"
          tabIndex={0}
          aria-label={`dropped: ${wordOf(DropReasonSchema, reason)}`}
        >
          {offerings.map(({ offeringId, model, provider, detail }) => (
            <li key={`${offeringId} ${model}`}>
              <code>{model}</code> {provider !== "" && `at ${provider}`}: <span className="text-muted">{detail}</span>
            </li>
          ))}
        </ul>
      </details>
      {relaxation !== undefined && (
        <button type="button" className="button" onClick={() => onRelax(relaxation.change)}>
          {relaxation.label}
        </button>
      )}
    </li>
  );
}
