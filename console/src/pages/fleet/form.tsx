/** Writes a robot down, or what it is by now. What the form does not ask for stays as it was. */
import { create } from "@bufbuild/protobuf";
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useState } from "react";
import { SafetyBoundsSchema } from "#messages/limber/v1/action_pb.ts";
import { type Robot, RobotCameraSchema, type RobotConfig, RobotConfigSchema } from "#messages/limber/v1/fleet_pb.ts";
import { FleetService } from "#messages/limber/v1/fleet_service_pb.ts";
import {
  ActionMeaningSchema,
  ActionReferenceSchema,
  CameraRoleSchema,
  GripperMeaningSchema,
  ProprioSpecSchema,
  RotationFormSchema,
} from "#messages/limber/v1/input_contract_pb.ts";
import { ImageFormatSchema } from "#messages/limber/v1/observation_pb.ts";
import { EmbodimentSchema } from "#messages/limber/v1/registry_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { refresh } from "../../lib/api.ts";
import { numberIn, numbersIn, phrasesIn } from "../../lib/lists.ts";
import { useWho } from "../../lib/session.ts";
import { codeOf, codesOf, numberOfCode } from "../../lib/words.ts";
import { Choice, Refused, Status, TextField } from "../../parts/basics.tsx";
import { Sheet } from "../../parts/sheet.tsx";

/** A camera in the making; texts are as they were typed. */
interface CameraDraft {
  readonly name: string;
  readonly role: string;
  readonly width: string;
  readonly height: string;
  readonly format: string;
  readonly rateHz: string;
}

const NEW_CAMERA: CameraDraft = { name: "", role: "", width: "", height: "", format: "", rateHz: "" };
const text = (value: number | undefined): string => (value === undefined ? "" : String(value));

const draftOf = (config: RobotConfig | undefined) => ({
  description: config?.description ?? "",
  embodiment: codeOf(EmbodimentSchema, config?.embodiment),
  space: config?.actionSpace ?? "",
  controlHz: text(config?.controlHz),
  cameras: (config?.cameras ?? []).map(
    ({ name, role, width, height, format, rateHz }): CameraDraft => ({
      name,
      role: codeOf(CameraRoleSchema, role),
      width: text(width),
      height: text(height),
      format: codeOf(ImageFormatSchema, format),
      rateHz: text(rateHz),
    }),
  ),
  stateNames: config?.proprio?.names.join(", ") ?? "",
  stateUnits: config?.proprio?.units.join(", ") ?? "",
  stateCount: text(config?.proprio?.dimension),
  stateFrame: config?.proprio?.referenceFrame ?? "",
  actionNames: config?.actions?.names.join(", ") ?? "",
  actionUnits: config?.actions?.units.join(", ") ?? "",
  reference: codeOf(ActionReferenceSchema, config?.actions?.reference),
  rotation: codeOf(RotationFormSchema, config?.actions?.rotation),
  actionFrame: config?.actions?.referenceFrame ?? "",
  gripper: config?.actions?.gripper?.indexes.join(", ") ?? "",
  gripperOpen: text(config?.actions?.gripper?.open),
  gripperClosed: text(config?.actions?.gripper?.closed),
  lowest: config?.bounds?.lowest.join(", ") ?? "",
  highest: config?.bounds?.highest.join(", ") ?? "",
  maxChange: text(config?.bounds?.maxChange),
  maxStartJump: text(config?.bounds?.maxStartJump),
});
type RobotDraft = Omit<ReturnType<typeof draftOf>, "cameras"> & { readonly cameras: readonly CameraDraft[] };

const given = (value: string): string | undefined => (value === "" ? undefined : value);
const isAny = (...values: readonly string[]): boolean => values.some((value) => value.trim() !== "");

