/** An action chunk: a strip for each number of a step, with its name and unit, and the table behind it. */
import { useQuery } from "@connectrpc/connect-query";
import { useState } from "react";
import type { Action } from "#messages/limber/v1/action_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { plain } from "../../lib/format.ts";
import { Table } from "../../parts/table.tsx";

const WIDTH = 240;
const HEIGHT = 44;
const PAD = 4;

/** The chunk. Steps that are over when the answer is no longer valid are drawn hollow. */
export function Chunk({ action, validMs }: { action: Action; validMs: number }) {
  const { data } = useQuery(RegistryService.method.getTaxonomy, {}, { staleTime: Number.POSITIVE_INFINITY });
  const [table, setTable] = useState(false);
  const layout = data?.actionSpaces.find(({ id }) => id === action.space);
  const dims = action.steps[0]?.values.length ?? 0;
  const fields = Array.from({ length: dims }, (_, dim) => layout?.fields[dim] ?? { name: `${dim}`, unit: "" });
  const valid =
    action.dtMs === 0 ? action.steps.length : Math.min(action.steps.length, Math.ceil(validMs / action.dtMs));
  return (
    <div>
      <p className="mb-2 text-muted">
        <code>{action.space}</code> · {action.steps.length} steps of {action.dtMs} ms, valid for {Math.round(validMs)}{" "}
        ms
      </p>
      <div className="grid grid-cols-[repeat(auto-fill,minmax(160px,1fr))] gap-x-4 gap-y-2">
        {fields.map(({ name, unit }, dim) => (
          <Strip
            key={`${dim} ${name}`}
            name={name}
            unit={unit}
            values={action.steps.map(({ values }) => values[dim] ?? 0)}
            valid={valid}
          />
        ))}
      </div>
      <button type="button" className="mt-2 min-h-6 text-sm underline" onClick={() => setTable(!table)}>
        {table ? "hide the table" : "as a table"}
      </button>
      {table && (
        <Table
          label="steps"
          rows={action.steps.map(({ values }, step) => ({ step, values }))}
          keyOf={({ step }) => String(step)}
          columns={[
            { id: "step", title: "step", width: 56, cell: ({ step }) => step },
            ...fields.map(({ name, unit }, dim) => ({
              id: `${dim}`,
              title: unit === "" ? name : `${name}, ${unit}`,
              width: "1fr" as const,
              right: true,
              cell: ({ values }: { values: number[] }) => (
                <span data-value={values[dim]}>{plain(values[dim] ?? 0, 5)}</span>
              ),
            })),
          ]}
        />
      )}
    </div>
  );
}

/** Two significant digits: small steps are not zero. */
const short = (n: number): string => (Math.abs(n) >= 10 ? plain(n, 0) : String(Number(n.toPrecision(2))));

function Strip({
  name,
  unit,
  values,
  valid,
}: {
  name: string;
  unit: string;
  values: readonly number[];
  valid: number;
}) {
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const span = high - low || 1;
  const x = (i: number): number => PAD + (i / Math.max(values.length - 1, 1)) * (WIDTH - 2 * PAD);
  const y = (value: number): number => PAD + (1 - (value - low) / span) * (HEIGHT - 2 * PAD);
  const points = values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`);
  const lowest = Math.min(...values);
  const highest = Math.max(...values);
  return (
    <figure>
      <figcaption className="flex justify-between gap-2 text-sm">
        <span className="truncate">
          {name} <span className="text-muted">{unit}</span>
        </span>
        <span className="whitespace-nowrap text-muted">
          {short(lowest)}
          {highest !== lowest && ` to ${short(highest)}`}
        </span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        className="h-11 w-full bg-panel"
        role="img"
        aria-label={`${name}: ${short(values[0] ?? 0)} first, ${short(values.at(-1) ?? 0)} last`}
      >
        <line
          x1={0}
          x2={WIDTH}
          y1={y(0)}
          y2={y(0)}
          stroke="var(--edge)"
          strokeWidth={1}
          strokeDasharray="2 3"
          vectorEffect="non-scaling-stroke"
        />
        <polyline
          points={points.slice(0, valid).join(" ")}
          fill="none"
          stroke="var(--accent)"
          strokeWidth={1.5}
          vectorEffect="non-scaling-stroke"
        />
        {valid < values.length && (
          <polyline
            points={points.slice(Math.max(valid - 1, 0)).join(" ")}
            fill="none"
            stroke="var(--accent)"
            strokeWidth={1}
            strokeDasharray="3 3"
            vectorEffect="non-scaling-stroke"
          />
        )}
      </svg>
    </figure>
  );
}
