/** The robots that an organization registered, and the models that can drive them. */
import { create, fromJson, toJson } from "@bufbuild/protobuf";
import { type Robot, type RobotConfig, RobotConfigSchema, RobotSchema } from "../../gen/limber/v1/fleet_pb.ts";
import type { FleetService } from "../../gen/limber/v1/fleet_service_pb.ts";
import { byCall, type Call, type Implementation, keyOf } from "../call.ts";
import { now } from "../clock.ts";
import { assertBounds } from "../contracts/act.ts";
import { dimensionOf, knownActionSpace, violation } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import { checkRobot, type RobotCheckDeps } from "../inference/robot-check.ts";
import { audit } from "../store/account/audit.ts";
import { findWorkspace } from "../store/account/members.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { deleteRobot, findRobot, listRobots, putRobot, type RobotName, type RobotRecord } from "../store/robots.ts";
import { cursorOfName, DEFAULT_PAGE, nameOfCursor, readPage } from "./pages.ts";
import { workspaceFor } from "./reach.ts";

/** Dependencies of the robot RPCs. */
export interface FleetDeps {
  sql: Sql;
  inference: RobotCheckDeps;
}

const DEFAULT_CHECKED = 100;

/** The RPCs of registered robots. */
export function fleetService({ sql, inference }: FleetDeps): Implementation<typeof FleetService> {
  const robotOf = async (name: RobotName): Promise<RobotRecord> => {
    const robot = await findRobot(sql, name);
    if (!robot) throw unknown();
    return robot;
  };

  return {
    async putRobot({ robotId: id, workspaceId, config: given }, call) {
      const name = nameOf(id, workspaceId, call);
      const config = toJson(RobotConfigSchema, soundConfig(given!)) as object; // the schema requires it, and a message is an object
      if (name.workspaceId !== undefined && !(await findWorkspace(sql, name.orgId, name.workspaceId, now())))
        throw refuse(Reason.NOT_FOUND, "workspace not found", {}, { param: "workspace_id" });
      const saved = await tx(sql, async (tx) => {
        const { robot, changed } = await putRobot(tx, name, config);
        const { orgId } = name;
        if (changed) await audit(tx, { ...byCall(call), orgId, action: "robot.saved", subject: id });
        return robot;
      });
      return { robot: messageOf(name.orgId, saved) };
    },

    async getRobot({ robotId, workspaceId }, call) {
      const name = nameOf(robotId, workspaceId, call);
      return { robot: messageOf(name.orgId, await robotOf(name)) };
    },

    async listRobots({ workspaceId: asked, limit = DEFAULT_PAGE, cursor }, call) {
      const { orgId } = keyOf(call);
      const workspaceId = workspaceFor(call, asked, "robots");
      const [id = "", workspace = ""] = nameOfCursor(cursor).split("\n");
      const { records, ...page } = await readPage(
        limit,
        (most) => listRobots(sql, orgId, { workspaceId, after: [id, workspace], limit: most }),
        // Robot names contain no control characters.
        (last) => cursorOfName(`${last.id}\n${last.workspaceId ?? ""}`),
      );
      return { ...page, data: records.map((robot) => messageOf(orgId, robot)) };
    },

    async deleteRobot({ robotId, workspaceId }, call) {
      const name = nameOf(robotId, workspaceId, call);
      const isGone = await tx(sql, async (tx) => {
        const isGone = await deleteRobot(tx, name);
        const { orgId } = name;
        if (isGone) await audit(tx, { ...byCall(call), orgId, action: "robot.deleted", subject: robotId });
        return isGone;
      });
      if (!isGone) throw unknown();
      return { object: "robot", id: robotId, deleted: true };
    },

    async checkRobot({ robotId, workspaceId, model, limit = DEFAULT_CHECKED }, call) {
      const robot = await robotOf(nameOf(robotId, workspaceId, call));
      const { considered, canDrive, cannotDrive } = checkRobot(inference, configOf(robot), model, call);
      return {
        object: "robot_check",
        robotId,
        considered,
        fit: canDrive.length,
        canDrive: canDrive.slice(0, limit),
        cannotDrive: cannotDrive.slice(0, limit),
      };
    },
  };
}

const unknown = () => refuse(Reason.NOT_FOUND, "robot not found", {}, { param: "robot_id" });

const nameOf = (id: string, workspaceId: string | undefined, call: Call): RobotName => ({
  orgId: keyOf(call).orgId,
  workspaceId: workspaceFor(call, workspaceId, "robots"),
  id,
});

/** Validates a configuration for contradictions. */
function soundConfig(config: RobotConfig): RobotConfig {
  const { actionSpace, cameras, bounds, proprio } = config;
  knownActionSpace(actionSpace);
  assertBounds(bounds, dimensionOf(actionSpace, undefined), "bounds");
  cameras.forEach(({ name }, place) => {
    if (cameras.findIndex((each) => each.name === name) < place)
      throw violation(`cameras.${place}.name`, "must be unique; another camera has this name", "value_error");
  });
  if (proprio?.dimension !== undefined && proprio.names.length > 0 && proprio.names.length !== proprio.dimension)
    throw violation("proprio.dimension", `must equal the number of names, ${proprio.names.length}`, "value_error");
  return config;
}

/** Decodes a stored configuration, ignoring fields of newer versions. */
const configOf = ({ config }: RobotRecord): RobotConfig =>
  fromJson(RobotConfigSchema, config as Parameters<typeof fromJson>[1], { ignoreUnknownFields: true }); // only toJson wrote it

const messageOf = (orgId: string, robot: RobotRecord): Robot =>
  create(RobotSchema, {
    id: robot.id,
    object: "robot",
    orgId,
    config: configOf(robot),
    keyIds: robot.keyIds,
    created: robot.created,
    updated: robot.updated,
    ...(robot.workspaceId !== undefined && { workspaceId: robot.workspaceId }),
  });
