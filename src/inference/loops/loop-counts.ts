/** The figures of one control loop, in all and with the present offering, and its usage. */
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { toUsd } from "../../billing/price.ts";
import { LiveGauge, LoopGauge, type PlanStep } from "../../routing/index.ts";
import type { Charge } from "../call-billing.ts";
import type { LoopRegistry } from "./loop-registry.ts";

/** The counts of one loop. */
export class LoopCounts {
  /** The offering that serves it; undefined before any did. */
  offering: PlanStep["offering"] | undefined;
  /** With the present offering. */
  gauge = new LoopGauge();
  /** In all. */
  readonly whole = new LoopGauge();
  /** At this moment. */
  readonly live: LiveGauge;
  /** How often another offering took over. */
  failovers = 0;
  /** Chunks for which a second provider was asked. */
  hedges = 0;
  readonly #registry: LoopRegistry;
  #steps = 0;
  #gpuSeconds = 0;
  #costMicro = 0;

  /** Of a loop that begins at `at`, on the steady clock in milliseconds. */
  constructor(registry: LoopRegistry, at: number) {
    this.#registry = registry;
    this.live = new LiveGauge(at);
  }

  get offeringId(): string | undefined {
    return this.offering?.id;
  }

  /** A chunk was sent at `at`, on the steady clock in milliseconds, for an observation that was so old. */
  chunk(at: number, ageMs: number, { step, units, costMicro, hedgeMicro }: Charge, gpuSeconds: number): void {
    if (step.offering.id !== this.offeringId) this.#moveTo(step.offering);
    this.gauge.chunk(at);
    this.whole.chunk(at);
    this.live.chunk(at, ageMs);
    this.#steps += units;
    this.#gpuSeconds += gpuSeconds;
    this.#costMicro += costMicro + (hedgeMicro ?? 0);
    if (hedgeMicro !== undefined) this.hedges += 1;
  }

  /** A hold was sent. */
  hold(reason: HoldReason): void {
    const isLate = reason === HoldReason.LATE;
    this.gauge.hold(isLate);
    this.whole.hold(isLate);
    this.live.hold(reason);
  }

  /** What was used and deducted in all. */
  get usage(): { actionSteps: number; gpuSeconds: number; costUsd: number } {
    return { actionSteps: this.#steps, gpuSeconds: this.#gpuSeconds, costUsd: toUsd(this.#costMicro) };
  }

  /** Hands its figures to the registry. */
  close(): void {
    if (this.offeringId !== undefined) this.#registry.keep(this.offeringId, this.gauge);
  }

  #moveTo(offering: PlanStep["offering"]): void {
    this.close();
    if (this.offering !== undefined) {
      this.gauge = new LoopGauge();
      this.failovers += 1;
    }
    this.offering = offering;
  }
}
