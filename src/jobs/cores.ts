/** Cores for physics: work has one while it computes, not while it waits. Organisations that wait have the next one in turn. */
import type { Signal } from "../cancellation.ts";

/** Someone who waits for a core. */
interface Waiter {
  go(): void;
}

/** A fixed number of cores. */
export class Cores {
  #free: number;
  /** Who waits, by organisation; the organisation that is next stands first. */
  readonly #waiting = new Map<string, Waiter[]>();

  constructor(count: number) {
    this.#free = count;
  }

  /** Waits for a core; what it resolves to gives the core back, once however often it is called. Rejects with the signal's reason when that is aborted first. */
  async enter(orgId: string, signal: Signal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#free > 0) this.#free -= 1;
    else await this.#wait(orgId, signal);
    let isMine = true;
    return () => {
      if (isMine) this.#leave();
      isMine = false;
    };
  }

  #wait(orgId: string, signal: Signal): Promise<void> {
    return new Promise((resolve, reject) => {
      const queue = this.#waiting.get(orgId) ?? [];
      const leave = (): void => {
        queue.splice(queue.indexOf(waiter), 1);
        if (queue.length === 0) this.#waiting.delete(orgId);
        reject(signal.reason);
      };
      const waiter: Waiter = {
        go() {
          signal.removeEventListener("abort", leave);
          resolve();
        },
      };
      queue.push(waiter);
      this.#waiting.set(orgId, queue);
      signal.addEventListener("abort", leave, { once: true });
    });
  }

  /** The core goes to the next organisation, which then stands last. */
  #leave(): void {
    const [next] = this.#waiting;
    if (!next) {
      this.#free += 1;
      return;
    }
    const [orgId, queue] = next;
    const waiter = queue.shift();
    this.#waiting.delete(orgId);
    if (queue.length > 0) this.#waiting.set(orgId, queue);
    waiter?.go();
  }
}
