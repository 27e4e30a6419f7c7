/** Control loops that end on one stream and go on on another, here or on another replica. */
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { type LoopChunk, LoopChunkSchema } from "../../../gen/limber/v1/control_loop_pb.ts";
import { after, sleep, steadyNow } from "../../clock.ts";
import type { Notifications } from "../../store/database/notifications.ts";
import type { Sql } from "../../store/database/tx.ts";
import {
  type Before,
  endLoopSession,
  holderOfLoopSession,
  lookAtLoopSession,
  takeLoopSession,
} from "../../store/replicas/loop-sessions.ts";
import type { Vault } from "../../vault.ts";
import type { LoopRegistry } from "./loop-registry.ts";

/** The last chunk that a session's stream was charged for. */
export interface ResumedChunk {
  readonly chunk: LoopChunk;
  /** When it was as old as it says, on the steady clock in milliseconds. */
  readonly toldAt: number;
}

/** How long a stream waits for what another replica has to say of its session. */
const PATIENCE_MS = 500;
const LOOK_MS = 50;
/** More ends than this wait for no database in memory. */
const MOST_ENDED = 10_000;

/** Who has which session, shared by the replicas through the database. Without it, loops begin as if nothing had been. */
export class Resumption {
  readonly #sql: Sql;
  readonly #vault: Vault;
  readonly #off: () => void;
  /** Where streams of this replica ended, until the database knows it. */
  readonly #ended = new Map<string, ResumedChunk>();

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

  /** Takes a session for a stream; answers the last chunk of the stream before, once that has ended. Never rejects. */
  take(session: string, stream: string): Promise<ResumedChunk | undefined> {
    const here = this.#ended.get(session);
    return new Promise((resolve) => {
      if (here) resolve(here);
      const forget = after(PATIENCE_MS, () => resolve(undefined));
      this.#take(session, stream)
        .catch(() => undefined)
        .then((last) => {
          forget();
          resolve(last);
        });
    });
  }

  /** Notes where a stream ended. The chunk is sealed where the organisation retains no data, and forgotten with the session. */
  end(session: string, stream: string, last: ResumedChunk | undefined, sealed: boolean): void {
    const here = last && byNow(last);
    const kept = here && { step: here.chunk.startStep, chunk: this.#kept(session, here, sealed), sealed };
    if (here && this.#ended.size < MOST_ENDED) this.#ended.set(session, here);
    // A stream may end before the database knows that it began.
    const begun = this.#taking.get(session)?.catch(() => {}) ?? Promise.resolve();
    begun
      .then(() => endLoopSession(this.#sql, session, stream, kept))
      .catch(() => {})
      .finally(() => {
        if (this.#ended.get(session) === here) this.#ended.delete(session);
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

  async #take(session: string, stream: string): Promise<ResumedChunk | undefined> {
    const until = steadyNow() + PATIENCE_MS;
    const taking = takeLoopSession(this.#sql, session, stream);
    this.#taking.set(session, taking);
    let before = await taking.finally(() => {
      if (this.#taking.get(session) === taking) this.#taking.delete(session);
    });
    // It may still run, and be ended just now.
    while (before && !before.ended && steadyNow() < until) {
      await sleep(LOOK_MS);
      before = await lookAtLoopSession(this.#sql, session);
    }
    return before && this.#lastOf(session, before);
  }

  #kept(session: string, { chunk }: ResumedChunk, sealed: boolean): Uint8Array {
    const bytes = toBinary(LoopChunkSchema, chunk);
    return sealed ? this.#vault.seal(bytes, contextOf(session)) : bytes;
  }

  #lastOf(session: string, { last }: Before): ResumedChunk | undefined {
    if (!last) return undefined;
    const { sealed, chunk } = last;
    const bytes = sealed ? this.#vault.openBytes(chunk, contextOf(session)) : chunk;
    return { chunk: fromBinary(LoopChunkSchema, bytes), toldAt: steadyNow() - last.agoMs };
  }
}

/** The same chunk, as old as it is by now. */
function byNow({ chunk, toldAt }: ResumedChunk): ResumedChunk {
  const now = steadyNow();
  return { chunk: { ...chunk, observationAgeMs: chunk.observationAgeMs + now - toldAt }, toldAt: now };
}

const contextOf = (session: string): string => JSON.stringify(["loop_session", session]);
