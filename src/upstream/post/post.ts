/** One POST to an address that somebody else gave us, through the guard: no redirect, little of the answer, not for long. */
import type { Dispatcher } from "undici";
import { after } from "../../clock.ts";
import { secondsOf } from "../../codecs/plain-answer.ts";
import { AddressRefused, checkUrl } from "../transport/guard.ts";

/** How a POST was answered: the status, and the seconds that the receiver asks us to wait. */
export interface PostAnswer {
  readonly status: number;
  readonly retryAfterS: number | undefined;
}

/** The same, and whether the answer's head was of the plainest form. */
export interface CarefulAnswer extends PostAnswer {
  readonly plain: boolean;
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

/** What is posted, and how patiently. */
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

/** Where a request goes. */
export interface PostUrl {
  readonly origin: string;
  readonly path: string;
  readonly protocol: string;
  /** With its port, where it is not the scheme's own. */
  readonly host: string;
  /** As a socket takes it: no brackets. */
  readonly hostname: string;
  readonly port: string;
}

const MOST_PLACES = 1_000;
/** Addresses whose text was judged; what a name resolves to is judged at every connection. */
const places: Readonly<Record<string, Map<string, PostUrl>>> = { true: new Map(), false: new Map() };

/** Where an address leads, once its text was judged. Throws `AddressRefused`. */
export function placeOf(address: string, allowPrivate: boolean): PostUrl {
  const known = places[`${allowPrivate}`]!;
  const found = known.get(address);
  if (found) return found;
  const url = checkUrl(address, { schemes: ["https:", "http:"], allowPrivate });
  if (known.size >= MOST_PLACES) known.clear();
  const { origin, protocol, host, port } = url;
  const hostname = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const place = { origin, path: url.pathname + url.search, protocol, host, hostname, port };
  known.set(address, place);
  return place;
}

/** Posts, and reads the answer to its end. Rejects with `PostFailed`. */
export function post(address: string, options: PostOptions): Promise<CarefulAnswer> {
  return new Promise((resolve, reject) => {
    let place: PostUrl;
    try {
      place = placeOf(address, options.allowPrivate);
    } catch (cause) {
      reject(new PostFailed("refused_address", cause));
      return;
    }
    const { agent, headers, body } = options;
    const { origin, path } = place;
    agent.dispatch({ origin, path, method: "POST", headers, body }, new PostExchange(options, resolve, reject));
  });
}

/** One exchange; the first of answer, failure and timer settles it. */
class PostExchange implements Dispatcher.DispatchHandler {
  readonly #maxBytes: number;
  readonly #resolve: (answer: CarefulAnswer) => void;
  readonly #reject: (reason: PostFailed) => void;
  readonly #forgetTimer: () => void;
  #controller: Dispatcher.DispatchController | undefined;
  #answer: CarefulAnswer | undefined;
  #bytes = 0;
  #over = false;

  constructor(
    { timeoutMs, maxBytes }: PostOptions,
    resolve: (answer: CarefulAnswer) => void,
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
    const ends = status === 204 || headers["content-length"] !== undefined;
    const plain = ends && !("transfer-encoding" in headers) && headers.connection !== "close";
    this.#answer = { status, retryAfterS: secondsOf(headers["retry-after"]), plain };
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
