/** Robots that agents move: armed by people, run by an agent for a limited time. */
import { create, equals, toJson } from "@bufbuild/protobuf";
import { SafetyBoundsSchema } from "../../gen/limber/v1/action_pb.ts";
import {
  type ArmingService,
  ArmRobotResponseSchema,
  CancelRunResponseSchema,
  DisarmRobotResponseSchema,
  GetRunResponseSchema,
  ListArmingsResponseSchema,
  RunPolicyResponseSchema,
} from "../../gen/limber/v1/arming_service_pb.ts";
import { byCall, type Call, type Implementation, type KeyPrincipal, keyOf } from "../call.ts";
import { now, steadyNow } from "../clock.ts";
import { assertBounds } from "../contracts/act.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { type AttendedRobots, armingMessage, assertOperator, boundsOf, runMessage } from "../inference/armed.ts";
import type { ActiveStops } from "../inference/stops.ts";
import { audit } from "../store/account/audit.ts";
import { findKey } from "../store/account/keys.ts";
import { findClient } from "../store/account/sessions.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import * as store from "../store/robots.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";
import { callersReach } from "./permissions.ts";
import { confinedTo, isNear } from "./reach.ts";

/** A robot that attends begins within so many milliseconds. */
const BEGIN_MS = 5_000;
/** How often a run is looked at where no notification comes. */
const LOOK_MS = 500;
const DEFAULT_WAIT_S = 30;

/** What arming depends on. */
export interface ArmingDeps {
  sql: Sql;
  stops: ActiveStops;
  robots: AttendedRobots;
}

