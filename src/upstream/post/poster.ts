/**
 * Posts to receivers that organisations named, by one of two roads. The careful one (`post.ts`) is for everyone: a connection for each
 * post that is under way, read by undici. A receiver whose answers are plain and fast gets a lane of its own (`lane.ts`), which takes
 * half the work; at the first fault it is back on the careful road, for longer each time. A post that a fault left without an answer
 * goes there too, so it may come twice: its headers name it.
 */
import type { buildConnector, Dispatcher } from "undici";
import { every, steadyNow } from "../../clock.ts";
import type { PlainAnswer } from "../../codecs/plain-answer.ts";
import { type Letter, PostConnection, SOON_MS } from "./lane.ts";
import { type PostAnswer, PostFailed, type PostUrl, placeOf, post } from "./post.ts";

/** What posting needs. */
export interface PosterDeps {
  /** From `guardedAgent`, made with the same `allowPrivate`. */
  readonly agent: Dispatcher;
  /** From `guardedConnector`, made with the same `allowPrivate`. */
  readonly connect: buildConnector.connector;
  readonly allowPrivate: boolean;
  readonly timeoutMs: number;
  /** Bytes of an answer that are read. */
  readonly maxBytes: number;
}

/** Posts that a lane sends ahead of their answers. */
const MOST_AHEAD = 8;
/** Good answers in a row that open a lane, at first and at most; and how many times as many after a slow answer, and after a fault. */
const PROOF = { first: 2, most: 1_024, slow: 2, fault: 8 } as const;
/** Receivers that are remembered. */
const MOST_RECEIVERS = 1_000;
const LOOK_MS = 1_000;
/** What a header may say in a lane; undici judges the others. */
const PLAIN_VALUE = /^[\t -~]*$/;

/** What is known of one receiver. */
interface Receiver {
  readonly place: PostUrl;
  /** Good answers in a row. */
  good: number;
  /** How many of them a lane takes. */
  proof: number;
  lane: PostConnection | undefined;
}

/** Posts from one process. */
export class Poster {
  readonly #parts: PosterDeps;
  readonly #receivers = new Map<string, Receiver>();
  readonly #lanes = new Set<PostConnection>();
  #rest: (() => void) | undefined;

  constructor(parts: PosterDeps) {
    this.#parts = parts;
  }

  /** Ends the lanes. */
  close(): void {
    for (const lane of this.#lanes) lane.end(false);
  }

  /** Posts, and reads the answer to its end. Rejects with `PostFailed`. */
  post(address: string, headers: Readonly<Record<string, string>>, body: Buffer): Promise<PostAnswer> {
    const receiver = this.#receivers.get(address);
    if (receiver === undefined || receiver.good < receiver.proof) return this.#carefully(address, headers, body);
    const head = headOf(receiver.place, headers, body);
    if (head === undefined) return this.#carefully(address, headers, body);
    return new Promise((resolve, reject) => {
      const letter: Letter = {
        head,
        body,
        answered: resolve,
        timedOut: () => reject(new PostFailed("timed_out")),
        carefully: () => void this.#carefully(address, headers, body).then(resolve, reject),
      };
      receiver.lane ??= this.#open(receiver);
      receiver.lane.add(letter);
    });
  }

  async #carefully(address: string, headers: Readonly<Record<string, string>>, body: Buffer): Promise<PostAnswer> {
    const began = steadyNow();
    try {
      const answer = await post(address, { ...this.#parts, headers, body });
      this.#judge(address, answer.plain && isGood(answer) && steadyNow() - began < SOON_MS);
      return answer;
    } catch (failed) {
      this.#judge(address, false);
      throw failed;
    }
  }

  #judge(address: string, good: boolean): void {
    const known = this.#receivers.get(address);
    if (known !== undefined) known.good = good ? known.good + 1 : 0;
    else if (good) this.#remember(address);
  }

  #remember(address: string): void {
    if (this.#receivers.size >= MOST_RECEIVERS)
      for (const [each, { lane }] of this.#receivers) if (lane === undefined) this.#receivers.delete(each);
    if (this.#receivers.size >= MOST_RECEIVERS) return;
    const place = placeOf(address, this.#parts.allowPrivate);
    this.#receivers.set(address, { place, good: 1, proof: PROOF.first, lane: undefined });
  }

  #open(receiver: Receiver): PostConnection {
    const lane = new PostConnection({
      ...this.#parts,
      to: receiver.place,
      depth: () => Math.min(MOST_AHEAD, Math.max(1, receiver.good)),
      answered: (answer, soon) => {
        receiver.good = soon && isGood(answer) ? receiver.good + 1 : 0;
        if (!soon) doubt(receiver, PROOF.slow);
      },
      over: (fault) => {
        this.#lanes.delete(lane);
        receiver.lane = undefined;
        if (fault) doubt(receiver, PROOF.fault);
        if (this.#lanes.size > 0) return;
        this.#rest?.();
        this.#rest = undefined;
      },
    });
    this.#lanes.add(lane);
    this.#rest ??= every(LOOK_MS, () => {
      for (const each of this.#lanes) each.look();
    });
    return lane;
  }
}

const isGood = ({ status }: Pick<PlainAnswer, "status">): boolean => status >= 200 && status < 300;

function doubt(receiver: Receiver, times: number): void {
  receiver.good = 0;
  receiver.proof = Math.min(PROOF.most, receiver.proof * times);
}

/** The head of a post; undefined where a header is none for a lane. */
function headOf({ path, host }: PostUrl, headers: Readonly<Record<string, string>>, body: Buffer): string | undefined {
  let text = `POST ${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: keep-alive\r\n`;
  for (const name in headers) {
    const value = headers[name]!;
    if (!PLAIN_VALUE.test(value)) return undefined;
    text += `${name}: ${value}\r\n`;
  }
  return `${text}content-length: ${body.length}\r\n\r\n`;
}
