/** One robot in its control loop: `routing/loop` decides, here it is carried out, paid for and told. */
import { create } from "@bufbuild/protobuf";
import {
  HoldReason,
  type LoopChunk,
  type LoopOpen,
  LoopOpenedSchema,
} from "../../../../gen/limber/v1/control_loop_pb.ts";
import type { ActStreamResponse } from "../../../../gen/limber/v1/inference_service_pb.ts";
import type { Route } from "../../../../gen/limber/v1/route_pb.ts";
import { after, nowSeconds, steadyNow } from "../../../ambient.ts";
import * as act from "../../../contracts/act.ts";
import { DEFAULT_ACTION_SPACE } from "../../../contracts/action-spaces.ts";
import { assertBounds, exceeds } from "../../../contracts/bounds.ts";
import type { ActAnswer, Intent } from "../../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../../contracts/failure.ts";
import { charge, toUsd } from "../../../money/price.ts";
import { asRefusal, Reason, Refusal, refuse } from "../../../refusal.ts";
import {
  type Deliver,
  type Dispatch,
  type Hedges,
  type Hold,
  Loop,
  type LoopEffect,
  type LoopEvent,
  type LoopGauge,
  type PlanStep,
  routeOf,
  type Sighting,
} from "../../../routing/index.ts";
import { type Call, keyOf, type Speaker } from "../../call.ts";
import type { Mover } from "../../robot/stop-book.ts";
import type { Charge } from "../bill.ts";
import type { Prepared } from "../prepare.ts";
import type { Session } from "../sessions.ts";
import { hedgesOf, type InferenceHouse, moverOf, refuseLargeMetadata, robotIn } from "../trip.ts";
import { type Carried, takenOver } from "./board.ts";
import { Course } from "./course.ts";
import { type Asker, Flight } from "./flight.ts";
import type { LastChunk } from "./resumption.ts";
import { type Seen, Sights } from "./seen.ts";
import { Tab } from "./tab.ts";
import { Tally } from "./tally.ts";
import { Ways } from "./ways.ts";
import { chunkOf, endedOf, heldBack, holdOf, type LoopMessage, ownOf, replayOf } from "./words.ts";

/** A caller who reads nothing for this long is gone. */
const PATIENCE_MS = 10_000;
/** A caller who says nothing for this long is gone. Source: specification, "Limits": the life of a pin. */
const SILENCE_MS = 15 * 60_000;
/** The longest that an observation may be of use. */
const LONGEST_DEADLINE_MS = 10_000;
/** How often a pin is told that its session lives. */
const TOUCH_MS = 1_000;

/** One robot in its loop. */
export class Robot implements Carried, Asker {
  readonly #session: Session | undefined;
  readonly mover: Mover;
  readonly #house: InferenceHouse;
  readonly #speaker: Speaker<ActStreamResponse>;
  readonly #call: Call;
  readonly #intent: Intent;
  readonly #space: string;
  readonly #tab: Tab;
  readonly #loop: Loop<Seen>;
  readonly #deadlineMs: number;
  /** One, or two where it was hedged. */
  readonly #flights: Flight[] = [];
  readonly #sights = new Sights();
  readonly #ways: Ways;
  readonly #hedges: Hedges;
  /** The stream's part of the names of its chunks. */
  readonly #name: string;
  readonly #course: Course;
  readonly #tally: Tally;
  #instruction: string;
  #opened = false;
  #over = false;
  /** Why it ends as soon as no answer is awaited; a refusal, or undefined for a good end. */
  #ending: { refusal: Refusal | undefined } | undefined;
  #sending: Promise<void> | undefined;
  #wakeAt = Number.POSITIVE_INFINITY;
  #forgetWake = (): void => {};
  #heardAt = steadyNow();
  #behindSince: number | undefined;
  #touchedAt = Number.NEGATIVE_INFINITY;
  #woken: PlanStep | undefined;
  /** The observation that was counted last. */
  #counted: Sighting<Seen> | undefined;
  /** The last chunk that was charged, on this stream and on the one that it resumes. */
  #last: LoopChunk | undefined;
  #route: Route | undefined;
  #resumed: LastChunk | undefined;

