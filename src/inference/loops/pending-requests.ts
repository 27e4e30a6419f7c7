/** The questions of a loop that are on their way: asked when they may be and are paid for, and what comes of each. */
import { steadyNow } from "../../ambient.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { asRefusal, Reason, Refusal } from "../../errors.ts";
import type { Dispatch, Hedges, LoopEvent } from "../../routing/index.ts";
import type { Call } from "../../call.ts";
import type { Course } from "./plan-tracker.ts";
import { type Asker, Flight } from "./pending-request.ts";
import type { Seen } from "./observation-view.ts";
import type { Tab } from "./loop-billing.ts";
import type { Ways } from "./upstream-channels.ts";

/** Whose questions they are. */
export interface FlightsOptions {
  readonly call: Call;
  readonly ways: Ways;
  readonly tab: Tab;
  readonly course: Course;
  readonly hedges: Hedges;
  readonly happen: (event: LoopEvent<Seen>) => void;
  readonly end: (refusal: Refusal) => void;
}

/** One loop's questions. */
export class Flights implements Asker {
  readonly #options: FlightsOptions;
  /** One for each observation that is asked about, or two where it was hedged. */
  readonly #flights: Flight[] = [];
  /** What is to be done, in words. */
  instruction: string;

  constructor(options: FlightsOptions, instruction: string) {
    this.#options = options;
    this.instruction = instruction;
  }

  /** Asks, at `at`; at once where it may. */
  dispatch(effect: Dispatch<Seen>, at: number): void {
    const flight = new Flight(this, effect);
    this.#flights.push(flight);
    this.#options.hedges.earn();
    const may = this.#admitted(effect.fresh, at);
    if (may instanceof Promise) {
      this.#options.happen({ kind: "waits", at, flight: effect.flight });
      this.#askLater(may, effect, flight);
    } else this.#ask(effect, flight);
  }

  #askLater(may: Promise<void>, effect: Dispatch<Seen>, flight: Flight): void {
    may.then(
      () => {
        if (flight.aborted) return;
        this.#options.happen({ kind: "asked", at: steadyNow(), flight: effect.flight });
        // Its time may have been over.
        if (!flight.aborted) this.#ask(effect, flight);
      },
      (thrown) => this.#unpaid(effect.flight, thrown),
    );
  }

  /** What comes of it is heard no more. */
  callOff(id: number): void {
    this.#landed(id)?.abort(undefined);
  }

  answered({ flight, step, sighting }: Dispatch<Seen>, answer: ActAnswer): void {
    if (!this.#landed(flight)) return;
    const { ways, happen, end } = this.#options;
    try {
      if (ways.exceeds(step, sighting.payload, answer))
        this.#failed(flight, new UpstreamFailure(AttemptFailure.UNSAFE_ACTION, "beyond the bounds that hold here"));
      else happen({ kind: "answered", at: steadyNow(), flight, answer });
    } catch (thrown) {
      // Whoever carried the answer carries those of other loops too.
      end(asRefusal(thrown));
    }
  }

  failed({ flight }: Dispatch<Seen>, thrown: unknown): void {
    if (this.#landed(flight)) this.#failed(flight, thrown);
  }

  /** Ends a flight that is on its way; undefined where it is no longer. */
  #landed(id: number): Flight | undefined {
    const flights = this.#flights;
    const last = flights.at(-1);
    if (last?.id === id) return flights.pop();
    const at = flights.findIndex((flight) => flight.id === id);
    return at < 0 ? undefined : flights.splice(at, 1)[0];
  }

  /** Whether the key may take this step and the tab covers it; rejects with the refusal. A step counts once, whoever is asked. */
  #admitted(fresh: boolean, at: number): Promise<void> | void {
    const { tab, course } = this.#options;
    const counted = fresh ? this.#step() : undefined;
    return counted === undefined ? tab.cover(course.plan, at) : this.#coverAfter(counted);
  }

  #coverAfter(counted: Promise<void>): Promise<void> {
    const { tab, course } = this.#options;
    return counted.then(() => tab.cover(course.plan));
  }

  #step(): Promise<void> | undefined {
    try {
      return this.#options.call.step?.();
    } catch (refused) {
      return Promise.reject(refused);
    }
  }

  #ask({ step, sighting, budgetMs }: Dispatch<Seen>, flight: Flight): void {
    this.#options.ways.ask(flight, step, sighting.payload, this.instruction, budgetMs);
  }

  #failed(flight: number, thrown: unknown): void {
    const { happen, end } = this.#options;
    const at = steadyNow();
    if (thrown instanceof UpstreamFailure) happen({ kind: "failed", at, flight, failure: thrown.failure });
    else if (thrown instanceof Refusal) happen({ kind: "refused", at, flight, detail: thrown.message });
    else end(asRefusal(thrown));
  }

  /** No credit ends the loop; a ledger that is away and a rate limit make the robot hold. */
  #unpaid(flight: number, thrown: unknown): void {
    this.#landed(flight);
    const { happen, end } = this.#options;
    const refusal = asRefusal(thrown);
    const at = steadyNow();
    if (refusal.reason === Reason.STORE_UNAVAILABLE) happen({ kind: "unpaid", at, flight });
    else if (refusal.reason === Reason.RATE_LIMIT_EXCEEDED)
      happen({ kind: "limited", at, flight, detail: refusal.message });
    else end(refusal);
  }
}
