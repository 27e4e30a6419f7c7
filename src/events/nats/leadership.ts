/**
 * One replica among those on a NATS does what need not be done twice. It is agreed on by messages alone, so that the others need not ask the
 * database: for a moment several may lead, or none. What must not be done twice at once has a lock in the database.
 */
import type { NatsConnection, Subscription } from "nats";
import { BRAND } from "../../brand.ts";
import { after, every, steadyNow } from "../../clock.ts";

/** Where the words about who leads in some matter are said. */
const SUBJECTS = { work: `${BRAND}.replica.v1.lead`, events: `${BRAND}.replica.v1.lead.events` } as const;
/** Milliseconds between two words of who leads. */
const BEAT_MS = 1_000;
/** Who leads and has said nothing for as long is taken for dead. */
const SILENCE_MS = 3_000;
/** How long one who comes waits for an answer to whether anyone leads. */
const ASKED_MS = 250;
/** What one says who comes, and who goes. Ids of replicas are longer. */
const [COMES, GOES] = ["?", "!"];

/** What it depends on. */
export interface LeadershipDeps {
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

  #hear(word: string): void {
    const { replica } = this.#deps;
    if (word === replica) return;
    if (word === COMES) {
      if (this.#leads) this.#say(replica);
    } else if (word === GOES) {
      if (!this.#leads) this.#begin();
    } else if (this.#leads && word > replica) {
      this.#say(replica);
    } else {
      this.#leads = false;
      this.#heardAt = steadyNow();
    }
  }

  #say(word: string): void {
    // One whose connection is just being lost leads nothing any more.
    if (!this.#deps.connection.isClosed()) this.#deps.connection.publish(SUBJECTS[this.#deps.matter], word);
  }
}
