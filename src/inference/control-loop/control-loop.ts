/** Runs a control loop: `routing/loop` decides, `ControlLoop` does the I/O. */
import { create } from "@bufbuild/protobuf";
import { HoldReason, type LoopOpen, LoopOpenSchema, type LoopReset } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ActStreamRequest, ActStreamResponse } from "../../../gen/limber/v1/inference_service_pb.ts";
import { type LoopAction, LoopActionSchema, type RunningLoop } from "../../../gen/limber/v1/loop_pb.ts";
import type { Frame } from "../../../gen/limber/v1/observation_pb.ts";
import { type Call, keyOf, type StreamHandler, type StreamWriter } from "../../call.ts";
import { after, nowSeconds, sleep, steadyNow } from "../../clock.ts";
import * as act from "../../contracts/act.ts";
import { assertBounds, exceeds } from "../../contracts/act.ts";
import { DEFAULT_ACTION_SPACE, type Intent, violation } from "../../contracts/contract.ts";
import { asRefusal, Reason, type Refusal, refuse } from "../../errors.ts";
import {
  type DeliverEffect,
  Loop,
  type LoopEffect,
  type LoopEvent,
  type LoopGauge,
  type LoopRules,
  type ObservationView,
  type PlanStep,
  type Wake,
} from "../../routing/index.ts";
import { type InferenceDeps, moverOf, preferenceWord, refuseLargeMetadata, robotIn, robotOf } from "../call.ts";
import type { CallFacts, Charge } from "../call-billing.ts";
import { inItsActionSpace, type Prepared, prepare } from "../prepare.ts";
import type { SessionPin } from "../sessions.ts";
import type { Mover } from "../stops.ts";
import { LoopBilling } from "./loop-billing.ts";
import { ObservationViews, type ParsedObservation, PlanTracker } from "./loop-plan.ts";
import type { LeftBehind, ResumedChunk } from "./loop-registry.ts";
import {
  type Carried,
  draining,
  LoopCounts,
  type LoopFacts,
  runningLoopOf,
  StretchCounts,
  takenOver,
} from "./loop-registry.ts";
import { PendingRequests, UpstreamChannels } from "./loop-requests.ts";
import { heldBack, LoopWriter, newRoute, openedOf } from "./loop-writer.ts";
import type { SessionStream, TakenSession } from "./resumption.ts";

/** Milliseconds without a read by the client after which its loop ends. */
const PATIENCE_MS = 10_000;
/** Milliseconds without an observation after which a loop ends. Source: specification, "Limits": the life of a pin. */
const SILENCE_MS = 15 * 60_000;
/** The longest deadline of an observation, in milliseconds. */
const LONGEST_DEADLINE_MS = 10_000;
/** Hold reasons caused by the last offering. */
const OF_THE_OFFERING: ReadonlySet<HoldReason> = new Set([
  HoldReason.LATE,
  HoldReason.UPSTREAM_FAILED,
  HoldReason.OUT_OF_BOUNDS,
]);
/** Milliseconds between two renewals of a pin. */
const TOUCH_MS = 1_000;
/** Minimum milliseconds between two recorded episodes of a stream. */
const RECORD_MS = 100;
/** The greatest episode number of the schema. */
const LAST_EPISODE = 2_147_483_647;

