/** What one control loop came to: its figures, in all and with who serves it now, and what it used. */
import { toUsd } from "../../billing/price.ts";
import { LoopGauge } from "../../routing/index.ts";
import type { Charge } from "../call-billing.ts";
import type { LoopRegistry } from "./loop-registry.ts";

/** The counts of one loop. */
export class LoopCounts {
  /** Who serves it; undefined before anybody did. */
  offeringId: string | undefined;
  /** With who serves it now. */
  gauge = new LoopGauge();
  /** In all. */
  readonly whole = new LoopGauge();
  readonly #registry: LoopRegistry;
  #steps = 0;
  #gpuSeconds = 0;
  #costMicro = 0;

  constructor(registry: LoopRegistry) {
    this.#registry = registry;
  }

  /** A chunk was sent at `at`, on the steady clock in milliseconds. */
  chunk(at: number, { step, units, costMicro, hedgeMicro = 0 }: Charge, gpuSeconds: number): void {
    if (step.offering.id !== this.offeringId) this.#moveTo(step.offering.id);
    this.gauge.chunk(at);
    this.whole.chunk(at);
    this.#steps += units;
    this.#gpuSeconds += gpuSeconds;
    this.#costMicro += costMicro + hedgeMicro;
  }

  /** A hold was sent; `late` when the answer missed its deadline. */
  hold(late: boolean): void {
    this.gauge.hold(late);
    this.whole.hold(late);
  }

  /** What was used and deducted in all. */
  get usage(): { actionSteps: number; gpuSeconds: number; costUsd: number } {
    return { actionSteps: this.#steps, gpuSeconds: this.#gpuSeconds, costUsd: toUsd(this.#costMicro) };
  }

  /** Leaves its figures with the board. */
  close(): void {
    if (this.offeringId !== undefined) this.#registry.keep(this.offeringId, this.gauge);
  }

  #moveTo(offeringId: string): void {
    this.close();
    if (this.offeringId !== undefined) this.gauge = new LoopGauge();
    this.offeringId = offeringId;
  }
}
