/** Routing: presets, which are routing preferences by name, and where calls would go with them. */
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { keepPreviousData } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useState } from "react";
import { Contract } from "#messages/limber/v1/contract_pb.ts";
import { InferenceService } from "#messages/limber/v1/inference_service_pb.ts";
import { DropReasonSchema } from "#messages/limber/v1/plan_pb.ts";
import { PreferenceSchema } from "#messages/limber/v1/preferences_pb.ts";
import { type Preset, PresetConfigSchema, PresetSchema } from "#messages/limber/v1/preset_pb.ts";
import { PresetService } from "#messages/limber/v1/preset_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { fromRest, restJson } from "../lib/json.ts";
import { useList } from "../lib/list.ts";
import { useMay } from "../lib/session.ts";
import { spaced, wordOf } from "../lib/words.ts";
import {
  Choice,
  Code,
  Empty,
  Head,
  Json,
  Money,
  Ms,
  None,
  Part,
  Refused,
  Status,
  Sure,
  TextField,
  Time,
} from "../parts/basics.tsx";
import { Sheet } from "../parts/sheet.tsx";
import { type Column, Table } from "../parts/table.tsx";

const summaryOf = ({ config }: Preset): string => {
  const json = config === undefined ? {} : restJson(PresetConfigSchema, config);
  return Object.entries(json as Record<string, JsonValue>)
    .map(
      ([name, value]) =>
        `${spaced(name)} ${typeof value === "object" ? JSON.stringify(value).replaceAll('"', "") : value}`,
    )
    .join(", ");
};

const COLUMNS: readonly Column<Preset>[] = [
  { id: "name", title: "name", width: "1fr", cell: ({ name }) => name, value: ({ name }) => name },
  {
    id: "pref",
    title: "preference",
    width: 104,
    wide: true,
    cell: ({ config }) => wordOf(PreferenceSchema, config?.preference) || <None />,
  },
  { id: "what", title: "contents", width: "3fr", cell: (preset) => <Code>{summaryOf(preset)}</Code> },
  {
    id: "version",
    title: "version",
    width: 72,
    right: true,
    wide: true,
    cell: ({ version }) => version,
    value: ({ version }) => version,
  },
  {
    id: "updated",
    title: "saved",
    width: 112,
    wide: true,
    cell: ({ updatedAt }) => <Time at={updatedAt} />,
    value: ({ updatedAt }) => updatedAt,
  },
];

/** The page. */
export function RoutingPage() {
  const search = useSearch({ from: "/console/routing" });
  const navigate = useNavigate({ from: "/console/routing" });
  const may = useMay("presets.write");
  const show = useCallback(
    (preset: string | undefined) => void navigate({ search: preset === undefined ? {} : { preset }, replace: true }),
    [navigate],
  );
  const presets = useList(PresetService.method.listPresets, { limit: 100 });
  const open = presets.rows.find(({ name }) => name === search.preset);
  return (
    <>
      <Head title="Routing">
        {may && (
          <button type="button" className="button button-main" onClick={() => show("new")}>
            New preset
          </button>
        )}
      </Head>
      <p className="mb-3 max-w-3xl text-muted">
        A preset stores routing preferences under a name. A call with <code>"preset": "name"</code> uses them for the
        fields that it omits.
      </p>
      <Refused error={presets.error} again={presets.again} />
      <Table
        label="presets"
        columns={COLUMNS}
        rows={presets.rows}
        keyOf={({ name }) => name}
        open={search.preset}
        onOpen={({ name }) => show(name)}
        loading={presets.loading}
        more={presets.more}
        empty={
          <Empty>No preset yet. One keeps a deadline, a region or a highest price in one place, for every robot.</Empty>
        }
      />
      {search.preset !== undefined && !presets.isPending && (
        <PresetSheet key={search.preset} preset={open} may={may} onClose={() => show(undefined)} onSaved={show} />
      )}
    </>
  );
}

const BEGIN = `{
  "preference": "reliable",
  "provider": {
    "deadline_ms": 150,
    "max_latency_ms": 400
  }
}`;

