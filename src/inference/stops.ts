/** Emergency stops: in memory for every action, active at once on every reachable replica, and stored as soon as possible. */
import type { KeyPrincipal } from "../call.ts";
import { nowSeconds, sleep } from "../clock.ts";
import { Reason, Refusal, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import { isOutage } from "../store/database/unavailable.ts";
import { type NewStop, type StopRecord, type StopScope, standingStops, stopIn } from "../store/robots.ts";

/** The key, session and robot names of a caller that is about to move a robot. */
export interface Mover {
  readonly key: Pick<KeyPrincipal, "keyId" | "orgId" | "workspaceId">;
  readonly sessionId: string | undefined;
  /** The robot's names: the key's, and the one in the call. */
  readonly robotIds: readonly (string | undefined)[];
}

const RETRY_MS = 500;

/** All active stops, kept up to date by notifications. */
export class ActiveStops {
  readonly #sql: Sql;
  readonly #off: () => void;
  readonly #retry: (ms: number, run: () => void) => () => void;
  #orgs = new Map<string, StopsOfOrg>();
  /** Result of the last read. */
  #read: readonly StopRecord[] = [];
  /** Stops that were announced since the last read began. */
  #heard: StopRecord[] = [];
  /** Stops that are not in the database yet, by id. A read does not remove them. */
  readonly #held = new Map<string, StopRecord>();
  #listeners = new Set<() => void>();
  #reading: Promise<void> | undefined;
  #stale = false;
  #forgetRetry = (): void => {};

  constructor(sql: Sql, notifications: Notifications, retry: (ms: number, run: () => void) => () => void) {
    this.#sql = sql;
    this.#retry = retry;
    const read = (): void => void this.load().catch(() => {});
    const hear = (payload: string): void => {
      const stop = stopIn(payload);
      if (stop) this.add(stop);
      else read();
    };
    this.#off = notifications.on("robots_stopped", hear, read);
  }

  /** Activates a new stop at once: loops are cut without a database read. */
  add(stop: StopRecord): void {
    const { orgId, scope, subject, id } = stop;
    const standing = this.#orgs.get(orgId)?.get(scope)?.get(subject) ?? [];
    // Repeated orders of one stop count once.
    if (standing.some((each) => each.id === id && this.#held.get(id) !== each)) return;
    this.#heard.push(stop);
    this.#insert(stop);
  }

  /** Activates a stop that the database does not have yet, until it is dropped. */
  hold(stop: StopRecord): void {
    this.drop(stop.id);
    this.#held.set(stop.id, stop);
    this.#insert(stop);
  }

  /** Drops a held stop, because the database has it or nothing can be stopped by it. */
  drop(id: string): void {
    const stop = this.#held.get(id);
    if (stop === undefined) return;
    this.#held.delete(id);
    remove(this.#orgs, stop);
    this.#tell();
  }

  /** Reads the active stops. If the database is down, known stops stay active and the read is retried. */
  load(): Promise<void> {
    // A change during a read causes another read.
    this.#stale = true;
    this.#reading ??= this.#readAll().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  /** Returns why a robot must not move; undefined if it can. */
  refusalOf(mover: Mover): Refusal | undefined {
    const stops = this.#orgs.get(mover.key.orgId);
    const stop = stops && stopOf(mover, stops);
    if (!stop) return undefined;
    const why = stop.reason ? `: ${stop.reason}` : "";
    const text = `an emergency stop is active for this ${scopeWord(stop.scope)} (${stop.id})${why}`;
    return refuse(Reason.ROBOT_STOPPED, text);
  }

  /** Refuses if the robot must not move. */
  assertMayMove(mover: Mover): void {
    if (this.#orgs.size === 0) return;
    const refusal = this.refusalOf(mover);
    if (refusal) throw refusal;
  }

  /** Calls `changed` whenever the active stops change. */
  follow(changed: () => void): void {
    this.#listeners.add(changed);
  }

  /** Stops listening for changes. */
  close(): void {
    this.#off();
    this.#forgetRetry();
  }

  /** Inserting costs the same however many stops are active, so that a flood of stops does not slow down actions. */
  #insert(stop: StopRecord): void {
    insert(this.#orgs, stop);
    this.#tell();
  }

  #tell(): void {
    for (const changed of this.#listeners) changed();
  }

  #changed(): void {
    this.#orgs = new Map();
    for (const stop of [...this.#read, ...this.#heard, ...this.#held.values()]) insert(this.#orgs, stop);
    this.#tell();
  }

  async #readAll(): Promise<void> {
    try {
      while (this.#stale) {
        this.#stale = false;
        const heard = this.#heard.length;
        const standing = await standingStops(this.#sql);
        // A stop announced during the read may be missing in its result.
        this.#heard.splice(0, heard);
        this.#read = standing;
        this.#changed();
      }
    } catch (thrown) {
      this.#forgetRetry = this.#retry(RETRY_MS, () => void this.load().catch(() => {}));
      throw thrown;
    }
  }
}

/** One organization's stops, by scope and subject: it can have any number of them, and every action checks them. */
type StopsOfOrg = Map<StopScope, Map<string, StopRecord[]>>;

const SUBJECTS: Readonly<Record<StopScope, (mover: Mover) => readonly (string | undefined)[]>> = {
  robot: ({ robotIds }) => robotIds,
  session: ({ sessionId }) => [sessionId],
  key: ({ key }) => [key.keyId],
  workspace: ({ key }) => [key.workspaceId],
  org: ({ key }) => [key.orgId],
};

function stopOf(mover: Mover, stops: StopsOfOrg): StopRecord | undefined {
  for (const [scope, bySubject] of stops) {
    for (const subject of SUBJECTS[scope](mover)) {
      const found = subject === undefined ? undefined : bySubject.get(subject);
      // A workspace's stop covers only keys of that workspace.
      const stop = found?.find(({ workspaceId }) => workspaceId === null || workspaceId === mover.key.workspaceId);
      if (stop) return stop;
    }
  }
  return undefined;
}

const scopeWord = (scope: StopScope): string => (scope === "org" ? "organization" : scope);

function insert(orgs: Map<string, StopsOfOrg>, stop: StopRecord): void {
  const scopes = entryOf(orgs, stop.orgId, (): StopsOfOrg => new Map());
  const subjects = entryOf(scopes, stop.scope, () => new Map<string, StopRecord[]>());
  entryOf(subjects, stop.subject, (): StopRecord[] => []).push(stop);
}

/** Removes exactly this record: another record of the same stop may remain. */
function remove(orgs: Map<string, StopsOfOrg>, stop: StopRecord): void {
  const scopes = orgs.get(stop.orgId);
  const subjects = scopes?.get(stop.scope);
  const stops = subjects?.get(stop.subject);
  const place = stops?.indexOf(stop) ?? -1;
  if (!scopes || !subjects || !stops || place < 0) return;
  stops.splice(place, 1);
  if (stops.length === 0) subjects.delete(stop.subject);
  if (subjects.size === 0) scopes.delete(stop.scope);
  if (scopes.size === 0) orgs.delete(stop.orgId);
}

function entryOf<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}

/** An ordered stop, with everything that any replica needs to store it. */
export interface StopOrder extends StopRecord {
  readonly requestId: string;
}

/** Dependencies of stop orders. */
interface StopOrdersDeps {
  readonly stops: ActiveStops;
  readonly replica: string;
  /**
   * Stores an order once, however often and from whichever replica it is written, and returns the active stop. Rejects with a refusal if
   * there is nothing to stop, and with an outage if the database is down.
   */
  write(order: StopOrder): Promise<StopRecord>;
  /** Notifies the other replicas; adds those that confirm to the set. */
  tell(word: string): ReadonlySet<string>;
  /** Called once for each order that cannot be stored for a reason other than an outage. */
  warn(text: string, cause: unknown): void;
}

/** A placed order. */
interface PlacedStop {
  readonly order: StopOrder;
  /** Resolves with the stored stop. Rejects if it is refused; the stop is then no longer active. */
  readonly written: Promise<StopRecord>;
  /** The replicas that hold it so far. */
  replicas(): string[];
}

/** Messages between replicas: hold this stop; this stop is stored, or refused. */
type StopWord = { readonly hold: StopOrder } | { readonly written: string } | { readonly refused: string };

/**
 * Milliseconds that the receiving replica has to store an order. Then the notified replicas try too, because that replica may have died.
 */
const OTHERS_TRY_AFTER_MS = 3_000;
/** Maximum number of orders held for other replicas. */
const MOST_HELD = 10_000;
/** Maximum number of unstored orders of one organization; its workspaces' orders and those for all of it count separately. */
const MOST_UNWRITTEN = 10_000;
/** Concurrent writes of one organization's orders, so that a flood leaves database capacity to others. */
const AT_ONCE = 4;

/** The orders of one replica. */
export class StopOrders {
  readonly #deps: StopOrdersDeps;
  readonly #leaving = new AbortController();
  /** Orders that are not known to be stored. */
  readonly #open = new Map<string, StopOrder>();
  /** By target: the end of the order being stored. Never rejects. */
  readonly #writing = new Map<string, Promise<unknown>>();
  /** By target: the order that is stored after that one. It covers all orders placed until then. */
  readonly #next = new Map<string, PlacedStop>();
  readonly #turns = new Map<string, OrgTurns>();

  constructor(deps: StopOrdersDeps) {
    this.#deps = deps;
  }

  /** Number of orders that are not stored yet. */
  get size(): number {
    return this.#open.size;
  }

  /**
   * Accepts an order. When this returns, this replica sends no more actions to what the stop covers. Orders for one target are merged: one
   * is being stored and one waits, because a release may come between.
   */
  place(stop: Omit<NewStop, "by">, by: { actor: string; requestId: string }): PlacedStop {
    const { stops, replica, tell } = this.#deps;
    const target = targetOf(stop);
    const next = this.#next.get(target);
    if (next) return next;
    const turns = this.#turnsOf(stop.orgId);
    if (turns.orders >= MOST_UNWRITTEN && !isWhole(stop)) throw tooMany();
    const order: StopOrder = {
      ...stop,
      id: newId("stop"),
      created: nowSeconds(),
      createdBy: by.actor,
      released: null,
      releasedBy: null,
      requestId: by.requestId,
    };
    this.#open.set(order.id, order);
    stops.hold(order);
    const answered = tell(say({ hold: order }));
    turns.orders++;
    const before = this.#writing.get(target);
    const written = before === undefined ? this.#begin(target, order) : before.then(() => this.#begin(target, order));
    written
      .catch(() => {}) // the callers that await `written` get the error
      .finally(() => {
        turns.orders--;
        this.#tidy(stop.orgId, turns);
      });
    const placed: PlacedStop = { order, written, replicas: () => [replica, ...answered] };
    if (before !== undefined) this.#next.set(target, placed);
    return placed;
  }

  #begin(target: string, order: StopOrder): Promise<StopRecord> {
    this.#next.delete(target);
    const written = this.#insist(order);
    const ended = written
      .catch(() => {})
      .then(() => {
        if (this.#writing.get(target) === ended) this.#writing.delete(target);
      });
    this.#writing.set(target, ended);
    return written;
  }

  #turnsOf(orgId: string): OrgTurns {
    const known = this.#turns.get(orgId);
    if (known) return known;
    const turns: OrgTurns = { orders: 0, writing: 0, waiting: [] };
    this.#turns.set(orgId, turns);
    return turns;
  }

  /** Stores an order when its organization has a free write. */
  async #inTurn(order: StopOrder): Promise<StopRecord> {
    const turns = this.#turnsOf(order.orgId);
    if (turns.writing >= AT_ONCE) await new Promise<void>((resolve) => turns.waiting.push(resolve));
    else turns.writing++;
    try {
      return await this.#deps.write(order);
    } finally {
      // The next order takes over the slot.
      const next = turns.waiting.shift();
      if (next) next();
      else turns.writing--;
      this.#tidy(order.orgId, turns);
    }
  }

  #tidy(orgId: string, turns: OrgTurns): void {
    if (turns.orders === 0 && turns.writing === 0) this.#turns.delete(orgId);
  }

  /** Handles a message from another replica. */
  hear(text: string): void {
    const word = read(text);
    if (word === undefined) return;
    const { stops } = this.#deps;
    if ("hold" in word) {
      if (this.#open.has(word.hold.id) || this.#open.size >= MOST_HELD) return;
      this.#open.set(word.hold.id, word.hold);
      stops.hold(word.hold);
      void this.#standIn(word.hold);
    } else if ("refused" in word) this.#forget(word.refused);
    // The database has it and is read before the stop is dropped here.
    else if (this.#open.has(word.written))
      stops.load().then(
        () => this.#forget(word.written),
        () => {},
      );
  }

  /** Stops all attempts to store orders. */
  close(): void {
    this.#leaving.abort();
  }

  #forget(id: string): void {
    if (this.#open.delete(id)) this.#deps.stops.drop(id);
  }

  async #standIn(order: StopOrder): Promise<void> {
    await sleep(OTHERS_TRY_AFTER_MS, this.#leaving.signal).catch(() => {});
    if (this.#open.has(order.id)) await this.#insist(order).catch(() => {});
  }

  /** Retries an order until it is stored or refused. */
  async #insist(order: StopOrder): Promise<StopRecord> {
    const { stops, tell, warn } = this.#deps;
    const { signal } = this.#leaving;
    for (let isWarned = false; ; ) {
      try {
        const stop = await this.#inTurn(order);
        // Another replica may have stored it long ago, and it may have been released since.
        if (stop.released === null) stops.add(stop);
        this.#forget(order.id);
        tell(say({ written: order.id }));
        return stop;
      } catch (thrown) {
        if (thrown instanceof Refusal) {
          this.#forget(order.id);
          tell(say({ refused: order.id }));
        }
        if (thrown instanceof Refusal || signal.aborted) throw thrown;
        if (!isWarned && !isOutage(thrown)) {
          warn(`the emergency stop ${order.id} is active but could not be stored`, thrown);
          isWarned = true;
        }
        await sleep(RETRY_MS, signal).catch(() => {});
        // Another replica has stored it, or its write was refused there.
        if (!this.#open.has(order.id)) throw thrown;
      }
    }
  }
}

/** The state of one organization's orders. */
interface OrgTurns {
  /** Orders placed here that are not stored. */
  orders: number;
  writing: number;
  waiting: (() => void)[];
}

const targetOf = ({ orgId, workspaceId, scope, subject }: Omit<NewStop, "by">): string =>
  JSON.stringify([orgId, workspaceId, scope, subject]);

/** The subjects that the caller can stop, which never include one of others. */
const isWhole = ({ workspaceId, scope, subject }: Omit<NewStop, "by">): boolean =>
  scope === "org" || (scope === "workspace" && subject === workspaceId);

const tooMany = (): Refusal =>
  refuse(
    Reason.TOO_MANY,
    `${MOST_UNWRITTEN} emergency stops of this organization are waiting to be stored; stop the workspace or the organization instead`,
  );

const say = (word: StopWord): string => JSON.stringify(word);

/** Parses another replica's message; undefined if it cannot be read, such as one of a later version. */
function read(text: string): StopWord | undefined {
  try {
    const word = JSON.parse(text) as Partial<Record<"hold" | "written" | "refused", unknown>>;
    if (typeof word.written === "string") return { written: word.written };
    if (typeof word.refused === "string") return { refused: word.refused };
    const hold = word.hold as StopOrder | undefined; // only replicas have access to NATS
    return hold && [hold.id, hold.orgId, hold.scope, hold.subject].every((each) => typeof each === "string")
      ? { hold }
      : undefined;
  } catch {
    return undefined;
  }
}
