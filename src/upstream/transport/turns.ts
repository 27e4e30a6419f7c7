/** Turns at a server that does one thing at a time: calls wait in order, until they are aborted. */

import type { Signal } from "../../cancellation.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { calledOff } from "./failures.ts";

const MAX_WAITING = 256;

/** A queue that one call at a time leaves. */
export class Turns {
  readonly #waiting: (() => void)[] = [];
  #taken = false;

  /** No call has a turn, and none waits. */
  get free(): boolean {
    return !this.#taken;
  }

  /** Runs the work when it's its turn. Rejects with an UpstreamFailure: called off while waiting, or too many wait already. */
  async run<T>(signal: Signal, work: () => Promise<T>): Promise<T> {
    if (signal.aborted) throw calledOff(signal);
    if (this.#taken) await this.#wait(signal);
    this.#taken = true;
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#taken = false;
      else next();
    }
  }

  #wait(signal: Signal): Promise<void> {
    if (this.#waiting.length >= MAX_WAITING) {
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many calls wait for this server");
    }
    return new Promise((resolve, reject) => {
      const go = (): void => {
        signal.removeEventListener("abort", leave);
        resolve();
      };
      const leave = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(go), 1);
        reject(calledOff(signal));
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#waiting.push(go);
    });
  }
}
