/** Emergency stops: in memory for every action, in force at once on every reachable replica, and recorded as soon as possible. */
import type { KeyPrincipal } from "../call.ts";
import { nowSeconds, sleep } from "../clock.ts";
import { Reason, Refusal, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import { isOutage } from "../store/database/client.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import { type NewStop, type StopRecord, type StopScope, standingStops, stopIn } from "../store/robots.ts";

/** Who is about to move. */
export interface Mover {
  readonly key: Pick<KeyPrincipal, "keyId" | "orgId" | "workspaceId">;
  readonly sessionId: string | undefined;
  /** The names of the robot: the key's, and the one that the call gives. */
  readonly robotIds: readonly (string | undefined)[];
}

const RETRY_MS = 500;

/** Every stop that stands, kept up to date by notifications. */
export class ActiveStops {
  readonly #sql: Sql;
  readonly #off: () => void;
  readonly #retry: (ms: number, run: () => void) => () => void;
  #orgs = new Map<string, StopsOfOrg>();
  /** What the last reading found. */
  #read: readonly StopRecord[] = [];
  /** Stops that were announced since the last reading began. */
  #heard: StopRecord[] = [];
  /** Stops that are not in the database yet, by their names: no reading ends them. */
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

  /** A stop that was just ordered is in force at once: nothing is read before loops are cut. */
  add(stop: StopRecord): void {
    const { orgId, scope, subject, id } = stop;
    const standing = this.#orgs.get(orgId)?.get(scope)?.get(subject) ?? [];
    // Ordered again and again, it stands once.
    if (standing.some((each) => each.id === id && this.#held.get(id) !== each)) return;
    this.#heard.push(stop);
    this.#insert(stop);
  }

  /** A stop that the database does not have yet is in force at once, until it is dropped. */
  hold(stop: StopRecord): void {
    this.drop(stop.id);
    this.#held.set(stop.id, stop);
    this.#insert(stop);
  }

  /** Lets a held stop go: the database has it, or nothing that it could stop. */
  drop(id: string): void {
    const stop = this.#held.get(id);
    if (stop === undefined) return;
    this.#held.delete(id);
    remove(this.#orgs, stop);
    this.#tell();
  }

  /** Reads what stands. While the database is away, what was known stays in force, and is read again soon. */
  load(): Promise<void> {
    // What changed during a reading is read once more.
    this.#stale = true;
    this.#reading ??= this.#readAll().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  /** Why a robot may not move; undefined when it may. */
  refusalOf(mover: Mover): Refusal | undefined {
    const stops = this.#orgs.get(mover.key.orgId);
    const stop = stops && stopOf(mover, stops);
    if (!stop) return undefined;
    const why = stop.reason ? `: ${stop.reason}` : "";
    const text = `an emergency stop is active for this ${scopeWord(stop.scope)} (${stop.id})${why}`;
    return refuse(Reason.ROBOT_STOPPED, text);
  }

  /** Refuses a robot that may not move. */
  assertMayMove(mover: Mover): void {
    if (this.#orgs.size === 0) return;
    const refusal = this.refusalOf(mover);
    if (refusal) throw refusal;
  }

  /** Calls `changed` whenever what stands has changed. */
  follow(changed: () => void): void {
    this.#listeners.add(changed);
  }

  /** Hears no more changes. */
  close(): void {
    this.#off();
    this.#forgetRetry();
  }

  /** One more costs the same however many stand: a flood of stops must not slow down what asks them. */
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
        // A stop that was announced meanwhile may have been too late for this reading.
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

/** The stops of one organization, by scope and subject: it may have ordered any number of them, and each of its actions asks. */
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
      // One of a workspace covers the keys of that workspace alone.
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

/** Takes out this very record: another of the same stop may stand beside it. */
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

/** A stop that was ordered. What is needed to write it stands in it, so that any replica may. */
export interface StopOrder extends StopRecord {
  readonly requestId: string;
}

/** What orders depends on. */
interface StopOrdersDeps {
  readonly stops: ActiveStops;
  readonly replica: string;
  /**
   * Writes an order once, however often and by whomever it is written, and answers the stop that stands for it. Rejects with a refusal
   * when there is nothing that it could stop, with an outage while the database is away.
   */
  write(order: StopOrder): Promise<StopRecord>;
  /** Tells the other replicas; those that answer come into the set. */
  tell(word: string): ReadonlySet<string>;
  /** Told of an order that cannot be written, for another reason than an outage; once for each. */
  warn(text: string, cause: unknown): void;
}

/** An order that was placed. */
interface PlacedStop {
  readonly order: StopOrder;
  /** Resolves with the stop as it is written; rejects when it is refused, and then it stands no more. */
  readonly written: Promise<StopRecord>;
  /** The replicas that hold it so far. */
  replicas(): string[];
}

/** What replicas say to each other: hold this stop; this one is written, or refused. */
type StopWord = { readonly hold: StopOrder } | { readonly written: string } | { readonly refused: string };

/** Milliseconds that the replica that took the order has to write it; then the notified replicas try too, for it may have died. */
const OTHERS_TRY_AFTER_MS = 3_000;
/** Orders that are held for other replicas: what comes from others is bounded. */
const MOST_HELD = 10_000;
/** Orders of one organization that wait to be written, those of its own workspaces and of all of it apart. */
const MOST_UNWRITTEN = 10_000;
/** Orders of one organization that are written at one time: a flood leaves the database to others. */
const AT_ONCE = 4;

/** The orders of one replica. */
export class StopOrders {
  readonly #deps: StopOrdersDeps;
  readonly #leaving = new AbortController();
  /** Those that are not known to be written. */
  readonly #open = new Map<string, StopOrder>();
  /** By target: the end of the order that is being written. Never rejects. */
  readonly #writing = new Map<string, Promise<unknown>>();
  /** By target: the order that is written after that one. It covers all that are placed until then. */
  readonly #next = new Map<string, PlacedStop>();
  readonly #turns = new Map<string, OrgTurns>();

  constructor(deps: StopOrdersDeps) {
    this.#deps = deps;
  }

  /** Orders that are not written yet. */
  get size(): number {
    return this.#open.size;
  }

  /**
   * Takes an order: when this returns, what it covers gets no action from this replica any more. Orders of one target are merged: however many
   * are placed, one is being written and one waits, because a release may come between.
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

  /** Writes an order when it is its organization's turn. */
  async #inTurn(order: StopOrder): Promise<StopRecord> {
    const turns = this.#turnsOf(order.orgId);
    if (turns.writing >= AT_ONCE) await new Promise<void>((resolve) => turns.waiting.push(resolve));
    else turns.writing++;
    try {
      return await this.#deps.write(order);
    } finally {
      // Who is next takes the turn over.
      const next = turns.waiting.shift();
      if (next) next();
      else turns.writing--;
      this.#tidy(order.orgId, turns);
    }
  }

  #tidy(orgId: string, turns: OrgTurns): void {
    if (turns.orders === 0 && turns.writing === 0) this.#turns.delete(orgId);
  }

  /** Takes in what another replica says. */
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
    // It is in the database, and read from there before it is let go here.
    else if (this.#open.has(word.written))
      stops.load().then(
        () => this.#forget(word.written),
        () => {},
      );
  }

  /** Tries no more. */
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

  /** Writes an order, again and again until it is written or refused. */
  async #insist(order: StopOrder): Promise<StopRecord> {
    const { stops, tell, warn } = this.#deps;
    const { signal } = this.#leaving;
    for (let isWarned = false; ; ) {
      try {
        const stop = await this.#inTurn(order);
        // Another replica may have written it long ago, and it may have been released since.
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
        // Another replica has written it meanwhile, or was refused it.
        if (!this.#open.has(order.id)) throw thrown;
      }
    }
  }
}

/** What one organization's orders do at the moment. */
interface OrgTurns {
  /** Orders that were placed here and are not written. */
  orders: number;
  writing: number;
  waiting: (() => void)[];
}

const targetOf = ({ orgId, workspaceId, scope, subject }: Omit<NewStop, "by">): string =>
  JSON.stringify([orgId, workspaceId, scope, subject]);

/** All that the caller can stop, which is never one too many. */
const isWhole = ({ workspaceId, scope, subject }: Omit<NewStop, "by">): boolean =>
  scope === "org" || (scope === "workspace" && subject === workspaceId);

const tooMany = (): Refusal =>
  refuse(
    Reason.TOO_MANY,
    `${MOST_UNWRITTEN} emergency stops of this organization are waiting to be stored; stop the workspace or the organization instead`,
  );

const say = (word: StopWord): string => JSON.stringify(word);

/** A word of another replica; undefined where it cannot be read, as one of a later version may be. */
function read(text: string): StopWord | undefined {
  try {
    const word = JSON.parse(text) as Partial<Record<"hold" | "written" | "refused", unknown>>;
    if (typeof word.written === "string") return { written: word.written };
    if (typeof word.refused === "string") return { refused: word.refused };
    const hold = word.hold as StopOrder | undefined; // ours: nobody else is let into NATS
    return hold && [hold.id, hold.orgId, hold.scope, hold.subject].every((each) => typeof each === "string")
      ? { hold }
      : undefined;
  } catch {
    return undefined;
  }
}