/** The RPCs of armings and runs. */
export function armingService({ sql, stops, robots }: ArmingDeps): Implementation<typeof ArmingService> {
  /** A run that the caller reaches: its own, or any of its workspace's where it may stop robots. */
  const reached = async (id: string, call: Call): Promise<store.RunRecord> => {
    const key = keyOf(call);
    const run = await store.findRun(sql, id);
    if (run?.orgId !== key.orgId) throw noSuch("run");
    if (run.keyId === key.keyId) return run;
    const arming = await store.findArming(sql, run.armingId);
    if (callersReach(key, "robots.arm") === undefined || !isNear(call, arming?.workspaceId)) throw noSuch("run");
    return run;
  };

  /** The run once it has ended, or as it is when the time is over. The caller that leaves ends it. */
  const awaited = async (run: store.RunRecord, waitMs: number, call: Call): Promise<store.RunRecord> => {
    const began = steadyNow();
    let seen = run;
    for (;;) {
      const waitedMs = steadyNow() - began;
      if (seen.ended !== undefined) return seen;
      if (seen.started !== undefined && waitedMs >= waitMs) return seen;
      if (seen.started === undefined && waitedMs >= BEGIN_MS) {
        seen = (await store.endRun(sql, run.id, "robot_absent", { unstarted: true })) ?? seen;
        if (seen.why === "robot_absent")
          throw refuse(Reason.ROBOT_ABSENT, `${run.robotId} does not attend: it has to be connected by AttendRobot`);
        continue;
      }
      if (call.signal.aborted) {
        await store.endRun(sql, run.id, "caller_left");
        call.signal.throwIfAborted();
      }
      await Promise.race([robots.changed(LOOK_MS), aborted(call)]);
      seen = (await store.findRun(sql, run.id)) ?? seen;
    }
  };

  return {
    async armRobot({ robotId, agent, models, bounds, maxSeconds, expiresIn }, call) {
      const key = keyOf(call);
      // An application that could arm robots would need nobody.
      if (key.permissions !== undefined)
        throw refuse(Reason.PERMISSION_DENIED, "a key that an application got by consent cannot arm robots");
      if (key.robotId !== undefined && key.robotId !== robotId)
        throw refuse(Reason.SCOPE_DENIED, "this key is for another robot", { needed: [robotId] });
      if (key.scopes.length > 0 && !key.scopes.includes("act"))
        throw refuse(Reason.SCOPE_DENIED, "this call needs a key with the scope act", { needed: ["act"] });
      for (const [at, model] of models.entries())
        if (!mayUse(key, model))
          throw refuse(Reason.MODEL_NOT_IN_SCOPE, `this key may not use ${model}`, {}, { param: `models.${at}` });
      assertBounds(bounds, undefined, "bounds");
      if (bounds && key.bounds && !equals(SafetyBoundsSchema, bounds, key.bounds))
        throw violation("bounds", "cannot be stated by a key that has its own: it arms with those", "value_error");
      const held = bounds ?? key.bounds;
      const { agentKey, clientId } = await agentOf(sql, agent, call);
      const createdMs = now();
      const arming = await tx(sql, async (tx) => {
        const made = await store.addArming(tx, {
          orgId: key.orgId,
          workspaceId: key.workspaceId,
          ...{ robotId, models, maxSeconds, clientId, createdMs },
          keyId: agentKey?.id,
          agentWorkspaceId: agentKey?.workspaceId,
          bounds: held && (toJson(SafetyBoundsSchema, held) as object),
          createdBy: key.keyId,
          sessionId: key.session?.id,
          endsMs: createdMs + expiresIn * 1000,
        });
        const who = agentKey === undefined ? { client_id: clientId } : { key_id: agentKey.id };
        const details = { robot_id: robotId, ...who, models, max_seconds: maxSeconds, ends: made.ends };
        await audit(tx, { ...byCall(call), orgId: key.orgId, action: "robot.armed", subject: made.id, details });
        return made;
      });
      return create(ArmRobotResponseSchema, { arming: armingMessage(arming) });
    },

    async disarmRobot({ armingId }, call) {
      const { orgId, keyId } = keyOf(call);
      const found = await store.findArming(sql, armingId);
      const isOwn = found?.createdBy === keyId || found?.keyId === keyId;
      if (found?.orgId !== orgId || !(isOwn || isNear(call, found.workspaceId))) throw noSuch("arming");
      const ended = await tx(sql, async (tx) => {
        const ended = await store.endArming(tx, armingId, "disarmed");
        if (!ended) return undefined;
        const details = { robot_id: found.robotId, why: "disarmed" };
        await audit(tx, { ...byCall(call), orgId, action: "robot.disarmed", subject: armingId, details });
        return ended;
      });
      const arming = ended ?? (await store.findArming(sql, armingId)) ?? found;
      return create(DisarmRobotResponseSchema, { arming: armingMessage(arming) });
    },

    async listArmings({ ended = false, limit = DEFAULT_PAGE, cursor }, call) {
      const key = keyOf(call);
      const mayArm = callersReach(key, "robots.arm") !== undefined;
      const which = { workspaceId: mayArm ? confinedTo(call) : undefined, forKey: mayArm ? undefined : key.keyId };
      const { records, ...page } = await readPage(
        limit,
        (most) => store.listArmings(sql, key.orgId, { ...which, limit: most, before: cursor, ended }),
        ({ id }) => id,
      );
      return create(ListArmingsResponseSchema, { ...page, data: records.map(armingMessage) });
    },

    async runPolicy({ robotId, model, instruction, maxSeconds, waitS = DEFAULT_WAIT_S }, call) {
      const key = keyOf(call);
      if (key.robotId !== undefined && key.robotId !== robotId)
        throw refuse(Reason.SCOPE_DENIED, "this key is for another robot", { needed: [robotId] });
      const armings = await store.standingArmings(sql, { orgId: key.orgId, robotId, keyId: key.keyId });
      const arming = armings.find((each) => each.models.includes(model) && maxSeconds <= each.maxSeconds);
      if (arming === undefined) throw notArmed(robotId, armings, model);
      stops.assertMayMove({ key, sessionId: undefined, robotIds: [robotId] });
      await assertOperator(sql, robots.opener, arming);
      await assertSameBounds(sql, arming);
      const run = await tx(sql, async (tx) => {
        const run = await store.askRun(tx, { arming, keyId: key.keyId, model, instruction, maxSeconds });
        if (run === undefined) throw refuse(Reason.ROBOT_BUSY, `another run moves ${robotId}`);
        const details = { robot_id: robotId, arming_id: arming.id, model, max_seconds: maxSeconds };
        await audit(tx, { ...byCall(call), orgId: key.orgId, action: "robot.run", subject: run.id, details });
        return run;
      });
      return create(RunPolicyResponseSchema, { run: runMessage(await awaited(run, waitS * 1000, call)) });
    },

    async getRun({ runId }, call) {
      return create(GetRunResponseSchema, { run: runMessage(await reached(runId, call)) });
    },

    async cancelRun({ runId }, call) {
      const run = await reached(runId, call);
      if (run.ended !== undefined) return create(CancelRunResponseSchema, { run: runMessage(run) });
      const ended = await tx(sql, async (tx) => {
        const ended = await store.endRun(tx, runId, "cancelled");
        const act = { action: "robot.run_cancelled", subject: runId, details: { robot_id: run.robotId } };
        await audit(tx, { ...byCall(call), orgId: run.orgId, ...act });
        return ended;
      });
      return create(CancelRunResponseSchema, { run: runMessage(ended ?? run) });
    },

    attendRobot: (speaker, call) => robots.attend(speaker, call),
  };
}

