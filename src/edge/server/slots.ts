/**
 * Connection slots: which connections stay when a port has as many as it may. A connection that has shown a valid key or session keeps its slot.
 * Of the others, a newcomer replaces one of the address that has the most: the one that has been silent longest. So a client with a key gets in
 * whatever strangers hold open, and a fleet behind one address loses nothing.
 */
import type { Socket } from "node:net";
import { steadyNow } from "../../clock.ts";
import { SideNote } from "../../side-note.ts";

/** The slot of one connection. */
export interface Slot {
  /** A call with a valid key or session came by it. */
  authenticated(): void;
}

const slots = new SideNote<object, Slot>("slot");

/** The slot that a request's socket holds; undefined where its port does not count connections. */
export const slotOf = (socket: object): Slot | undefined => slots.of(socket);

/** Notes the slot of a connection on another socket that stands for it. */
const shareSlot = (socket: object, slot: Slot | undefined): void => {
  if (slot !== undefined) slots.set(socket, slot);
};

/** A stranger that has sent something since the last look is passed over so many times for the next one. */
const MOST_PASSED_OVER = 8;

/** A slot that is taken. */
interface TakenSlot extends Slot {
  readonly socket: Socket;
  /** Bytes that had come by it at the last look. */
  seen: number;
  /** Gives it back, once. */
  leave(): void;
}

/** Connections of one address that have shown no key, in the order in which they came or were last seen to send. */
type Strangers = Set<TakenSlot>;

/** All slots of one port. */
export class Slots {
  readonly #most: number;
  readonly #addressOf: (address: string) => string | undefined;
  #taken = 0;
  readonly #byAddress = new Map<string, Strangers>();
  /** The same sets by their size, and a size that none is beyond. */
  readonly #bySize = new Map<number, Set<Strangers>>();
  #largest = 0;
  readonly #byPeer = new Map<string, Slot>();

  /** `addressOf` names what an address counts as, such as its /64. Connections of undefined ones, such as proxies, are never replaced. */
  constructor(
    most = Number.POSITIVE_INFINITY,
    addressOf: (address: string) => string | undefined = (address) => address,
  ) {
    this.#most = most;
    this.#addressOf = addressOf;
  }

  /** Takes a slot for a new connection, until it closes; false if there is none and none can be had. */
  take(socket: Socket): boolean {
    if (this.#taken >= this.#most && !this.#replace()) return false;
    this.#taken += 1;
    const peer = peerOf(socket);
    const address = this.#addressOf(socket.remoteAddress ?? "");
    let isStranger = address !== undefined;
    let isTaken = true;
    const authenticated = (): void => {
      if (isStranger) this.#change(address!, (strangers) => strangers.delete(slot));
      isStranger = false;
    };
    const leave = (): void => {
      if (!isTaken) return;
      isTaken = false;
      this.#taken -= 1;
      authenticated();
      if (this.#byPeer.get(peer) === slot) this.#byPeer.delete(peer);
    };
    const slot: TakenSlot = { socket, seen: 0, authenticated, leave };
    if (address !== undefined) this.#change(address, (strangers) => strangers.add(slot));
    this.#byPeer.set(peer, slot);
    slots.set(socket, slot);
    socket.on("close", leave);
    return true;
  }

  /** Gives the socket that TLS made of a connection the slot of that connection. */
  secured(socket: Socket): void {
    shareSlot(socket, this.#byPeer.get(peerOf(socket)));
  }

  /** Closes a connection of the address with the most strangers; false where there are none. */
  #replace(): boolean {
    while (this.#largest > 0 && !this.#bySize.has(this.#largest)) this.#largest -= 1;
    const [strangers] = this.#bySize.get(this.#largest) ?? [];
    if (strangers === undefined) return false;
    const { socket, leave } = this.#mostSilent(strangers);
    leave();
    socket.destroy();
    return true;
  }

  /** The oldest that has sent nothing since it was looked at. Others go to the end; where all have sent something, the oldest. */
  #mostSilent(strangers: Strangers): TakenSlot {
    const looked: TakenSlot[] = [];
    for (const slot of strangers) {
      if (slot.socket.bytesRead === slot.seen || looked.length === MOST_PASSED_OVER) return slot;
      looked.push(slot);
      slot.seen = slot.socket.bytesRead;
      strangers.delete(slot);
      strangers.add(slot);
    }
    return looked[0]!; // no set is empty
  }

  #change(address: string, change: (strangers: Strangers) => unknown): void {
    const strangers: Strangers = this.#byAddress.get(address) ?? new Set();
    const before = this.#bySize.get(strangers.size);
    before?.delete(strangers);
    if (before?.size === 0) this.#bySize.delete(strangers.size);
    change(strangers);
    const { size } = strangers;
    if (size === 0) {
      this.#byAddress.delete(address);
      return;
    }
    this.#byAddress.set(address, strangers);
    const same = this.#bySize.get(size) ?? new Set();
    this.#bySize.set(size, same.add(strangers));
    this.#largest = Math.max(this.#largest, size);
  }
}

const peerOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;

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
