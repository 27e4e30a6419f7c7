/** Armed robots: users arm them, and an agent runs them for a limited time. */
import { equals, toJson } from "@bufbuild/protobuf";
import { SafetyBoundsSchema } from "../../gen/limber/v1/action_pb.ts";
import type { ArmingService } from "../../gen/limber/v1/arming_service_pb.ts";
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

/** How long an attending robot may take to start a run, in milliseconds. */
const BEGIN_MS = 5_000;
/** How often to poll a run if no notification arrives. */
const LOOK_MS = 500;
const DEFAULT_WAIT_S = 30;

/** Dependencies of arming. */
export interface ArmingDeps {
  sql: Sql;
  stops: ActiveStops;
  robots: AttendedRobots;
}

/** The RPCs for armings and runs. */
export function armingService({ sql, stops, robots }: ArmingDeps): Implementation<typeof ArmingService> {
  /** Returns a run that the caller can access: its own, or any in its workspace if it may stop robots. */
  const reached = async (id: string, call: Call): Promise<store.RunRecord> => {
    const key = keyOf(call);
    const run = await store.findRun(sql, id);
    if (run?.orgId !== key.orgId) throw noSuch("run");
    if (run.keyId === key.keyId) return run;
    const arming = await store.findArming(sql, run.armingId);
    if (callersReach(key, "robots.arm") === undefined || !isNear(call, arming?.workspaceId)) throw noSuch("run");
    return run;
  };

  /** Returns the run once it has ended, or its state at the timeout. Ends the run if the caller disconnects. */
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
          throw refuse(Reason.ROBOT_ABSENT, `${run.robotId} is not connected; it must call AttendRobot first`);
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
      // An application that could arm robots could move them without a user's consent.
      if (key.permissions !== undefined) throw refuse(Reason.PERMISSION_DENIED, "application keys cannot arm robots");
      if (key.robotId !== undefined && key.robotId !== robotId)
        throw refuse(Reason.SCOPE_DENIED, "this key is for another robot", { needed: [robotId] });
      if (key.scopes.length > 0 && !key.scopes.includes("act"))
        throw refuse(Reason.SCOPE_DENIED, "this call needs a key with the scope act", { needed: ["act"] });
      for (const [at, model] of models.entries())
        if (!mayUse(key, model))
          throw refuse(Reason.MODEL_NOT_IN_SCOPE, `this key cannot use ${model}`, {}, { param: `models.${at}` });
      assertBounds(bounds, undefined, "bounds");
      if (bounds && key.bounds && !equals(SafetyBoundsSchema, bounds, key.bounds))
        throw violation(
          "bounds",
          "must not be set by a key that has safety bounds; the key's own bounds apply",
          "value_error",
        );
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
      return { arming: armingMessage(arming) };
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
      return { arming: armingMessage(arming) };
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
      return { ...page, data: records.map(armingMessage) };
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
        const run = await store.requestRun(tx, { arming, keyId: key.keyId, model, instruction, maxSeconds });
        if (run === undefined) throw refuse(Reason.ROBOT_BUSY, `${robotId} is busy with another run`);
        const details = { robot_id: robotId, arming_id: arming.id, model, max_seconds: maxSeconds };
        await audit(tx, { ...byCall(call), orgId: key.orgId, action: "robot.run", subject: run.id, details });
        return run;
      });
      return { run: runMessage(await awaited(run, waitS * 1000, call)) };
    },

    async getRun({ runId }, call) {
      return { run: runMessage(await reached(runId, call)) };
    },

    async cancelRun({ runId }, call) {
      const run = await reached(runId, call);
      if (run.ended !== undefined) return { run: runMessage(run) };
      const ended = await tx(sql, async (tx) => {
        const ended = await store.endRun(tx, runId, "cancelled");
        const act = { action: "robot.run_cancelled", subject: runId, details: { robot_id: run.robotId } };
        await audit(tx, { ...byCall(call), orgId: run.orgId, ...act });
        return ended;
      });
      return { run: runMessage(ended ?? run) };
    },

    attendRobot: (speaker, call) => robots.attend(speaker, call),
  };
}

const noSuch = (what: "arming" | "run" | "key" | "client"): Refusal => refuse(Reason.NOT_FOUND, `${what} not found`);

/** Whether a key may use a model. */
const mayUse = ({ models }: KeyPrincipal, model: string): boolean =>
  models.length === 0 || models.some((glob) => glob === model || glob === `${model.split("/")[0]}/*`);

/** The agent that a robot is armed for: a key or application that the caller can access, and never the calling key itself. */
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
    throw violation("key_id", "must not be the calling key; a robot is armed for another key", "value_error");
  return { agentKey: key, clientId: undefined };
}

/** Why a robot cannot be moved. Lists the caller's armings only, none of other keys. */
function notArmed(robotId: string, armings: readonly store.ArmingRecord[], model: string): Refusal {
  if (armings.length === 0) return refuse(Reason.ROBOT_NOT_ARMED, `${robotId} is not armed for this key`);
  const forModel = armings.filter(({ models }) => models.includes(model));
  const needed = (forModel.length > 0 ? forModel : armings).flatMap(({ models, maxSeconds }) =>
    forModel.length > 0 ? [`max_seconds of ${maxSeconds} at most`] : models,
  );
  return refuse(
    Reason.ROBOT_NOT_ARMED,
    forModel.length > 0 ? `${robotId} is not armed for that long` : `${robotId} is not armed for ${model}`,
    { needed: [...new Set(needed)] },
  );
}

/** Refuses if the bounds of the arming key changed since it armed the robot. */
async function assertSameBounds(sql: Sql, { createdBy, bounds }: store.ArmingRecord): Promise<void> {
  const own = (await findKey(sql, createdBy))?.bounds;
  if (own === undefined) return;
  if (bounds === undefined || !equals(SafetyBoundsSchema, boundsOf(own), boundsOf(bounds)))
    throw refuse(
      Reason.ROBOT_NOT_ARMED,
      "the safety bounds of the key that armed this robot have changed; arm the robot again",
    );
}

const aborted = ({ signal }: Call): Promise<void> =>
  new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
