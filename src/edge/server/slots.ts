/**
 * Connection slots: which connections stay when a port reaches its limit. A connection that has used a valid key or session keeps its slot.
 * Otherwise, a new connection replaces the longest-silent one of the address with the most unauthenticated connections. So clients with a key
 * get in regardless of unauthenticated connections, and many robots behind one address lose nothing.
 */
import type { Socket } from "node:net";
import { steadyNow } from "../../clock.ts";
import { SideNote } from "../../side-note.ts";

/** The slot of one connection. */
export interface Slot {
  /** Called for a call with a valid key or session on this connection. */
  authenticated(): void;
}

const slots = new SideNote<object, Slot>("slot");

/** The slot of a request's socket; undefined if its port does not count connections. */
export const slotOf = (socket: object): Slot | undefined => slots.of(socket);

/** Registers the slot of a connection under another socket that represents it. */
const shareSlot = (socket: object, slot: Slot | undefined): void => {
  if (slot !== undefined) slots.set(socket, slot);
};

/** How often an unauthenticated connection that has sent data since the last check is spared. */
const MOST_PASSED_OVER = 8;

/** A slot in use. */
interface TakenSlot extends Slot {
  readonly socket: Socket;
  /** Bytes received until the last check. */
  seen: number;
  /** Releases it, once. */
  leave(): void;
}

/** Unauthenticated connections of one address, in the order of their arrival or their last seen activity. */
type Strangers = Set<TakenSlot>;

/** All slots of one port. */
export class Slots {
  readonly #most: number;
  readonly #addressOf: (address: string) => string | undefined;
  #taken = 0;
  readonly #byAddress = new Map<string, Strangers>();
  /** The same sets by size, and an upper bound of sizes. */
  readonly #bySize = new Map<number, Set<Strangers>>();
  #largest = 0;
  readonly #byPeer = new Map<string, Slot>();

  /** `addressOf` returns the address to count, such as a /64. Connections with undefined ones, such as proxies, are never replaced. */
  constructor(
    most = Number.POSITIVE_INFINITY,
    addressOf: (address: string) => string | undefined = (address) => address,
  ) {
    this.#most = most;
    this.#addressOf = addressOf;
  }

  /** Takes a slot for a new connection, until it closes; false if none is free or can be freed. */
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

  /** Assigns the slot of a connection to its TLS socket. */
  secured(socket: Socket): void {
    shareSlot(socket, this.#byPeer.get(peerOf(socket)));
  }

  /** Closes a connection of the address with the most unauthenticated ones; false if there are none. */
  #replace(): boolean {
    while (this.#largest > 0 && !this.#bySize.has(this.#largest)) this.#largest -= 1;
    const [strangers] = this.#bySize.get(this.#largest) ?? [];
    if (strangers === undefined) return false;
    const { socket, leave } = this.#mostSilent(strangers);
    leave();
    socket.destroy();
    return true;
  }

  /** The oldest one without activity since its last check. Active ones go to the end; if all are active, the oldest. */
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

/** Closures without a penalty, per address. */
const FREE_CUTS = 3;
/** The time after which a closure is no longer counted. */
const FORGET_MS = 5_000;
/** The most counted closures, so that all expire eventually. */
const MOST_CUTS = 10;
/** The interval at which connections of an address with too many closures are served, in milliseconds. */
const TURN_MS = 50;
/** The longest delay. */
const MOST_WAIT_MS = 500;
/** The most tracked addresses: an attack from more of them is of another kind. */
const MOST_ADDRESSES = 10_000;

interface Debt {
  /** The counted closures at `at`. */
  cuts: number;
  at: number;
  /** When the next connection can be served. */
  next: number;
}

/** Delays connections of costly addresses. */
export class Penalties {
  readonly #debts = new Map<string, Debt>();
  /** Records that a connection of this address was closed for its costs. */
  add(address: string): void {
    if (this.#debts.size >= MOST_ADDRESSES) this.#debts.clear();
    const at = steadyNow();
    const debt = this.#debts.get(address) ?? { cuts: 0, at, next: at };
    this.#debts.set(address, { ...debt, cuts: Math.min(MOST_CUTS, left(debt, at) + 1), at });
  }

  /** The delay of a new connection of this address in milliseconds; 0 for almost all. */
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
