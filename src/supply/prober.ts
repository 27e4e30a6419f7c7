/**
 * Sends health checks to offerings with open breakers, so that no caller pays for finding out that they work again: when the cooldown ends,
 * and once a second before that while callers find no other offering. Offerings that fail only one organization's calls are checked before
 * their breaker opens, with known-good input, because that organization's input may be the cause.
 */
import { Cancel, type Signal } from "../cancellation.ts";
import { every, steadyNow } from "../clock.ts";
import { AttemptFailure, Contract, dimensionOf, UpstreamFailure } from "../contracts/contract.ts";
import type { Offering, Verdict } from "../routing/index.ts";
import type { LiveSupply } from "./live-supply.ts";
import { chunkAsker, frameAsker, placeAsker } from "./probe/checks.ts";
import { type ProbeDeps, ProbeRun, type ProbeSubject, SQUARE } from "./probe/run.ts";

/** Interval at which ended cooldowns are checked. */
const LOOK_MS = 250;
/** An offering with a higher latency is not checked before its cooldown ends. */
const EARLY_MS = 2_000;
/** An offering with a higher latency after its cooldown is left to callers. */
const LONGEST_MS = 30_000;
/** Concurrent health checks in total and per provider, so that a hanging server does not delay the others. */
const MOST_AT_ONCE = 256;
const MOST_OF_ONE = 4;
/** Number of consecutive passes that close a breaker. */
const QUESTIONS = 2;

/** Sends health checks to offerings with open breakers, for one replica. */
export class Prober {
  readonly #supply: LiveSupply;
  readonly #deps: ProbeDeps;
  readonly #stopLooking: () => void;
  readonly #over = new Cancel();
  readonly #asking = new Set<Promise<void>>();
  /** By provider: number of its running health checks. */
  readonly #askingOf = new Map<string, number>();

  constructor(supply: LiveSupply, deps: ProbeDeps) {
    this.#supply = supply;
    this.#deps = deps;
    supply.health.onWanted = (offering) => this.#ask(offering, (of) => this.#askTwice(of, EARLY_MS));
    supply.health.onDoubted = (offering) => this.#ask(offering, (of) => this.#askInDoubt(of));
    this.#stopLooking = every(LOOK_MS, () => {
      for (const offering of supply.health.due(steadyNow()))
        this.#ask(offering, (of) => this.#askTwice(of, LONGEST_MS));
    });
  }

  /** Stops and cancels running health checks. */
  async close(): Promise<void> {
    this.#stopLooking();
    this.#supply.health.onWanted = () => {};
    this.#supply.health.onDoubted = () => {};
    this.#over.abort(undefined);
    await Promise.all(this.#asking);
  }

  #ask(offering: Offering, ask: (offering: Offering) => Promise<void>): void {
    const { provider } = offering;
    const others = this.#askingOf.get(provider) ?? 0;
    if (this.#asking.size >= MOST_AT_ONCE || others >= MOST_OF_ONE) return;
    this.#askingOf.set(provider, others + 1);
    const asking = ask(offering).finally(() => {
      this.#asking.delete(asking);
      const left = this.#askingOf.get(provider)! - 1;
      if (left > 0) this.#askingOf.set(provider, left);
      else this.#askingOf.delete(provider);
    });
    this.#asking.add(asking);
  }

  async #askTwice(offering: Offering, mostMs: number): Promise<void> {
    const { health } = this.#supply;
    const { id } = offering;
    const budgetMs = Math.min(patienceWith(offering), mostMs);
    for (let count = 0; count < QUESTIONS; count++) {
      if (!this.#supply.find(id) || this.#over.aborted || !health.beginProbe(id, steadyNow(), budgetMs)) return;
      const verdict = await this.#verdictOn(offering, budgetMs);
      health.endProbe(id, verdict, steadyNow());
      if (verdict !== "succeeded") return;
    }
  }

  /**
   * One pass clears the offering, two failures confirm the problem: the first may be a side effect of the failing calls. A wrong response
   * is a failure too, because the same request passed when the offering was verified.
   */
  async #askInDoubt(offering: Offering): Promise<void> {
    const { health } = this.#supply;
    const { id } = offering;
    const budgetMs = Math.min(patienceWith(offering), LONGEST_MS);
    if (!this.#supply.find(id) || this.#over.aborted || !health.beginDoubt(id, steadyNow())) return;
    let [verdict, failure]: [Verdict, AttemptFailure | undefined] = ["succeeded", undefined];
    try {
      await this.#question(offering, budgetMs, true).catch((thrown: unknown) => {
        if (this.#over.aborted) throw thrown;
        return this.#question(offering, budgetMs, true);
      });
    } catch (thrown) {
      failure = thrown instanceof UpstreamFailure ? thrown.failure : AttemptFailure.MALFORMED_ANSWER;
      const wasCutShort = failure === AttemptFailure.TIMEOUT && budgetMs < patienceWith(offering);
      const saysNothing = wasCutShort || failure === AttemptFailure.UPSTREAM_BUSY || this.#over.aborted;
      verdict = saysNothing || !this.#supply.find(id) ? "released" : "failed";
    }
    health.endDoubt(id, verdict, failure, steadyNow());
  }

  /** Sends a request like a caller's. */
  async #question(offering: Offering, budgetMs: number, thorough: boolean): Promise<void> {
    const { actionSpaces, actionDim } = offering;
    const reached = this.#supply.reach(offering, dimensionOf(actionSpaces[0] ?? "", actionDim));
    const subject = { offering, ...reached, bounds: reached.bounds };
    await askCanary(this.#deps, subject, { budgetMs, signal: this.#over, thorough });
  }

  /** A wrong response gives no verdict: a caller's request may succeed. */
  async #verdictOn(offering: Offering, budgetMs: number): Promise<Verdict> {
    try {
      const live = this.#supply.find(offering.id);
      if (!live) return "released";
      await this.#question(live.offering, budgetMs, false);
      return "succeeded";
    } catch (thrown) {
      if (!(thrown instanceof UpstreamFailure)) return "released";
      const { failure } = thrown;
      // It may take longer than its timeout.
      if (failure === AttemptFailure.TIMEOUT && budgetMs < patienceWith(offering)) return "released";
      return SILENT.has(failure) ? "failed" : "released";
    }
  }
}