/** One robot's control loop. `routing/loop` decides; this class does the I/O. */
class ControlLoop implements Carried {
  readonly #session: SessionPin | undefined;
  readonly mover: Mover;
  readonly #deps: InferenceDeps;
  readonly #call: Call;
  readonly #space: string;
  readonly #billing: LoopBilling;
  readonly #loop: Loop<ParsedObservation>;
  readonly #deadlineMs: number;
  readonly #views = new ObservationViews();
  readonly #requests: PendingRequests;
  readonly #channels: UpstreamChannels;
  readonly #writer: LoopWriter;
  readonly #tracker: PlanTracker;
  readonly #tally: LoopCounts;
  /** Constant facts, for watchers. */
  readonly #about: LoopFacts;
  /** Effects to carry out, in a reused list; undefined while it is being read. */
  #effects: (LoopEffect<ParsedObservation> | undefined)[] | undefined = [];
  #opened = false;
  #over = false;
  /** Set when the loop has to end once no response is pending: with a refusal, or normally. */
  #ending: { refusal: Refusal | undefined } | undefined;
  #wakeAt = Number.POSITIVE_INFINITY;
  #forgetWake = (): void => {};
  #heardAt = steadyNow();
  #touchedAt = Number.NEGATIVE_INFINITY;
  /** The episode that the caller named in `open`. */
  readonly #asked: number | undefined;
  /** The session in the database; undefined for a stream without one. */
  #taken: Promise<TakenSession> | undefined;
  /** Whether the charges of the previous stream are known. */
  #known = false;
  /** The last chunk of the previous stream, until this stream charges one or an episode begins. */
  #resumed: ResumedChunk | undefined;
  /** The newest observation that came before `#known`. */
  #early: { readonly view: ObservationView<ParsedObservation>; readonly at: number } | undefined;
  /** Episodes that started before `#known`: the caller's last number, and the count of later resets without a number. */
  #earlyReset: { readonly base: number | undefined; readonly more: number } | undefined;
  /** Whether the present episode is not recorded yet. */
  #recording = false;
  #recordedAt = Number.NEGATIVE_INFINITY;
  /** The last chunk that waits for its charge; undefined if none does. */
  #sending: Promise<void> | undefined;
  /** Number of chunks of the present episode that wait for their charge. */
  #waiting = 0;
  /** Limits of the stream's own. */
  readonly #bounds: LoopOpen["bounds"];
  /** Until when a client watches its pictures, on the steady clock in milliseconds. */
  #shownUntil = Number.NEGATIVE_INFINITY;
  /** The newest observation, kept only while its pictures are watched. */
  #seen: ParsedObservation | undefined;
  /** Notices of chunks that were not sent, for the next chunk. */
  #notices = NO_NOTICES;

