/** Control loops that end on one stream and go on on another, here or on another replica. */
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

/** What is known of the stream before. */
export interface TakenSession {
  /** Undefined where there was none, or where the database does not say. */
  readonly left: LeftBehind | undefined;
  /** The same once that stream has ended, for which nobody waits long; undefined where it has. Never rejects. */
  readonly settled: Promise<LeftBehind | undefined> | undefined;
}

/** Whose session it is. */
export interface SessionStream {
  readonly session: string;
  readonly stream: string;
}

/** How long a stream waits for the database. */
const PATIENCE_MS = 500;
/**
 * When the database is asked again whether the stream before has ended, in milliseconds from one time to the next. One that lives is told at
 * once that it has lost its session; one that died with its replica is not worth a longer wait.
 */
const LOOKS_MS = [10, 20, 30, 40];
/** How soon a reset that could not be written is written again. */
const RETRY_MS = 100;
/** More ends than this wait for no database in memory. */
const MOST_ENDED = 10_000;

/** Who has which session, shared by the replicas through the database. Without it, loops begin as if nothing had been. */
export class Resumption {
  readonly #sql: Sql;
  readonly #vault: Vault;
  readonly #off: () => void;
  /** Where streams of this replica ended, until the database knows it. */
  readonly #ended = new Map<string, LeftBehind>();

  /** Sessions that streams of this replica are about to take, until the database knows it. */
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

  /** Takes a session for a stream, which says where it is in another episode than the one before; answers what that one left. Never rejects. */
  async take(by: SessionStream, episode: number | undefined): Promise<TakenSession> {
    const here = this.#ended.get(by.session);
    // The database hears of the stream in any case.
    const taken = inTime(this.#take(by, episode), { ms: PATIENCE_MS, late: () => undefined }).catch(() => NOTHING);
    return here ? { left: here, settled: undefined } : taken;
  }

  /** Begins an episode in a stream's session. Resolves when nothing of those before can be resumed on any replica, or when `isOver` says that nobody waits for that. */
  async reset(by: SessionStream, episode: number, isOver: () => boolean): Promise<void> {
    this.#ended.delete(by.session);
    await this.#taking.get(by.session)?.catch(() => {});
    while (!isOver()) {
      const written = resetLoopSession(this.#sql, { ...by, episode });
      if (await written.then(yes, no)) return;
      await sleep(RETRY_MS);
    }
  }

  /** Notes where a stream ended. The chunk is sealed where the organization retains no data, and forgotten with the session. */
  end(by: SessionStream, left: LeftBehind, sealed: boolean): void {
    const { session } = by;
    if (this.#ended.size < MOST_ENDED || this.#ended.has(session)) this.#ended.set(session, left);
    // A stream may end before the database knows that it began.
    const begun = this.#taking.get(session)?.catch(() => {}) ?? Promise.resolve();
    begun
      .then(() => this.#end(by, left, sealed))
      .catch(() => {})
      .finally(() => {
        if (this.#ended.get(session) === left) this.#ended.delete(session);
      });
  }

  /** Hears no more. */
  close(): void {
    this.#off();
  }

  /** A notification may come late, of a stream from which the one here has taken the session: the database has the present one. */
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

  /** What a stream left that may still run, and be ended just now. */
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
   * The age of a chunk is that of the end of its stream, and what has passed since by the database's clock. The end is dated by the earliest that
   * it may be by that clock, and what has passed is counted from before the database is asked: a chunk never seems younger than it is.
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

/** The same chunk, as old as it is by now. */
const byNow = ({ chunk, toldAt }: ResumedChunk): LoopChunk => ({
  ...chunk,
  observationAgeMs: chunk.observationAgeMs + steadyNow() - toldAt,
});
