/** Models: everything in the catalog, and what of it serves. */
import { useQuery } from "@connectrpc/connect-query";
import { keepPreviousData } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import { ContractSchema } from "#messages/limber/v1/contract_pb.ts";
import { FleetService } from "#messages/limber/v1/fleet_service_pb.ts";
import { DropReasonSchema } from "#messages/limber/v1/plan_pb.ts";
import {
  DomainSchema,
  EmbodimentSchema,
  type Model,
  ModelKindSchema,
  ModelTier,
  ModelTierSchema,
} from "#messages/limber/v1/registry_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { count } from "../lib/format.ts";
import { named } from "../lib/routes.ts";
import { useMay, useWho } from "../lib/session.ts";
import { codesOf, numberOfCode, wordOf } from "../lib/words.ts";
import { Code, Empty, Facts, Head, None, Refused, Status } from "../parts/basics.tsx";
import { Filters, Find, Pick } from "../parts/filters.tsx";
import { type Column, Table } from "../parts/table.tsx";

/** How many models are asked for at once. */
const PAGE = 200;
/** The most that the gateway answers at once. */
const MOST = 1000;

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
  const [wanted, setLimit] = useState(PAGE);
  const driven = useDriven(search.robot);
  // Those that can drive a robot may be anywhere in the list.
  const limit = driven === undefined ? wanted : MOST;
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
  const asked = useMemo(() => data?.data ?? [], [data]);
  const only = search.fits !== undefined;
  const rows = useMemo(
    () => (driven === undefined || !only ? asked : asked.filter(({ id }) => driven.get(id)?.can)),
    [asked, driven, only],
  );
  const columns = useMemo(() => (driven === undefined ? COLUMNS : withDriven(driven)), [driven]);
  const more =
    data !== undefined && asked.length < data.total && limit < MOST
      ? () => setLimit((now) => Math.min(MOST, now + PAGE))
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
                driven !== undefined && `${[...driven.values()].filter(({ can }) => can).length} can drive the robot`,
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
        <RobotPick
          value={search.robot}
          onChange={(robot) => filter({ robot, fits: robot === undefined ? undefined : "1" })}
        />
        {search.robot !== undefined && (
          <label className="inline-flex min-h-6 shrink-0 items-center gap-1.5 text-sm text-muted">
            <input
              type="checkbox"
              className="size-4 accent-accent"
              checked={only}
              onChange={(event) => filter({ fits: event.target.checked ? "1" : undefined })}
            />
            compatible only
          </label>
        )}
      </Filters>
      <Refused error={error} again={() => void refetch()} />
      <Table
        label="models"
        tall
        columns={columns}
        rows={rows}
        keyOf={({ id }) => id}
        onOpen={({ id }) => void navigate({ to: "/console/models/$owner/$name", params: named(id) })}
        loading={isPending || isFetching}
        more={more}
        empty={
          <Empty>
            {driven !== undefined && only
              ? "No model that these filters admit can drive this robot now. Turn off “compatible only” to see why."
              : "No model matches these filters."}
          </Empty>
        }
      />
    </>
  );
}

/** What a robot and a model are to each other: it can drive it, or the first thing that stands against it. */
interface Driven {
  readonly can: boolean;
  readonly rank: number;
  readonly against: string;
}

/** A robot's name in the address: its workspace, a slash, its own name. */
function robotOf(text: string): { workspaceId: string | undefined; robotId: string } {
  const at = text.indexOf("/");
  return { workspaceId: at <= 0 ? undefined : text.slice(0, at), robotId: text.slice(at + 1) };
}

/** What the models that are served are to a robot, by their slugs; undefined where no robot is named, or nothing is known yet. */
function useDriven(robot: string | undefined): ReadonlyMap<string, Driven> | undefined {
  const { data } = useQuery(
    FleetService.method.checkRobot,
    { ...robotOf(robot ?? ""), limit: 256 },
    { enabled: robot !== undefined },
  );
  return useMemo(() => {
    if (robot === undefined || data === undefined) return undefined;
    const driven = new Map<string, Driven>();
    // A model has several offerings: the best of them counts.
    for (const { model, faults, reason, detail } of data.cannotDrive.toReversed()) {
      const [first] = faults;
      const why = wordOf(DropReasonSchema, reason);
      const against =
        first === undefined ? [why, detail].filter(Boolean).join(": ") : `${first.field} ${first.message}`;
      driven.set(model, { can: false, rank: Number.MAX_SAFE_INTEGER, against });
    }
    for (const { model, rank } of data.canDrive.toReversed()) driven.set(model, { can: true, rank, against: "" });
    return driven;
  }, [robot, data]);
}

/** The columns with one that says what each model is to the robot. */
function withDriven(driven: ReadonlyMap<string, Driven>): readonly Column<Model>[] {
  const [name, ...others] = COLUMNS;
  const column: Column<Model> = {
    id: "drives",
    title: "can drive it",
    width: "2fr",
    cell: ({ id }) => {
      const found = driven.get(id);
      if (found === undefined) return <None />;
      if (found.can) return <Status tone="good">rank {found.rank}</Status>;
      return (
        <span title={found.against}>
          <Status tone="bad">{found.against}</Status>
        </span>
      );
    },
    value: ({ id }) => driven.get(id)?.rank ?? Number.POSITIVE_INFINITY,
  };
  return [name!, column, ...others];
}

/** The robots that are written down, where the reader may see any. */
function RobotPick({ value, onChange }: { value: string | undefined; onChange: (robot: string | undefined) => void }) {
  const { workspaceId, workspaces } = useWho();
  const may = useMay("robots.read");
  const { data } = useQuery(FleetService.method.listRobots, { workspaceId, limit: 200 }, { enabled: may });
  const robots = data?.data ?? [];
  if (robots.length === 0) return null;
  const placeOf = (of: string | undefined): string =>
    of === undefined ? "" : `, ${workspaces.find((each) => each.workspaceId === of)?.name ?? of}`;
  return (
    <Pick
      label="Can drive"
      value={value}
      onChange={onChange}
      options={robots.map(({ id, workspaceId: of }) => [`${of ?? ""}/${id}`, `${id}${placeOf(of)}`] as const)}
      any="any robot"
    />
  );
}
