/**
 * One replica among those on a NATS does what need not be done twice. It is agreed on by messages alone, so that the others need not ask the
 * database: for a moment several may lead, or none. What must not be done twice at once has a lock in the database.
 */
import { errors, type NatsConnection, type Subscription } from "nats";
import { BRAND } from "../../brand.ts";
import { after, every, steadyNow } from "../../clock.ts";

/** Where replicas say who leads in some matter. */
const SUBJECTS = { work: `${BRAND}.replica.v1.lead`, events: `${BRAND}.replica.v1.lead.events` } as const;
/** Milliseconds between two messages of the replica that leads. */
const BEAT_MS = 1_000;
/** A leader that has said nothing for as long is taken for dead. */
const SILENCE_MS = 3_000;
/** How long a replica that comes waits for an answer to whether another leads. */
const ASKED_MS = 250;
/** What a replica says that comes, and a leader that goes. Ids of replicas are longer. */
const [COMES, GOES] = ["?", "!"];

/** What it depends on. */
interface LeadershipDeps {
  readonly connection: NatsConnection;
  /** What is led: messages for work that waits, or the relay of events. Each has a leader of its own. */
  readonly matter: keyof typeof SUBJECTS;
  /** Names this replica among all; of two that lead the one with the lower name goes on. */
  readonly replica: string;
  /** Called when this replica begins to lead. */
  begins(): void;
}

/** The part of one replica in it, as long as its connection lasts. */
export class Leadership {
  readonly #deps: LeadershipDeps;
  readonly #heard: Subscription;
  readonly #stops: (() => void)[];
  #leads = false;
  #heardAt = Number.NEGATIVE_INFINITY;

  /** Asks who leads. */
  constructor(deps: LeadershipDeps) {
    this.#deps = deps;
    this.#heard = deps.connection.subscribe(SUBJECTS[deps.matter], {
      callback: (error, message) => {
        if (!error) this.#hear(message.string());
      },
    });
    this.#say(COMES);
    this.#stops = [
      after(ASKED_MS, () => {
        if (this.#heardAt === Number.NEGATIVE_INFINITY) this.#begin();
      }),
      every(BEAT_MS, () => {
        if (this.#leads) this.#say(deps.replica);
        else if (steadyNow() - this.#heardAt > SILENCE_MS) this.#begin();
      }),
    ];
  }

  /** Whether this replica leads, as far as it knows. */
  get leads(): boolean {
    return this.#leads;
  }

  /** Leads no more, and tells the others. */
  leave(): void {
    for (const stop of this.#stops) stop();
    if (this.#leads) this.#say(GOES);
    this.#leads = false;
    if (!this.#deps.connection.isClosed()) this.#heard.unsubscribe();
  }

  #begin(): void {
    if (this.#leads) return;
    this.#leads = true;
    this.#say(this.#deps.replica);
    this.#deps.begins();
  }

  #hear(message: string): void {
    const { replica } = this.#deps;
    if (message === replica) return;
    if (message === COMES) {
      if (this.#leads) this.#say(replica);
    } else if (message === GOES) {
      if (!this.#leads) this.#begin();
    } else if (this.#leads && message > replica) {
      this.#say(replica);
    } else {
      this.#leads = false;
      this.#heardAt = steadyNow();
    }
  }

  #say(message: string): void {
    // One whose connection is just being lost leads nothing any more.
    if (!this.#deps.connection.isClosed()) this.#deps.connection.publish(SUBJECTS[this.#deps.matter], message);
  }
}

// Which of several relays looks for events: the one that leads, and another only where nothing is heard of that one. Messages that are lost
// cost a look too many, and a permission that is missing lets every relay look.

const SUBJECT = `${BRAND}.replica.v1.relayed`;
/** Everything that replicas say to each other. */
const REPLICAS = `${BRAND}.replica.`;

/** What it depends on. */
export interface RelayTurnsDeps {
  /** Names this replica among all. */
  readonly replica: string;
  /** Called when this replica begins to lead. */
  begins(): void;
  /** What another relay has done: all events up to this mark were relayed, or, where it is empty, some were, or wait for a transaction. */
  hear(mark: string): void;
}

/** The part of one relay in it, as long as its connection lasts. */
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

  /** Whether this relay looks at once. */
  get leads(): boolean {
    return this.#isAlone || this.#leadership.leads;
  }

  /** Tells the others what was done; see `hear`. */
  say(mark: string): void {
    if (!this.#isAlone && !this.#connection.isClosed()) this.#connection.publish(SUBJECT, mark);
  }

  /** Takes note of an error of the connection. True where it concerns messages between replicas alone: these relays hear nothing of each other. */
  takes(error: Error): boolean {
    if (!(error instanceof errors.PermissionViolationError && error.subject.startsWith(REPLICAS))) return false;
    if (this.#isAlone) return true;
    this.#isAlone = true;
    this.#leadership.leave();
    this.#begins();
    return true;
  }

  /** Leads no more, and tells the others. */
  leave(): void {
    if (!this.#isAlone) this.#leadership.leave();
  }
}
