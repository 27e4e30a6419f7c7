/**
 * Addresses whose connections were ended for what they cost, again and again: their next connections wait before they are read. Costs are paid
 * from budgets of each connection; this is the last resort against a peer that connects anew each time. All that share the address, behind a
 * NAT or a balancer, wait too: so it takes several cuts, is forgotten with time, and is bounded.
 */
import { steadyNow } from "../../clock.ts";

/** Cuts that an address has for nothing. */
const FREE_CUTS = 3;
/** A cut is forgotten after so long. */
const FORGET_MS = 5_000;
/** More are not counted, so that all are forgotten in time. */
const MOST_CUTS = 10;
/** The connections of an address with too many cuts are read one after the other, in milliseconds. */
const TURN_MS = 50;
/** None waits longer. */
const MOST_WAIT_MS = 500;
/** More addresses are not remembered: an attack from so many is not of this kind. */
const MOST_ADDRESSES = 10_000;

interface Debt {
  /** Cuts that are not forgotten, at `at`. */
  cuts: number;
  at: number;
  /** When the next connection may be heard. */
  next: number;
}

/** How long addresses wait. */
export class Penalties {
  readonly #debts = new Map<string, Debt>();
  /** A connection of this address was cut off for what it cost. */
  add(address: string): void {
    if (this.#debts.size >= MOST_ADDRESSES) this.#debts.clear();
    const at = steadyNow();
    const debt = this.#debts.get(address) ?? { cuts: 0, at, next: at };
    this.#debts.set(address, { ...debt, cuts: Math.min(MOST_CUTS, left(debt, at) + 1), at });
  }

  /** Milliseconds that a new connection of this address has to wait; 0 for nearly every one. */
  waitMs(address: string): number {
    if (this.#debts.size === 0) return 0;
    const debt = this.#debts.get(address);
    if (debt === undefined) return 0;
    const now = steadyNow();
    const cuts = left(debt, now);
    if (cuts === 0) this.#debts.delete(address);
    if (cuts <= FREE_CUTS) return 0;
    debt.next = Math.min(Math.max(debt.next, now) + TURN_MS, now + MOST_WAIT_MS);
    return debt.next - now;
  }
}

const left = ({ cuts, at }: Debt, now: number): number => Math.max(0, cuts - (now - at) / FORGET_MS);
