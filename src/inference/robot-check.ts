/**
 * Checks which offerings can drive a robot: plans an act for it and compares the offerings' declared inputs and action meanings with the
 * robot.
 */
import { create } from "@bufbuild/protobuf";
import {
  type DrivingOffering,
  DrivingOfferingSchema,
  type RobotConfig,
  type RobotFault,
  RobotFaultSchema,
  type UnfitOffering,
  UnfitOfferingSchema,
} from "../../gen/limber/v1/fleet_pb.ts";
import { type ActRequest, ActRequestSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { type InputContract, InputNeed } from "../../gen/limber/v1/input_contract_pb.ts";
import { type Frame, FrameSchema, type Observation, ObservationSchema } from "../../gen/limber/v1/observation_pb.ts";
import { DropReason } from "../../gen/limber/v1/plan_pb.ts";
import { ALIAS_PREFIX } from "../brand.ts";
import type { Call } from "../call.ts";
import { steadyNow } from "../clock.ts";
import * as act from "../contracts/act.ts";
import { Contract, DEFAULT_ACTION_SPACE, DEFAULT_HORIZON, dimensionOf } from "../contracts/contract.ts";
import { differenceOf, dimensionOfLayout, type GivenInput, meaningIn } from "../contracts/inputs.ts";
import { explain, type Offering } from "../routing/index.ts";
import type { LiveSupply } from "../supply/live-supply.ts";
import type { WireLayout } from "../upstream/wire.ts";
import { type InferenceDeps, planArgs } from "./call.ts";

/** Dependencies of the check. */
export type RobotCheckDeps = Pick<InferenceDeps, "supply" | "sessions">;

/** The result. */
interface RobotCheck {
  readonly considered: number;
  readonly canDrive: DrivingOffering[];
  readonly cannotDrive: UnfitOffering[];
}

/** Stands for all models. */
const ANY_MODEL = `${ALIAS_PREFIX}auto`;
/** Maximum number of faults reported for one offering. */
const MOST_FAULTS = 16;
/** Maximum length of a fault in characters: it contains the provider's text. */
const MOST_TOLD = 400;

/**
 * Returns every offering of a model, or of all models, that the caller's key can use: those that can drive the robot, and those that
 * cannot.
 */
export function checkRobot(
  deps: RobotCheckDeps,
  robot: RobotConfig,
  model: string | undefined,
  call: Call,
): RobotCheck {
  const { embodiment, actionSpace } = robot;
  const request = create(ActRequestSchema, {
    model: model ?? ANY_MODEL,
    actionSpace,
    ...(embodiment !== undefined && { embodiment }),
  });
  const args = planArgs(
    deps,
    { intent: act.intentOf(request), ownKeys: undefined, session: undefined },
    call,
    steadyNow(),
  );
  const { considered, plan, dropped } = explain(args);
  const { snapshot } = args;
  const faultsOf = (offeringId: string): RobotFault[] => {
    const offering = snapshot.offerings[snapshot.rowOf(offeringId)];
    return offering ? faultsAt(robot, offering) : [];
  };
  const canDrive: DrivingOffering[] = [];
  const cannotDrive: UnfitOffering[] = [];
  for (const { offeringId, model, provider, priceUnitUsd, expectedMs } of plan) {
    const faults = faultsOf(offeringId);
    if (faults.length > 0) cannotDrive.push(create(UnfitOfferingSchema, { offeringId, model, provider, faults }));
    else {
      const declared = snapshot.offerings[snapshot.rowOf(offeringId)]?.declared !== undefined;
      const rank = canDrive.length + 1;
      const facts = { rank, offeringId, model, provider, priceUnitUsd, declared };
      canDrive.push(create(DrivingOfferingSchema, { ...facts, ...(expectedMs && { expectedMs }) }));
    }
  }
  for (const { offeringId, model, provider, reason, detail } of dropped) {
    const field = FIELDS[reason];
    const faults = [...(field === undefined ? [] : [fault(field, detail)]), ...faultsOf(offeringId)];
    const more = field === undefined ? { reason, detail } : {};
    cannotDrive.push(create(UnfitOfferingSchema, { offeringId, model, provider, faults, ...more }));
  }
  cannotDrive.sort((a, b) => weight(a) - weight(b) || a.faults.length - b.faults.length);
  return { considered, canDrive, cannotDrive };
}

/** The fields of a robot that plan constraints use. */
const FIELDS: Readonly<Partial<Record<DropReason, string>>> = {
  [DropReason.EMBODIMENT]: "embodiment",
  [DropReason.ACTION_SPACE]: "action_space",
};

/** Faults of the robot alone come first. */
const weight = ({ reason }: UnfitOffering): number => (reason === undefined ? 0 : 1);

/** Lists the mismatches between a robot and an offering's declarations. */
function faultsAt(robot: RobotConfig, { declared, actionDim }: Offering): RobotFault[] {
  const { actionSpace, actions, bounds } = robot;
  const faults: RobotFault[] = [];
  const dim = dimensionOf(actionSpace, actionDim);
  const lengths = [bounds?.lowest.length ?? 0, bounds?.highest.length ?? 0];
  if (dim !== undefined && lengths.some((length) => length > 1 && length !== dim))
    faults.push(fault("bounds", `must have 1 or ${dim} numbers`));
  if (declared === undefined) return faults;
  const difference = differenceOf(actions, meaningIn(declared.actions, actionSpace));
  if (difference !== undefined) faults.push(fault("actions", `differ from the model's in ${difference}`));
  if (declared.input) {
    const given = givenBy(robot, declared.input);
    for (const { path, message } of declared.faults(given, pictureOf))
      faults.push(fault(fieldOf(path, robot), message));
  }
  return faults.slice(0, MOST_FAULTS);
}

/**
 * The observation that the robot would send to a model with this contract: images of its cameras and numbers of its state. The instruction,
 * the goal and earlier observations belong to the call, so the contract's requirements for these count as met.
 */
function givenBy({ cameras, proprio, actionSpace }: RobotConfig, contract: InputContract): GivenInput {
  const frames = cameras.map(({ name, width, height, format }) =>
    create(FrameSchema, {
      camera: name,
      ...(width !== undefined && { width }),
      ...(height !== undefined && { height }),
      ...(format !== undefined && { format }),
    }),
  );
  // If the robot declares no state, its state is taken to match.
  const dim = proprio
    ? (dimensionOfLayout(proprio) ?? wantedDim(contract, actionSpace))
    : wantedDim(contract, actionSpace);
  const seen: Observation = create(ObservationSchema, {
    frames,
    proprio: Array<number>(dim).fill(0),
    proprioNames: proprio?.names ?? [],
  });
  const isWanted = (need: InputNeed | undefined): boolean => need === InputNeed.REQUIRED;
  return {
    observations: Array<Observation>(contract.history?.least ?? 1).fill(seen),
    instruction: isWanted(contract.language?.need) ? "go" : "",
    goalImage: isWanted(contract.goalImage?.need) ? create(FrameSchema) : undefined,
    actionSpace,
  };
}

/** Values of a layout that the contract has for responses in an action space. */
function wantedDim({ proprio }: InputContract, actionSpace: string): number {
  const layout = proprio.find((each) => !each.actionSpace || each.actionSpace === actionSpace);
  return (layout && dimensionOfLayout(layout)) ?? 0;
}

/** A robot's images match its declaration; there are none to inspect. */
const pictureOf = (_: Frame): undefined => undefined;

/** The robot's field for a path in its observation, such as `cameras.1.width` for `observations.0.frames.1.width`. */
function fieldOf(path: string, { cameras }: RobotConfig): string {
  const [, place = "", side = ""] = path.match(/\.frames\.(\d+)(?:\.(\w+))?$/) ?? [];
  if (place !== "" && Number(place) < cameras.length)
    return `cameras.${place}${side === "" ? "" : `.${side === "camera" ? "name" : side}`}`;
  if (path.endsWith(".frames")) return "cameras";
  if (path.endsWith(".proprio_names")) return "proprio.names";
  return path.endsWith(".proprio") ? "proprio" : path;
}

const fault = (field: string, message: string): RobotFault =>
  create(RobotFaultSchema, { field, message: message.slice(0, MOST_TOLD) });

export type { StatePart } from "../upstream/wire.ts";

/** One live model. Its layout is empty if its wire maps nothing; any names match then. */
export interface Embodiment {
  /** Its first action space. */
  readonly actionSpace: string | undefined;
  /** Steps in a full chunk. */
  readonly chunk: number;
  readonly layout: WireLayout;
}

/** No mapping: the caller chooses the names. */
const FREE: WireLayout = { video: [], state: [], action: [], language: "" };

/** How a live model acts, by its first offering with a layout; undefined for an alias and if no live offering serves the model. */
export function embodimentOf(supply: LiveSupply, model: string): Embodiment | undefined {
  const slug = model.split(":")[0] ?? "";
  const { offerings } = supply.snapshot;
  const rows = supply.snapshot.rowsOfModel(slug) ?? new Uint32Array();
  const live = Array.from(rows, (row) => offerings[row]!).filter(
    ({ simulated, contracts }) => !simulated && contracts.includes(Contract.ACT),
  );
  const laidOut = live.map((offering) => ({ offering, layout: supply.layoutOf(offering.id) ?? FREE }));
  const chosen = laidOut.find(({ layout }) => layout !== FREE) ?? laidOut[0];
  if (!chosen) return undefined;
  const { actionSpaces, chunk, maxHorizon } = chosen.offering;
  return {
    actionSpace: actionSpaces[0],
    chunk: Math.min(chunk ?? DEFAULT_HORIZON, maxHorizon),
    layout: chosen.layout,
  };
}

type AskedSpace = Pick<ActRequest, "actionSpace" | "preset">;

/** The action space of the response; undefined if a preset may set it. */
export const spaceOwed = ({ actionSpace, preset }: AskedSpace): string | undefined =>
  actionSpace ?? (preset === undefined ? DEFAULT_ACTION_SPACE : undefined);

/** Numbers per action step; undefined if a preset may set the space, or if the space leaves them to each model. */
export function numbersOwed(asked: AskedSpace): number | undefined {
  const space = spaceOwed(asked);
  return space === undefined ? undefined : dimensionOf(space, undefined);
}
