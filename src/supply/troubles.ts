/** What went wrong at offerings, counted by this replica for their owners and written down from time to time. */
import { now } from "../clock.ts";
import { failureWord } from "../contracts/failure.ts";
import type { TroubleListener } from "../routing/index.ts";
import type { TroubleRecord } from "../store/supply/offering-days.ts";
import { ownerText } from "../upstream/transport/failures.ts";

/** While the database is away, so many kinds of trouble wait for it; further ones are not counted. */
const MOST_WAITING = 50_000;

/** The count of one replica. */
export class Troubles {
  readonly #put: (records: readonly TroubleRecord[]) => Promise<void>;
  #waiting = new Map<string, TroubleRecord>();
  #writing: Promise<void> = Promise.resolve();

  /** `put` adds records to those that are written down. */
  constructor(put: (records: readonly TroubleRecord[]) => Promise<void>) {
    this.#put = put;
  }

  /** Counts one. */
  readonly note: TroubleListener = (offeringId, { kind, count, said }) => {
    const word = kind === "hold" ? kind : (failureWord(kind) ?? "");
    const day = new Date(now()).toISOString().slice(0, 10);
    this.#add({ offeringId, day, kind: word, count, said: said === undefined ? null : ownerText(said) || null });
  };

  /** Writes down what was counted since the last time; what could not be written waits for the next. */
  write(): Promise<void> {
    this.#writing = this.#writing.catch(() => {}).then(() => this.#write());
    return this.#writing;
  }

  async #write(): Promise<void> {
    const records = [...this.#waiting.values()];
    this.#waiting = new Map();
    await this.#put(records).catch((thrown: unknown) => {
      const since = [...this.#waiting.values()];
      this.#waiting = new Map();
      for (const record of [...records, ...since]) this.#add(record);
      throw thrown;
    });
  }

  #add(record: TroubleRecord): void {
    const key = `${record.day} ${record.offeringId} ${record.kind}`;
    const before = this.#waiting.get(key);
    if (!before && this.#waiting.size >= MOST_WAITING) return;
    const { count = 0, said = null } = before ?? {};
    this.#waiting.set(key, { ...record, count: count + record.count, said: record.said ?? said });
  }
}
