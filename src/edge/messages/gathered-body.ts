/** A request's body while it comes. */
import { Gatherer } from "../../codecs/gatherer.ts";

/** Gathers the pieces of a body. One that comes in a single piece is not copied; of several, none is kept beside the copy. */
export class GatheredBody {
  readonly #most: number;
  #first: Buffer | undefined;
  #all: Gatherer | undefined;

  /** The caller refuses more than `most` bytes before they are added. */
  constructor(most: number) {
    this.#most = most;
  }

  add(piece: Buffer): void {
    if (this.#all !== undefined) this.#all.add(piece);
    else if (this.#first === undefined) this.#first = piece;
    else {
      this.#all = new Gatherer(this.#most);
      this.#all.add(this.#first);
      this.#all.add(piece);
      this.#first = undefined;
    }
  }

  /** All of it: call this when nothing more is to come. */
  bytes(): Buffer {
    return this.#all?.bytes() ?? this.#first ?? Buffer.alloc(0);
  }
}
