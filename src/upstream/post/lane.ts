/**
 * A connection to one receiver that has shown itself fast and plain: posts leave it several in one write, none waiting for the answers to
 * those before (pipelining). Answers are read in their plainest form alone; at the first thing that is slow, odd or broken the lane
 * is over, and whatever has no answer yet goes the careful road. So nothing here has to be lenient, nor to know what HTTP can be.
 */
import type { Socket } from "node:net";
import type { buildConnector } from "undici";
import { steadyNow } from "../../clock.ts";
import { type PlainAnswer, readPlainAnswer } from "../../codecs/plain-answer.ts";

/** One post in a lane. */
export interface Letter {
  /** Its head, ready to send, in ASCII. */
  readonly head: string;
  readonly body: Buffer;
  answered(answer: PlainAnswer): void;
  timedOut(): void;
  /** It has no answer, and shall be posted otherwise: maybe it came, maybe not. */
  carefully(): void;
}

/** What a lane needs. */
export interface PostConnectionDeps {
  /** From `guardedConnector`. */
  readonly connect: buildConnector.connector;
  readonly to: buildConnector.Options;
  readonly timeoutMs: number;
  /** Longer answers are not read. */
  readonly maxBytes: number;
  /** How many posts may leave in one write now. */
  depth(): number;
  /** Hears of each answer; `soon`: it came as fast as a lane is worth having. */
  answered(answer: PlainAnswer, soon: boolean): void;
  /** Hears, once, that the lane is over; `fault`: by the receiver's doing. */
  over(fault: boolean): void;
}

/** An answer that comes later, with the way there and back, is slow. */
export const SOON_MS = 100;
/** Where posts wait for each other at the receiver, each may take so long: else they were faster side by side. */
const NEXT_SOON_MS = 20;
const IDLE_MS = 2_000;
/** Longer heads, and answers that come in more pieces, are not plain. */
const MOST = { headBytes: 16 << 10, pieces: 16 } as const;
const END = "\r\n\r\n";

interface Sent {
  readonly letter: Letter;
  readonly at: number;
}

/** One lane; who made it calls `look` every second. */
export class PostConnection {
  readonly #parts: PostConnectionDeps;
  readonly #waiting: Letter[] = [];
  readonly #sent: Sent[] = [];
  #socket: Socket | undefined;
  #over = false;
  #sending = false;
  /** What came and is no whole answer yet, and in how many pieces. */
  #came = "";
  #pieces = 0;
  /** Receivers say the same head again and again. */
  #head = "";
  #answer: PlainAnswer | undefined;
  #usedAt = steadyNow();

  /** Connects at once. */
  constructor(parts: PostConnectionDeps) {
    this.#parts = parts;
    parts.connect(parts.to, (error, socket) => {
      if (error !== null) return this.end(true);
      socket.on("data", this.#read).on("end", this.#ended).on("close", this.#ended).on("error", this.#ended);
      this.#socket = socket;
      if (this.#over) socket.destroy();
      else this.#send();
    });
  }

  /** Sends it together with all that is added in this turn of the event loop, as soon as there is room. */
  add(letter: Letter): void {
    this.#waiting.push(letter);
    if (!this.#sending) this.#later();
  }

  /** Ends the lane where its receiver is silent, or nobody uses it. */
  look(): void {
    const now = steadyNow();
    const [first] = this.#sent;
    if (first === undefined) {
      if (this.#waiting.length === 0 && now - this.#usedAt > IDLE_MS) this.end(false);
      return;
    }
    if (now - first.at < this.#parts.timeoutMs) return;
    // What waited at the receiver for an answer to another was not given its time.
    if (first.at >= this.#usedAt) this.#sent.shift()?.letter.timedOut();
    this.end(true);
  }

  /** Ends the lane; what has no answer goes the careful road. */
  end(fault: boolean): void {
    if (this.#over) return;
    this.#over = true;
    this.#socket?.destroy();
    this.#parts.over(fault);
    for (const { letter } of this.#sent.splice(0)) letter.carefully();
    this.#leave();
  }

  #later(): void {
    this.#sending = true;
    queueMicrotask(this.#send);
  }

  #leave(): void {
    for (const letter of this.#waiting.splice(0)) letter.carefully();
  }

  readonly #ended = (): void => this.end(this.#sent.length > 0);

  readonly #send = (): void => {
    this.#sending = false;
    if (this.#over) this.#leave();
    // One write, and its answers, at a time: else each answer would send a single post.
    if (this.#over || this.#socket === undefined || this.#sent.length > 0) return;
    const at = steadyNow();
    let text = "";
    for (let room = this.#parts.depth(); room > 0; room--) {
      const letter = this.#waiting.shift();
      if (letter === undefined) break;
      text += letter.head + letter.body.toString("latin1");
      this.#sent.push({ letter, at });
    }
    if (text !== "") this.#socket.write(text, "latin1");
  };

  readonly #read = (piece: Buffer): void => {
    const text = this.#came + piece.toString("latin1");
    let at = 0;
    for (let over = this.#take(text, at); over !== undefined; over = this.#take(text, at)) at = over;
    if (this.#over) return;
    this.#came = text.slice(at);
    this.#pieces = at > 0 ? 1 : this.#pieces + 1;
    const unasked = this.#sent.length === 0 && this.#came !== "";
    if (unasked || this.#pieces > MOST.pieces) this.end(true);
    else if (this.#waiting.length > 0 && !this.#sending) this.#later();
  };

  /** Takes the answer that begins there; says where it ends, or undefined where it is not whole, or the lane is over. */
  #take(text: string, at: number): number | undefined {
    if (this.#sent.length === 0 || at === text.length) return undefined;
    const end = text.indexOf(END, at);
    if ((end < 0 ? text.length : end) - at > MOST.headBytes) return this.#broken();
    if (end < 0) return undefined;
    const head = text.slice(at, end + 2);
    if (head !== this.#head) [this.#head, this.#answer] = [head, readPlainAnswer(head)];
    const answer = this.#answer;
    if (answer === undefined || answer.bodyBytes > this.#parts.maxBytes) return this.#broken();
    const over = end + END.length + answer.bodyBytes;
    if (text.length < over) return undefined;
    this.#answered(this.#sent.shift()!, answer);
    return this.#over ? undefined : over;
  }

  #broken(): undefined {
    this.end(true);
  }

  #answered({ letter, at }: Sent, answer: PlainAnswer): void {
    const now = steadyNow();
    const soon = at >= this.#usedAt ? now - at < SOON_MS : now - this.#usedAt < NEXT_SOON_MS;
    this.#usedAt = now;
    this.#parts.answered(answer, soon);
    letter.answered(answer);
    if (answer.closes) this.end(false);
    else if (!soon) this.#leave();
  }
}
