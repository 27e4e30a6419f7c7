/**
 * Elects one replica per NATS for work that need not be done twice. The election uses messages only, without the database, so for a moment
 * several replicas or none may lead. Work that must not run twice at once is also protected by a database lock.
 */
import { errors, type NatsConnection, type Subscription } from "nats";
import { BRAND } from "../../brand.ts";
import { after, every, steadyNow } from "../../clock.ts";

/** The subjects on which leaders announce themselves. */
const SUBJECTS = { work: `${BRAND}.replica.v1.lead`, events: `${BRAND}.replica.v1.lead.events` } as const;
/** Milliseconds between two announcements of a leader. */
const BEAT_MS = 1_000;
/** A leader that is silent for this long counts as dead. */
const SILENCE_MS = 3_000;
/** How long a new replica waits for a leader's announcement. */
const ASKED_MS = 250;
/** Payloads of a joining replica and of a resigning leader. Replica ids are longer. */
const [COMES, GOES] = ["?", "!"];

/** Dependencies of an election. */
interface LeadershipDeps {
  readonly connection: NatsConnection;
  /** What is led: the messages for queued work, or the event relay. Each has its own leader. */
  readonly matter: keyof typeof SUBJECTS;
  /** The unique id of this replica. Of two leaders, the one with the lower id continues. */
  readonly replica: string;
  /** Called when this replica becomes leader. */
  begins(): void;
}

/** One replica's part in an election, for the lifetime of its connection. */
export class Leadership {
  readonly #deps: LeadershipDeps;
  readonly #heard: Subscription;
  readonly #stops: (() => void)[];
  #leads = false;
  #lastAnnouncementAt = Number.NEGATIVE_INFINITY;

  /** Asks for the current leader. */
  constructor(deps: LeadershipDeps) {
    this.#deps = deps;
    this.#heard = deps.connection.subscribe(SUBJECTS[deps.matter], {
      callback: (error, message) => {
        if (!error) this.#receive(message.string());
      },
    });
    this.#publish(COMES);
    this.#stops = [
      after(ASKED_MS, () => {
        if (this.#lastAnnouncementAt === Number.NEGATIVE_INFINITY) this.#lead();
      }),
      every(BEAT_MS, () => {
        if (this.#leads) this.#publish(deps.replica);
        else if (steadyNow() - this.#lastAnnouncementAt > SILENCE_MS) this.#lead();
      }),
    ];
  }

  /** Whether this replica leads, as far as it knows. */
  get leads(): boolean {
    return this.#leads;
  }

  /** Resigns, and notifies the others. */
  leave(): void {
    for (const stop of this.#stops) stop();
    if (this.#leads) this.#publish(GOES);
    this.#leads = false;
    if (!this.#deps.connection.isClosed()) this.#heard.unsubscribe();
  }

  #lead(): void {
    if (this.#leads) return;
    this.#leads = true;
    this.#publish(this.#deps.replica);
    this.#deps.begins();
  }

  #receive(message: string): void {
    const { replica } = this.#deps;
    if (message === replica) return;
    if (message === COMES) {
      if (this.#leads) this.#publish(replica);
    } else if (message === GOES) {
      if (!this.#leads) this.#lead();
    } else if (this.#leads && message > replica) {
      this.#publish(replica);
    } else {
      this.#leads = false;
      this.#lastAnnouncementAt = steadyNow();
    }
  }

  #publish(message: string): void {
    // A replica that is losing its connection does not lead.
    if (!this.#deps.connection.isClosed()) this.#deps.connection.publish(SUBJECTS[this.#deps.matter], message);
  }
}

// Decides which relay checks for events: the leader, or another if the leader is silent. A lost message costs one unnecessary check;
// without the NATS permission, every relay checks.

const SUBJECT = `${BRAND}.replica.v1.relayed`;
/** The subject of all messages between relays. */
const REPLICAS = `${BRAND}.replica.`;

/** Dependencies of relay leadership. */
export interface RelayTurnsDeps {
  /** The unique id of this replica. */
  readonly replica: string;
  /** Called when this replica becomes leader. */
  begins(): void;
  /** Another relay's report: all events up to this mark were relayed. An empty mark means that some were, or await a transaction. */
  hear(mark: string): void;
}

/** One relay's part in the election, for the lifetime of its connection. */
export class RelayTurns {
  readonly #connection: NatsConnection;
  readonly #leadership: Leadership;
  readonly #begins: () => void;
  #isAlone = false;

  constructor(connection: NatsConnection, { replica, begins, hear }: RelayTurnsDeps) {
    this.#connection = connection;
    this.#begins = begins;
    connection.subscribe(SUBJECT, {
      callback: (error, message) => {
        if (!error) hear(message.string());
      },
    });
    this.#leadership = new Leadership({ connection, matter: "events", replica, begins });
  }

  /** Whether this relay checks immediately. */
  get leads(): boolean {
    return this.#isAlone || this.#leadership.leads;
  }

  /** Reports relayed events to the other relays; see `hear`. */
  say(mark: string): void {
    if (!this.#isAlone && !this.#connection.isClosed()) this.#connection.publish(SUBJECT, mark);
  }

  /** Handles a connection error. Returns true if it concerns only messages between replicas; then these relays receive nothing from each other. */
  takes(error: Error): boolean {
    if (!(error instanceof errors.PermissionViolationError && error.subject.startsWith(REPLICAS))) return false;
    if (this.#isAlone) return true;
    this.#isAlone = true;
    this.#leadership.leave();
    this.#begins();
    return true;
  }

  /** Resigns, and notifies the others. */
  leave(): void {
    if (!this.#isAlone) this.#leadership.leave();
  }
}