  /** Plans the loop. Throws a refusal if no offering can serve it. */
  constructor(
    deps: InferenceDeps,
    speaker: StreamWriter<ActStreamResponse>,
    call: Call,
    { request: open, ownKeys, session }: Prepared<LoopOpen>,
  ) {
    refuseLargeMetadata(open.metadata);
    const intent = act.intentOf({ ...open, observations: [], returnPrediction: false, wholeChunk: false });
    const space = intent.actionSpace ?? DEFAULT_ACTION_SPACE;
    this.#deps = deps;
    this.#call = call;
    this.#session = session;
    this.#asked = open.episode;
    this.#bounds = open.bounds;
    this.#space = space;
    this.mover = moverOf(intent, call, open);
    deps.stops.assertMayMove(this.mover);
    if (deps.loops.draining) throw draining();
    const { instruction = "", goalImage } = open;
    this.#tracker = new PlanTracker(deps, { intent, ownKeys, session }, call, space, { instruction, goalImage });
    const first = this.#tracker.plan.steps[0]!;
    assertBounds(open.bounds, this.#tracker.dimOf(first), "open.bounds");
    const deadlineMs = deadlineOf(intent, first);
    this.#deadlineMs = deadlineMs;
    this.#about = loopFactsOf(call, open, space, deadlineMs);
    this.#tally = new LoopCounts(deps.loops, steadyNow());
    const watch = deps.broadcast.of(keyOf(call).orgId);
    const stretch = new StretchCounts();
    const facts = { ...callFactsOf(open, this.#about), watch, stretch };
    this.#billing = new LoopBilling(deps.leaser, call, facts, (whole, less) => this.#tracker.narrow(whole, less));
    const input = { ...inputOf(intent, open, space), sessionId: session?.name };
    this.#channels = new UpstreamChannels({ deps, call, open, ownKeys, tracker: this.#tracker, watch, input });
    this.#requests = new PendingRequests({
      deps,
      call,
      channels: this.#channels,
      billing: this.#billing,
      tracker: this.#tracker,
      happen: (event) => this.#happen(event),
      end: (refusal) => this.#end(refusal),
      instruction,
    });
    this.#writer = new LoopWriter({
      speaker,
      streamId: call.requestId,
      space,
      deadlineMs,
      tally: this.#tally,
      stretch,
      unread: () => this.#reblock(),
    });
    this.#loop = new Loop(this.#rulesOf(intent, open, first), this.#tracker);
  }

  #rulesOf(intent: Intent, { bounds }: LoopOpen, { units }: PlanStep): LoopRules {
    const { hedgeAfterMs, maxCostMicro } = this.#tracker.plan;
    return {
      intent: { ...intent, units },
      deadlineMs: this.#deadlineMs,
      hedgeAfterMs,
      maxCostMicro,
      models: intent.models,
      broken: (answer) => exceeds(bounds, answer),
      beside: (step, underWay) =>
        this.#channels.carriesMany(step) && this.#billing.covers(this.#tracker.plan, underWay + 1),
    };
  }

  /** The session's name, unique among all organizations, here and at providers. */
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

  shown(at: number): RunningLoop {
    return runningLoopOf(this.#about, this.#tally, { at, dropped: this.#loop.dropped, episode: this.#writer.episode });
  }

  lastAction(at: number): LoopAction | undefined {
    const last = this.#writer.last;
    if (last === undefined) return undefined;
    const { action, startStep, validUntilStep, observationAgeMs, episode } = last.chunk;
    return create(LoopActionSchema, {
      loopId: this.id,
      startStep,
      validUntilStep,
      ageMs: Math.round(observationAgeMs + at - last.toldAt),
      episode,
      ...(action && { action }),
      ...(this.#bounds && { bounds: this.#bounds }),
    });
  }

  get isPrivate(): boolean {
    return keyOf(this.#call).settings.zdr;
  }

  newestFrames(until: number): readonly Frame[] | undefined {
    this.#shownUntil = until;
    const seen = this.#seen;
    this.#seen = undefined;
    return seen?.observations.at(-1)?.frames;
  }

  /**
   * The chunk that a resumed session does not pay for again: the last one of this stream, or else of the previous stream, in this episode.
   */
  get left(): LeftBehind | undefined {
    return this.#known ? { episode: this.#writer.episode, last: this.#writer.last ?? this.#resumed } : undefined;
  }

  /** Takes the session, reserves credit, then sends `opened`. Keeps the newest observation that arrives meanwhile. */
  begin(): void {
    const before = this.#deps.loops.enter(this);
    before?.cut(takenOver());
    this.#reblock();
    const by = this.#stream;
    this.#taken = by && this.#deps.resumption.take(by, this.#asked);
    this.#open(before?.left).catch((thrown) => this.#end(asRefusal(thrown)));
  }

  /** Takes the stream's session; undefined if it has none. */
  get #stream(): SessionStream | undefined {
    return this.session === undefined ? undefined : { session: this.session, stream: this.id };
  }

  /** `here` is the state that a stream of this replica left. */
  async #open(here: LeftBehind | undefined): Promise<void> {
    const [, taken] = await Promise.all([this.#billing.cover(this.#tracker.plan), this.#taken]);
    if (this.#over) return;
    const found = newer(here, taken?.left);
    this.#announce(found, taken?.settled !== undefined);
    const settled = taken?.settled && found !== here ? newer(here, await taken.settled) : found;
    if (this.#over) return;
    this.#adopt(settled);
    if (this.#early) this.#look(this.#early.view, this.#early.at);
    this.#early = undefined;
    this.#reblock();
    this.#endIfDone();
  }

  /** `isLeaving`: the previous stream has not reported its end yet, so its pin may not have arrived either. */
  #announce(found: LeftBehind | undefined, isLeaving: boolean): void {
    const left = this.#goesOn(found) ? found : undefined;
    const pinned = this.#session !== undefined && this.#deps.sessions.get(this.#session) !== undefined;
    this.#enterAs(this.#asked ?? left?.episode ?? 1);
    this.#writer.opened(
      openedOf({
        id: this.id,
        step: this.#tracker.plan.steps[0]!,
        units: this.#tracker.plan.steps[0]!.units,
        deadlineMs: this.#deadlineMs,
        resumed: this.#goesOn(found) && (pinned || isLeaving || left?.last !== undefined),
        last: left?.last?.chunk,
        episode: this.#writer.episode,
        space: this.#space,
        input: this.#deps.supply.inputOf(this.#tracker.plan.steps[0]!.offering),
      }),
    );
    this.#opened = true;
  }

  /** Whether the caller is in the previous stream's episode, as far as is known. */
  #goesOn(found: LeftBehind | undefined): boolean {
    return found === undefined || this.#asked === undefined || this.#asked === found.episode;
  }

  /** Resumes where the previous stream ended, or starts the episode that the caller has requested since. */
  #adopt(found: LeftBehind | undefined): void {
    this.#known = true;
    const goesOn = this.#goesOn(found);
    this.#enterAs(this.#asked ?? found?.episode ?? 1);
    this.#resumed = goesOn ? found?.last : undefined;
    // The pin may not have arrived from the other replica yet.
    const pin = this.#session && this.#deps.sessions.get(this.#session);
    const model = pin?.model ?? this.#resumed?.chunk.route?.model;
    if (goesOn && model !== undefined) this.#loop.resume(model);
    if (this.#earlyReset) this.#enter((this.#earlyReset.base ?? this.#writer.episode) + this.#earlyReset.more);
    this.#earlyReset = undefined;
  }

  observe(seen: ParsedObservation): void {
    if (this.#over || this.#ending) return;
    const at = steadyNow();
    this.#heardAt = at;
    this.#tally.live.observed(at);
    if (at < this.#shownUntil) this.#seen = seen;
    if (seen.instruction !== undefined) this.#instruct(seen.instruction);
    const view = this.#views.of(seen);
    if (this.#known) this.#look(view, at);
    else this.#wait(view, at);
  }

  #instruct(instruction: string): void {
    this.#requests.instruction = instruction;
    this.#tracker.instruction = instruction;
  }

  #look(view: ObservationView<ParsedObservation>, at: number): void {
    if (view.step === this.#resumed?.chunk.startStep) this.#writer.replay(this.#resumed, this.#loop.dropped);
    else this.#happen({ kind: "observed", at, view });
  }

  /** Only the newest observation that arrives before `opened` is used. */
  #wait(view: ObservationView<ParsedObservation>, at: number): void {
    if (this.#early) this.#loop.dropped += 1;
    if (!this.#early || view.step > this.#early.view.step) this.#early = { view, at };
  }

  /** Starts a new episode: chunks of the previous one are no longer sent. */
  reset({ instruction, episode }: Pick<LoopReset, "instruction" | "episode">): void {
    if (this.#over) return;
    this.#heardAt = steadyNow();
    if (instruction !== undefined) this.#instruct(instruction);
    if (this.#early) this.#loop.dropped += 1;
    this.#early = undefined;
    if (this.#known) this.#enter(episode ?? this.#writer.episode + 1);
    else this.#enterLater(episode);
  }

  #enterLater(episode: number | undefined): void {
    const { base, more } = this.#earlyReset ?? { base: this.#asked, more: 0 };
    if (episode === undefined) this.#earlyReset = { base, more: more + 1 };
    else if (base !== undefined && episode <= base + more) this.#end(mustGrow(base + more));
    else this.#earlyReset = { base: episode, more: 0 };
  }

  /** Starts the episode with this number. It is acknowledged when no stream of the session can resume an earlier one. */
  #enter(episode: number): void {
    if (episode <= this.#writer.episode || episode > LAST_EPISODE) {
      this.#end(mustGrow(this.#writer.episode));
      return;
    }
    this.#tracker.outdate();
    this.#resumed = undefined;
    this.#enterAs(episode);
    this.#loop.dropped += this.#waiting;
    this.#waiting = 0;
    this.#happen({ kind: "reset", at: steadyNow() });
    const by = this.#stream;
    if (!by) this.#writer.acknowledge();
    else if (!this.#recording) this.#record(by).catch((thrown) => this.#end(asRefusal(thrown)));
  }

  /** Gives chunks and holds this episode number from now on, and names a new episode to providers. */
  #enterAs(episode: number): void {
    this.#writer.enter(episode);
    this.#channels.enter(episode);
  }

  /** Records the newest episode and acknowledges it. Episodes superseded in the meantime are not recorded. */
  async #record(by: SessionStream): Promise<void> {
    this.#recording = true;
    this.#reblock();
    for (let recorded = 0; recorded !== this.#writer.episode; ) {
      const waitMs = this.#recordedAt + RECORD_MS - steadyNow();
      if (waitMs > 0) await sleep(waitMs);
      if (this.#over) return;
      this.#recordedAt = steadyNow();
      recorded = this.#writer.episode;
      await this.#deps.resumption.reset(by, recorded, () => this.#over || recorded !== this.#writer.episode);
      if (this.#over) return;
    }
    this.#recording = false;
    this.#writer.acknowledge();
    this.#reblock();
    this.#endIfDone();
  }

  /** The client has finished sending. */
  finish(): void {
    this.#end(undefined);
  }

  room(): void {
    if (this.#writer.room()) this.#reblock();
  }

  /** The connection is closed: nothing more is sent. */
  abandon(): void {
    this.#stop(refuse(Reason.CLIENT_CLOSED_REQUEST, "the caller left"));
  }

  drain(): void {
    this.drainAs(draining());
  }

  /** Ends the loop once no response is pending. */
  drainAs(refusal: Refusal | undefined): void {
    this.#ending ??= { refusal };
    this.#endIfDone();
  }

  cut(refusal: Refusal): void {
    this.#end(refusal);
  }

  tidy(): void {
    const now = steadyNow();
    this.#writer.tidy();
    if (now >= this.#shownUntil) this.#seen = undefined;
    if (this.#writer.unreadMs(now) >= PATIENCE_MS)
      this.#end(refuse(Reason.REQUEST_TIMEOUT, "the client stopped reading chunks"));
    else if (now - this.#heardAt >= SILENCE_MS)
      this.#end(refuse(Reason.REQUEST_TIMEOUT, "no observation arrived for 15 minutes"));
    else if (!this.#loop.busy && this.#sending === undefined) this.#billing.tidy();
  }

  /** Tells the loop whether it may dispatch, and the hold reason if not. */
  #reblock(): void {
    this.#happen({ kind: "blocked", at: steadyNow(), why: this.#blockedBy() });
  }

  #blockedBy(): HoldReason | undefined {
    if (!this.#known) return HoldReason.LATE;
    if (this.#recording) return HoldReason.NOT_RECORDED;
    return this.#writer.behind ? HoldReason.SLOW_READER : undefined;
  }

  /** Passes an event to the loop and carries out its effects. */
  #happen(event: LoopEvent<ParsedObservation>): void {
    if (this.#over) return;
    const effects = this.#effects ?? [];
    // Events during this call use a list of their own.
    this.#effects = undefined;
    const count = this.#loop.into(effects, event);
    for (let i = 0; i < count; i++) this.#carryOut(effects[i]!, event.at);
    for (let i = 0; i < count; i++) effects[i] = undefined;
    this.#effects = effects;
    this.#arm();
    if (this.#ending) this.#endIfDone();
  }

  #carryOut(effect: LoopEffect<ParsedObservation>, at: number): void {
    switch (effect.kind) {
      case "dispatch":
        this.#requests.dispatch(effect, at);
        return;
      case "deliver":
        this.#deliver(effect);
        return;
      case "cancel":
        this.#requests.callOff(effect.attempt);
        return;
      case "told":
        if (effect.outcome !== "ok") this.#tracker.outdate();
        this.#tracker.told(effect.offeringId, effect.outcome === "ok");
        this.#deps.supply.health.report(effect.offeringId, effect, keyOf(this.#call).orgId);
        return;
      case "hold":
        this.#deps.failing.held(this.#call, effect.tries, this.#deps.supply.health, at);
        if (OF_THE_OFFERING.has(effect.reason)) {
          const last = effect.tries.at(-1);
          if (last) this.#deps.supply.health.held(last.step.offering.id);
        }
        this.#writer.hold(effect);
    }
  }

  /** Sends a chunk once its charge is durable. Chunks leave in the order of their observations. */
  #deliver(effect: DeliverEffect<ParsedObservation>): void {
    // The first chunk of an offering that this loop started from zero carries the cold-start charge.
    const wake = effect.step.cold ? this.#tracker.takeWake(effect.step.offering.id) : undefined;
    const charge = this.#chargeOf(effect, false);
    if (wake === undefined && this.#sending === undefined && this.#billing.isReady(charge)) {
      this.#send(effect, charge, effect.at);
      return;
    }
    const sending = this.#sendLater(effect, wake).finally(() => {
      if (this.#sending !== sending) return;
      this.#sending = undefined;
      this.#endIfDone();
    });
    this.#sending = sending;
  }

  /** Queues a chunk behind the waiting ones. A chunk of an earlier episode is dropped and not charged. */
  async #sendLater(effect: DeliverEffect<ParsedObservation>, wake: Wake | undefined): Promise<void> {
    const { episode } = this.#writer;
    const isOutdated = (): boolean => this.#writer.episode !== episode;
    this.#waiting += 1;
    let charge: Charge;
    try {
      const [pays] = await Promise.all([wake?.pays ?? false, this.#sending]);
      charge = this.#chargeOf(effect, pays);
      if (!isOutdated()) await this.#billing.ready(charge, this.#tracker.plan);
    } catch (thrown) {
      if (!isOutdated()) this.#waiting -= 1;
      this.#uncharged(effect, asRefusal(thrown), isOutdated());
      return;
    }
    if (isOutdated()) {
      this.#keepNotices(effect);
      return;
    }
    this.#waiting -= 1;
    if (this.#over) return;
    const at = steadyNow();
    const waitedMs = at - effect.at;
    if (effect.ageMs + waitedMs < this.#deadlineMs) this.#send(effect, charge, at);
    else {
      this.#keepNotices(effect);
      this.#writer.hold(heldBack(effect, HoldReason.LATE, waitedMs));
    }
  }

  #uncharged(effect: DeliverEffect<ParsedObservation>, refusal: Refusal, isOutdated: boolean): void {
    if (refusal.reason !== Reason.STORE_UNAVAILABLE) {
      this.#end(refusal);
      return;
    }
    this.#keepNotices(effect);
    if (!isOutdated) this.#writer.hold(heldBack(effect, HoldReason.NOT_RECORDED, steadyNow() - effect.at));
  }

  /** Adds this chunk's notices to the next chunk that is sent. */
  #keepNotices({ moved, episodeBreak }: DeliverEffect<ParsedObservation>): void {
    this.#notices = { moved: moved || this.#notices.moved, episodeBreak: episodeBreak || this.#notices.episodeBreak };
  }

  #send(answered: DeliverEffect<ParsedObservation>, charge: Charge, at: number): void {
    let effect = answered;
    if (this.#notices !== NO_NOTICES) {
      const { moved, episodeBreak } = this.#notices;
      this.#notices = NO_NOTICES;
      effect = { ...answered, moved: moved || answered.moved, episodeBreak: episodeBreak || answered.episodeBreak };
    }
    this.#resumed = undefined;
    this.#pin(effect.step, effect.moved, at);
    const route = newRoute(effect);
    this.#billing.add(charge, route, at);
    this.#writer.chunk(effect, charge, at, route);
  }

  #chargeOf({ step, answer, hedgeMicro, losers }: DeliverEffect<ParsedObservation>, pays: boolean): Charge {
    const units = act.unitsOf(answer);
    const wakeUpMicro = pays ? step.wakeUpMicro : 0;
    const mostMicro = this.#tracker.plan.maxCostMicro - wakeUpMicro;
    const { micro, restNano } = this.#billing.priceOf(units, step.unitNano, mostMicro);
    return { step, units, costMicro: micro + wakeUpMicro, wakeUpMicro, hedgeMicro, losers, restNano };
  }

  #pin({ offering }: PlanStep, moved: boolean, at: number): void {
    if (this.#session === undefined || (!moved && at - this.#touchedAt < TOUCH_MS)) return;
    this.#touchedAt = at;
    void this.#deps.sessions.served(this.#session, offering);
  }

  /** Keeps one timer: if it fires early it is set again, which costs less than one timer per message. */
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
    if (!this.#ending || !this.#known || this.#loop.busy || this.#sending !== undefined) return;
    const { refusal } = this.#ending;
    // A client that has finished still receives the acknowledgment of its last episode; a client that has to move does not wait for the
    // database.
    if (refusal || !this.#recording) this.#end(refusal);
  }

  #end(refusal: Refusal | undefined): void {
    if (this.#over) return;
    const { dropped } = this.#loop;
    this.#stop(refusal);
    this.#writer.end(refusal, this.#opened, dropped);
  }

  /** Ends all work: cancels calls and settles charges. */
  #stop(refusal: Refusal | undefined): void {
    if (this.#over) return;
    const at = steadyNow();
    for (const effect of this.#loop.next({ kind: "closed", at })) this.#carryOut(effect, at);
    this.#over = true;
    this.#forgetWake();
    this.#deps.loops.leave(this, this.#tally.whole.figures);
    this.#tally.close();
    void this.#leave();
    this.#billing.close(refusal);
  }

  /** Stores the state for the session's next stream: this stream's, or the one that it found. */
  async #leave(): Promise<void> {
    const by = this.#stream;
    if (!by) return;
    if (!this.#known) {
      const taken = await this.#taken;
      this.#adopt((await taken?.settled) ?? taken?.left);
    }
    if (this.left) this.#deps.resumption.end(by, this.left, keyOf(this.#call).settings.zdr);
  }
}

const NO_NOTICES = { moved: false, episodeBreak: false };

/** Builds the constant facts of a loop, for watchers. */
function loopFactsOf(call: Call, open: LoopOpen, actionSpace: string, deadlineMs: number): LoopFacts {
  const key = keyOf(call);
  return {
    id: call.requestId,
    key,
    robotId: robotOf(key, open.robotId ?? robotIn(open.metadata)),
    sessionId: open.provider?.sessionId,
    modelRequested: open.model,
    actionSpace,
    deadlineMs,
    since: nowSeconds(),
  };
}

/** The facts of a loop for its charges. */
function callFactsOf(
  { metadata, preset, preference }: LoopOpen,
  { id, robotId, sessionId, modelRequested, deadlineMs }: LoopFacts,
): CallFacts {
  const word = preferenceWord(preference);
  return { modelRequested, sessionId, deadlineMs, metadata, preset, preference: word, robotId, streamId: id };
}

/** The part of a request's input that all requests of a loop share. */
const inputOf = ({ seed }: Intent, { temperature }: LoopOpen, actionSpace: string) => ({
  seed,
  temperature,
  actionSpace,
  returnPrediction: false,
});

/** Returns the state with the later episode of two streams; the first if they are equal. */
function newer(one: LeftBehind | undefined, other: LeftBehind | undefined): LeftBehind | undefined {
  return one === undefined || (other !== undefined && other.episode > one.episode) ? other : one;
}

const mustGrow = (episode: number): Refusal =>
  violation("reset.episode", `must be greater than ${episode} and at most ${LAST_EPISODE}`, "greater_than");

/** The maximum age of an observation: the caller's value, but at most the duration of a chunk. */
function deadlineOf({ provider }: Intent, { offering, units }: PlanStep): number {
  const lasts = offering.dtMs > 0 ? offering.dtMs * units : Number.POSITIVE_INFINITY;
  return Math.min(provider?.deadlineMs ?? LONGEST_DEADLINE_MS, lasts, LONGEST_DEADLINE_MS);
}

/** Milliseconds within which a caller must send `open`. */
const OPEN_WITHIN_MS = 10_000;
/** Maximum number of messages queued while the preset is read. */
const MOST_WAITING = 256;

/** Serves one control-loop stream. */
export function actStream(
  deps: InferenceDeps,
  speaker: StreamWriter<ActStreamResponse>,
  call: Call,
): StreamHandler<ActStreamRequest> {
  const handler = new ActStreamHandler(deps, speaker, call);
  call.signal.addEventListener("abort", () => handler.abandon(), { once: true });
  return handler;
}

class ActStreamHandler implements StreamHandler<ActStreamRequest> {
  readonly #deps: InferenceDeps;
  readonly #speaker: StreamWriter<ActStreamResponse>;
  readonly #call: Call;
  #robot: ControlLoop | undefined;
  /** Messages that arrived while the preset was read; undefined before `open`. */
  #waiting: (() => void)[] | undefined;
  #abandoned = false;
  readonly #forgetOpen: () => void;

  constructor(deps: InferenceDeps, speaker: StreamWriter<ActStreamResponse>, call: Call) {
    this.#forgetOpen = after(OPEN_WITHIN_MS, () =>
      speaker.end(refuse(Reason.REQUEST_TIMEOUT, "no `open` message arrived in time")),
    );
    this.#deps = deps;
    this.#speaker = speaker;
    this.#call = call;
  }

  hear({ message }: ActStreamRequest): void {
    if (message.case === "open") {
      if (this.#waiting) throw violation("open", "must be sent only once, as the first message", "unexpected");
      this.#waiting = [];
      this.#forgetOpen();
      void this.#open(message.value);
      return;
    }
    if (!this.#waiting) throw violation("open", "must be the first message", "missing");
    if (message.case === "observation") {
      // The most frequent message.
      if (this.#robot) this.#robot.observe(message.value);
      else this.#tell((robot) => robot.observe(message.value));
    } else if (message.case === "reset") this.#tell((robot) => robot.reset(message.value));
    else this.#tell((robot) => robot.finish());
  }

  room(): void {
    this.#robot?.room();
  }

  close(): void {
    this.#forgetOpen();
    if (this.#waiting) this.#tell((robot) => robot.drainAs(undefined));
    else this.#speaker.end();
  }

  cut(refusal: Refusal): void {
    this.#forgetOpen();
    if (this.#robot) this.#robot.cut(refusal);
    else this.#speaker.end(refusal);
    this.#abandoned = true;
  }

  abandon(): void {
    this.#forgetOpen();
    this.#abandoned = true;
    this.#robot?.abandon();
  }

  /** Never rejects: a refusal ends the stream. */
  async #open(asked: LoopOpen): Promise<void> {
    try {
      const prepared = await prepare(this.#deps, LoopOpenSchema, asked, this.#call);
      const open = { ...prepared, request: inItsActionSpace(prepared.request, this.#deps.supply) };
      if (this.#abandoned) return;
      this.#robot = new ControlLoop(this.#deps, this.#speaker, this.#call, open);
      this.#robot.begin();
      for (const tell of this.#waiting?.splice(0) ?? []) tell();
    } catch (thrown) {
      this.#speaker.end(thrown);
    }
  }

  #tell(what: (robot: ControlLoop) => void): void {
    if (this.#robot) what(this.#robot);
    else if (this.#waiting && this.#waiting.length < MOST_WAITING) this.#waiting.push(() => this.#tell(what));
    else
      throw refuse(Reason.RATE_LIMIT_EXCEEDED, "wait for `opened` before sending more messages", {}, { retryAfter: 1 });
  }
}
