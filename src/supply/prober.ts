/**
 * Offerings that rest after failures are asked by the gateway itself, so that no caller pays for finding out that they serve again: as soon
 * as their rest is over, and once a second before that while callers find nothing else.
 */
import { every, steadyNow } from "../clock.ts";
import { AttemptFailure, UpstreamFailure } from "../contracts/failure.ts";
import type { Offering } from "../routing/index.ts";
import type { LiveSupply } from "./live-supply.ts";
import { askCanary } from "./probe/canary.ts";
import type { ProbeDeps } from "./probe/run.ts";

/** How often it is looked whose rest is over. */
const LOOK_MS = 250;
/** What answers no sooner is not asked before its rest is over: the next question may find it. */
const EARLY_MS = 2_000;
/** Offerings that are asked at one time. */
const MOST_AT_ONCE = 16;
/** So many answers in a row close a breaker. */
const QUESTIONS = 2;

/** Asks what rests, for one replica. */
export class Prober {
  readonly #supply: LiveSupply;
  readonly #deps: ProbeDeps;
  readonly #rest: () => void;
  readonly #asking = new Set<Promise<void>>();

  constructor(supply: LiveSupply, deps: ProbeDeps) {
    this.#supply = supply;
    this.#deps = deps;
    supply.health.onWanted = (offering) => this.#ask(offering, Math.min(offering.timeoutMs, EARLY_MS));
    this.#rest = every(LOOK_MS, () => {
      for (const offering of supply.health.due(steadyNow())) this.#ask(offering, patienceWith(offering));
    });
  }

  /** Asks no more, and waits for what is under way. */
  async close(): Promise<void> {
    this.#rest();
    this.#supply.health.onWanted = () => {};
    await Promise.all(this.#asking);
  }

  #ask({ id }: Offering, budgetMs: number): void {
    if (this.#asking.size >= MOST_AT_ONCE) return;
    const asking = this.#askTwice(id, budgetMs).finally(() => this.#asking.delete(asking));
    this.#asking.add(asking);
  }

  async #askTwice(id: string, budgetMs: number): Promise<void> {
    const { health } = this.#supply;
    for (let count = 0; count < QUESTIONS; count++) {
      const live = this.#supply.find(id);
      if (!live || !health.beginProbe(id, steadyNow(), budgetMs)) return;
      const verdict = await this.#verdictOn(id, budgetMs);
      health.endProbe(id, verdict, steadyNow());
      if (verdict !== "succeeded") return;
    }
  }

  /** A question that is answered wrongly says nothing: a caller's may be answered better. */
  async #verdictOn(id: string, budgetMs: number): Promise<"succeeded" | "failed" | "released"> {
    try {
      const live = this.#supply.find(id);
      if (!live) return "released";
      const { wire, target, bounds } = this.#supply.reach(live.offering, live.offering.actionDim);
      await askCanary(this.#deps, { offering: live.offering, wire, target, bounds }, budgetMs);
      return "succeeded";
    } catch (thrown) {
      return thrown instanceof UpstreamFailure && SILENT.has(thrown.failure) ? "failed" : "released";
    }
  }
}

/** Failures of a server that is not there, or does not answer. */
const SILENT: ReadonlySet<AttemptFailure> = new Set([
  AttemptFailure.UNREACHABLE,
  AttemptFailure.CONNECTION_LOST,
  AttemptFailure.TIMEOUT,
]);

/** How long an offering may take when its rest is over: one that is scaled to zero has to wake. */
const patienceWith = ({ scaledownS, timeoutMs, coldTimeoutMs }: Offering): number =>
  scaledownS === undefined ? timeoutMs : coldTimeoutMs;
