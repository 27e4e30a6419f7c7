/** Robots: the emergency stop. */
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

/** How long a stop that is in force waits for the database before it is answered as not written yet. */
const PATIENCE_MS = 500;
/** Stops of robots, sessions and keys that may stand in an organization at once. */
const MOST_STANDING = 10_000;

/** What the robot RPCs depends on. */
export interface RobotDeps {
  sql: Sql;
  stops: ActiveStops;
  orders: StopOrders;
}

/** The robot RPCs. */
export function robotService({ sql, stops, orders }: RobotDeps): Implementation<typeof RobotService> {
  const namedStop = async (id: string, call: Call): Promise<store.StopRecord> => {
    const found = await store.findStop(sql, id);
    // What was ordered for the organization, or in another workspace, stands until a key that reaches it releases it.
    if (!found || (confinedTo(call) ?? found.workspaceId) !== found.workspaceId) throw noSuchStop();
    await assertReachable(sql, found.orgId, call).catch(() => {
      throw noSuchStop();
    });
    return found;
  };

  /** The stops that stand under a name, as far as the call reaches them, the newest first. */
  const under = async (target: StopTarget, named: string | undefined, call: Call): Promise<store.StopRecord[]> => {
    const orgId = await orgOf(sql, named, call);
    const own = confinedTo(call);
    const { scope, subject } = targetOf(target, orgId, own);
    const all = await store.standingStops(sql, orgId);
    const found = all.filter(
      (stop) => stop.scope === scope && stop.subject === subject && (own ?? stop.workspaceId) === stop.workspaceId,
    );
    if (found.length === 0) throw refuse(Reason.NOT_FOUND, `no stop stands for this ${scope}`);
    return found.sort((a, b) => (a.id < b.id ? 1 : -1));
  };

  return {
    async stopRobots(request, call) {
      const orgId = namedOrg(request.orgId, call);
      const own = confinedTo(call);
      const { scope, subject } = targetOf(request.target, orgId, own);
      const stop = { orgId, workspaceId: own ?? null, scope, subject, reason: request.reason };
      const { order, written, replicas } = orders.place(stop, byCall(call));
      // A stop does not wait for the database, and not for a moment where the event loop is late.
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
      return create(ReleaseRobotsResponseSchema, { stop: messageOf(released[0]!) }); // there is one, or it was refused
    },

    async updateRobotStop({ stopId, reason = "" }, call) {
      const before = await namedStop(stopId, call);
      const after = await tx(sql, async (tx) => {
        const stop = await store.sayReason(tx, stopId, reason);
        const details = { reason, before: before.reason };
        const act = { action: "robot.stop_explained", subject: stopId, details };
        if (stop) await audit(tx, { ...byCall(call), orgId: stop.orgId, ...act });
        return stop;
      });
      // A caller that is refused at this replica reads it at once.
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

/** The organization that a call is about, by what the call itself says: whether there is one, only the database knows. */
function namedOrg(named: string | undefined, { principal }: Call): string {
  const own = principal.kind === "key" ? principal.orgId : undefined;
  const orgId = named ?? own;
  if (orgId === undefined) throw violation("org_id", "is required from the operator", "missing");
  if (own !== undefined && orgId !== own) throw noSuchOrg();
  return orgId;
}

const noSuchOrg = () => refuse(Reason.NOT_FOUND, "organization not found");

type StopTarget = StopRobotsRequest["target"];

/**
 * What a stop covers. A name that nothing bears stops nothing now, and whatever bears it later: a robot that starts up must be stopped
 * too. A key of a workspace (`own`) stops keys of that workspace: those that it names, those that move a robot or a session, or all of
 * them.
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
 * Writes a stop that is in force already, with its event and its record. Refuses one of an organization, a key or a workspace that is not
 * there: it would stop nothing. Robots and sessions have names that callers give, so that any may be the organization's own.
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
    // Every replica keeps what stands in memory. A stop of a workspace or of the organization is never one too many.
    if (
      fresh &&
      scope !== "workspace" &&
      scope !== "org" &&
      (await store.countStandingStops(tx, orgId)) > MOST_STANDING
    )
      throw refuse(
        Reason.TOO_MANY,
        `${MOST_STANDING} emergency stops stand in this organization: stop the workspace or the organization instead, or release some`,
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
    await store.tellStop(tx, stop);
    const value = { stopId: stop.id, scope: SCOPES[scope], subject };
    await emit(tx, orgId, { case: "robotStopped", value }, await workspaceOf(tx, stop));
    const details = { scope, subject, reason };
    await audit(tx, { actor: createdBy, requestId, orgId, action: "robot.stopped", subject: stop.id, details });
    await disarmed();
    return stop;
  });
}

/** A stop belongs to the workspace that it names, or whose key it names; of a robot or a session, to that of the key that orders it. */
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