/** Failures of a server that is down or does not respond. */
const SILENT: ReadonlySet<AttemptFailure> = new Set([
  AttemptFailure.UNREACHABLE,
  AttemptFailure.CONNECTION_LOST,
  AttemptFailure.TIMEOUT,
]);

/** Timeout after a cooldown: an offering scaled to zero needs a cold start. */
const patienceWith = ({ scaledownS, timeoutMs, coldTimeoutMs }: Offering): number =>
  scaledownS === undefined ? timeoutMs : (coldTimeoutMs ?? timeoutMs);

/** Options of a health check. */
interface CanaryOptions {
  /** Milliseconds of each request. */
  budgetMs: number;
  /** Cancels all requests when aborted. */
  signal: Signal;
  /** Also request a frame and a point, if it serves predict and ground: these are too expensive for frequent checks. */
  thorough?: boolean;
}

/**
 * Checks whether an offering responds, and requests a chunk of a few steps if it serves act. Throws an `UpstreamFailure` if it does not
 * respond, and another error if the response is invalid.
 */
async function askCanary(
  deps: ProbeDeps,
  subject: ProbeSubject,
  { budgetMs, signal, thorough = false }: CanaryOptions,
): Promise<void> {
  const run = new ProbeRun(deps, subject, async () => {}, budgetMs);
  const callOff = (): void => run.callOff();
  signal.addEventListener("abort", callOff, { once: true });
  try {
    await subject.wire.health(subject.target, run.call());
    const { contracts } = subject.offering;
    const aside = { aside: true };
    if (contracts.includes(Contract.ACT)) await chunkAsker(run)(await run.observation(SQUARE, 0), aside);
    if (!thorough) return;
    if (contracts.includes(Contract.GROUND)) await placeAsker(run)(await run.observation(SQUARE, 0), aside);
    if (contracts.includes(Contract.PREDICT)) await frameAsker(run, 1)([await run.observation(SQUARE, 0)], aside);
  } finally {
    signal.removeEventListener("abort", callOff);
    run.stopTimers();
  }
}
