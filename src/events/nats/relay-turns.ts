/**
 * Which of several relays looks for events: the one that leads, and another only where nothing is heard of that one. Messages that are lost
 * cost a look too many, and a permission that is missing lets every relay look.
 */
import { errors, type NatsConnection } from "nats";
import { BRAND } from "../../brand.ts";
import { Leadership } from "./leadership.ts";

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
