/** An action chunk: a strip for each number of a step, with its name and unit, and the table behind it. */
import { useQuery } from "@connectrpc/connect-query";
import { useState } from "react";
import type { Action } from "#messages/limber/v1/action_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { plain } from "../../lib/format.ts";
import { Strip } from "../../parts/strip.tsx";
import { Table } from "../../parts/table.tsx";

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
