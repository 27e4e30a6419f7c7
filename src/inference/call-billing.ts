/** Billing of one call: reserves credit before dispatch, writes an intent while the model runs, and settles afterwards. */
import { type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { AttemptStatus, AttemptStatusSchema, type Route } from "../../gen/limber/v1/route_pb.ts";
import type { CreditLeaser, Hold } from "../billing/credit-leaser.ts";
import { type Durability, StoreAway } from "../billing/group-commit.ts";
import { type Call, keyOf, tooLate } from "../call.ts";
import { inTime, steadyNow } from "../clock.ts";
import { type Contract, failureWord, UNIT, wordOfContract } from "../contracts/contract.ts";
import { asRefusal, factsOf, loggedMessage, Reason, Refusal, refuse } from "../errors.ts";
import type { CallWatch } from "../events/broadcaster.ts";
import { eventOf } from "../events/emit.ts";
import { type EndedCall, givenTraceOf, passedOn } from "../events/spans.ts";
import { affordable, type PaidLoser, type Plan, type PlanStep, unaffordableOf } from "../routing/index.ts";
import type { IntentRecord, LoserRecord, RequestRecord } from "../store/billing/ledger.ts";
import type { EventRecord } from "../store/events/outbox.ts";

/** The gateway's credit leaser, with the record types of its store. */
export type Leaser = CreditLeaser<IntentRecord, RequestRecord>;

/** The charge of a call that returned a response. */
export interface Charge {
  step: PlanStep;
  units: number;
  /** The winner's share. */
  costMicro: number;
  /** Remainder below a micro-dollar, in nano-dollars, added to the key's next charge. Zero if absent. */
  restNano?: number | undefined;
  /** The part of it that pays for a cold start. */
  wakeUpMicro: number;
  /** The loser's share, if a hedge was sent. */
  hedgeMicro: number | undefined;
  /** GPU seconds that the model server reported. */
  gpuSeconds?: number | undefined;
  /** The losers that receive that share. */
  losers?: readonly PaidLoser[] | undefined;
}

/** Log fields that come from the caller's request. */
export interface CallFacts {
  modelRequested: string;
  sessionId?: string | undefined;
  deadlineMs?: number | undefined;
  metadata?: object | undefined;
  preset?: string | undefined;
  /** The name of the preference. */
  preference?: string | undefined;
  /** The robot named by the request or its key. */
  robotId?: string | undefined;
  /** The control loop that the call is part of. */
  streamId?: string;
  /** Receives the organization's ended calls; undefined if no target is configured. */
  watch?: CallWatch | undefined;
}

/** The bill of one call. It ends exactly once: settled or void. */
export class CallBilling {
  readonly #hold: Hold<IntentRecord, RequestRecord>;
  readonly #remainders: Leaser["remainders"];
  readonly #call: Call;
  readonly #asked: CallFacts;
  readonly #intent: IntentRecord;
  readonly #plan: Plan;
  readonly #openedAt = steadyNow();
  /** For a control loop: the outcomes of its observations while this bill was open. */
  #stretch: LoopStretch | undefined;
  readonly #endsAt: number;
  #ended = false;

  private constructor(
    hold: Hold<IntentRecord, RequestRecord>,
    { plan, call, asked, endsAt }: { plan: Plan; call: Call; asked: CallFacts; endsAt: number },
    intent: IntentRecord,
    remainders: Leaser["remainders"],
  ) {
    this.#endsAt = endsAt;
    this.#hold = hold;
    this.#remainders = remainders;
    this.#plan = plan;
    this.#call = call;
    // If the organization retains no data, nothing that the caller sends is kept, neither in the log nor in spans.
    const { settings, robotId } = keyOf(call);
    this.#asked = settings.zdr ? { ...asked, metadata: undefined, sessionId: undefined, robotId } : asked;
    this.#intent = intent;
    hold.intend(intent);
  }

  /**
   * Reserves the plan's maximum cost, from the key's lease if that covers it, and starts to write the intent. Refuses with 402 before any
   * provider is called, and with `deadline_exceeded` after `endsAt` (steady clock, milliseconds).
   */
  static async open(
    leaser: Leaser,
    plan: Plan,
    call: Call,
    asked: CallFacts,
    endsAt = Number.POSITIVE_INFINITY,
  ): Promise<CallBilling> {
    const { orgId, keyId, workspaceId, ancestors } = keyOf(call);
    const payer = { orgId, keyId, workspaceId, ancestors };
    const hold =
      leaser.tryHold(payer, plan.ceilingMicro) ??
      (await until(endsAt, leaser.hold(payer, plan.ceilingMicro, estimateOf(plan)), tooLate, releaseUnused));
    if (call.trail?.recordedBy === "log") {
      releaseUnused(hold);
      throw refuse(Reason.CLIENT_CLOSED_REQUEST, "the call ended before its credit was reserved");
    }
    const first = plan.steps[0]!.offering;
    const intent: IntentRecord = {
      orgId,
      keyId,
      requestId: call.requestId,
      contract: wordOfContract(plan.contract),
      model: first.model,
      provider: first.provider,
      offeringId: first.id,
      unit: unitOf(plan),
    };
    // From here on the record of the call's end stores the response under the idempotency key, or frees the key.
    if (call.idempotency) call.idempotency.promised = true;
    if (call.trail) call.trail.recordedBy = "billing";
    return new CallBilling(hold, { plan, call, asked, endsAt }, intent, leaser.remainders);
  }

  /** Maximum charge, in micro-dollars. */
  get ceilingMicro(): number {
    return this.#hold.ceilingMicro;
  }

  /**
   * Charges a response. Resolves when it can be sent: when the intent is durable and, with an idempotency key, when the charge and the
   * stored response are durable too. A response that cannot be sent is not charged: its caller disconnected, or the intent was not durable
   * in time. With an idempotency key it is charged and stored anyway, for a repetition of the call. Throws, without a charge, if the
   * response cannot be encoded.
   */
  async settle<D extends DescMessage>(
    charge: Charge,
    route: Route | undefined,
    schema: D,
    answer: MessageShape<D>,
  ): Promise<void> {
    const { idempotency, encode } = this.#call;
    encode?.(answer);
    await (idempotency === undefined || this.#isLate
      ? this.#settleDelivered(charge, route)
      : this.#settleKept(charge, route, idempotency, toBinary(schema, answer)));
  }

  /** Charges a response and stores its bytes with the charge. */
  async #settleKept(
    charge: Charge,
    route: Route | undefined,
    idempotency: NonNullable<Call["idempotency"]>,
    bytes: Uint8Array,
  ): Promise<void> {
    this.#ended = true;
    const record = this.#record(charge, route, this.#claim(idempotency.seal?.(bytes) ?? bytes));
    const kept = this.#kept(this.#charged(record, charge).promise);
    await until(this.#endsAt, kept, () => refuse(Reason.DEADLINE_EXCEEDED, KEPT, {}, route && { route }));
  }

  /** Resolves when the intent and the end of the call are both recorded. */
  async #kept(settled: Promise<void>): Promise<void> {
    try {
      await this.#hold.durable;
      await settled;
    } catch (thrown) {
      throw thrown instanceof StoreAway ? new StoreAway("once") : thrown;
    }
  }

  /** Charges a response as it is sent. */
  async #settleDelivered(charge: Charge, route: Route | undefined): Promise<void> {
    try {
      if (!this.#isLate && !this.#hold.isDurable) await this.durableInTime;
      if (this.#isLate) throw tooLate();
      if (this.#call.signal.aborted) throw asRefusal(this.#call.signal.reason);
    } catch (thrown) {
      const { reason, message, details, retryAfter } = asRefusal(thrown);
      const refusal = refuse(reason, message, details, {
        ...(route && { route }),
        ...(retryAfter !== undefined && { retryAfter }),
      });
      await this.void(refusal);
      throw refusal;
    }
    this.#ended = true;
    this.#charged(this.#record(charge, route, {}), charge);
  }

  #charged(record: RequestRecord, { restNano }: Charge): Durability {
    const done = this.#hold.charge(record);
    this.#remainders.keep(this.#intent.keyId, restNano);
    return done;
  }

  /** Charges what a stream delivered, without waiting for the commit. */
  close(charge: Charge, route: Route | undefined): void {
    this.#ended = true;
    this.#charged(this.#record(charge, route, {}), charge);
  }

  /** Sets the outcomes of a control loop's observations, for the record. */
  tell(stretch: LoopStretch | undefined): void {
    this.#stretch = stretch;
  }

  /** Resolves when the intent is durable. Nothing of a response is sent before. */
  get durable(): Promise<void> {
    return this.#hold.durable;
  }

  /** The same, but rejects with `deadline_exceeded` after the deadline. */
  get durableInTime(): Promise<void> {
    return until(this.#endsAt, this.#hold.durable, tooLate);
  }

  get #isLate(): boolean {
    return steadyNow() > this.#endsAt;
  }

  /**
   * Ends the call without a charge and records its failure. A settled bill stays settled, even if the response was lost. Never rejects.
   * With an idempotency key it resolves when the key is free again, or at the deadline.
   */
  async void(refusal: Refusal): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    const { code, status } = factsOf(refusal.reason);
    const record: RequestRecord = {
      ...this.#intent,
      status: "failed",
      units: 0,
      costMicro: 0,
      wakeUpMicro: 0,
      hedgeCostMicro: null,
      simulated: false,
      httpStatus: status,
      errorCode: code,
      latencyMs: this.#elapsedMs(),
      byok: false,
      ...this.#arrival(),
      ...this.#log(refusal.route, 0, refusal),
      // A caller that disconnected knows the reason.
      ...(refusal.reason !== Reason.CLIENT_CLOSED_REQUEST && { events: [this.#failed(code)] }),
      ...this.#claim(undefined),
    };
    this.#tell(record, refusal.route);
    const released = this.#hold.release(record).catch(nothing);
    if (this.#call.idempotency) await until(this.#endsAt, released, nothing).catch(nothing);
  }

  #record(
    { step, units, costMicro, wakeUpMicro, hedgeMicro, gpuSeconds, losers }: Charge,
    route: Route | undefined,
    claim: Pick<RequestRecord, "claim">,
  ): RequestRecord {
    const { model, provider, id, simulated } = step.offering;
    const record: RequestRecord = {
      ...this.#intent,
      model,
      provider,
      offeringId: id,
      status: "settled",
      units,
      costMicro: costMicro + (hedgeMicro ?? 0),
      wakeUpMicro: Math.min(wakeUpMicro, costMicro),
      hedgeCostMicro: hedgeMicro ?? null,
      simulated,
      httpStatus: 200,
      errorCode: null,
      latencyMs: this.#elapsedMs(),
      byok: step.ownKey === true,
      ...this.#arrival(),
      ...(losers && { losers: losersOf(losers) }),
      ...this.#log(route, gpuSeconds),
      ...(route?.fallbackUsed && { events: [this.#fallbackUsed(route)] }),
      ...claim,
    };
    this.#tell(record, route, step);
    return record;
  }

  #tell(record: RequestRecord, route: Route | undefined, step?: PlanStep): void {
    const { watch } = this.#asked;
    if (watch) watch.ended(endedOf({ call: this.#call, plan: this.#plan, asked: this.#asked, record, route, step }));
  }

  #failed(code: string): EventRecord {
    const { orgId, requestId, contract, keyId } = this.#intent;
    const value = { requestId, contract, model: this.#asked.modelRequested, code, keyId };
    return eventOf(orgId, { case: "requestFailed", value }, keyOf(this.#call).workspaceId);
  }

  #fallbackUsed({ model, provider, offeringId, attempts }: Route): EventRecord {
    const { orgId, requestId } = this.#intent;
    const failed = attempts.filter(({ status }) => status === AttemptStatus.ERROR);
    const failedOfferingIds = failed.map((attempt) => attempt.offeringId);
    const value = { requestId, model, provider, offeringId, failedOfferingIds };
    return eventOf(orgId, { case: "routeFallbackUsed", value }, keyOf(this.#call).workspaceId);
  }

  #claim(response: Uint8Array | undefined): Pick<RequestRecord, "claim"> {
    const claimed = this.#call.idempotency;
    if (!claimed) return {};
    return { claim: { key: claimed.key, claimId: claimed.claimId, ...(response && { response }) } };
  }

  #elapsedMs(): number {
    return Math.round((steadyNow() - this.#openedAt) * 1000) / 1000;
  }

  /** How the request arrived; empty for a part of a control loop. */
  #arrival(): Pick<RequestRecord, "queueMs" | "inputBytes" | "batchId"> {
    const { arrivedAt, trail } = this.#call;
    if (arrivedAt === undefined || this.#asked.streamId !== undefined) return {};
    const queueMs = Math.max(0, Math.round((this.#openedAt - arrivedAt) * 1000) / 1000);
    return { queueMs, inputBytes: trail?.inputBytes, batchId: trail?.batchId };
  }

  #log(
    route: Route | undefined,
    gpuSeconds = 0,
    refusal?: Refusal,
  ): Pick<RequestRecord, "sessionId" | "robotId" | "log" | "attemptMs"> {
    const { modelRequested, sessionId, deadlineMs, metadata, preset, preference, robotId, streamId } = this.#asked;
    const { traceparent } = this.#call;
    const attemptMs = onlyAttemptOf(route);
    const more = deadlineMs ?? metadata ?? preset ?? preference ?? streamId ?? traceparent;
    if (route && attemptMs !== undefined && more === undefined && gpuSeconds === 0 && !route.fallbackUsed)
      return { sessionId, robotId, log: plainLogs.of(modelRequested, route, this.#plan.logged), attemptMs };
    const stretch = this.#stretch;
    const log = {
      model_requested: modelRequested,
      trace_id: traceparent === undefined ? undefined : givenTraceOf(traceparent),
      deadline_ms: deadlineMs,
      metadata,
      preset,
      preference,
      stream_id: streamId,
      region: route?.region,
      precision: route?.precision,
      gpu_seconds: gpuSeconds || undefined,
      fallback_used: route?.fallbackUsed || undefined,
      holds: stretch?.holds,
      message: keyOf(this.#call).settings.zdr ? undefined : loggedMessage(refusal?.message),
      ages: stretch?.ages,
      plan: this.#plan.logged?.id,
      ranks: this.#plan.logged?.ranks || undefined,
      attempts:
        stretch?.attempts ??
        (attemptMs !== undefined
          ? undefined
          : route?.attempts.map(({ offeringId, status, reason, latencyMs }) => ({
              offering_id: offeringId,
              status: AttemptStatusSchema.value[status]?.name.slice("ATTEMPT_STATUS_".length).toLowerCase(),
              reason: failureWord(reason),
              latency_ms: latencyMs,
            }))),
    };
    return { sessionId, robotId, log, attemptMs: stretch?.attempts ? undefined : attemptMs };
  }
}

/** The charges for the losers of a call's hedges, merged by offering; a loop's bill can have many. */
function losersOf(paid: readonly PaidLoser[]): LoserRecord[] {
  const losers = new Map<string, LoserRecord>();
  for (const { step, micro } of paid) {
    const { id: offeringId, provider, model, simulated } = step.offering;
    const key = `${offeringId} ${step.ownKey}`;
    const before = losers.get(key);
    if (before) before.costMicro += micro;
    else losers.set(key, { offeringId, provider, model, byok: step.ownKey, simulated, costMicro: micro });
  }
  return [...losers.values()];
}

/** The outcomes of a control loop's observations while one bill was open. */
export interface LoopStretch {
  /** Number of holds, by reason. */
  readonly holds?: Readonly<Record<string, number>> | undefined;
  /** Number of chunks, by the bucket of their observation's age. */
  readonly ages?: Readonly<Record<number, number>> | undefined;
  /** Attempts, grouped by equal outcome: how many, and their mean latency. */
  readonly attempts?:
    | readonly {
        readonly offering_id: string;
        readonly status: string;
        readonly reason: string | undefined;
        readonly latency_ms: number;
        readonly count: number;
      }[]
    | undefined;
}

/** The log entry of a call without options that its first offering served. */
interface PlainLog {
  readonly model_requested: string;
  readonly region: string;
  readonly precision: string;
  readonly plan: string | undefined;
  readonly ranks: string | undefined;
}

/** Caches the last plain log entry: consecutive equal calls share one object. */
class PlainLogCache {
  #last: PlainLog | undefined;

  of(modelRequested: string, { region, precision }: Route, logged: Plan["logged"]): PlainLog {
    const last = this.#last;
    if (
      last !== undefined &&
      last.model_requested === modelRequested &&
      last.region === region &&
      last.precision === precision &&
      last.plan === logged?.id &&
      last.ranks === logged?.ranks
    )
      return last;
    this.#last = { model_requested: modelRequested, region, precision, plan: logged?.id, ranks: logged?.ranks };
    return this.#last;
  }
}

const plainLogs = new PlainLogCache();

/** Latency in milliseconds of a route whose only attempt succeeded; undefined for any other route. */
function onlyAttemptOf(route: Route | undefined): number | undefined {
  const only = route?.attempts.length === 1 ? route.attempts[0] : undefined;
  return only?.status === AttemptStatus.OK && only.offeringId === route?.offeringId ? only.latencyMs : undefined;
}

/** The plan without the steps that a 402 found too expensive; undefined for any other refusal, or if nothing cheaper is left. */
export function narrowed(plan: Plan, thrown: unknown): Plan | undefined {
  const availableMicro = thrown instanceof Refusal ? availableOf(thrown) : undefined;
  return availableMicro === undefined ? undefined : affordable(plan, availableMicro);
}

/** The available credit that a 402 reports, in micro-dollars; undefined for any other refusal. */
export function availableOf({ reason, details }: Refusal): number | undefined {
  const { availableUsd } = details;
  return factsOf(reason).status === 402 && availableUsd !== undefined ? Math.round(availableUsd * 1e6) : undefined;
}

/** The 402 with every offering that is eligible but too expensive; returns other refusals unchanged. */
export function withUnaffordable(refusal: Refusal, { steps }: Plan): Refusal {
  const availableMicro = availableOf(refusal);
  if (availableMicro === undefined) return refusal;
  const { reason, message, details } = refusal;
  const unpaid = new Map(steps.map((step) => [step.row, step]));
  return refuse(reason, message, { ...details, dropped: unaffordableOf([...unpaid.values()], availableMicro) });
}

/** The unit of a plan's contract. Plans never have the zero value. */
const unitOf = ({ contract }: Plan): string => UNIT[contract as Exclude<Contract, 0>] ?? "";

const nothing = (): void => {};
const releaseUnused = (hold: Hold<IntentRecord, RequestRecord>): void => void hold.release();

/** The refusal of a call whose commit takes too long; a repetition of the call returns the response. */
const KEPT =
  "the deadline passed before the response was recorded; retry with the same idempotency key, which returns the response and charges it once";

/** Resolves with `done`, or rejects with the result of `late` at a time of the steady clock. Infinity means never. */
const until = <T>(endsAt: number, done: Promise<T>, late: () => unknown, unwanted?: (value: T) => void): Promise<T> =>
  endsAt === Number.POSITIVE_INFINITY
    ? done
    : inTime(done, { ms: Math.max(0, endsAt - steadyNow()), late, ...(unwanted && { unwanted }) });

/** The step that determines a plan's ceiling. */
export function dearestOf({ steps }: Pick<Plan, "steps">): PlanStep {
  let dearest = steps[0]!;
  for (const step of steps) if (step.costMicro > dearest.costMicro) dearest = step;
  return dearest;
}

function estimateOf(plan: Plan): { unit: string; units: number; priceNano: number; wakeUpMicro: number } {
  const dearest = dearestOf(plan);
  return {
    unit: unitOf(plan),
    units: dearest.units,
    priceNano: dearest.unitNano,
    wakeUpMicro: dearest.wakeUpMicro,
  };
}

/** An ended call with all its facts. */
interface CallEnding {
  readonly call: Call;
  readonly plan: Plan;
  readonly asked: CallFacts;
  readonly record: RequestRecord;
  readonly route: Route | undefined;
  /** The offering that served it; undefined if none did. */
  readonly step: PlanStep | undefined;
}

/** The call as telemetry targets receive it. */
function endedOf({ call, plan, asked, record, route, step }: CallEnding): EndedCall {
  const { keyId, orgId, userId, workspaceId } = keyOf(call);
  return {
    requestId: record.requestId,
    orgId,
    keyId,
    userId,
    workspaceId,
    sessionId: asked.sessionId,
    traceparent: call.traceparent,
    contract: record.contract,
    modelRequested: asked.modelRequested,
    model: record.model,
    provider: record.provider,
    offeringId: record.offeringId,
    region: route?.region ?? step?.offering.region,
    httpStatus: record.httpStatus ?? 200,
    errorCode: record.errorCode ?? undefined,
    latencyMs: record.latencyMs ?? 0,
    attempts: route ? attemptsOf(route) : directOf(record, step),
    fallbackUsed: route?.fallbackUsed ?? false,
    hedged: record.hedgeCostMicro !== null,
    simulated: record.simulated,
    units: record.units,
    costMicro: record.costMicro,
    deadlineMs: asked.deadlineMs,
    actionSpace: plan.intent.actionSpace,
    dtMs: step?.offering.dtMs || undefined,
    streamId: asked.streamId,
    metadata: asked.metadata,
  };
}

/** The trace header that a call passes on; undefined if there is none. */
export const handedOn = (
  watch: CallWatch | undefined,
  call: Call,
  named: string | undefined,
  { offering }: PlanStep,
): string | undefined => {
  const { traceparent, requestId } = call;
  if (!watch) return passedOn(traceparent);
  // As in the spans, which have no session if no data is retained.
  const sessionId = keyOf(call).settings.zdr ? undefined : named;
  return watch.handOn({ requestId, sessionId, traceparent }, offering.id);
};

const STATUS: Readonly<Partial<Record<AttemptStatus, "ok" | "error" | "cancelled">>> = {
  [AttemptStatus.OK]: "ok",
  [AttemptStatus.CANCELLED]: "cancelled",
};

const attemptsOf = ({ attempts }: Route): EndedCall["attempts"] =>
  attempts.map(({ offeringId, model, provider, status, reason, latencyMs }) => ({
    offeringId,
    model,
    provider,
    status: STATUS[status] ?? "error",
    reason: failureWord(reason),
    latencyMs,
  }));

/** A call without a plan has one provider and lists no attempts. */
const directOf = (
  { model, provider, offeringId, latencyMs }: RequestRecord,
  step: PlanStep | undefined,
): EndedCall["attempts"] =>
  step ? [{ offeringId, model, provider, status: "ok", reason: undefined, latencyMs: latencyMs ?? 0 }] : [];