/** The message of a draft, over what was written down before. Throws an `Error` for what is no number. */
function configOf(draft: RobotDraft, before: RobotConfig | undefined): RobotConfig {
  const { stateNames, stateUnits, stateCount, stateFrame } = draft;
  const { actionNames, actionUnits, reference, rotation, actionFrame, gripper, gripperOpen, gripperClosed } = draft;
  const { lowest, highest, maxChange, maxStartJump } = draft;
  const hasGripper = isAny(gripper, gripperOpen, gripperClosed);
  return create(RobotConfigSchema, {
    ...(before ?? create(RobotConfigSchema)),
    description: given(draft.description),
    embodiment: numberOfCode(EmbodimentSchema, draft.embodiment),
    actionSpace: draft.space,
    controlHz: numberIn(draft.controlHz, "Control rate, Hz"),
    cameras: draft.cameras.map((camera) =>
      create(RobotCameraSchema, {
        name: camera.name,
        role: numberOfCode(CameraRoleSchema, camera.role),
        width: numberIn(camera.width, `Width of ${camera.name}`),
        height: numberIn(camera.height, `Height of ${camera.name}`),
        format: numberOfCode(ImageFormatSchema, camera.format),
        rateHz: numberIn(camera.rateHz, `Rate of ${camera.name}`),
      }),
    ),
    proprio: isAny(stateNames, stateUnits, stateCount, stateFrame)
      ? create(ProprioSpecSchema, {
          ...(before?.proprio ?? create(ProprioSpecSchema)),
          names: phrasesIn(stateNames),
          units: phrasesIn(stateUnits),
          dimension: numberIn(stateCount, "Number of values"),
          referenceFrame: given(stateFrame),
        })
      : undefined,
    actions:
      isAny(actionNames, actionUnits, reference, rotation, actionFrame) || hasGripper
        ? create(ActionMeaningSchema, {
            ...(before?.actions ?? create(ActionMeaningSchema)),
            names: phrasesIn(actionNames),
            units: phrasesIn(actionUnits),
            reference: numberOfCode(ActionReferenceSchema, reference),
            rotation: numberOfCode(RotationFormSchema, rotation),
            referenceFrame: given(actionFrame),
            gripper: hasGripper
              ? create(GripperMeaningSchema, {
                  ...(before?.actions?.gripper ?? create(GripperMeaningSchema)),
                  indexes: numbersIn(gripper, "Gripper"),
                  open: numberIn(gripperOpen, "Open at") ?? 0,
                  closed: numberIn(gripperClosed, "Closed at") ?? 0,
                })
              : undefined,
          })
        : undefined,
    bounds: isAny(lowest, highest, maxChange, maxStartJump)
      ? create(SafetyBoundsSchema, {
          lowest: numbersIn(lowest, "Lowest"),
          highest: numbersIn(highest, "Highest"),
          maxChange: numberIn(maxChange, "Largest change"),
          maxStartJump: numberIn(maxStartJump, "Largest jump"),
        })
      : undefined,
  });
}

/** The form. */
export function RobotForm({ robot, onClose }: { robot: Robot | undefined; onClose: () => void }) {
  const { workspaces, workspaceId: ownWorkspace, reachesOrganisation } = useWho();
  const [id, setId] = useState(robot?.id ?? "");
  const [workspace, setWorkspace] = useState(robot?.workspaceId ?? ownWorkspace ?? "");
  const [draft, setDraft] = useState<RobotDraft>(() => draftOf(robot?.config));
  const [fault, setFault] = useState("");
  const taxonomy = useQuery(RegistryService.method.getTaxonomy, {}, { staleTime: Number.POSITIVE_INFINITY });
  const put = useMutation(FleetService.method.putRobot);
  const set = (part: Partial<RobotDraft>): void => setDraft((before) => ({ ...before, ...part }));
  const save = async (): Promise<void> => {
    setFault("");
    let config: RobotConfig;
    try {
      config = configOf(draft, robot?.config);
    } catch (error) {
      setFault(error instanceof Error ? error.message : String(error));
      return;
    }
    await put.mutateAsync({ robotId: id, workspaceId: given(workspace), config });
    await refresh();
    onClose();
  };
  const field = (key: keyof Omit<RobotDraft, "cameras">, label: string, help?: string) => (
    <TextField label={label} value={draft[key]} onChange={(value) => set({ [key]: value })} help={help} />
  );
  const spaces = taxonomy.data?.actionSpaces.map(({ id }) => id) ?? [];
  return (
    <Sheet title={robot === undefined ? "New robot" : `Change ${robot.id}`} onClose={onClose}>
      <form
        className="grid gap-4"
        onSubmit={(event) => {
          event.preventDefault();
          void save().catch(() => undefined);
        }}
      >
        {robot === undefined && (
          <TextField
            label="Name"
            value={id}
            onChange={setId}
            required
            placeholder="arm-07"
            help={
              <>
                Calls name it as <code>robot_id</code>.
              </>
            }
          />
        )}
        <div className="grid gap-3 sm:grid-cols-2">
          <Choice
            label="Action space"
            value={draft.space}
            onChange={(space) => set({ space })}
            options={draft.space === "" || spaces.includes(draft.space) ? spaces : [draft.space, ...spaces]}
            any="choose one"
          />
          <Choice
            label="Embodiment"
            value={draft.embodiment}
            onChange={(embodiment) => set({ embodiment })}
            options={codesOf(EmbodimentSchema)}
            any="default"
          />
          {field("controlHz", "Control rate, Hz")}
          {robot === undefined && workspaces.length > 0 && (
            <Choice
              label="Workspace"
              value={workspace}
              onChange={setWorkspace}
              options={workspaces.map(({ workspaceId, name }) => [workspaceId, name] as const)}
              {...(reachesOrganisation && { any: "entire organization" })}
            />
          )}
        </div>
        {field("description", "Description")}
        <Cameras cameras={draft.cameras} onChange={(cameras) => set({ cameras })} />
        <fieldset>
          <legend className="mb-1 font-semibold">State</legend>
          <div className="grid gap-3 sm:grid-cols-2">
            {field("stateNames", "Names", "In order, comma-separated.")}
            {field("stateUnits", "Units", "One each, or one for all.")}
            {field("stateCount", "Number of values", "If they have no names.")}
            {field("stateFrame", "Frame of reference", "Such as base or world.")}
          </div>
        </fieldset>
        <details open={draft.actionNames !== "" || draft.reference !== ""}>
          <summary className="font-semibold">What its action values mean</summary>
          <div className="mt-2 grid gap-3 sm:grid-cols-2">
            {field("actionNames", "Names of actions")}
            {field("actionUnits", "Units of actions")}
            <Choice
              label="Counted from"
              value={draft.reference}
              onChange={(reference) => set({ reference })}
              options={codesOf(ActionReferenceSchema)}
              any="default"
            />
            <Choice
              label="Turns are written as"
              value={draft.rotation}
              onChange={(rotation) => set({ rotation })}
              options={codesOf(RotationFormSchema)}
              any="default"
            />
            {field("actionFrame", "Frame of actions", "Such as base or tool.")}
            {field("gripper", "Gripper", "Indexes of its values, from 0.")}
            {field("gripperOpen", "Open at")}
            {field("gripperClosed", "Closed at")}
          </div>
        </details>
        <fieldset>
          <legend className="mb-1 font-semibold">Bounds</legend>
          <p className="mb-2 text-sm text-muted">
            What no action may exceed. They are shown where a key is made or the robot is armed; the bounds of the key
            are what is enforced.
          </p>
          <div className="grid gap-3 sm:grid-cols-2">
            {field("lowest", "Lowest", "One for all, or one per value.")}
            {field("highest", "Highest")}
            {field("maxChange", "Largest change", "Between consecutive steps.")}
            {field("maxStartJump", "Largest jump", "Of a chunk's first step.")}
          </div>
        </fieldset>
        {fault !== "" && (
          <p role="alert">
            <Status tone="bad">{fault}</Status>
          </p>
        )}
        <Refused error={put.error} />
        <button
          type="submit"
          className="button button-main justify-center"
          disabled={put.isPending || draft.space === ""}
        >
          {robot === undefined ? "Write it down" : "Save"}
        </button>
      </form>
    </Sheet>
  );
}

