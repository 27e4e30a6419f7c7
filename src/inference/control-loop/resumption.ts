/** Control loops that end on one stream and resume on another, here or on another replica. */
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { type LoopChunk, LoopChunkSchema } from "../../../gen/limber/v1/control_loop_pb.ts";
import { earliestNow, inTime, sleep, steadyNow } from "../../clock.ts";
import type { Notifications } from "../../store/database/notifications.ts";
import type { Sql } from "../../store/database/tx.ts";
import {
  type Before,
  endLoopSession,
  holderOfLoopSession,
  lookAtLoopSession,
  loopSessionContext,
  resetLoopSession,
  takeLoopSession,
} from "../../store/replicas/loop-sessions.ts";
import type { Vault } from "../../vault.ts";
import type { LeftBehind, LoopRegistry, ResumedChunk } from "./loop-registry.ts";

/** The known state of the previous stream. */
export interface TakenSession {
  /** Undefined if there was none, or if the database does not have it. */
  readonly left: LeftBehind | undefined;
  /** The same once that stream has ended, after a short wait; undefined if it has ended. Never rejects. */
  readonly settled: Promise<LeftBehind | undefined> | undefined;
}

/** The owner of a session. */
export interface SessionStream {
  readonly session: string;
  readonly stream: string;
}

/** Maximum wait for the database. */
const PATIENCE_MS = 500;
/**
 * Intervals at which the database is checked for the end of the previous stream, in milliseconds. A running stream is notified at once that
 * it has lost its session; one that died with its replica is not worth a longer wait.
 */
const LOOKS_MS = [10, 20, 30, 40];
/** Interval at which a failed reset is retried. */
const RETRY_MS = 100;
/** Maximum number of stream ends that wait in memory for the database. */
const MOST_ENDED = 10_000;

/**
 * Which stream has which session, shared by all replicas through the database. Without it, loops start as if there had been no earlier
 * stream.
 */
export class Resumption {
  readonly #sql: Sql;
  readonly #vault: Vault;
  readonly #off: () => void;
  /** Ends of this replica's streams, until the database has them. */
  readonly #ended = new Map<string, LeftBehind>();

  /** Sessions that this replica's streams are taking, until the database has them. */
  readonly #taking = new Map<string, Promise<unknown>>();
  readonly #registry: Pick<LoopRegistry, "streamOf" | "taken">;

  /** The registry is notified of sessions that another stream has taken, on any replica. */
  constructor(
    { sql, notifications, vault }: { sql: Sql; notifications: Notifications; vault: Vault },
    registry: Pick<LoopRegistry, "streamOf" | "taken">,
  ) {
    this.#sql = sql;
    this.#vault = vault;
    this.#registry = registry;
    this.#off = notifications.on("loop_taken", (payload) => {
      const [session = "", stream = ""] = payload.split(" ");
      void this.#taken(session, stream);
    });
  }

  /**
   * Takes a session for a stream, which states whether it is in another episode than the previous one. Returns what that one left. Never
   * rejects.
   */
  async take(by: SessionStream, episode: number | undefined): Promise<TakenSession> {
    const here = this.#ended.get(by.session);
    // The database is notified of the stream in any case.
    const taken = inTime(this.#take(by, episode), { ms: PATIENCE_MS, late: () => undefined }).catch(() => NOTHING);
    return here ? { left: here, settled: undefined } : taken;
  }

  /** Starts an episode in a stream's session. Resolves when no replica can resume an earlier one, or when `isOver` returns true. */
  async reset(by: SessionStream, episode: number, isOver: () => boolean): Promise<void> {
    this.#ended.delete(by.session);
    await this.#taking.get(by.session)?.catch(() => {});
    while (!isOver()) {
      const written = resetLoopSession(this.#sql, { ...by, episode });
      if (await written.then(yes, no)) return;
      await sleep(RETRY_MS);
    }
  }

  /** Records where a stream ended. If the organization retains no data the chunk is encrypted; it is deleted with the session. */
  end(by: SessionStream, left: LeftBehind, sealed: boolean): void {
    const { session } = by;
    if (this.#ended.size < MOST_ENDED || this.#ended.has(session)) this.#ended.set(session, left);
    // A stream may end before the database knows that it started.
    const begun = this.#taking.get(session)?.catch(() => {}) ?? Promise.resolve();
    begun
      .then(() => this.#end(by, left, sealed))
      .catch(() => {})
      .finally(() => {
        if (this.#ended.get(session) === left) this.#ended.delete(session);
      });
  }

  /** Stops listening for notifications. */
  close(): void {
    this.#off();
  }

  /** A notification may arrive late, for a stream whose session this one has taken: the database has the present owner. */
  async #taken(session: string, stream: string): Promise<void> {
    const here = this.#registry.streamOf(session);
    if (here === undefined || here === stream) return;
    await this.#taking.get(session)?.catch(() => {});
    const holder = await holderOfLoopSession(this.#sql, session).catch(() => undefined);
    this.#registry.taken(session, holder ?? stream);
  }

  async #take(by: SessionStream, episode: number | undefined): Promise<TakenSession> {
    const { session } = by;
    const askedAt = steadyNow();
    const taking = takeLoopSession(this.#sql, { ...by, episode });
    this.#taking.set(session, taking);
    const before = await taking.finally(() => {
      if (this.#taking.get(session) === taking) this.#taking.delete(session);
    });
    if (!before) return NOTHING;
    const left = this.#leftIn(session, before, askedAt);
    return { left, settled: before.ended ? undefined : this.#settled(session, left).catch(() => left) };
  }

  /** The state of a previous stream that may still run, and is ended now. */
  async #settled(session: string, left: LeftBehind): Promise<LeftBehind> {
    for (const ms of LOOKS_MS) {
      await sleep(ms);
      const askedAt = steadyNow();
      const before = await lookAtLoopSession(this.#sql, session);
      if (before?.ended) return this.#leftIn(session, before, askedAt);
    }
    return left;
  }

  /**
   * A chunk's age is the age at the end of its stream plus the time since then on the database's clock. The earliest possible end is used,
   * and the time is counted from before the query, so that a chunk never seems younger than it is.
   */
  #end({ session, stream }: SessionStream, { episode, last }: LeftBehind, sealed: boolean): Promise<void> {
    const by = { session, stream, episode };
    if (!last) return endLoopSession(this.#sql, by, undefined);
    const endedMs = earliestNow();
    const chunk = this.#kept(session, byNow(last), sealed);
    return endLoopSession(this.#sql, by, { step: last.chunk.startStep, chunk, sealed, endedMs });
  }

  #kept(session: string, chunk: LoopChunk, sealed: boolean): Uint8Array {
    const bytes = toBinary(LoopChunkSchema, chunk);
    return sealed ? this.#vault.seal(bytes, loopSessionContext(session)) : bytes;
  }

  #leftIn(session: string, { episode, last }: Before, askedAt: number): LeftBehind {
    if (!last) return { episode, last: undefined };
    const { sealed, chunk, agoMs } = last;
    const bytes = sealed ? this.#vault.openBytes(chunk, loopSessionContext(session)) : chunk;
    return { episode, last: { chunk: fromBinary(LoopChunkSchema, bytes), toldAt: askedAt - agoMs } };
  }
}

const NOTHING: TakenSession = { left: undefined, settled: undefined };

const yes = (): boolean => true;
const no = (): boolean => false;

/** The same chunk with its present age. */
const byNow = ({ chunk, toldAt }: ResumedChunk): LoopChunk => ({
  ...chunk,
  observationAgeMs: chunk.observationAgeMs + steadyNow() - toldAt,
});
