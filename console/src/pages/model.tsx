/** One model: who serves it, how fast, at what price, and how its calls went. */
import { useQuery } from "@connectrpc/connect-query";
import { Link, useParams } from "@tanstack/react-router";
import { useMemo } from "react";
import { ContractSchema } from "#messages/limber/v1/contract_pb.ts";
import {
  CircuitState,
  CircuitStateSchema,
  EmbodimentSchema,
  ModelKindSchema,
  type ModelOffering,
  ModelSchema,
} from "#messages/limber/v1/registry_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { SeriesService } from "#messages/limber/v1/series_service_pb.ts";
import { OfferingStatusSchema } from "#messages/limber/v1/supply_pb.ts";
import { dollars, percent } from "../lib/format.ts";
import { restJson } from "../lib/json.ts";
import { useMay } from "../lib/session.ts";
import { spaced, wordOf } from "../lib/words.ts";
import {
  Code,
  CopyCall,
  Empty,
  Head,
  Json,
  Measure,
  Ms,
  None,
  Outside,
  Pairs,
  Part,
  Refused,
  Word,
} from "../parts/basics.tsx";
import { Chart } from "../parts/chart.tsx";
import { tailOf } from "../parts/names.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Tier } from "./models.tsx";

const COLUMNS: readonly Column<ModelOffering>[] = [
  {
    id: "provider",
    title: "provider",
    width: "1fr",
    cell: ({ provider }) => provider,
    value: ({ provider }) => provider,
  },
  {
    id: "id",
    title: "offering",
    width: 84,
    wide: true,
    cell: ({ id }) => (
      <code title={id} className="text-muted">
        …{tailOf(id)}
      </code>
    ),
    value: ({ id }) => id,
  },
  {
    id: "state",
    title: "state",
    width: 96,
    cell: ({ status }) => <Word>{wordOf(OfferingStatusSchema, status)}</Word>,
    value: ({ status }) => status,
  },
  {
    id: "circuit",
    title: "circuit",
    width: 108,
    wide: true,
    cell: ({ circuit }) => (
      <Word>{circuit === CircuitState.UNSPECIFIED ? "" : wordOf(CircuitStateSchema, circuit)}</Word>
    ),
  },
  {
    id: "where",
    title: "where",
    width: "1fr",
    wide: true,
    cell: ({ region, hardware, precision }) => [region, hardware, precision].filter(Boolean).join(" · "),
  },
  {
    id: "spaces",
    title: "action spaces",
    width: "2fr",
    wide: true,
    cell: ({ actionSpaces }) => <Code>{actionSpaces.join(", ")}</Code>,
  },
  {
    id: "p50",
    title: "p50",
    width: 72,
    right: true,
    wide: true,
    cell: ({ measuredMs, advertisedMs }) => <Ms ms={measuredMs?.p50 ?? advertisedMs?.p50} />,
    value: ({ measuredMs }) => measuredMs?.p50 ?? 0,
  },
  {
    id: "p95",
    title: "p95",
    width: 72,
    phone: 64,
    right: true,
    cell: ({ measuredMs, advertisedMs }) => <Ms ms={measuredMs?.p95 ?? advertisedMs?.p95} />,
    value: ({ measuredMs }) => measuredMs?.p95 ?? 0,
  },
  {
    id: "p99",
    title: "p99",
    width: 72,
    right: true,
    wide: true,
    cell: ({ measuredMs }) => <Ms ms={measuredMs?.p99} />,
  },
  {
    id: "uptime",
    title: "uptime 30 d",
    width: 92,
    right: true,
    wide: true,
    cell: ({ uptime30d }) => (uptime30d === undefined ? <None /> : percent(uptime30d)),
  },
  {
    id: "price",
    title: "price now",
    width: "2fr",
    phone: 96,
    right: true,
    cell: (offering) => <Prices of={offering} />,
  },
];

/** What an offering takes for each unit. On a phone the units stand below the amounts, for both do not fit beside each other. */
function Prices({ of: { prices } }: { of: ModelOffering }) {
  if (prices.length === 0) return <None />;
  return (
    <>
      <span className="max-[700px]:hidden">
        {prices.map(({ unit, nowUsd }) => `${dollars(nowUsd)} / ${spaced(unit)}`).join(", ")}
      </span>
      <span className="block text-xs leading-[14px] min-[701px]:hidden">
        <span className="block truncate">{prices.map(({ nowUsd }) => dollars(nowUsd)).join(", ")}</span>
        <span className="block truncate text-muted">/ {prices.map(({ unit }) => spaced(unit)).join(", ")}</span>
      </span>
    </>
  );
}

