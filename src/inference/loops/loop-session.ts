/** One robot in its control loop: `routing/loop` decides, here it is carried out: opened, fed, told of time, ended. */
import { HoldReason, type LoopOpen } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ActStreamResponse } from "../../../gen/limber/v1/inference_service_pb.ts";
import { after, steadyNow } from "../../ambient.ts";
import * as act from "../../contracts/act.ts";
import { DEFAULT_ACTION_SPACE } from "../../contracts/action-spaces.ts";
import { assertBounds, exceeds } from "../../contracts/bounds.ts";
import type { Intent } from "../../contracts/contract.ts";
import { asRefusal, Reason, type Refusal, refuse } from "../../errors.ts";
import {
  Loop,
  type LoopEffect,
  type LoopEvent,
  type LoopGauge,
  type PlanStep,
  type Sighting,
} from "../../routing/index.ts";
import { type Call, keyOf, type Speaker } from "../../call.ts";
import type { Mover } from "../stops/active-stops.ts";
import type { Prepared } from "../prepare.ts";
import type { Session } from "../sessions.ts";
import { hedgesOf, type InferenceHouse, moverOf, refuseLargeMetadata, robotIn } from "../call.ts";
import { type Carried, draining, takenOver } from "./loop-registry.ts";
import { Course } from "./plan-tracker.ts";
import { Delivery } from "./chunk-sender.ts";
import { Flights } from "./pending-requests.ts";
import type { LastChunk } from "./resumption.ts";
import { type Seen, Sights } from "./observation-view.ts";
import { Tab } from "./loop-billing.ts";
import { Tally } from "./loop-counts.ts";
import { Voice } from "./loop-writer.ts";
import { Ways } from "./upstream-channels.ts";
import { openedOf } from "./messages.ts";

/** A caller who reads nothing for this long is gone. */
const PATIENCE_MS = 10_000;
/** A caller who says nothing for this long is gone. Source: specification, "Limits": the life of a pin. */
const SILENCE_MS = 15 * 60_000;
/** The longest that an observation may be of use. */
const LONGEST_DEADLINE_MS = 10_000;
/** How often a pin is told that its session lives. */
const TOUCH_MS = 1_000;