const noSuch = (what: "arming" | "run" | "key" | "client"): Refusal =>
  refuse(Reason.NOT_FOUND, `there is no ${what} of this name`);

/** Whether a key may use a model. */
const mayUse = ({ models }: KeyPrincipal, model: string): boolean =>
  models.length === 0 || models.some((glob) => glob === model || glob === `${model.split("/")[0]}/*`);

/** The agent that a robot is armed for: a key or an application of the caller's reach, and never the caller's own. */
async function agentOf(
  sql: Sql,
  agent: Parameters<Implementation<typeof ArmingService>["armRobot"]>[0]["agent"],
  call: Call,
) {
  const { orgId, keyId } = keyOf(call);
  if (agent.case === "clientId") {
    const client = await findClient(sql, agent.value, orgId);
    if (!client) throw noSuch("client");
    return { agentKey: undefined, clientId: client.id };
  }
  const key = await findKey(sql, agent.value ?? "");
  if (key?.orgId !== orgId || key.revoked || !isNear(call, key.workspaceId)) throw noSuch("key");
  if (key.id === keyId)
    throw violation("key_id", "is the calling key: a robot is armed for another one", "value_error");
  return { agentKey: key, clientId: undefined };
}

/** Why a robot may not be moved: it says what is armed, and nothing of what is armed for others. */
function notArmed(robotId: string, armings: readonly store.ArmingRecord[], model: string): Refusal {
  if (armings.length === 0) return refuse(Reason.ROBOT_NOT_ARMED, `nobody has armed ${robotId} for this key`);
  const forModel = armings.filter(({ models }) => models.includes(model));
  const needed = (forModel.length > 0 ? forModel : armings).flatMap(({ models, maxSeconds }) =>
    forModel.length > 0 ? [`max_seconds of ${maxSeconds} at most`] : models,
  );
  return refuse(
    Reason.ROBOT_NOT_ARMED,
    forModel.length > 0 ? `${robotId} is not armed for so long` : `${robotId} is not armed for ${model}`,
    { needed: [...new Set(needed)] },
  );
}

/** Refuses where who armed the robot has other bounds by now than it was armed with. */
async function assertSameBounds(sql: Sql, { createdBy, bounds }: store.ArmingRecord): Promise<void> {
  const own = (await findKey(sql, createdBy))?.bounds;
  if (own === undefined) return;
  if (bounds === undefined || !equals(SafetyBoundsSchema, boundsOf(own), boundsOf(bounds)))
    throw refuse(Reason.ROBOT_NOT_ARMED, "who armed this robot has other bounds by now; it has to be armed again");
}

const aborted = ({ signal }: Call): Promise<void> =>
  new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
