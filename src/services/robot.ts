/** Emergency stops of robots. */
import { create } from "@bufbuild/protobuf";
import { RobotStopSchema, StopScope } from "../../gen/limber/v1/robot_pb.ts";
import {
  ListRobotStopsResponseSchema,
  ReleaseRobotsResponseSchema,
  type RobotService,
  type StopRobotsRequest,
  StopRobotsResponseSchema,
  UpdateRobotStopResponseSchema,
} from "../../gen/limber/v1/robot_service_pb.ts";
import { byCall, type Call, type Implementation } from "../call.ts";
import { inTime, now } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, Refusal, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import type { ActiveStops, StopOrder, StopOrders } from "../inference/stops.ts";
import { audit } from "../store/account/audit.ts";
import { findKey } from "../store/account/keys.ts";
import { findWorkspace } from "../store/account/members.ts";
import { findOrg } from "../store/account/orgs.ts";
import { type Sql, type Tx, tx } from "../store/database/tx.ts";
import * as store from "../store/robots.ts";
import { endArmingsUnder } from "../store/robots.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";
import { assertReachable, confinedTo } from "./reach.ts";

/** How long an active stop waits for the database before the response reports it as not yet durable. */
const PATIENCE_MS = 500;
/** The most active stops of robots, sessions and keys per organization. */
const MOST_STANDING = 10_000;

/** Dependencies of the robot RPCs. */
export interface RobotDeps {
  sql: Sql;
  stops: ActiveStops;
  orders: StopOrders;
}

/** The robot RPCs. */
export function robotService({ sql, stops, orders }: RobotDeps): Implementation<typeof RobotService> {
  const namedStop = async (id: string, call: Call): Promise<store.StopRecord> => {
    const found = await store.findStop(sql, id);
    // Stops of the organization, or of another workspace, stay active until a key with access to them releases them.
    if (!found || (confinedTo(call) ?? found.workspaceId) !== found.workspaceId) throw noSuchStop();
    await assertReachable(sql, found.orgId, call).catch(() => {
      throw noSuchStop();
    });
    return found;
  };

  /** The active stops of a subject that the call can access, newest first. */
  const under = async (target: StopTarget, named: string | undefined, call: Call): Promise<store.StopRecord[]> => {
    const orgId = await orgOf(sql, named, call);
    const own = confinedTo(call);
    const { scope, subject } = targetOf(target, orgId, own);
    const all = await store.standingStops(sql, orgId);
    const found = all.filter(
      (stop) => stop.scope === scope && stop.subject === subject && (own ?? stop.workspaceId) === stop.workspaceId,
    );
    if (found.length === 0) throw refuse(Reason.NOT_FOUND, `no active stop for this ${scope}`);
    return found.sort((a, b) => (a.id < b.id ? 1 : -1));
  };

  return {
    async stopRobots(request, call) {
      const orgId = namedOrg(request.orgId, call);
      const own = confinedTo(call);
      const { scope, subject } = targetOf(request.target, orgId, own);
      const stop = { orgId, workspaceId: own ?? null, scope, subject, reason: request.reason };
      const { order, written, replicas } = orders.place(stop, byCall(call));
      // A stop takes effect before any I/O: it must not wait for the database or a busy event loop.
      const kept = call.isUrgent
        ? undefined
        : await inTime(written, { ms: PATIENCE_MS, late: () => undefined }).catch((thrown: unknown) => {
            if (thrown instanceof Refusal) throw thrown;
            return undefined;
          });
      return create(StopRobotsResponseSchema, {
        stop: { ...messageOf(kept ?? order), durable: kept !== undefined, replicas: replicas() },
      });
    },

    async releaseRobots({ orgId: named, target }, call) {
      const found = target.case === "stopId" ? [await namedStop(target.value, call)] : await under(target, named, call);
      const { actor } = byCall(call);
      const released = await tx(sql, async (tx) => {
        const all: store.StopRecord[] = [];
        for (const { id, orgId, scope, subject } of found) {
          const stop = await store.releaseStop(tx, id, actor);
          const details = { scope, subject };
          if (stop) await audit(tx, { ...byCall(call), orgId, action: "robot.released", subject: id, details });
          all.push(stop ?? (await store.findStop(tx, id))!);
        }
        return all;
      });
      await stops.load();
      return create(ReleaseRobotsResponseSchema, { stop: messageOf(released[0]!) }); // the refusal above guarantees one
    },

    async updateRobotStop({ stopId, reason = "" }, call) {
      const before = await namedStop(stopId, call);
      const after = await tx(sql, async (tx) => {
        const stop = await store.setStopReason(tx, stopId, reason);
        const details = { reason, before: before.reason };
        const act = { action: "robot.stop_explained", subject: stopId, details };
        if (stop) await audit(tx, { ...byCall(call), orgId: stop.orgId, ...act });
        return stop;
      });
      // Callers that are refused by this replica see the stop immediately.
      if (after) await stops.load();
      return create(UpdateRobotStopResponseSchema, { stop: messageOf(after ?? before) });
    },

    async listRobotStops({ orgId: named, released = false, limit = DEFAULT_PAGE, cursor }, call) {
      const orgId = await orgOf(sql, named, call);
      const workspaceId = confinedTo(call);
      const { records, ...page } = await readPage(
        limit,
        (most) => store.listStops(sql, orgId, { workspaceId, limit: most, before: cursor, released }),
        ({ id }) => id,
      );
      return create(ListRobotStopsResponseSchema, { ...page, data: records.map(messageOf) });
    },
  };
}

