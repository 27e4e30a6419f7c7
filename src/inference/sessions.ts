/** Session pins, shared by all replicas: in memory for warm calls, in the database for the first call on another replica. */
import { createHash } from "node:crypto";
import { PinOutcome } from "../../gen/limber/v1/route_pb.ts";
import { inTime, now, steadyNow } from "../clock.ts";
import { emit } from "../events/emit.ts";
import { PIN_SILENCE_MS, type Pin, PinStore, pinOutcome } from "../routing/index.ts";
import type { Notifications } from "../store/database/notifications.ts";
import { type Sql, type Tx, tx } from "../store/database/tx.ts";
import { findPin, type PinRecord, putPins } from "../store/replicas/loop-sessions.ts";

/** A session of an organization. */
export interface SessionPin {
  /** Hexadecimal name, unique among all organizations. The caller's text cannot be derived from it. */
  readonly name: string;
  readonly orgId: string;
  /** The workspace of the calling key. */
  readonly workspaceId: string | undefined;
  /** The session's name in events: the caller's, or `name` if the organization retains no data. */
  readonly word: string;
}

/** The owner of a session; a key's principal is one. */
interface SessionOwner {
  readonly orgId: string;
  readonly workspaceId: string | undefined;
  readonly settings: { readonly zdr: boolean };
}

/**
 * Returns the session of a call; undefined if it names none. Sessions of two organizations or two workspaces never share a name, even if
 * callers choose the same one.
 */
export function sessionOf(
  { provider }: { provider?: { readonly sessionId?: string | undefined } | undefined },
  { orgId, workspaceId, settings }: SessionOwner,
): SessionPin | undefined {
  const word = provider?.sessionId;
  if (word === undefined) return undefined;
  // Organization ids never start with a bracket, so the two forms cannot collide.
  const whole = workspaceId === undefined ? `${orgId} ${word}` : JSON.stringify([orgId, workspaceId, word]);
  const name = createHash("sha256").update(whole).digest("hex").slice(0, 32);
  return { name, orgId, workspaceId, word: settings.zdr ? name : word };
}

/** Maximum wait for the database, in milliseconds. Without it, a pin is what this replica knows. */
const PATIENCE_MS = 250;
/** Maximum number of pins waiting for the database. A dropped one is written with a later call of the session. */
const MOST_WAITING = 10_000;

interface Change {
  readonly session: SessionPin;
  readonly pin: Pin;
  /** The previous pin on this replica. */
  readonly from: Pin | undefined;
  readonly outcome: PinOutcome;
  readonly atMs: number;
  /** Called with the outcome of the change. */
  readonly done: (outcome: PinOutcome) => void;
}

/** The sessions of one replica. */
export class Sessions {
  readonly #sql: Sql;
  readonly #pins = new PinStore();
  readonly #off: () => void;
  #waiting = new Map<string, Change>();
  #writing: Promise<void> | undefined;

  constructor(sql: Sql, notifications: Notifications) {
    this.#sql = sql;
    // After lost notifications the cached pins may be out of date, so they are dropped.
    this.#off = notifications.on("pin_moved", this.#hear, () => this.#pins.clear());
  }

  /** Loads a session's pin, which is already in memory for warm calls. Never rejects. */
  async load({ name }: SessionPin): Promise<void> {
    if (!this.#pins.get(name, steadyNow())) await within(PATIENCE_MS, this.#find(name), undefined);
  }

  async #find(name: string): Promise<void> {
    const pin = await findPin(this.#sql, name);
    if (pin) this.#learn(pin);
  }

  /** Returns the pin of a loaded session. */
  get({ name }: SessionPin): Pin | undefined {
    return this.#pins.get(name, steadyNow());
  }

  /**
   * Records the offering that served a session, by a call that was planned for the pin `planned`. Resolves with the effect on the pin: at
   * once if the pin is kept, otherwise when the change is stored or after 250 ms. Never rejects.
   */
  async served(session: SessionPin, by: Pin, planned?: Pin): Promise<PinOutcome> {
    const at = steadyNow();
    const from = this.#pins.get(session.name, at);
    // Another call moved the pin while this one followed the old one: the newer pin stays.
    const isOutdated = from && planned && pinOutcome(from, by) === PinOutcome.MOVED;
    if (isOutdated && pinOutcome(planned, by) === PinOutcome.KEPT) return PinOutcome.KEPT;
    const outcome = this.#pins.served(session.name, by, at);
    if (!this.#pins.isUntold(session.name, at)) return outcome;
    if (this.#waiting.size >= MOST_WAITING) return outcome;
    const settled = Promise.withResolvers<PinOutcome>();
    const earlier = this.#waiting.get(session.name);
    const done = (actual: PinOutcome): void => {
      earlier?.done(actual);
      settled.resolve(actual);
    };
    this.#waiting.set(session.name, { session, pin: by, from: earlier?.from ?? from, outcome, atMs: now(), done });
    this.#writing ??= this.#write();
    return outcome === PinOutcome.KEPT ? outcome : within(PATIENCE_MS, settled.promise, outcome);
  }

  /** Writes waiting pins and unsubscribes. */
  async close(): Promise<void> {
    this.#off();
    await this.#writing;
  }

  /** Writes batches one after the other. */
  async #write(): Promise<void> {
    while (this.#waiting.size > 0) {
      const batch = [...this.#waiting.values()];
      this.#waiting = new Map();
      const outcomes = await tx(this.#sql, (tx) => this.#commit(tx, batch)).catch(() => undefined);
      for (const [i, { done, outcome }] of batch.entries()) done(outcomes?.[i] ?? outcome);
    }
    this.#writing = undefined;
  }

  async #commit(tx: Tx, batch: Change[]): Promise<PinOutcome[]> {
    const records = batch.map(({ session, pin, atMs }) => ({ session: session.name, ...plain(pin), atMs }));
    const before = new Map((await putPins(tx, records)).map((pin) => [pin.session, pin]));
    const outcomes: PinOutcome[] = [];
    for (const { session, pin, from, outcome, atMs } of batch) {
      const old = before.get(session.name);
      const stood = old && atMs - old.atMs < PIN_SILENCE_MS ? old : undefined;
      // The database decides: a session that another replica has moved is not moved again.
      const actual = stood ? pinOutcome(stood, pin) : outcome;
      outcomes.push(actual);
      const lost = stood ?? from;
      if (actual === PinOutcome.MOVED && lost) {
        const value = { sessionId: session.word, fromModel: lost.model, fromProvider: lost.provider, ...plain(pin) };
        await emit(tx, session.orgId, { case: "sessionPinLost", value }, session.workspaceId);
      }
    }
    return outcomes;
  }

  readonly #hear = (payload: string): void => {
    const moved = JSON.parse(payload) as PinRecord; // only putPins notifies
    if (this.#pins.get(moved.session, steadyNow())) this.#learn(moved);
  };

  #learn({ session, atMs, ...pin }: PinRecord): void {
    this.#pins.learn(session, pin, steadyNow() - Math.max(0, now() - atMs));
  }
}

const plain = ({ model, provider }: Pin): Pin => ({ model, provider });

/** Resolves with `done`, or with `else_` if it takes longer than `ms` or fails. */
const within = <T>(ms: number, done: Promise<T>, else_: T): Promise<T> =>
  inTime(done, { ms, late: () => undefined }).catch(() => else_);
