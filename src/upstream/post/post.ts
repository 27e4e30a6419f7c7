/**
 * One POST to an address that a user gave: a webhook or a collector of spans. The guard judges the address at every connection; no redirect
 * is followed, few bytes of the answer are read, and the whole exchange has one deadline.
 */
import type { Dispatcher } from "undici";
import { after, now } from "../../clock.ts";
import { retryAfterMs } from "../../codecs/retry-after.ts";
import { AddressRefused, checkUrl } from "../transport/guard.ts";

/** How a POST was answered. */
export interface PostAnswer {
  readonly status: number;
  /** Seconds, from the header `Retry-After`; undefined where it is absent, unreadable, or a date that has been. */
  readonly retryAfterS: number | undefined;
}

/** Why no answer came. */
export type PostFailure = "refused_address" | "unreachable" | "timed_out" | "too_large";

/** No answer came. */
export class PostFailed extends Error {
  override readonly name = "PostFailed";
  readonly failure: PostFailure;

  constructor(failure: PostFailure, cause?: unknown) {
    super(failure, { cause });
    this.failure = failure;
  }
}

/** What is posted, and the limits of the exchange. */
export interface PostOptions {
  /** From `guardedAgent`, made with the same `allowPrivate`. */
  readonly agent: Dispatcher;
  readonly allowPrivate: boolean;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | string;
  readonly timeoutMs: number;
  /** Bytes of the answer that are read before the exchange is cut. */
  readonly maxBytes: number;
}

const SCHEMES = ["https:", "http:"];

/** Posts, and reads the answer to its end. Rejects with `PostFailed`. */
export function post(address: string, options: PostOptions): Promise<PostAnswer> {
  return new Promise((resolve, reject) => {
    let url: URL;
    try {
      url = checkUrl(address, { schemes: SCHEMES, allowPrivate: options.allowPrivate });
    } catch (cause) {
      reject(new PostFailed("refused_address", cause));
      return;
    }
    const { agent, headers, body } = options;
    const request = { origin: url.origin, path: url.pathname + url.search, method: "POST", headers, body } as const;
    agent.dispatch(request, new PostExchange(options, resolve, reject));
  });
}

/** One exchange; the first of answer, failure and timer settles it. */
class PostExchange implements Dispatcher.DispatchHandler {
  readonly #maxBytes: number;
  readonly #resolve: (answer: PostAnswer) => void;
  readonly #reject: (reason: PostFailed) => void;
  readonly #forgetTimer: () => void;
  #controller: Dispatcher.DispatchController | undefined;
  #answer: PostAnswer | undefined;
  #bytes = 0;
  #over = false;

  constructor(
    { timeoutMs, maxBytes }: PostOptions,
    resolve: (answer: PostAnswer) => void,
    reject: (reason: PostFailed) => void,
  ) {
    this.#maxBytes = maxBytes;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#forgetTimer = after(timeoutMs, () => this.#fail("timed_out"));
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#over) controller.abort(new PostFailed("timed_out"));
  }

  onResponseStart(
    _: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    if (status < 200) return;
    const waitMs = retryAfterMs(headers["retry-after"], now());
    this.#answer = { status, retryAfterS: waitMs === undefined ? undefined : waitMs / 1_000 };
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (this.#bytes > this.#maxBytes) this.#fail("too_large");
  }

  onResponseEnd(): void {
    if (this.#over || !this.#answer) return;
    this.#over = true;
    this.#forgetTimer();
    this.#resolve(this.#answer);
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    this.#fail(error instanceof AddressRefused ? "refused_address" : "unreachable", error);
  }

  #fail(failure: PostFailure, cause?: unknown): void {
    if (this.#over) return;
    this.#over = true;
    this.#forgetTimer();
    this.#reject(new PostFailed(failure, cause));
    this.#controller?.abort(new PostFailed(failure));
  }
}