const noSuchStop = () => refuse(Reason.NOT_FOUND, "stop not found");

async function orgOf(sql: Sql, named: string | undefined, call: Call): Promise<string> {
  const orgId = namedOrg(named, call);
  await assertReachable(sql, orgId, call);
  return orgId;
}

/** The organization that the request names. Only the database knows whether it exists. */
function namedOrg(named: string | undefined, { principal }: Call): string {
  const own = principal.kind === "key" ? principal.orgId : undefined;
  const orgId = named ?? own;
  if (orgId === undefined) throw violation("org_id", "is required for operator calls", "missing");
  if (own !== undefined && orgId !== own) throw noSuchOrg();
  return orgId;
}

const noSuchOrg = () => refuse(Reason.NOT_FOUND, "organization not found");

type StopTarget = StopRobotsRequest["target"];

/**
 * The subject that a stop covers. A stop of an unknown name applies to whatever gets that name later: a robot that is starting must be
 * stopped too. A workspace key (`own`) can stop keys of its workspace: named ones, those that move a robot or a session, or all.
 */
function targetOf(
  target: StopTarget,
  orgId: string,
  own: string | undefined,
): { scope: store.StopScope; subject: string } {
  switch (target.case) {
    case "robotId":
      return { scope: "robot", subject: target.value };
    case "sessionId":
      return { scope: "session", subject: target.value };
    case "keyId":
      return { scope: "key", subject: target.value };
    case "workspaceId":
      if ((own ?? target.value) !== target.value) throw noSuch("workspace");
      return { scope: "workspace", subject: target.value };
    default:
      return own === undefined ? { scope: "org", subject: orgId } : { scope: "workspace", subject: own };
  }
}

const noSuch = (what: "key" | "workspace") =>
  refuse(Reason.NOT_FOUND, `${what} not found`, {}, { param: `${what}_id` });

/**
 * Records a stop that is already active, with its event and audit entry. Refuses a stop of an organization, key or workspace that does not
 * exist. Callers choose the names of robots and sessions, so every name may belong to the organization.
 */
export function writeStop(sql: Sql, order: StopOrder): Promise<store.StopRecord> {
  const { orgId, workspaceId, scope, subject, reason, createdBy, requestId } = order;
  return tx(sql, async (tx) => {
    if (!(await findOrg(tx, orgId))) throw noSuchOrg();
    if (scope === "key") {
      const key = await findKey(tx, subject);
      if (key?.orgId !== orgId || (workspaceId !== null && key.workspaceId !== workspaceId)) throw noSuch("key");
    }
    if (scope === "workspace" && !(await findWorkspace(tx, orgId, subject, now()))) throw noSuch("workspace");
    const { stop, fresh } = await store.orderStop(tx, order);
    const ended = await endArmingsUnder(tx, stop);
    if (!fresh && ended.length === 0) return stop;
    // Every replica keeps active stops in memory. Stops of a workspace or organization do not count against the limit.
    if (
      fresh &&
      scope !== "workspace" &&
      scope !== "org" &&
      (await store.countStandingStops(tx, orgId)) > MOST_STANDING
    )
      throw refuse(
        Reason.TOO_MANY,
        `this organization already has ${MOST_STANDING} active emergency stops; release some, or stop the workspace or organization instead`,
      );
    const disarmed = async (): Promise<void> => {
      for (const { id, robotId } of ended) {
        const act = { action: "robot.disarmed", subject: id, details: { robot_id: robotId, why: "stopped" } };
        await audit(tx, { ...act, actor: createdBy, requestId, orgId });
      }
    };
    if (!fresh) {
      await disarmed();
      return stop;
    }
    await store.notifyStop(tx, stop);
    const value = { stopId: stop.id, scope: SCOPES[scope], subject };
    await emit(tx, orgId, { case: "robotStopped", value }, await workspaceOf(tx, stop));
    const details = { scope, subject, reason };
    await audit(tx, { actor: createdBy, requestId, orgId, action: "robot.stopped", subject: stop.id, details });
    await disarmed();
    return stop;
  });
}

/** The workspace that a stop belongs to: the named one, that of a named key, or for robots and sessions that of the calling key. */
async function workspaceOf(
  tx: Tx,
  { orgId, workspaceId, scope, subject }: store.StopRecord,
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
      return workspaceId ?? undefined;
  }
}

const SCOPES: Readonly<Record<store.StopScope, StopScope>> = {
  robot: StopScope.ROBOT,
  session: StopScope.SESSION,
  key: StopScope.KEY,
  workspace: StopScope.WORKSPACE,
  org: StopScope.ORG,
};

const messageOf = ({
  id,
  orgId,
  subject,
  reason,
  created,
  createdBy,
  scope,
  released,
  releasedBy,
  workspaceId,
}: store.StopRecord) =>
  create(RobotStopSchema, {
    ...{ id, orgId, subject, reason, created, createdBy },
    object: "robot_stop",
    scope: SCOPES[scope],
    ...(released !== null && { released }),
    ...(releasedBy !== null && { releasedBy }),
    ...(workspaceId !== null && { workspaceId }),
    durable: true,
  });
