/** Control loops that end on one stream and go on on another, here or on another replica. */
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { type LoopChunk, LoopChunkSchema } from "../../../../gen/limber/v1/control_loop_pb.ts";
import { after, sleep, steadyNow } from "../../../ambient.ts";
import type { Notices } from "../../../store/database/notices.ts";
import type { Sql } from "../../../store/database/tx.ts";
import {
  type Before,
  endLoopSession,
  lookAtLoopSession,
  takeLoopSession,
} from "../../../store/replicas/loop-sessions.ts";

/** The last chunk that a session's stream was charged for. */
export interface LastChunk {
  readonly chunk: LoopChunk;
  /** When its stream ended, on the steady clock in milliseconds. */
  readonly endedAt: number;
}

/** How long a stream waits for what another replica has to say of its session. */
const PATIENCE_MS = 500;
const LOOK_MS = 50;
/** More ends than this wait for no database in memory. */
const MOST_ENDED = 10_000;

/** Who has which session, shared by the replicas through the database. Without it, loops begin as if nothing had been. */
export class Resumption {
  readonly #sql: Sql;
  readonly #off: () => void;
  /** Where streams of this replica ended, until the database knows it. */
  readonly #ended = new Map<string, LastChunk>();

  /** `taken` is told of sessions that another stream has taken, on whatever replica. */
  constructor(sql: Sql, notices: Notices, taken: (session: string, stream: string) => void) {
    this.#sql = sql;
    this.#off = notices.on("loop_taken", (payload) => {
      const [session = "", stream = ""] = payload.split(" ");
      taken(session, stream);
    });
  }

  /** Takes a session for a stream; answers the last chunk of the stream before, once that has ended. Never rejects. */
  take(session: string, stream: string): Promise<LastChunk | undefined> {
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

  /** Notes where a stream ended. */
  end(session: string, stream: string, last: LoopChunk | undefined): void {
    const kept = last && { step: last.startStep, chunk: toBinary(LoopChunkSchema, last) };
    const here = last && { chunk: last, endedAt: steadyNow() };
    if (here && this.#ended.size < MOST_ENDED) this.#ended.set(session, here);
    endLoopSession(this.#sql, session, stream, kept)
      .catch(() => {})
      .finally(() => {
        if (this.#ended.get(session) === here) this.#ended.delete(session);
      });
  }

  /** Hears no more. */
  close(): void {
    this.#off();
  }

  async #take(session: string, stream: string): Promise<LastChunk | undefined> {
    const until = steadyNow() + PATIENCE_MS;
    let before = await takeLoopSession(this.#sql, session, stream);
    // It may still run, and be told just now that it is over.
    while (before && !before.ended && steadyNow() < until) {
      await sleep(LOOK_MS);
      before = await lookAtLoopSession(this.#sql, session);
    }
    return before && lastOf(before);
  }
}

function lastOf({ last }: Before): LastChunk | undefined {
  return last && { chunk: fromBinary(LoopChunkSchema, last.chunk), endedAt: steadyNow() - last.agoMs };
}
