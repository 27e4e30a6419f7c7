/** Addresses whose connections had to be cut off: their next ones are left waiting for a while, which costs nothing, before they are heard. */
import { steadyNow } from "../../ambient.ts";

/** How long an address waits after a connection of its own was cut off. */
const WAIT_MS = 1_000;
/** Its connections are then heard one after the other, so that no two of them can cost what they cost at one moment. */
const TURN_MS = 100;
/** Later ones wait no longer than that: who shares an address with an attacker is to be heard too. */
const MOST_TURNS = 20;
/** More addresses are not remembered: an attack from so many is not of this kind. */
const MOST_ADDRESSES = 10_000;

/** Who has to wait, by address. */
export class Penalties {
  readonly #waits = new Map<string, { until: number; turns: number }>();

  /** A connection of this address was cut off for what it cost. */
  add(address: string): void {
    if (this.#waits.size >= MOST_ADDRESSES) this.#waits.clear();
    this.#waits.set(address, { until: steadyNow() + WAIT_MS, turns: 0 });
  }

  /** Milliseconds that a new connection of this address has to wait; 0 for nearly everyone. */
  waitMs(address: string): number {
    if (this.#waits.size === 0) return 0;
    const wait = this.#waits.get(address);
    if (wait === undefined) return 0;
    const left = wait.until - steadyNow();
    if (left <= 0) {
      this.#waits.delete(address);
      return 0;
    }
    const turn = Math.min(wait.turns++, MOST_TURNS);
    return left + turn * TURN_MS;
  }
}
