/**
 * Prediction and grounding on worker threads, so that long image work never delays an act. A predicted frame is computed when it is read, so a
 * client that reads slowly, or leaves, costs no more than it reads.
 */
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import type { Grounding } from "./ground.ts";
import { UnreadableImage } from "./image.ts";
import { UnsupportedObservation } from "./unsupported.ts";

/** An image as its camera encoded it. */
export interface EncodedPicture {
  readonly camera: string;
  readonly bytes: Uint8Array;
}

/** A request to the worker thread. `id` names its prediction. */
export type PictureJob =
  | { kind: "ground"; picture: EncodedPicture; instruction: string }
  | {
      kind: "predict";
      id: number;
      pictures: readonly EncodedPicture[];
      horizon: number;
      actions: readonly (readonly number[])[];
    }
  | { kind: "next"; id: number }
  | { kind: "leave"; id: number };

/** A predicted image as PNG. */
export interface MadePicture {
  readonly width: number;
  readonly height: number;
  readonly bytes: Uint8Array;
}

/** A thread's result for each kind of job. */
export interface Results {
  ground: Grounding;
  predict: string;
  next: MadePicture | undefined;
  leave: undefined;
}

/** A result, or an error for the caller. */
export type PictureReply =
  | { ticket: number; result: Results[keyof Results] }
  | { ticket: number; refusal: string; unreadable: boolean };

/** The maximum number of running predictions; each holds its images in memory. */
const MAX_PREDICTIONS = 32;

/** The provider is at its limit; a retry may succeed. */
export class Busy extends Error {
  override readonly name = "Busy";
}

/** Worker threads for images. If a thread crashes, the process exits, and its parent restarts it. */
export class Pictures {
  readonly #threads: Thread[];
  #nextId = 1;
  #predictions = 0;

  constructor() {
    const count = Math.max(1, Math.min(4, availableParallelism() - 1));
    this.#threads = Array.from({ length: count }, () => new Thread());
  }

  /** See `ground`; also throws `UnreadableImage`. */
  ground(picture: EncodedPicture, instruction: string): Promise<Grounding> {
    return this.#leastBusy().ask({ kind: "ground", picture, instruction });
  }

  /**
   * Throws as `predict` does, `UnreadableImage`, and `Busy`. The caller must read the frames, or close the iterator; each is computed on demand.
   */
  async predict(
    pictures: readonly EncodedPicture[],
    horizon: number,
    actions: readonly (readonly number[])[],
  ): Promise<{ note: string; frames: AsyncGenerator<MadePicture, void, undefined> }> {
    if (this.#predictions >= MAX_PREDICTIONS) throw new Busy("too many concurrent predictions");
    const id = this.#nextId++;
    const thread = this.#leastBusy();
    this.#predictions++;
    try {
      const note = await thread.ask({ kind: "predict", id, pictures, horizon, actions });
      return { note, frames: this.#frames(thread, id) };
    } catch (error) {
      this.#predictions--;
      throw error;
    }
  }

  async *#frames(thread: Thread, id: number): AsyncGenerator<MadePicture, void, undefined> {
    try {
      for (;;) {
        const picture = await thread.ask({ kind: "next", id });
        if (picture === undefined) return;
        yield picture;
      }
    } finally {
      this.#predictions--;
      await thread.ask({ kind: "leave", id });
    }
  }

  /** Ends the threads and drops their work. */
  async close(): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.end()));
  }

  #leastBusy(): Thread {
    return this.#threads.reduce((best, thread) => (thread.load < best.load ? thread : best));
  }
}

interface AskedPicture {
  readonly resolve: (result: Results[keyof Results]) => void;
  readonly reject: (error: Error) => void;
}

class Thread {
  readonly #worker = new Worker(new URL("./pictures-worker.ts", import.meta.url));
  readonly #asked = new Map<number, AskedPicture>();
  #nextTicket = 1;

  constructor() {
    this.#worker.on("message", (reply: PictureReply) => this.#settle(reply));
  }

  get load(): number {
    return this.#asked.size;
  }

  ask<K extends PictureJob["kind"]>(job: Extract<PictureJob, { kind: K }>): Promise<Results[K]> {
    const ticket = this.#nextTicket++;
    return new Promise((resolve, reject) => {
      // The thread answers each kind of job with its own kind of result.
      this.#asked.set(ticket, { resolve: resolve as AskedPicture["resolve"], reject });
      this.#worker.postMessage({ ticket, job });
    });
  }

  async end(): Promise<void> {
    await this.#worker.terminate();
  }

  #settle(reply: PictureReply): void {
    const asked = this.#asked.get(reply.ticket);
    this.#asked.delete(reply.ticket);
    if ("result" in reply) asked?.resolve(reply.result);
    else
      asked?.reject(reply.unreadable ? new UnreadableImage(reply.refusal) : new UnsupportedObservation(reply.refusal));
  }
}
