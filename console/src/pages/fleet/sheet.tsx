/** One robot: what it is, its keys, and which offerings can drive it. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { Link } from "@tanstack/react-router";
import type { SafetyBounds } from "#messages/limber/v1/action_pb.ts";
import {
  type DrivingOffering,
  type Robot,
  type RobotCamera,
  RobotSchema,
  type UnfitOffering,
} from "#messages/limber/v1/fleet_pb.ts";
import { FleetService } from "#messages/limber/v1/fleet_service_pb.ts";
import {
  ActionReferenceSchema,
  CameraRoleSchema,
  type ProprioSpec,
  RotationFormSchema,
} from "#messages/limber/v1/input_contract_pb.ts";
import { ImageFormatSchema } from "#messages/limber/v1/observation_pb.ts";
import { DropReasonSchema } from "#messages/limber/v1/plan_pb.ts";
import { EmbodimentSchema } from "#messages/limber/v1/registry_pb.ts";
import { refresh } from "../../lib/api.ts";
import { restJson } from "../../lib/json.ts";
import { named } from "../../lib/routes.ts";
import { useMay } from "../../lib/session.ts";
import { wordOf } from "../../lib/words.ts";
import { Code, Empty, Json, Money, Ms, None, Pairs, Part, Refused, Status, Sure, Time } from "../../parts/basics.tsx";
import { Sheet } from "../../parts/sheet.tsx";
import { type Column, Table } from "../../parts/table.tsx";

const CAMERAS: readonly Column<RobotCamera>[] = [
  { id: "name", title: "camera", width: "1fr", cell: ({ name }) => name, value: ({ name }) => name },
  {
    id: "role",
    title: "mounted",
    width: "1fr",
    wide: true,
    cell: ({ role }) => wordOf(CameraRoleSchema, role) || <None />,
  },
  {
    id: "size",
    title: "pixels",
    width: 104,
    cell: ({ width, height }) =>
      width === undefined && height === undefined ? <None /> : `${width ?? "?"} × ${height ?? "?"}`,
  },
  {
    id: "format",
    title: "format",
    width: 64,
    wide: true,
    cell: ({ format }) => wordOf(ImageFormatSchema, format) || <None />,
  },
  { id: "rate", title: "Hz", width: 64, right: true, cell: ({ rateHz }) => rateHz ?? <None /> },
];

const CAN: readonly Column<DrivingOffering>[] = [
  { id: "rank", title: "rank", width: 56, cell: ({ rank }) => rank, value: ({ rank }) => rank },
  {
    id: "model",
    title: "model",
    width: "2fr",
    cell: ({ model }) => (
      <Link to="/console/models/$owner/$name" params={named(model)}>
        {model}
      </Link>
    ),
    value: ({ model }) => model,
  },
  { id: "provider", title: "provider", width: "1fr", wide: true, cell: ({ provider }) => provider },
  {
    id: "known",
    title: "declares inputs",
    width: 148,
    wide: true,
    cell: ({ declared }) => (declared ? <Status tone="good">yes</Status> : <Status tone="wait">no</Status>),
    value: ({ declared }) => Number(declared),
  },
  { id: "p95", title: "p95", width: 72, right: true, cell: ({ expectedMs }) => <Ms ms={expectedMs?.p95} /> },
  {
    id: "price",
    title: "per step",
    width: 96,
    right: true,
    cell: ({ priceUnitUsd }) => <Money usd={priceUnitUsd} />,
    value: ({ priceUnitUsd }) => priceUnitUsd,
  },
];

/** What stands against an offering, in a line each: fields of the robot first. */
export function Against({ of: { faults, reason, detail } }: { of: UnfitOffering }) {
  return (
    <>
      {faults.map(({ field, message }) => (
        <span key={`${field} ${message}`} className="block">
          <code>{field}</code> {message}
        </span>
      ))}
      {reason !== undefined && (
        <span className="block text-muted">
          {wordOf(DropReasonSchema, reason)}
          {detail !== undefined && detail !== "" && `: ${detail}`}
        </span>
      )}
    </>
  );
}

