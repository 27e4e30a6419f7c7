/** The robots that an organization has written down: what each is, which keys are its own, and what can drive it. */
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";
import type { Robot } from "#messages/limber/v1/fleet_pb.ts";
import { FleetService } from "#messages/limber/v1/fleet_service_pb.ts";
import { EmbodimentSchema } from "#messages/limber/v1/registry_pb.ts";
import { useList } from "../lib/list.ts";
import { useMay, useWho } from "../lib/session.ts";
import { wordOf } from "../lib/words.ts";
import { Code, Empty, Head, None, Refused, Time } from "../parts/basics.tsx";
import { Filters, Pick } from "../parts/filters.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { RobotForm } from "./fleet/form.tsx";
import { RobotSheet } from "./fleet/sheet.tsx";

const columnsOf = (workspaces: ReadonlyMap<string, string>): readonly Column<Robot>[] => [
  { id: "name", title: "robot", width: "2fr", cell: ({ id }) => id, value: ({ id }) => id },
  {
    id: "workspace",
    title: "workspace",
    width: "1fr",
    wide: true,
    cell: ({ workspaceId }) => (workspaceId === undefined ? <None /> : (workspaces.get(workspaceId) ?? workspaceId)),
    value: ({ workspaceId }) => workspaceId ?? "",
  },
  {
    id: "body",
    title: "embodiment",
    width: "1fr",
    wide: true,
    cell: ({ config }) => wordOf(EmbodimentSchema, config?.embodiment) || <None />,
    value: ({ config }) => config?.embodiment ?? 0,
  },
  {
    id: "space",
    title: "action space",
    width: "2fr",
    cell: ({ config }) => <Code>{config?.actionSpace}</Code>,
    value: ({ config }) => config?.actionSpace ?? "",
  },
  {
    id: "cameras",
    title: "cameras",
    width: "2fr",
    wide: true,
    cell: ({ config }) => config?.cameras.map(({ name }) => name).join(", ") || <None />,
    value: ({ config }) => config?.cameras.length ?? 0,
  },
  {
    id: "rate",
    title: "steps/s",
    width: 84,
    right: true,
    wide: true,
    cell: ({ config }) => config?.controlHz ?? <None />,
    value: ({ config }) => config?.controlHz ?? 0,
  },
  {
    id: "keys",
    title: "keys",
    width: 64,
    right: true,
    cell: ({ keyIds }) => keyIds.length,
    value: ({ keyIds }) => keyIds.length,
  },
  {
    id: "changed",
    title: "changed",
    width: 112,
    wide: true,
    cell: ({ updated }) => <Time at={updated} />,
    value: ({ updated }) => updated,
  },
];

/** Robots of two workspaces may bear one name. */
const keyOf = ({ id, workspaceId = "" }: Robot): string => `${workspaceId} ${id}`;

/** The page. */
export function FleetPage() {
  const search = useSearch({ from: "/console/fleet" });
  const navigate = useNavigate({ from: "/console/fleet" });
  const who = useWho();
  const may = useMay("robots.write");
  const show = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const robots = useList(FleetService.method.listRobots, {
    workspaceId: search.workspace ?? who.workspaceId,
    limit: 200,
  });
  const workspaces = new Map(who.workspaces.map(({ workspaceId, name }) => [workspaceId, name]));
  const open = robots.rows.find(({ id, workspaceId = "" }) => id === search.robot && workspaceId === (search.of ?? ""));
  return (
    <>
      <Head title="Fleet">
        {may && (
          <button type="button" className="button button-main" onClick={() => show({ new: "1", robot: undefined })}>
            New robot
          </button>
        )}
      </Head>
      {who.workspaces.length > 0 && who.reachesOrganisation && (
        <Filters>
          <Pick
            label="Workspace"
            value={search.workspace}
            onChange={(workspace) => show({ workspace })}
            options={[...workspaces]}
          />
        </Filters>
      )}
      <Refused error={robots.error} again={robots.again} />
      <Table
        label="robots"
        columns={columnsOf(workspaces)}
        rows={robots.rows}
        keyOf={keyOf}
        open={open && keyOf(open)}
        onOpen={({ id, workspaceId }) => show({ robot: id, of: workspaceId, new: undefined, edit: undefined })}
        loading={robots.loading}
        more={robots.more}
        empty={
          <Empty
            command={`curl -s -X PUT ${location.origin}/v1/robots/arm-07 \\\n  -H "authorization: Bearer $LIMBER_KEY" -H 'content-type: application/json' \\\n  -d '{"embodiment": "arm", "action_space": "ee_delta_6d_grip", "control_hz": 20}'`}
          >
            No robots registered. Loops run without registration; a registered robot shows which models can drive it.
          </Empty>
        }
      />
      {open !== undefined && search.edit === undefined && search.new === undefined && (
        <RobotSheet
          robot={open}
          may={may}
          onEdit={() => show({ edit: "1" })}
          onClose={() => show({ robot: undefined, of: undefined })}
        />
      )}
      {open !== undefined && search.edit !== undefined && (
        <RobotForm robot={open} onClose={() => show({ edit: undefined })} />
      )}
      {search.new !== undefined && <RobotForm robot={undefined} onClose={() => show({ new: undefined })} />}
    </>
  );
}
