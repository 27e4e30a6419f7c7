/** The figures of one control loop, in all and with the present offering, and its usage. */
import { toUsd } from "../../billing/price.ts";
import { LoopGauge } from "../../routing/index.ts";
import type { Charge } from "../call-billing.ts";
import type { LoopRegistry } from "./loop-registry.ts";

/** The counts of one loop. */
export class LoopCounts {
  /** The offering that serves it; undefined before any did. */
  offeringId: string | undefined;
  /** With the present offering. */
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

  /** Hands its figures to the registry. */
  close(): void {
    if (this.offeringId !== undefined) this.#registry.keep(this.offeringId, this.gauge);
  }

  #moveTo(offeringId: string): void {
    this.close();
    if (this.offeringId !== undefined) this.gauge = new LoopGauge();
    this.offeringId = offeringId;
  }
}
