/** Addresses whose connections had to be cut off: their next ones are left waiting for a while, which costs nothing, before they are heard. */
import { steadyNow } from "../../ambient.ts";

/** How long an address waits after a connection of its own was cut off. */
const WAIT_MS = 1_000;
/** More addresses are not remembered: an attack from so many is not of this kind. */
const MOST_ADDRESSES = 10_000;

/** Who has to wait, by address. */
export class Penalties {
  readonly #until = new Map<string, number>();

  /** A connection of this address was cut off for what it cost. */
  add(address: string): void {
    if (this.#until.size >= MOST_ADDRESSES) this.#until.clear();
    this.#until.set(address, steadyNow() + WAIT_MS);
  }

  /** Milliseconds that a new connection of this address has to wait; 0 for nearly everyone. */
  waitMs(address: string): number {
    if (this.#until.size === 0) return 0;
    const until = this.#until.get(address);
    if (until === undefined) return 0;
    const left = until - steadyNow();
    if (left <= 0) this.#until.delete(address);
    return Math.max(0, left);
  }
}