/** One robot in its loop. */
export class Robot implements Carried {
  readonly #session: Session | undefined;
  readonly mover: Mover;
  readonly #house: InferenceHouse;
  readonly #call: Call;
  readonly #intent: Intent;
  readonly #tab: Tab;
  readonly #loop: Loop<Seen>;
  readonly #deadlineMs: number;
  readonly #sights = new Sights();
  readonly #flights: Flights;
  readonly #voice: Voice;
  readonly #delivery: Delivery;
  readonly #course: Course;
  readonly #tally: Tally;
  /** What is to be done, in a list that is used again. */
  #effects: (LoopEffect<Seen> | undefined)[] | undefined = [];
  #opened = false;
  #over = false;
  /** Why it ends as soon as no answer is awaited; a refusal, or undefined for a good end. */
  #ending: { refusal: Refusal | undefined } | undefined;
  #wakeAt = Number.POSITIVE_INFINITY;
  #forgetWake = (): void => {};
  #heardAt = steadyNow();
  #touchedAt = Number.NEGATIVE_INFINITY;
  #resumed: LastChunk | undefined;
  /** The newest observation that came before it was opened: until then nobody knows what was charged for on the stream before. */
  #early: { readonly sighting: Sighting<Seen>; readonly at: number } | undefined;
  /** An episode began before it was opened: nothing is left of the one before. */
  #isNew = false;

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
    this.#call = call;
    this.#intent = act.intentOf({ ...open, observations: [], returnPrediction: false });
    const space = this.#intent.actionSpace ?? DEFAULT_ACTION_SPACE;
    this.#tally = new Tally(house.loops);
    this.mover = moverOf(this.#intent, call, open.robotId ?? robotIn(open.metadata));
    house.stops.assertMayMove(this.mover);
    if (house.loops.draining) throw draining();
    this.#course = new Course(house, { intent: this.#intent, ownKeys, session }, call, space);
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
    const ways = new Ways({
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
        actionSpace: space,
        horizon: this.#intent.units,
        returnPrediction: false,
      },
    });
    const end = (refusal: Refusal): void => this.#end(refusal);
    this.#flights = new Flights(
      {
        call,
        ways,
        tab: this.#tab,
        course: this.#course,
        hedges: hedgesOf(house, call),
        happen: (event) => this.#happen(event),
        end,
      },
      open.instruction ?? "",
    );
    this.#voice = new Voice({
      speaker,
      streamId: call.requestId,
      space,
      deadlineMs: this.#deadlineMs,
      tally: this.#tally,
      unread: () => this.#block(HoldReason.SLOW_READER),
    });
    this.#delivery = new Delivery({
      tab: this.#tab,
      course: this.#course,
      voice: this.#voice,
      deadlineMs: this.#deadlineMs,
      over: () => this.#over,
      leaving: ({ step, moved }, at) => this.#pin(step, moved, at),
      end,
      idle: () => this.#endIfDone(),
    });
    this.#loop = new Loop(
      {
        intent: this.#intent,
        deadlineMs: this.#deadlineMs,
        hedgeAfterMs: plan.hedgeAfterMs,
        maxCostMicro: plan.maxCostMicro,
        models: this.#intent.models,
        broken: (answer) => exceeds(open.bounds, answer),
        beside: (step, underWay) => ways.carriesMany(step) && this.#tab.covers(this.#course.plan, underWay + 1),
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

  get whole(): LoopGauge {
    return this.#tally.whole;
  }

  get offeringId(): string | undefined {
    return this.#tally.offeringId;
  }

  get id(): string {
    return this.#call.requestId;
  }

  /** What who resumes the session need not pay for again: the last chunk of this stream, or else of the one before. */
  get last(): LastChunk | undefined {
    return this.#voice.last ?? this.#resumed;
  }

  /** Takes its session and credit, then says `opened`. Observations that come meanwhile wait as they always do. */
  begin(): void {
    const before = this.#house.loops.enter(this);
    before?.cut(takenOver());
    this.#resumed = before?.last;
    const pin = this.#session && this.#house.sessions.get(this.#session);
    if (pin) this.#loop.resume(pin.model);
    this.#block(HoldReason.LATE);
    const found = this.session === undefined ? undefined : this.#house.resumption.take(this.session, this.id);
    const covered = Promise.all([this.#tab.cover(this.#course.plan), found]);
    const begun = ([, last]: [unknown, LastChunk | undefined]): void => {
      if (this.#over) return;
      this.#resumed ??= last;
      // The pin may not have come from the other replica yet.
      const model = this.#resumed?.chunk.route?.model;
      if (!pin && model !== undefined && !this.#isNew) this.#loop.resume(model);
      const resumed = pin !== undefined || this.#resumed !== undefined;
      const step = this.#course.plan.steps[0]!;
      this.#voice.opened(
        openedOf({
          id: this.id,
          step,
          units: this.#intent.units,
          deadlineMs: this.#deadlineMs,
          resumed,
          last: this.#resumed?.chunk,
        }),
      );
      if (this.#isNew) this.#resumed = undefined;
      if (this.#early) this.#look(this.#early.sighting, this.#early.at);
      this.#early = undefined;
      this.#opened = true;
      this.#block(undefined);
      this.#endIfDone();
    };
    covered.then(begun).catch((thrown) => this.#end(asRefusal(thrown)));
  }

  observe(seen: Seen): void {
    if (this.#over || this.#ending) return;
    const at = steadyNow();
    this.#heardAt = at;
    if (seen.instruction !== undefined) this.#flights.instruction = seen.instruction;
    const sighting = this.#sights.of(seen);
    if (this.#opened) this.#look(sighting, at);
    else this.#wait(sighting, at);
  }

  #look(sighting: Sighting<Seen>, at: number): void {
    if (sighting.step === this.#resumed?.chunk.startStep) this.#voice.replay(this.#resumed, at, this.#loop.dropped);
    else this.#happen({ kind: "observed", at, sighting });
  }

  /** Of those that come before it is opened the newest is looked at. */
  #wait(sighting: Sighting<Seen>, at: number): void {
    if (this.#early) this.#loop.dropped += 1;
    if (!this.#early || sighting.step > this.#early.sighting.step) this.#early = { sighting, at };
  }

  reset(instruction: string | undefined): void {
    this.#heardAt = steadyNow();
    if (instruction !== undefined) this.#flights.instruction = instruction;
    this.#course.outdate();
    this.#isNew = true;
    this.#resumed = undefined;
    if (this.#early) this.#loop.dropped += 1;
    this.#early = undefined;
    this.#happen({ kind: "reset", at: steadyNow() });
  }

  /** The caller is done. */
  finish(): void {
    this.#end(undefined);
  }

  room(): void {
    if (this.#voice.room()) this.#block(undefined);
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
    this.#voice.tidy();
    if (this.#voice.unreadMs(now) >= PATIENCE_MS) this.#end(refuse(Reason.REQUEST_TIMEOUT, "the chunks are not read"));
    else if (now - this.#heardAt >= SILENCE_MS)
      this.#end(refuse(Reason.REQUEST_TIMEOUT, "no observation came for 15 minutes"));
    else if (!this.#loop.busy && !this.#delivery.busy) this.#tab.tidy();
  }

  /** Nothing may be dispatched for this reason; undefined when it may again. */
  #block(why: HoldReason | undefined): void {
    this.#happen({ kind: "blocked", at: steadyNow(), why });
  }

  /** Lets something happen to the loop, and does what it asks for. */
  #happen(event: LoopEvent<Seen>): void {
    if (this.#over) return;
    const effects = this.#effects ?? [];
    // What happens meanwhile has a list of its own.
    this.#effects = undefined;
    const count = this.#loop.into(effects, event);
    for (let i = 0; i < count; i++) this.#carryOut(effects[i]!, event.at);
    for (let i = 0; i < count; i++) effects[i] = undefined;
    this.#effects = effects;
    this.#arm();
    if (this.#ending) this.#endIfDone();
  }

  #carryOut(effect: LoopEffect<Seen>, at: number): void {
    switch (effect.kind) {
      case "dispatch":
        this.#flights.dispatch(effect, at);
        return;
      case "deliver":
        this.#delivery.deliver(effect);
        return;
      case "cancel":
        this.#flights.callOff(effect.flight);
        return;
      case "told":
        if (effect.outcome !== "ok") this.#course.outdate();
        this.#house.supply.health.report(effect.offeringId, effect);
        return;
      case "hold":
        this.#voice.hold(effect);
    }
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

  #endIfDone(): void {
    if (this.#ending && this.#opened && !this.#loop.busy && !this.#delivery.busy) this.#end(this.#ending.refusal);
  }

  #end(refusal: Refusal | undefined): void {
    if (this.#over) return;
    const { dropped } = this.#loop;
    this.#stop(refusal);
    this.#voice.end(refusal, this.#opened, dropped);
  }

  /** Nothing happens any longer: calls are called off, what is owed is settled. */
  #stop(refusal: Refusal | undefined): void {
    if (this.#over) return;
    const at = steadyNow();
    for (const effect of this.#loop.next({ kind: "closed", at })) this.#carryOut(effect, at);
    this.#over = true;
    this.#forgetWake();
    this.#house.loops.leave(this, this.#tally.whole.figures);
    this.#tally.close();
    if (this.session !== undefined) {
      this.#house.resumption.end(this.session, this.id, this.last, keyOf(this.#call).settings.zdr);
    }
    this.#tab.close(refusal);
  }
}

/** How old an observation may be: as the caller says, and no older than its chunk lasts. */
function deadlineOf({ provider, units }: Intent, { offering }: PlanStep): number {
  const lasts = offering.dtMs > 0 ? offering.dtMs * units : Number.POSITIVE_INFINITY;
  return Math.min(provider?.deadlineMs ?? LONGEST_DEADLINE_MS, lasts, LONGEST_DEADLINE_MS);
}