  /** Plans the loop, or refuses it when nothing may serve it. */
  constructor(
    house: InferenceHouse,
    speaker: Speaker<ActStreamResponse>,
    call: Call,
    { request: open, ownKeys, session }: Prepared<LoopOpen>,
  ) {
    this.#session = session;
    refuseLargeMetadata(open.metadata);
    this.#house = house;
    this.#hedges = hedgesOf(house, call);
    this.#speaker = speaker;
    this.#call = call;
    this.#instruction = open.instruction ?? "";
    this.#intent = act.intentOf({ ...open, observations: [], returnPrediction: false });
    this.#space = this.#intent.actionSpace ?? DEFAULT_ACTION_SPACE;
    this.#tally = new Tally(house.loops);
    this.#name = call.requestId.slice(call.requestId.indexOf("_"));
    this.mover = moverOf(this.#intent, call, open.robotId ?? robotIn(open.metadata));
    house.stops.assertMayMove(this.mover);
    if (house.loops.draining) throw draining();
    this.#course = new Course(house, { intent: this.#intent, ownKeys, session }, call, this.#space);
    const { plan } = this.#course;
    const first = plan.steps[0]!;
    assertBounds(open.bounds, this.#course.dimOf(first), "open.bounds");
    this.#deadlineMs = deadlineOf(this.#intent, first);
    const watch = house.broadcast.of(keyOf(call).orgId);
    this.#tab = new Tab(house.till, call, {
      modelRequested: open.model,
      sessionId: open.provider?.sessionId,
      deadlineMs: this.#deadlineMs,
      metadata: open.metadata,
      preset: open.preset,
      streamId: call.requestId,
      watch,
    });
    this.#ways = new Ways({
      house,
      call,
      open,
      ownKeys,
      course: this.#course,
      watch,
      input: {
        seed: open.seed,
        temperature: open.temperature,
        sessionId: session?.name,
        actionSpace: this.#space,
        horizon: this.#intent.units,
        returnPrediction: false,
      },
    });
    this.#loop = new Loop(
      {
        intent: this.#intent,
        deadlineMs: this.#deadlineMs,
        hedgeAfterMs: plan.hedgeAfterMs,
        maxCostMicro: plan.maxCostMicro,
        models: this.#intent.models,
        broken: (answer) => exceeds(open.bounds, answer),
      },
      this.#course,
    );
  }

  /** Names the session among those of all organisations, to this house as to providers. */
  get session(): string | undefined {
    return this.#session?.name;
  }

  get gauge(): LoopGauge {
    return this.#tally.gauge;
  }

  get offeringId(): string | undefined {
    return this.#tally.offeringId;
  }

  get id(): string {
    return this.#call.requestId;
  }

  get last(): LastChunk | undefined {
    return this.#last && { chunk: this.#kept(this.#last), endedAt: steadyNow() };
  }

  /** Takes its session and credit, then says `opened`. Observations that come meanwhile wait as they always do. */
  begin(): void {
    const before = this.#house.loops.enter(this);
    before?.cut(takenOver());
    this.#resumed = before?.last;
    const pin = this.#session && this.#house.sessions.get(this.#session);
    if (pin) this.#loop.resume(pin.model);
    this.#happen({ kind: "blocked", at: steadyNow(), why: HoldReason.LATE });
    const found = this.session === undefined ? undefined : this.#house.resumption.take(this.session, this.id);
    const covered = Promise.all([this.#tab.cover(this.#course.plan), found]);
    const begun = ([, last]: [unknown, LastChunk | undefined]): void => {
      if (this.#over) return;
      this.#resumed ??= last;
      // The pin may not have come from the other replica yet.
      const model = this.#resumed?.chunk.route?.model;
      if (!pin && model !== undefined) this.#loop.resume(model);
      this.#opened = true;
      this.#say("opened", this.#openedMessage(pin !== undefined || this.#resumed !== undefined));
      this.#happen({ kind: "blocked", at: steadyNow(), why: undefined });
      this.#endIfDone();
    };
    covered.then(begun).catch((thrown) => this.#end(asRefusal(thrown)));
  }

  observe(seen: Seen): void {
    if (this.#over || this.#ending) return;
    const at = steadyNow();
    this.#heardAt = at;
    if (seen.instruction !== undefined) this.#instruction = seen.instruction;
    if (seen.step === this.#resumed?.chunk.startStep && this.#opened) this.#replay(this.#resumed, at);
    else this.#happen({ kind: "observed", at, sighting: this.#sights.of(seen) });
  }

  reset(instruction: string | undefined): void {
    this.#heardAt = steadyNow();
    if (instruction !== undefined) this.#instruction = instruction;
    this.#course.outdate();
    this.#resumed = undefined;
    this.#happen({ kind: "reset", at: steadyNow() });
  }

  /** The caller is done. */
  finish(): void {
    this.#end(undefined);
  }

  room(): void {
    if (this.#behindSince === undefined) return;
    this.#behindSince = undefined;
    this.#happen({ kind: "blocked", at: steadyNow(), why: undefined });
  }

  /** The caller is gone: nobody is told anything. */
  abandon(): void {
    this.#stop(refuse(Reason.CLIENT_CLOSED_REQUEST, "the caller left"));
  }

  drain(): void {
    this.drainAs(draining());
  }

  /** Ends as soon as no answer is awaited. */
  drainAs(refusal: Refusal | undefined): void {
    this.#ending ??= { refusal };
    this.#endIfDone();
  }

  cut(refusal: Refusal): void {
    this.#end(refusal);
  }

  tidy(): void {
    const now = steadyNow();
    if (this.#last) this.#last = ownOf(this.#last);
    if (this.#behindSince !== undefined && now - this.#behindSince >= PATIENCE_MS)
      this.#end(refuse(Reason.REQUEST_TIMEOUT, "the chunks are not read"));
    else if (now - this.#heardAt >= SILENCE_MS)
      this.#end(refuse(Reason.REQUEST_TIMEOUT, "no observation came for 15 minutes"));
    else if (!this.#loop.busy && !this.#sending) this.#tab.tidy();
  }

  /** Lets something happen to the loop, and does what it asks for. */
  #happen(event: LoopEvent<Seen>): void {
    if (this.#over) return;
    const effects = this.#loop.next(event);
    for (let i = 0; i < effects.length; i++) this.#carryOut(effects[i]!);
    this.#arm();
    if (this.#ending) this.#endIfDone();
  }

  #carryOut(effect: LoopEffect<Seen>): void {
    switch (effect.kind) {
      case "dispatch":
        this.#dispatch(effect);
        return;
      case "deliver":
        this.#deliver(effect);
        return;
      case "cancel":
        this.#callOff(effect.flight);
        return;
      case "told":
        if (effect.report.outcome !== "ok") this.#course.outdate();
        this.#house.supply.health.report(effect.offeringId, effect.report);
        return;
      case "hold":
        this.#hold(effect);
    }
  }

  /** What comes of it is heard no more. */
  #callOff(id: number): void {
    this.#landed(id)?.abort(undefined);
  }

  /** Ends a flight that is on its way; undefined where it is no longer. */
  #landed(id: number): Flight | undefined {
    const at = this.#flights.findIndex((flight) => flight.id === id);
    return at < 0 ? undefined : this.#flights.splice(at, 1)[0];
  }

  #dispatch(effect: Dispatch<Seen>): void {
    const flight = new Flight(this, effect);
    this.#flights.push(flight);
    this.#hedges.earn();
    const may = this.#admitted(effect);
    if (!(may instanceof Promise)) {
      this.#ask(effect, flight);
      return;
    }
    may.then(
      () => {
        if (!flight.aborted) this.#ask(effect, flight);
      },
      (thrown) => this.#unpaid(effect.flight, thrown),
    );
  }

  /** Whether the key may take this step and the tab covers it; rejects with the refusal. A step counts once, whoever is asked. */
  #admitted({ sighting }: Dispatch<Seen>): Promise<void> | void {
    const counted = sighting === this.#counted ? undefined : this.#step();
    this.#counted = sighting;
    const cover = (): void | Promise<void> => this.#tab.cover(this.#course.plan);
    return counted === undefined ? cover() : counted.then(cover);
  }

  #step(): Promise<void> | undefined {
    try {
      return this.#call.step?.();
    } catch (refused) {
      return Promise.reject(refused);
    }
  }

  #ask({ step, sighting, budgetMs }: Dispatch<Seen>, flight: Flight): void {
    this.#ways.ask(flight, step, sighting.payload, this.#instruction, budgetMs);
  }

  answered({ flight, step, sighting }: Dispatch<Seen>, answer: ActAnswer): void {
    if (!this.#landed(flight)) return;
    try {
      if (this.#ways.exceeds(step, sighting.payload, answer))
        this.#failed(flight, new UpstreamFailure(AttemptFailure.UNSAFE_ACTION, "beyond the bounds that hold here"));
      else this.#happen({ kind: "answered", at: steadyNow(), flight, answer });
    } catch (thrown) {
      // Whoever carried the answer carries those of other loops too.
      this.#end(asRefusal(thrown));
    }
  }

  failed({ flight }: Dispatch<Seen>, thrown: unknown): void {
    if (this.#landed(flight)) this.#failed(flight, thrown);
  }

  #failed(flight: number, thrown: unknown): void {
    const at = steadyNow();
    if (thrown instanceof UpstreamFailure) this.#happen({ kind: "failed", at, flight, failure: thrown.failure });
    else if (thrown instanceof Refusal) this.#happen({ kind: "refused", at, flight, detail: thrown.message });
    else this.#end(asRefusal(thrown));
  }

  /** No credit ends the loop; a ledger that is away and a rate limit make the robot hold. */
  #unpaid(flight: number, thrown: unknown): void {
    this.#landed(flight);
    const refusal = asRefusal(thrown);
    const at = steadyNow();
    if (refusal.reason === Reason.STORE_UNAVAILABLE) this.#happen({ kind: "unpaid", at, flight });
    else if (refusal.reason === Reason.RATE_LIMIT_EXCEEDED)
      this.#happen({ kind: "limited", at, flight, detail: refusal.message });
    else this.#end(refusal);
  }

  /** Chunks leave in order, each when what it owes is on record. */
  #deliver(effect: Deliver<Seen>): void {
    const charge = this.#chargeOf(effect);
    const ready = this.#sending ?? this.#tab.ready(charge, this.#course.plan);
    if (!(ready instanceof Promise)) {
      this.#send(effect, charge);
      return;
    }
    const sending = ready
      .then(() => this.#tab.ready(charge, this.#course.plan))
      .then(
        () => {
          if (this.#over) return;
          const waited = steadyNow() - effect.at;
          if (effect.ageMs + waited < this.#deadlineMs) this.#send(effect, charge);
          else this.#hold(heldBack(effect, HoldReason.LATE, waited));
        },
        (thrown) => {
          const refusal = asRefusal(thrown);
          if (refusal.reason !== Reason.STORE_UNAVAILABLE) this.#end(refusal);
          else this.#hold(heldBack(effect, HoldReason.NOT_RECORDED, steadyNow() - effect.at));
        },
      )
      .finally(() => {
        if (this.#sending !== sending) return;
        this.#sending = undefined;
        this.#endIfDone();
      });
    this.#sending = sending;
  }

  #send(effect: Deliver<Seen>, charge: Charge): void {
    const { step, moved, tries, answer } = effect;
    const at = steadyNow();
    this.#pin(step, moved, at);
    const route = moved || tries.length > 1 ? routeOf(effect) : undefined;
    this.#route = route ?? this.#route;
    this.#tab.add(charge, route);
    this.#tally.chunk(at, charge, answer.gpuSeconds);
    this.#last = chunkOf(effect, charge, { at, stream: this.#name, space: this.#space, route });
    this.#say("chunk", this.#last);
  }

  /** A chunk with the route that it came by, for who resumes the session. */
  #kept(chunk: LoopChunk): LoopChunk {
    return { ...chunk, ...(this.#route && { route: this.#route }) };
  }

  /** What was charged on the stream before is given again, unless it is too old by now; either way it costs nothing. */
  #replay({ chunk, endedAt }: LastChunk, at: number): void {
    const ageMs = chunk.observationAgeMs + at - endedAt;
    const { dropped } = this.#loop;
    const late = { kind: "hold", at, step: chunk.startStep, reason: HoldReason.LATE, ageMs, detail: "" } as const;
    if (ageMs >= this.#deadlineMs) this.#hold({ ...late, tries: [], dropped });
    else this.#say("chunk", replayOf(chunk, ageMs, dropped));
  }

  #hold(hold: Hold): void {
    this.#tally.hold(hold.reason === HoldReason.LATE);
    // Who does not read is told no more.
    if (this.#behindSince === undefined) this.#say("hold", holdOf(hold, steadyNow()));
  }

  #say<C extends LoopMessage["case"]>(name: C, value: Extract<LoopMessage, { case: C }>["value"]): void {
    // The pair was just checked.
    const event = { case: name, value } as LoopMessage;
    this.#speaker.say({ $typeName: "limber.v1.ActStreamResponse", event });
    if (this.#behindSince !== undefined || !this.#speaker.behind) return;
    this.#behindSince = steadyNow();
    // Not at once: what is being carried out comes first.
    queueMicrotask(() => {
      if (this.#behindSince !== undefined)
        this.#happen({ kind: "blocked", at: steadyNow(), why: HoldReason.SLOW_READER });
    });
  }

  #chargeOf({ step, answer, hedgeMicro }: Deliver<Seen>): Charge {
    const units = act.unitsOf(answer);
    // A step is woken once, by the first chunk of the plan that found it asleep.
    const wakeUpMicro = step.cold && this.#woken !== step ? step.wakeUpMicro : 0;
    this.#woken = step;
    return {
      step,
      units,
      costMicro: charge(units, step.unitNano) + wakeUpMicro,
      hedgeMicro,
    };
  }

  #pin({ offering }: PlanStep, moved: boolean, at: number): void {
    if (this.#session === undefined || (!moved && at - this.#touchedAt < TOUCH_MS)) return;
    this.#touchedAt = at;
    void this.#house.sessions.served(this.#session, offering);
  }

  /** One timer at a time: an early one looks and goes back to sleep, which costs less than setting one for every message. */
  #arm(): void {
    const { wakeAt } = this.#loop;
    if (wakeAt >= this.#wakeAt) return;
    this.#forgetWake();
    this.#wakeAt = wakeAt;
    this.#forgetWake = after(Math.max(0, wakeAt - steadyNow()), () => {
      this.#wakeAt = Number.POSITIVE_INFINITY;
      const at = steadyNow();
      if (at >= this.#loop.wakeAt) this.#happen({ kind: "time", at });
      else this.#arm();
    });
  }

  #openedMessage(resumed: boolean) {
    const first = this.#course.plan.steps[0]!;
    return create(LoopOpenedSchema, {
      id: this.#call.requestId,
      created: nowSeconds(),
      route: routeOf({ tries: [], step: first, hedgeMicro: undefined }),
      dtMs: first.offering.dtMs,
      horizon: this.#intent.units,
      deadlineMs: Math.round(this.#deadlineMs),
      chunkCostUsd: toUsd(first.listMicro),
      resumed,
      ...(this.#resumed && { resumedStep: this.#resumed.chunk.startStep }),
    });
  }

  #endIfDone(): void {
    if (this.#ending && this.#opened && !this.#loop.busy && !this.#sending) this.#end(this.#ending.refusal);
  }

  #end(refusal: Refusal | undefined): void {
    if (this.#over) return;
    const last = endedOf(refusal, this.#tally, this.#loop.dropped);
    this.#stop(refusal);
    if (this.#opened) this.#speaker.say(last);
    this.#speaker.end(refusal);
  }

  /** Nothing happens any longer: calls are called off, what is owed is settled. */
  #stop(refusal: Refusal | undefined): void {
    if (this.#over) return;
    for (const effect of this.#loop.next({ kind: "closed", at: steadyNow() })) this.#carryOut(effect);
    this.#over = true;
    this.#forgetWake();
    this.#house.loops.leave(this, this.#tally.whole.figures);
    this.#tally.close();
    if (this.session !== undefined) {
      this.#house.resumption.end(this.session, this.id, this.#last && this.#kept(this.#last));
    }
    this.#tab.close(refusal);
  }
}

/** How old an observation may be: as the caller says, and no older than its chunk lasts. */
function deadlineOf({ provider, units }: Intent, { offering }: PlanStep): number {
  const lasts = offering.dtMs > 0 ? offering.dtMs * units : Number.POSITIVE_INFINITY;
  return Math.min(provider?.deadlineMs ?? LONGEST_DEADLINE_MS, lasts, LONGEST_DEADLINE_MS);
}

const draining = (): Refusal =>
  refuse(Reason.NOT_READY, "the gateway is closing; open the stream again elsewhere", {}, { retryAfter: 1 });