/** The sheet. */
export function RobotSheet({
  robot,
  may,
  onEdit,
  onClose,
}: {
  robot: Robot;
  may: boolean;
  onEdit: () => void;
  onClose: () => void;
}) {
  const { id, workspaceId, config, keyIds } = robot;
  const mayArm = useMay("robots.arm");
  const remove = useMutation(FleetService.method.deleteRobot);
  const { actions, bounds, proprio } = config ?? {};
  return (
    <Sheet
      title={id}
      onClose={onClose}
      actions={
        may && (
          <button type="button" className="button" onClick={onEdit}>
            Change
          </button>
        )
      }
    >
      <Refused error={remove.error} />
      <div className="mb-3 flex flex-wrap gap-2">
        <Link to="/console" search={{ robot: id }} className="button text-ink">
          Its loops
        </Link>
        <Link to="/console/calls" search={{ robot: id }} className="button text-ink">
          Its calls
        </Link>
        <Link
          to="/console/models"
          search={{ robot: `${workspaceId ?? ""}/${id}`, fits: "1" }}
          className="button text-ink"
        >
          Models that can drive it
        </Link>
        {mayArm && (
          <Link
            to="/console/armings"
            search={{ new: id, ...(workspaceId !== undefined && { of: workspaceId }) }}
            className="button text-ink"
          >
            Arm it for an agent
          </Link>
        )}
      </div>
      <Pairs
        of={[
          config?.description !== undefined && ["description", config.description],
          ["embodiment", wordOf(EmbodimentSchema, config?.embodiment) || <None key="" />],
          ["action space", <Code key="">{config?.actionSpace}</Code>],
          config?.controlHz !== undefined && ["control rate", `${config.controlHz} Hz`],
          workspaceId !== undefined && ["workspace", <Code key="">{workspaceId}</Code>],
          [
            "keys",
            keyIds.length === 0 ? (
              <None key="" />
            ) : (
              <span key="" className="grid">
                {keyIds.map((key) => (
                  <Link key={key} to="/console/keys" search={{ key }}>
                    <code>{key}</code>
                  </Link>
                ))}
              </span>
            ),
          ],
          ["created", <Time key="" at={robot.created} />],
          ["changed", <Time key="" at={robot.updated} />],
        ]}
      />
      <Part title="Sensors">
        <Table
          label="cameras"
          columns={CAMERAS}
          rows={config?.cameras ?? []}
          keyOf={({ name }) => name}
          empty={<p className="p-3 text-muted">No cameras.</p>}
        />
        {proprio !== undefined && <p className="mt-2">{stateOf(proprio)}</p>}
      </Part>
      {(actions !== undefined || bounds !== undefined) && (
        <Part title="Actions">
          <Pairs
            of={[
              actions !== undefined && [
                "values",
                [
                  actions.names.map((name, i) => withUnit(name, actions.units, i)).join(", "),
                  wordOf(ActionReferenceSchema, actions.reference),
                  actions.referenceFrame && `in ${actions.referenceFrame}`,
                  wordOf(RotationFormSchema, actions.rotation),
                ]
                  .filter(Boolean)
                  .join(" · ") || <None key="" />,
              ],
              actions?.gripper !== undefined && [
                "gripper",
                `number ${actions.gripper.indexes.join(", ")}: open at ${actions.gripper.open}, closed at ${actions.gripper.closed}`,
              ],
              bounds !== undefined && ["bounds", <Bounds key="" of={bounds} />],
            ]}
          />
        </Part>
      )}
      <Drivers robot={robot} />
      {may && (
        <div className="mt-6">
          <Sure
            label="Forget it"
            question={`Forget ${id}? Keys that are bound to it stay so, and calls may go on naming it.`}
            busy={remove.isPending}
            onSure={() =>
              void remove.mutateAsync({ robotId: id, workspaceId }).then(
                () => {
                  onClose();
                  void refresh();
                },
                () => undefined,
              )
            }
          />
        </div>
      )}
      <Json of={restJson(RobotSchema, robot)} />
    </Sheet>
  );
}

const withUnit = (name: string, units: readonly string[], at: number): string => {
  const unit = units.length === 1 ? units[0] : units[at];
  return unit === undefined ? name : `${name} ${unit}`;
};

function stateOf({ names, units, dimension, referenceFrame }: ProprioSpec): string {
  const values =
    names.length > 0
      ? names.map((name, i) => withUnit(name, units, i)).join(", ")
      : dimension === undefined
        ? "numbers of its state"
        : `${dimension} numbers${units.length > 0 ? `, ${units.join(", ")}` : ""}`;
  return `State: ${values}${referenceFrame === undefined ? "" : `, in ${referenceFrame}`}`;
}

const LIMITS = {
  lowest: "lowest",
  highest: "highest",
  maxChange: "largest change",
  maxStartJump: "largest jump",
} as const;

/** Bounds: one number for all numbers of a step, or one for each. */
export function Bounds({ of }: { of: SafetyBounds }) {
  const said = Object.entries(LIMITS).flatMap(([field, name]) => {
    const limit = of[field as keyof typeof LIMITS]; // the keys of LIMITS
    return limit === undefined || (Array.isArray(limit) && limit.length === 0)
      ? []
      : [`${name} ${[limit].flat().join(", ")}`];
  });
  return said.length === 0 ? <None /> : <span className="tabular-nums">{said.join("; ")}</span>;
}

/** What can drive it at this moment by a call of the reader, and for each other offering the field that stands against it. */
function Drivers({ robot: { id: robotId, workspaceId } }: { robot: Robot }) {
  const { data, error, isPending, refetch } = useQuery(FleetService.method.checkRobot, { robotId, workspaceId });
  if (isPending) return null;
  return (
    <Part
      title="What can drive it"
      aside={
        data && (
          <span className="text-muted">
            {data.fit} of {data.considered} offerings
          </span>
        )
      }
    >
      <Refused error={error} again={() => void refetch()} />
      {data !== undefined && (
        <>
          <Table
            label="offerings that can drive it"
            columns={CAN}
            rows={data.canDrive}
            keyOf={({ offeringId }) => offeringId}
            empty={<Empty>No offering can drive this robot. The table below lists why.</Empty>}
          />
          {data.cannotDrive.length > 0 && (
            <details className="mt-3" open={data.canDrive.length === 0}>
              <summary>{data.considered - data.fit} cannot, and why</summary>
              <ul
                className="mt-1 grid max-h-96 gap-2 overflow-auto"
                tabIndex={0}
                aria-label="offerings that cannot drive it"
              >
                {data.cannotDrive.map((unfit) => (
                  <li key={unfit.offeringId} className="[overflow-wrap:anywhere]">
                    <code>{unfit.model}</code> <span className="text-muted">at {unfit.provider}</span>
                    <span className="block pl-4 text-sm">
                      <Against of={unfit} />
                    </span>
                  </li>
                ))}
              </ul>
            </details>
          )}
        </>
      )}
    </Part>
  );
}
