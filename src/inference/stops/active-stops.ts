/** The emergency stops that stand, in memory: every action asks, and none may wait for the database. */

import type { KeyPrincipal } from "../../call.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import type { Notifications } from "../../store/database/notifications.ts";
import type { Sql } from "../../store/database/tx.ts";
import { type StopRecord, type StopScope, standingStops, stopIn } from "../../store/replicas/robot-stops.ts";

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
    const text = `an emergency stop stands for this ${scopeWord(stop.scope)} (${stop.id})${why}`;
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

/** The stops of one organisation, by scope and subject: it may have ordered any number of them, and each of its actions asks. */
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

const scopeWord = (scope: StopScope): string => (scope === "org" ? "organisation" : scope);

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
