/** The emergency stops that stand, in memory: every action asks, and none may wait for the database. */
import { Reason, type Refusal, refuse } from "../../refusal.ts";
import type { Notices } from "../../store/database/notices.ts";
import type { Sql } from "../../store/database/tx.ts";
import { type StopRecord, type StopScope, standingStops, stopIn } from "../../store/replicas/robot-stops.ts";
import type { KeyPrincipal } from "../call.ts";

/** Who is about to move. */
export interface Mover {
  readonly key: KeyPrincipal;
  readonly sessionId: string | undefined;
  /** The names of the robot: the key's, and the one that the call gives. */
  readonly robotIds: readonly (string | undefined)[];
}

const RETRY_MS = 500;

/** Every stop that stands, kept up to date by notifications. */
export class StopBook {
  readonly #sql: Sql;
  readonly #off: () => void;
  readonly #retry: (ms: number, run: () => void) => () => void;
  #orgs = new Map<string, readonly StopRecord[]>();
  /** Stops that were told of since the last reading began. */
  #heard: StopRecord[] = [];
  #listeners = new Set<() => void>();
  #reading: Promise<void> | undefined;
  #stale = false;
  #forgetRetry = (): void => {};

  constructor(sql: Sql, notices: Notices, retry: (ms: number, run: () => void) => () => void) {
    this.#sql = sql;
    this.#retry = retry;
    const read = (): void => void this.load().catch(() => {});
    const hear = (payload: string): void => {
      const stop = stopIn(payload);
      if (stop) this.add(stop);
      else read();
    };
    this.#off = notices.on("robots_stopped", hear, read);
  }

  /** A stop that was just ordered is in force at once: nothing is read before loops are cut. */
  add(stop: StopRecord): void {
    this.#heard.push(stop);
    this.#orgs.set(stop.orgId, [...(this.#orgs.get(stop.orgId) ?? []), stop]);
    for (const changed of this.#listeners) changed();
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

  /** Why someone may not move; undefined when he may. */
  refusalOf(mover: Mover): Refusal | undefined {
    const stops = this.#orgs.get(mover.key.orgId);
    const stop = stops?.find(({ scope, subject }) => SUBJECTS[scope](mover).includes(subject));
    if (!stop) return undefined;
    const why = stop.reason ? `: ${stop.reason}` : "";
    const text = `an emergency stop stands for this ${scopeWord(stop.scope)} (${stop.id})${why}`;
    return refuse(Reason.ROBOT_STOPPED, text);
  }

  /** Refuses someone who may not move. */
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

  async #readAll(): Promise<void> {
    try {
      while (this.#stale) {
        this.#stale = false;
        const heard = this.#heard.length;
        const standing = await standingStops(this.#sql);
        // What was told of meanwhile may have been too late for this reading.
        this.#heard.splice(0, heard);
        this.#orgs = byOrg([...standing, ...this.#heard]);
        for (const changed of this.#listeners) changed();
      }
    } catch (thrown) {
      this.#forgetRetry = this.#retry(RETRY_MS, () => void this.load().catch(() => {}));
      throw thrown;
    }
  }
}

const SUBJECTS: Readonly<Record<StopScope, (mover: Mover) => readonly (string | undefined)[]>> = {
  robot: ({ robotIds }) => robotIds,
  session: ({ sessionId }) => [sessionId],
  key: ({ key }) => [key.keyId],
  workspace: ({ key }) => [key.workspaceId],
  org: ({ key }) => [key.orgId],
};

const scopeWord = (scope: StopScope): string => (scope === "org" ? "organisation" : scope);

function byOrg(stops: readonly StopRecord[]): Map<string, readonly StopRecord[]> {
  const orgs = new Map<string, StopRecord[]>();
  for (const stop of stops) orgs.set(stop.orgId, [...(orgs.get(stop.orgId) ?? []), stop]);
  return orgs;
}
