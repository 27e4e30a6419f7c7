/** Models: everything in the catalog, and what of it serves. */
import { useQuery } from "@connectrpc/connect-query";
import { keepPreviousData } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import { ContractSchema } from "../gen/limber/v1/contract_pb.ts";
import {
  DomainSchema,
  EmbodimentSchema,
  type Model,
  ModelKindSchema,
  ModelTier,
  ModelTierSchema,
} from "../gen/limber/v1/registry_pb.ts";
import { RegistryService } from "../gen/limber/v1/registry_service_pb.ts";
import { count } from "../lib/format.ts";
import { named } from "../lib/routes.ts";
import { codesOf, numberOfCode, wordOf } from "../lib/words.ts";
import { Code, Empty, Facts, Head, None, Refused, Status } from "../parts/basics.tsx";
import { Filters, Find, Pick } from "../parts/filters.tsx";
import { type Column, Table } from "../parts/table.tsx";

/** How many models are asked for at once. */
const PAGE = 200;

const COLUMNS: readonly Column<Model>[] = [
  { id: "id", title: "model", width: "3fr", cell: ({ id }) => <Code>{id}</Code>, value: ({ id }) => id },
  {
    id: "tier",
    title: "state",
    width: 128,
    phone: 92,
    cell: (model) => <Tier model={model} />,
    value: ({ tier, providers }) => tier * 1000 - providers.length,
  },
  {
    id: "kind",
    title: "kind",
    width: 104,
    wide: true,
    cell: ({ kind }) => wordOf(ModelKindSchema, kind),
    value: ({ kind }) => kind,
  },
  {
    id: "contracts",
    title: "contracts",
    width: "1fr",
    cell: ({ contracts }) => contracts.map((contract) => wordOf(ContractSchema, contract)).join(", ") || <None />,
    value: ({ contracts }) => contracts.join(),
  },
  {
    id: "body",
    title: "embodiment",
    width: "1fr",
    wide: true,
    cell: ({ embodiments }) => embodiments.map((body) => wordOf(EmbodimentSchema, body)).join(", ") || <None />,
  },
  {
    id: "space",
    title: "action spaces",
    width: "2fr",
    wide: true,
    cell: ({ actionSpaces }) => <Code>{actionSpaces.join(", ")}</Code>,
  },
  {
    id: "vendor",
    title: "vendor",
    width: "1fr",
    wide: true,
    cell: ({ vendor }) => vendor,
    value: ({ vendor }) => vendor,
  },
  {
    id: "size",
    title: "size",
    width: 72,
    right: true,
    wide: true,
    cell: ({ paramsB }) => (paramsB === undefined ? <None /> : `${paramsB} B`),
    value: ({ paramsB }) => paramsB ?? 0,
  },
];

/** Whether a model serves calls, could, or is known only. */
export function Tier({ model: { tier, providers } }: { model: Model }) {
  if (providers.length > 0) return <Status tone="good">live</Status>;
  return <Status tone={tier === ModelTier.SERVABLE ? "wait" : "off"}>{wordOf(ModelTierSchema, tier)}</Status>;
}

/** The page. */
export function ModelsPage() {
  const search = useSearch({ from: "/console/models" });
  const navigate = useNavigate({ from: "/console/models" });
  const filter = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const [limit, setLimit] = useState(PAGE);
  // What can be called comes first; who looks for a name looks among all.
  const tier = search.tier ?? (search.q === undefined ? "servable" : "all");
  const { data, error, isPending, isFetching, refetch } = useQuery(
    RegistryService.method.listModels,
    {
      q: search.q,
      contract: numberOfCode(ContractSchema, search.contract ?? ""),
      domain: numberOfCode(DomainSchema, search.domain ?? ""),
      tier: numberOfCode(ModelTierSchema, tier),
      embodiment: numberOfCode(EmbodimentSchema, search.embodiment ?? ""),
      kind: numberOfCode(ModelKindSchema, search.kind ?? ""),
      actionSpace: search.space,
      limit,
    },
    { placeholderData: keepPreviousData },
  );
  const taxonomy = useQuery(RegistryService.method.getTaxonomy, {}, { staleTime: Number.POSITIVE_INFINITY });
  const rows = useMemo(() => data?.data ?? [], [data]);
  const more =
    data !== undefined && rows.length < data.total && limit < 1000
      ? () => setLimit((now) => Math.min(1000, now + PAGE))
      : undefined;
  const find = useCallback((q: string | undefined) => filter({ q }), [filter]);
  return (
    <>
      <Head
        title="Models"
        facts={
          data && (
            <Facts
              of={[
                `${count(data.total)} models`,
                `${rows.filter(({ providers }) => providers.length > 0).length} of those shown are live`,
              ]}
            />
          )
        }
      />
      <Filters>
        <Find label="Name or vendor" value={search.q} onChange={find} />
        <Pick
          label="Contract"
          value={search.contract}
          onChange={(contract) => filter({ contract })}
          options={["act", "predict", "evaluate"]}
        />
        <Pick
          label="State"
          value={tier}
          onChange={(chosen) => filter({ tier: chosen })}
          options={[...codesOf(ModelTierSchema), "all"]}
          any={undefined}
        />
        <Pick
          label="Kind"
          value={search.kind}
          onChange={(kind) => filter({ kind })}
          options={codesOf(ModelKindSchema)}
        />
        <Pick
          label="Domain"
          value={search.domain}
          onChange={(domain) => filter({ domain })}
          options={codesOf(DomainSchema)}
        />
        <Pick
          label="Embodiment"
          value={search.embodiment}
          onChange={(embodiment) => filter({ embodiment })}
          options={codesOf(EmbodimentSchema)}
        />
        <Pick
          label="Action space"
          value={search.space}
          onChange={(space) => filter({ space })}
          options={taxonomy.data?.actionSpaces.map(({ id }) => id) ?? []}
        />
      </Filters>
      <Refused error={error} again={() => void refetch()} />
      <Table
        label="models"
        tall
        columns={COLUMNS}
        rows={rows}
        keyOf={({ id }) => id}
        onOpen={({ id }) => void navigate({ to: "/console/models/$owner/$name", params: named(id) })}
        loading={isPending || isFetching}
        more={more}
        empty={<Empty>No model matches these filters.</Empty>}
      />
    </>
  );
}
