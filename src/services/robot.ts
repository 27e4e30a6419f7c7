/** Robots: the emergency stop. */
import { create } from "@bufbuild/protobuf";
import { RobotStopSchema, StopScope } from "../../gen/limber/v1/robot_pb.ts";
import {
  ListRobotStopsResponseSchema,
  ReleaseRobotsResponseSchema,
  type RobotService,
  type StopRobotsRequest,
  StopRobotsResponseSchema,
} from "../../gen/limber/v1/robot_service_pb.ts";
import { now } from "../ambient.ts";
import { violation } from "../contracts/conflicts.ts";
import { Reason, refuse } from "../refusal.ts";
import { audit } from "../store/account/audit.ts";
import { findKey } from "../store/account/keys.ts";
import { findWorkspace } from "../store/account/workspaces.ts";
import { type Sql, type Tx, tx } from "../store/database/tx.ts";
import * as store from "../store/replicas/robot-stops.ts";
import { assertReachable } from "./account/reach.ts";
import { byCall, type Call, type Implementation } from "./call.ts";
import { emit } from "./emit.ts";
import type { StopBook } from "./robot/stop-book.ts";

const DEFAULT_PAGE = 50;

/** The robot RPCs. */
export function robotService({ sql, stops }: { sql: Sql; stops: StopBook }): Implementation<typeof RobotService> {
  return {
    async stopRobots(request, call) {
      const orgId = await orgOf(sql, request.orgId, call);
      const { scope, subject } = targetOf(request.target, orgId);
      const { actor } = byCall(call);
      const stop = await tx(sql, async (tx) => {
        const { stop, fresh } = await store.orderStop(tx, { orgId, scope, subject, reason: request.reason, by: actor });
        if (!fresh) return stop;
        await store.tellStop(tx, stop);
        const value = { stopId: stop.id, scope: SCOPES[scope], subject };
        await emit(tx, orgId, { case: "robotStopped", value }, await workspaceOf(tx, stop, call));
        const details = { scope, subject, reason: request.reason };
        await audit(tx, { ...byCall(call), orgId, action: "robot.stopped", subject: stop.id, details });
        return stop;
      });
      stops.add(stop);
      await stops.load();
      return create(StopRobotsResponseSchema, { stop: messageOf(stop) });
    },

    async releaseRobots({ stopId }, call) {
      const found = await store.findStop(sql, stopId);
      if (!found) throw noSuchStop();
      await assertReachable(sql, found.orgId, call).catch(() => {
        throw noSuchStop();
      });
      const { actor } = byCall(call);
      const released = await tx(sql, async (tx) => {
        const stop = await store.releaseStop(tx, stopId, actor);
        const details = { scope: found.scope, subject: found.subject };
        if (stop)
          await audit(tx, { ...byCall(call), orgId: found.orgId, action: "robot.released", subject: stopId, details });
        return stop ?? (await store.findStop(tx, stopId))!;
      });
      await stops.load();
      return create(ReleaseRobotsResponseSchema, { stop: messageOf(released) });
    },

    async listRobotStops({ orgId: named, released = false, limit = DEFAULT_PAGE, cursor }, call) {
      const orgId = await orgOf(sql, named, call);
      const { stops, hasMore } = await store.listStops(sql, orgId, { limit, before: cursor, released });
      const last = stops.at(-1);
      return create(ListRobotStopsResponseSchema, {
        object: "list",
        data: stops.map(messageOf),
        hasMore,
        ...(hasMore && last && { nextCursor: last.id }),
      });
    },
  };
}

const noSuchStop = () => refuse(Reason.NOT_FOUND, "there is no stop of this name");

async function orgOf(sql: Sql, named: string | undefined, call: Call): Promise<string> {
  const orgId = named ?? (call.principal.kind === "key" ? call.principal.orgId : undefined);
  if (orgId === undefined) throw violation("org_id", "is required from the operator", "missing");
  await assertReachable(sql, orgId, call);
  return orgId;
}

type Target = StopRobotsRequest["target"];

/** A name that nothing bears stops nothing now, and whatever bears it later: a robot that starts up must be stopped too. */
function targetOf(target: Target, orgId: string): { scope: store.StopScope; subject: string } {
  switch (target.case) {
    case "robotId":
      return { scope: "robot", subject: target.value };
    case "sessionId":
      return { scope: "session", subject: target.value };
    case "keyId":
      return { scope: "key", subject: target.value };
    case "workspaceId":
      return { scope: "workspace", subject: target.value };
    default:
      return { scope: "org", subject: orgId };
  }
}

/** A stop belongs to the workspace that it names, or whose key it names; of a robot or a session, to that of the key that orders it. */
async function workspaceOf(
  tx: Tx,
  { orgId, scope, subject }: store.StopRecord,
  { principal }: Call,
): Promise<string | undefined> {
  switch (scope) {
    case "org":
      return undefined;
    case "workspace":
      return (await findWorkspace(tx, orgId, subject, now()))?.id;
    case "key": {
      const key = await findKey(tx, subject);
      return key?.orgId === orgId ? key.workspaceId : undefined;
    }
    default:
      return principal.kind === "key" ? principal.workspaceId : undefined;
  }
}

const SCOPES: Readonly<Record<store.StopScope, StopScope>> = {
  robot: StopScope.ROBOT,
  session: StopScope.SESSION,
  key: StopScope.KEY,
  workspace: StopScope.WORKSPACE,
  org: StopScope.ORG,
};

const messageOf = ({ scope, released, releasedBy, ...stop }: store.StopRecord) =>
  create(RobotStopSchema, {
    ...stop,
    object: "robot_stop",
    scope: SCOPES[scope],
    ...(released !== null && { released }),
    ...(releasedBy !== null && { releasedBy }),
  });
