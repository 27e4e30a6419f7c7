/** What a test asks of a model server of ours, whatever wire it speaks. */
import type { IncomingHttpHeaders } from "node:http";

/** What a server does with an act. Each ends in bytes that the server writes itself, not through our codecs. */
export type Behaviour =
  /** Answers with these steps; they may be no valid action. */
  | { kind: "steps"; steps: readonly (readonly number[])[] }
  /** Answers with these steps when the promise resolves. */
  | { kind: "later"; steps: readonly (readonly number[])[]; after: Promise<unknown> }
  /** Never answers. */
  | { kind: "silence" }
  /** Writes half of an answer and resets the connection. */
  | { kind: "reset" }
  /** Writes half of an answer and ends the connection as if that were all. */
  | { kind: "truncated" }
  /** Announces 100 MB and begins to send them. */
  | { kind: "oversized" }
  /** A well-framed message of bytes without a meaning. */
  | { kind: "garbage" }
  /** Fails the way that servers of this wire do, with this text. */
  | { kind: "error"; text: string }
  /** Answers twice, the second time for nobody. */
  | { kind: "twice"; steps: readonly (readonly number[])[] }
  /** A well-formed answer whose numbers nobody can take for these actions. */
  | { kind: Oddity };

/** Well-formed messages that are no answer: what a server may send that was written, configured or broken by somebody else. */
export type Oddity =
  /** Containers inside containers, ten thousand deep. */
  | "bomb"
  /** Text where binary belongs, or the other way round. */
  | "text"
  /** Two batches where there is one robot. */
  | "batch"
  /** Elements that are no numbers. */
  | "objects"
  /** A shape that claims more elements than there are. */
  | "short";

/** Every oddity. */
export const ODDITIES: readonly Oddity[] = ["bomb", "text", "batch", "objects", "short"];

/** An act as the server read it. */
export interface ReceivedAct {
  readonly instruction: string;
  readonly proprio: readonly number[];
  /** What the connection or the stream was opened with. */
  readonly headers: IncomingHttpHeaders;
}

/** A model server of ours that does as it's told. */
export interface ActServer {
  readonly endpoint: string;
  /** Every act that has arrived. */
  readonly acts: readonly ReceivedAct[];
  /** How many connections were ever opened, and how many acts were called off by the client. */
  readonly counts: { readonly connections: number; readonly cancelled: number };
  /** What to do with the acts to come, in their order; the last behaviour stays. */
  behave(...behaviours: readonly [Behaviour, ...Behaviour[]]): void;
  /** Drops every connection and listens again at the same address. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

/** Deals out behaviours in order; the last one stays. */
export class Behaviours {
  #queue: Behaviour[] = [{ kind: "silence" }];

  set(behaviours: readonly Behaviour[]): void {
    this.#queue = [...behaviours];
  }

  next(): Behaviour {
    const [behaviour, ...rest] = this.#queue;
    if (rest.length > 0) this.#queue = rest;
    return behaviour ?? { kind: "silence" };
  }
}

/** The size that an oversized answer announces. */
export const OVERSIZED_BYTES = 100 * 2 ** 20;
