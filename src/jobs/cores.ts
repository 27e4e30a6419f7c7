/** What evaluations of a process share: CPU cores and threads. */
import type { Signal } from "../cancellation.ts";

/** Lanes beyond the first one of each evaluation, so that a process has a bounded number of threads. */
export class ExtraLanes {
  readonly #most: { readonly inAll: number; readonly ofOrg: number };
  readonly #byOrg = new Map<string, number>();

  constructor(most: { readonly inAll: number; readonly ofOrg: number }) {
    this.#most = most;
  }

  /** Takes a lane if one is free, and returns its release, which is called once. */
  enter(orgId: string): (() => void) | undefined {
    const ofOrg = this.#byOrg.get(orgId) ?? 0;
    const inAll = [...this.#byOrg.values()].reduce((sum, count) => sum + count, 0);
    if (inAll >= this.#most.inAll || ofOrg >= this.#most.ofOrg) return undefined;
    this.#byOrg.set(orgId, ofOrg + 1);
    return () => {
      const left = this.#byOrg.get(orgId)! - 1;
      if (left === 0) this.#byOrg.delete(orgId);
      else this.#byOrg.set(orgId, left);
    };
  }
}

/** A waiter for a core. */
interface Waiter {
  go(): void;
}

/** A fixed number of cores. */
export class Cores {
  #free: number;
  /** Waiters by organization; the next organization comes first. */
  readonly #waiting = new Map<string, Waiter[]>();

  constructor(count: number) {
    this.#free = count;
  }

  /** Waits for a core; resolves with a function that releases it once. Rejects with the signal's reason if that is aborted first. */
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

  /** The core goes to the next organization, which moves to the end. */
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
