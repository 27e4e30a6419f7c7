/** What one stream has to send, in its order. */

/** The sending side of a stream: what it has, and how much of that it may send. */
export class OutgoingData {
  /** Its number on the connection: 0 until it has begun there. */
  id = 0;
  /** How much the other side still lets us send; below zero after it has changed its mind. */
  sendWindow = 0;
  /** How much of what is queued has not been sent. */
  queued = 0;
  /** All that will ever be said has been sent. */
  isEnded = false;
  /** No more is to be queued. */
  protected isEnding = false;
  readonly #queue: Buffer[] = [];
  #trailers: Buffer | undefined;

  /** Whether something, be it only the end, has not been sent. */
  get hasMore(): boolean {
    return this.queued > 0 || (this.isEnding && !this.isEnded);
  }

  /** At most so many bytes of what is to be sent next. */
  take(most: number): Buffer | undefined {
    const first = this.#queue[0];
    let taken = first;
    if (first !== undefined && first.length > most) {
      taken = first.subarray(0, most);
      this.#queue[0] = first.subarray(most);
    } else {
      this.#queue.shift();
    }
    this.queued -= taken?.length ?? 0;
    return taken;
  }

  /** Once nothing is queued and the end is near: what ends the stream, a packed block, or undefined where the data itself does. */
  get trailers(): Buffer | undefined {
    return this.isEnding && this.queued === 0 ? this.#trailers : undefined;
  }

  /** Whether nothing comes behind the data that is queued. */
  get endsAfterData(): boolean {
    return this.isEnding && this.#trailers === undefined;
  }

  /** Whether all data has been taken, and was the end of the stream. */
  get endsWithData(): boolean {
    return this.queued === 0 && this.endsAfterData;
  }

  /** Something that was queued, or the end, has been sent. */
  sent(): void {}

  /** Queues bytes, which have to stay as they are. */
  protected push(bytes: Buffer): void {
    if (bytes.length === 0) return;
    this.#queue.push(bytes);
    this.queued += bytes.length;
  }

  /** Nothing is to be queued behind this: a packed block of trailers, or the end alone. */
  protected finish(trailers?: Buffer): void {
    this.isEnding = true;
    this.#trailers = trailers;
  }
}