/** The page. */
export function ModelPage() {
  const { owner, name } = useParams({ from: "/console/models/$owner/$name" });
  const { data, error, refetch } = useQuery(RegistryService.method.getModel, { owner, name });
  const model = data?.model;
  const id = `${owner}/${name}`;
  const acts = model?.contracts.some((contract) => wordOf(ContractSchema, contract) === "act") ?? true;
  return (
    <>
      <Head title={id} facts={model && <Tier model={model} />}>
        <Link
          to="/console/playground"
          search={{
            model: id,
            contract: acts ? "act" : wordOf(ContractSchema, model?.contracts[0]),
            ...(acts && model?.actionSpaces[0] !== undefined && { space: model.actionSpaces[0] }),
          }}
          className="button text-ink"
        >
          Try it
        </Link>
        <Link to="/console/calls" search={{ model: id }} className="button text-ink">
          Its calls
        </Link>
      </Head>
      <Refused error={error} again={() => void refetch()} />
      {model !== undefined && (
        <div className="max-w-[1440px]">
          {model.summary !== "" && <p className="mb-2 max-w-3xl text-lg">{model.summary}</p>}
          {model.limits !== "" && <p className="mb-4 max-w-3xl text-muted">{model.limits}</p>}
          <Pairs
            of={[
              ["name", model.name],
              ["vendor", model.vendor],
              ["kind", `${wordOf(ModelKindSchema, model.kind)}${model.family === "" ? "" : ` · ${model.family}`}`],
              model.embodiments.length > 0 && [
                "embodiments",
                model.embodiments.map((body) => wordOf(EmbodimentSchema, body)).join(", "),
              ],
              model.actionSpaces.length > 0 && ["action spaces", <Code key="">{model.actionSpaces.join(", ")}</Code>],
              model.paramsB !== undefined && [
                "size",
                <Measure key="" value={String(model.paramsB)} unit="billion parameters" />,
              ],
              model.license !== undefined && ["license", model.license],
              model.repo !== undefined && ["code", <Outside key="" href={model.repo} />],
              model.weights !== undefined && ["weights", <Outside key="" href={model.weights} />],
              model.arxiv !== undefined && [
                "paper",
                <Outside
                  key=""
                  href={/^https?:/.test(model.arxiv) ? model.arxiv : `https://arxiv.org/abs/${model.arxiv}`}
                />,
              ],
            ]}
          />
          <Part title="Offerings">
            <Table
              label="offerings"
              columns={COLUMNS}
              rows={model.offerings?.offerings ?? []}
              keyOf={({ id }) => id}
              empty={<Empty>No offering serves this model. Declare one on the Supply page.</Empty>}
            />
          </Part>
          <History model={id} />
          <Part title="Call it">
            <CopyCall
              call={{
                method: "POST",
                path: `/v1/${acts ? "act" : "predict"}`,
                body: {
                  model: id,
                  ...(acts && { action_space: model.actionSpaces[0] }),
                  instruction: "…",
                  observations: [{ frames: [{ camera: "wrist", url: "data:image/png;base64,…" }] }],
                },
              }}
            />
          </Part>
          <Json of={restJson(ModelSchema, model)} />
        </div>
      )}
    </>
  );
}

/** How the organization's own calls of a model went, over the last day. */
function History({ model }: { model: string }) {
  const may = useMay("usage.read");
  const { data } = useQuery(SeriesService.method.querySeries, { model }, { enabled: may });
  const points = useMemo(() => data?.series[0]?.points ?? [], [data]);
  const times = useMemo(() => points.map(({ at }) => at), [points]);
  const latency = useMemo(
    () => [
      { name: "p50", values: points.map(({ figures }) => figures?.latencyP50Ms), colour: "accent" as const },
      { name: "p95", values: points.map(({ figures }) => figures?.latencyP95Ms), colour: "wait" as const },
      { name: "p99", values: points.map(({ figures }) => figures?.latencyP99Ms), colour: "bad" as const },
    ],
    [points],
  );
  if (!may || points.length === 0) return null;
  return (
    <Part title="Your calls in the last day">
      <Chart title="Latency" unit="ms" times={times} lines={latency} />
    </Part>
  );
}
