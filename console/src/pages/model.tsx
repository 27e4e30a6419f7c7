/** One model: who serves it, how fast, at what price, and how its calls went. */
import { useQuery } from "@connectrpc/connect-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { ContractSchema } from "#messages/limber/v1/contract_pb.ts";
import type { Evaluation } from "#messages/limber/v1/evaluation_pb.ts";
import { JobStatusSchema } from "#messages/limber/v1/job_pb.ts";
import {
  CircuitState,
  CircuitStateSchema,
  EmbodimentSchema,
  type Model,
  ModelKindSchema,
  type ModelOffering,
  ModelSchema,
  ModelTier,
} from "#messages/limber/v1/registry_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { SeriesService } from "#messages/limber/v1/series_service_pb.ts";
import { OfferingStatusSchema } from "#messages/limber/v1/supply_pb.ts";
import { firstCallOf } from "../lib/first-call.ts";
import { dollars, percent } from "../lib/format.ts";
import { restJson } from "../lib/json.ts";
import { named } from "../lib/routes.ts";
import { useMay } from "../lib/session.ts";
import { spaced, wordOf } from "../lib/words.ts";
import {
  Code,
  CopyCall,
  Empty,
  Facts,
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
import { Drives } from "../parts/drives.tsx";
import { Pick } from "../parts/filters.tsx";
import { tailOf } from "../parts/names.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Interval } from "./evaluations/interval.tsx";
import { useRuns } from "./evaluations/runs.ts";
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
    cell: ({ measuredMs }) => <Ms ms={measuredMs?.p50} />,
    value: ({ measuredMs }) => measuredMs?.p50 ?? 0,
  },
  {
    id: "p95",
    title: "p95",
    width: 72,
    phone: 64,
    right: true,
    cell: ({ measuredMs }) => <Ms ms={measuredMs?.p95} />,
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
    cell: (offering) => <Uptime of={offering} />,
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

/** The measured uptime. An advertised one is no measurement, and an offering without calls has none. */
const Uptime = ({ of: { uptime30d, uptimeMeasured } }: { of: ModelOffering }) =>
  uptime30d !== undefined && uptimeMeasured ? percent(uptime30d) : <None />;

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
  const search = useSearch({ from: "/console/models/$owner/$name" });
  const navigate = useNavigate({ from: "/console/models/$owner/$name" });
  const { data, error, refetch } = useQuery(RegistryService.method.getModel, { owner, name });
  const model = data?.model;
  const id = `${owner}/${name}`;
  const acts = model?.contracts.some((contract) => wordOf(ContractSchema, contract) === "act") ?? true;
  const offerings = model?.offerings?.offerings ?? [];
  const driven = offerings.find(({ input }) => input !== undefined) ?? offerings[0];
  const compare = (other: string | undefined): void => void navigate({ search: { with: other }, replace: true });
  return (
    <>
      <Head title={id} facts={model && <Measured model={model} />}>
        <CompareWith id={id} value={search.with} onChange={compare} />
        <Link to="/console/calls" search={{ model: id }} className="button text-ink">
          Its calls
        </Link>
        <Link
          to="/console/playground"
          search={{
            model: id,
            contract: acts ? "act" : wordOf(ContractSchema, model?.contracts[0]),
            ...(acts && model?.actionSpaces[0] !== undefined && { space: model.actionSpaces[0] }),
          }}
          className="button button-main hover:no-underline"
        >
          Try it
        </Link>
      </Head>
      <Refused error={error} again={() => void refetch()} />
      {model !== undefined && (
        <div className="max-w-[1440px]">
          {model.summary !== "" && <p className="mb-2 max-w-3xl text-lg">{model.summary}</p>}
          {model.limits !== "" && <p className="mb-4 max-w-3xl text-muted">{model.limits}</p>}
          {search.with !== undefined && search.with !== "" && (
            <Comparison one={model} other={search.with} onClose={() => compare(undefined)} />
          )}
          {driven !== undefined && (
            <Part
              title="What drives it"
              aside={offerings.length > 1 && <span className="text-muted">as served by {driven.provider}</span>}
            >
              <Drives of={{ ...driven, actions: driven.actions?.actions }} />
            </Part>
          )}
          <Part title="Offerings">
            <Table
              label="offerings"
              columns={COLUMNS}
              rows={offerings}
              keyOf={({ id: offering }) => offering}
              empty={<Empty>No offering serves this model. Declare one on the Supply page.</Empty>}
            />
          </Part>
          <History model={id} />
          <Evaluations model={id} />
          <Part title="Call it">
            <CopyCall
              call={firstCallOf({
                model: id,
                contracts: model.contracts,
                actionSpaces: model.actionSpaces,
                input: driven?.input,
              })}
            />
          </Part>
          <Part title="About">
            <Pairs
              of={[
                ["name", model.name],
                ["vendor", model.vendor],
                ["kind", `${wordOf(ModelKindSchema, model.kind)}${model.family === "" ? "" : ` · ${model.family}`}`],
                model.embodiments.length > 0 && [
                  "embodiments",
                  model.embodiments.map((body) => wordOf(EmbodimentSchema, body)).join(", "),
                ],
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
          </Part>
          <Json of={restJson(ModelSchema, model)} />
        </div>
      )}
    </>
  );
}

/** The best measured figures of a model's offerings; undefined where nothing was measured. */
function figuresOf(model: Model) {
  const offerings = model.offerings?.offerings ?? [];
  const least = (of: (offering: ModelOffering) => number | undefined): number | undefined => {
    const known = offerings.flatMap((offering) => of(offering) ?? []);
    return known.length === 0 ? undefined : Math.min(...known);
  };
  const uptimes = offerings.flatMap(({ uptime30d, uptimeMeasured }) =>
    uptimeMeasured && uptime30d !== undefined ? [uptime30d] : [],
  );
  const [cheapest] = offerings.flatMap(({ prices }) => prices).sort((a, b) => a.nowUsd - b.nowUsd);
  return {
    p50: least(({ measuredMs }) => measuredMs?.p50),
    p95: least(({ measuredMs }) => measuredMs?.p95),
    uptime: uptimes.length === 0 ? undefined : Math.max(...uptimes),
    price: cheapest === undefined ? undefined : `${dollars(cheapest.nowUsd)} / ${spaced(cheapest.unit)}`,
  };
}

/** State, measured latency, uptime and price in a line. */
function Measured({ model }: { model: Model }) {
  const { p50, p95, uptime, price } = figuresOf(model);
  return (
    <Facts
      of={[
        <Tier key="t" model={model} />,
        p50 === undefined ? (
          "no calls yet"
        ) : (
          <span key="p">
            p50 <Ms ms={p50} />, p95 <Ms ms={p95} />
          </span>
        ),
        uptime !== undefined && `${percent(uptime)} uptime`,
        price !== undefined && `from ${price}`,
      ]}
    />
  );
}

/** Chooses another model to compare with. */
function CompareWith({
  id,
  value,
  onChange,
}: {
  id: string;
  value: string | undefined;
  onChange: (other: string | undefined) => void;
}) {
  const { data } = useQuery(RegistryService.method.listModels, { tier: ModelTier.SERVABLE, limit: 200 });
  const others = (data?.data ?? []).map((model) => model.id).filter((other) => other !== id);
  const options = value === undefined || others.includes(value) ? others : [value, ...others];
  return (
    <Pick label="Compare with" value={value} onChange={onChange} options={options.map((one) => [one, one])} any="–" />
  );
}

/** Two models beside each other, a property a row. */
function Comparison({ one, other, onClose }: { one: Model; other: string; onClose: () => void }) {
  const { data, error } = useQuery(RegistryService.method.getModel, named(other));
  const { rows: runs } = useRuns({ enabled: useMay("jobs.read") });
  const models = [one, data?.model];
  const rows: readonly (readonly [string, (model: Model) => ReactNode])[] = [
    ["state", (model) => <Tier model={model} />],
    ["kind", ({ kind, paramsB }) => `${wordOf(ModelKindSchema, kind)}${paramsB === undefined ? "" : `, ${paramsB} B`}`],
    ["action spaces", ({ actionSpaces }) => <code>{actionSpaces.join(", ")}</code>],
    ["cameras", (model) => camerasOf(model)],
    ["state values", (model) => statesOf(model)],
    ["latency p50", (model) => <MsOrNone ms={figuresOf(model).p50} />],
    ["latency p95", (model) => <MsOrNone ms={figuresOf(model).p95} />],
    [
      "uptime",
      (model) => {
        const { uptime } = figuresOf(model);
        return uptime === undefined ? <span className="text-muted">not measured yet</span> : percent(uptime);
      },
    ],
    ["price from", (model) => figuresOf(model).price ?? <None />],
    [
      "evaluations",
      ({ id }) => {
        const own = runsOf(runs, id).filter(({ scores }) => scores?.successRate !== undefined);
        return own.length === 0 ? (
          <None />
        ) : (
          own
            .slice(0, 3)
            .map(({ scenario, scores }) => `${scenario?.id}: ${percent(scores!.successRate!.value)}`)
            .join(", ")
        );
      },
    ],
    ["license", ({ license }) => license ?? <None />],
  ];
  return (
    <Part
      title="Side by side"
      aside={
        <button type="button" className="button" onClick={onClose}>
          Close comparison
        </button>
      }
    >
      <Refused error={error} />
      <div className="panel overflow-x-auto" tabIndex={0} role="region" aria-label="comparison">
        <table className="w-full table-fixed text-left">
          <thead className="bg-panel">
            <tr>
              <td className="w-[120px] max-sm:w-[96px]" />
              {[one.id, other].map((id) => (
                <th key={id} scope="col" className="px-3 py-1.5 font-medium">
                  <Link to="/console/models/$owner/$name" params={named(id)} search={{}}>
                    <code className="[overflow-wrap:anywhere]">{id}</code>
                  </Link>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(([title, cell]) => (
              <tr key={title} className="border-t border-line align-top">
                <th scope="row" className="px-3 py-1.5 font-normal text-muted">
                  {title}
                </th>
                {models.map((model, i) => (
                  <td key={i === 0 ? one.id : other} className="px-3 py-1.5 [overflow-wrap:anywhere]">
                    {model === undefined ? <None /> : cell(model)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Part>
  );
}

const NoCalls = () => <span className="text-muted">no calls yet</span>;
const MsOrNone = ({ ms }: { ms: number | undefined }) => (ms === undefined ? <NoCalls /> : <Ms ms={ms} />);

/** The input that the first offering declares. */
const inputOf = (model: Model) => model.offerings?.offerings.find(({ input }) => input !== undefined)?.input;

function camerasOf(model: Model): ReactNode {
  const cameras = inputOf(model)?.cameras?.cameras;
  if (cameras === undefined) return <None />;
  if (cameras.length === 0) return "reads no image";
  return cameras
    .map(({ name, width, height }) => `${name || "any"}${width === undefined ? "" : ` ${width} × ${height}`}`)
    .join(", ");
}

function statesOf(model: Model): ReactNode {
  const layouts = inputOf(model)?.proprio ?? [];
  const sizes = layouts.map(({ dimension, names }) => dimension ?? names.length);
  return sizes.length === 0 ? <None /> : [...new Set(sizes)].sort((a, b) => a - b).join(", ");
}

/** The evaluations of a model, of any of its revisions. */
const runsOf = (runs: readonly Evaluation[], id: string): readonly Evaluation[] =>
  runs.filter(({ policy }) => policy?.endpoint.split("@")[0] === id);

const RUNS: readonly Column<Evaluation>[] = [
  {
    id: "scenario",
    title: "scenario",
    width: "2fr",
    cell: ({ id, scenario }) => (
      <Link to="/console/evaluations" search={{ run: id }}>
        {scenario?.id}
      </Link>
    ),
    value: ({ scenario }) => scenario?.id ?? "",
  },
  {
    id: "status",
    title: "state",
    width: 116,
    phone: 96,
    cell: ({ status }) => <Word>{wordOf(JobStatusSchema, status)}</Word>,
  },
  {
    id: "episodes",
    title: "episodes",
    width: 84,
    right: true,
    wide: true,
    cell: ({ progress }) => progress?.completed ?? 0,
  },
  {
    id: "rate",
    title: "success",
    width: 72,
    right: true,
    cell: ({ scores }) => (scores?.successRate === undefined ? <None /> : percent(scores.successRate.value)),
    value: ({ scores }) => scores?.successRate?.value ?? -1,
  },
  {
    id: "interval",
    title: "95 % interval, 0 to 100 %",
    width: "3fr",
    wide: true,
    cell: ({ scores }) => <Interval of={scores?.successRate} />,
  },
];

/** The organization's own evaluations of a model. */
function Evaluations({ model }: { model: string }) {
  const may = useMay("jobs.read");
  const { rows, loading } = useRuns({ enabled: may });
  if (!may) return null;
  return (
    <Part title="Evaluations">
      <Table
        label="evaluations"
        columns={RUNS}
        rows={runsOf(rows, model)}
        keyOf={({ id }) => id}
        loading={loading && rows.length === 0}
        empty={
          <Empty
            action={
              <Link to="/console/evaluations" search={{ new: "1" }} className="button text-ink">
                Evaluate a policy
              </Link>
            }
          >
            Not evaluated yet. An evaluation runs it in a scenario and reports its success rate.
          </Empty>
        }
      />
    </Part>
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
  if (!may) return null;
  if (points.length === 0)
    return (
      <Part title="Your calls in the last day">
        <p className="text-muted">No calls yet. “Try it” makes the first.</p>
      </Part>
    );
  return (
    <Part title="Your calls in the last day">
      <Chart title="Latency" unit="ms" times={times} lines={latency} />
    </Part>
  );
}