function PresetSheet({
  preset,
  may,
  onClose,
  onSaved,
}: {
  preset: Preset | undefined;
  may: boolean;
  onClose: () => void;
  onSaved: (name: string) => void;
}) {
  const [name, setName] = useState(preset?.name ?? "");
  const [text, setText] = useState(
    preset?.config === undefined ? BEGIN : JSON.stringify(restJson(PresetConfigSchema, preset.config), null, 2),
  );
  const put = useMutation(PresetService.method.putPreset);
  const remove = useMutation(PresetService.method.deletePreset);
  const parsed = parse(text);
  const save = async (): Promise<void> => {
    if (parsed.config === undefined) return;
    await put.mutateAsync({ name, config: parsed.config });
    await refresh();
    onSaved(name);
  };
  return (
    <Sheet title={preset?.name ?? "New preset"} onClose={onClose}>
      <form
        className="grid gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          void save().catch(() => undefined);
        }}
      >
        {preset === undefined && (
          <TextField label="Name" value={name} onChange={setName} required placeholder="night-shift" />
        )}
        <TextField
          label="What it says, as JSON"
          value={text}
          onChange={setText}
          rows={12}
          help={
            parsed.fault ??
            "Fields of a call, such as models, preference, provider, seed, instruction, action_space or horizon."
          }
        />
        <Refused error={put.error ?? remove.error} />
        {may && (
          <div className="flex gap-2">
            <button
              type="submit"
              className="button button-main"
              disabled={put.isPending || parsed.config === undefined}
            >
              Save
            </button>
            {preset !== undefined && (
              <Sure
                label="Delete"
                question={`Delete the preset ${preset.name}? Calls that name it are refused.`}
                onSure={() =>
                  void remove.mutateAsync({ name: preset.name }).then(
                    () => {
                      onClose();
                      return refresh();
                    },
                    () => undefined,
                  )
                }
              />
            )}
          </div>
        )}
      </form>
      {parsed.config !== undefined && <Where config={parsed.config} />}
      {preset !== undefined && <Json of={restJson(PresetSchema, preset)} />}
    </Sheet>
  );
}

type Config = NonNullable<Preset["config"]>;

function parse(text: string): { readonly config?: Config; readonly fault?: string } {
  try {
    return { config: fromJson(PresetConfigSchema, fromRest(PresetConfigSchema, JSON.parse(text) as JsonValue)) };
  } catch (error) {
    return { fault: error instanceof Error ? error.message : String(error) };
  }
}

const SPACES = ["base_twist_2d", "ee_delta_6d_grip", "joint_pos_7", "joint_pos_14", "continuous_nd"];

/** Where a call with this preset would go, and what it drops. */
function Where({ config }: { config: Config }) {
  const [model, setModel] = useState("service/auto");
  const [space, setSpace] = useState(config.actionSpace ?? "base_twist_2d");
  const { $typeName, $unknown, ...fields } = config;
  const { data, error } = useQuery(
    InferenceService.method.previewRoutes,
    { contract: Contract.ACT, request: { ...fields, model, actionSpace: space, observations: [{}] } },
    { placeholderData: keepPreviousData },
  );
  const byReason = Object.entries(
    Object.groupBy(data?.dropped ?? [], ({ reason }) => wordOf(DropReasonSchema, reason)),
  );
  return (
    <Part title="Where an act would go">
      <div className="mb-3 grid gap-3 sm:grid-cols-2">
        <TextField label="Model" value={model} onChange={setModel} />
        <Choice
          label="Action space"
          value={space}
          onChange={setSpace}
          options={SPACES.includes(space) ? SPACES : [space, ...SPACES]}
        />
      </div>
      <Refused error={error} />
      {data !== undefined && error === null && (
        <>
          {data.wouldRefuse !== undefined && (
            <Status tone="bad">would be refused: {spaced(data.wouldRefuse.code)}</Status>
          )}
          <Table
            label="plan"
            rows={data.plan}
            keyOf={({ offeringId }) => offeringId}
            columns={[
              { id: "model", title: "model", width: "2fr", cell: ({ model }) => <Code>{model}</Code> },
              { id: "provider", title: "provider", width: "1fr", cell: ({ provider }) => provider },
              {
                id: "cost",
                title: "cost",
                width: 84,
                right: true,
                cell: ({ estimatedCostUsd }) => <Money usd={estimatedCostUsd} />,
              },
              {
                id: "p95",
                title: "p95",
                width: 76,
                right: true,
                cell: ({ expectedMs }) => <Ms ms={expectedMs?.p95} />,
              },
            ]}
            empty={<Empty>Nothing satisfies the preset for this call.</Empty>}
          />
          <ul className="mt-2 text-muted">
            {byReason.map(([reason, dropped]) => (
              <li key={reason}>
                {dropped?.length} dropped: {reason}
              </li>
            ))}
          </ul>
        </>
      )}
    </Part>
  );
}