function Cameras({
  cameras,
  onChange,
}: {
  cameras: readonly CameraDraft[];
  onChange: (cameras: readonly CameraDraft[]) => void;
}) {
  const set = (at: number, part: Partial<CameraDraft>): void =>
    onChange(cameras.map((camera, i) => (i === at ? { ...camera, ...part } : camera)));
  return (
    <fieldset className="grid gap-3">
      <legend className="mb-1 font-semibold">Cameras</legend>
      {cameras.map((camera, i) => {
        const called = `camera ${i + 1}`;
        return (
          <div key={i} className="grid grid-cols-2 items-end gap-2 border-b border-line pb-3 sm:grid-cols-3">
            <TextField label={`Name of ${called}`} value={camera.name} onChange={(name) => set(i, { name })} required />
            <Choice
              label={`Where ${called} is mounted`}
              value={camera.role}
              onChange={(role) => set(i, { role })}
              options={codesOf(CameraRoleSchema)}
              any="default"
            />
            <Choice
              label={`Encoding of ${called}`}
              value={camera.format}
              onChange={(format) => set(i, { format })}
              options={codesOf(ImageFormatSchema)}
              any="any"
            />
            <TextField
              label={`Width of ${called}, pixels`}
              type="number"
              value={camera.width}
              onChange={(width) => set(i, { width })}
            />
            <TextField
              label={`Height of ${called}, pixels`}
              type="number"
              value={camera.height}
              onChange={(height) => set(i, { height })}
            />
            <TextField
              label={`Rate of ${called}, Hz`}
              type="number"
              value={camera.rateHz}
              onChange={(rateHz) => set(i, { rateHz })}
            />
            <button
              type="button"
              className="button justify-self-start"
              onClick={() => onChange(cameras.filter((_, k) => k !== i))}
            >
              Remove {camera.name || called}
            </button>
          </div>
        );
      })}
      <button
        type="button"
        className="button justify-self-start"
        onClick={() => onChange([...cameras, { ...NEW_CAMERA, name: cameras.length === 0 ? "wrist" : "" }])}
      >
        Add a camera
      </button>
    </fieldset>
  );
}
