/** HTTP towards model servers: one request, one whole answer of bounded size, no redirects, an end to every wait. */
import type { Dispatcher } from "undici";
import { BRAND } from "../../brand.ts";
import { now } from "../../clock.ts";
import { pathsUnder } from "../../codecs/base-address.ts";
import { Gatherer } from "../../codecs/gatherer.ts";
import { retryAfterMs } from "../../codecs/retry-after.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { type CallOptions, traceOf, type UpstreamTarget } from "../wire.ts";
import { calledOff, failureOf, malformed, ownerText } from "./failures.ts";
import { guardedAgent } from "./guard.ts";
import { type Address, addressOf, MAX_MESSAGE_BYTES, type ServerReach } from "./servers.ts";
import { failureOfStatus } from "./status.ts";

/** What a server is asked. */
export interface HttpQuestion {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Under the endpoint's own path, as `pathsUnder` finds it: `/v1/models` under `…/v1` is `…/v1/models`. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer | string;
  /** Ends the exchange; its request id and trace are sent as headers. */
  readonly call: Pick<CallOptions, "signal" | "requestId" | "traceparent">;
  /** 64 MiB by default. */
  readonly maxBytes?: number;
}

/** What a server answered, whole. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
  /** Where it came from, without a query. */
  readonly address: string;
}

/** The schemes of every wire that is plain HTTP. */
export const HTTP_SCHEMES: Readonly<Record<string, string>> = { "http:": "http:", "https:": "https:" };

/** More exchanges with one server at one time than any of them has workers for. */
const MAX_EXCHANGES = 256;
const CONNECTIONS = 64;
/** More endpoints than one replica asks at one time. */
const MAX_SETTLED = 4_096;
/** The answers of a server that has nothing at a path. */
const NOWHERE: ReadonlySet<number> = new Set([404, 405]);

/** The servers of one wire, by HTTP/1.1. */
export class HttpServers {
  readonly #reach: ServerReach;
  readonly #agent: Dispatcher;
  readonly #running = new Map<string, number>();
  /** The operations that an endpoint may end in. */
  readonly #operations: readonly string[];
  /** Which of its paths each operation was answered at, by endpoint. */
  readonly #settled = new Map<string, number>();

  /** `operations` are the paths that owners may have pasted with the address, `*` for any segment. */
  constructor(reach: ServerReach, operations: readonly string[]) {
    this.#reach = reach;
    this.#operations = operations;
    // A model may think for longer than any web server: the call's own signal ends the wait.
    this.#agent = guardedAgent(reach, { silenceMs: 0, connections: CONNECTIONS });
  }

  /** Resolves with any answer, whatever its status. Rejects with an UpstreamFailure; an aborted question closes its connection. */
  async ask(target: UpstreamTarget, question: HttpQuestion): Promise<HttpAnswer> {
    const { signal } = question.call;
    if (signal.aborted) throw calledOff(signal);
    const address = addressOf(target, HTTP_SCHEMES, this.#reach);
    const { origin } = address.url;
    const running = this.#running.get(origin) ?? 0;
    if (running >= MAX_EXCHANGES) throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many calls at one time");
    this.#running.set(origin, running + 1);
    const hangUp = new AbortController();
    const leave = (): void => hangUp.abort();
    signal.addEventListener("abort", leave, { once: true });
    try {
      return await this.#find(target, address, question, hangUp.signal);
    } catch (error) {
      throw signal.aborted ? calledOff(signal) : error;
    } finally {
      signal.removeEventListener("abort", leave);
      this.#leave(origin);
    }
  }

  /** As `ask`, for an answer that is good at 2xx alone; any other status is thrown as the failure that it means. */
  async askFor(target: UpstreamTarget, question: HttpQuestion): Promise<HttpAnswer> {
    const answer = await this.ask(target, question);
    if (answer.status >= 200 && answer.status < 300) return answer;
    throw statusFailure(answer);
  }

  /** Asks at the path that answered before, or at each that the operation may have until one isn't 404 or 405. */
  async #find(
    target: UpstreamTarget,
    address: Address,
    question: HttpQuestion,
    signal: AbortSignal,
  ): Promise<HttpAnswer> {
    const { url } = address;
    const paths = pathsUnder(url.pathname, question.path, this.#operations);
    const kind = `${target.endpoint} ${question.path.split("/", 3).join("/")}`;
    const known = this.#settled.get(kind);
    let first: HttpAnswer | undefined;
    for (const [at, path] of paths.entries()) {
      if (known !== undefined && known !== at) continue;
      const answer = await this.#exchange(address, path, question, signal);
      if (answer.status < 300) {
        if (this.#settled.size >= MAX_SETTLED) this.#settled.clear();
        this.#settled.set(kind, at);
        if (question.method !== "GET") this.#reach.found?.note(target.endpoint, answer.address);
      }
      if (!NOWHERE.has(answer.status)) return answer;
      first ??= answer;
    }
    return first!; // there is always a path
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }

  async #exchange(
    { url, authorization }: Address,
    path: string,
    question: HttpQuestion,
    signal: AbortSignal,
  ): Promise<HttpAnswer> {
    const { method, call, maxBytes = MAX_MESSAGE_BYTES } = question;
    const address = url.origin + path;
    try {
      const response = await this.#agent.request({
        origin: url.origin,
        path: path + url.search,
        method,
        headers: {
          "user-agent": BRAND,
          "accept-encoding": "identity",
          "x-request-id": call.requestId,
          ...traceOf(call),
          ...(authorization !== undefined && { authorization }),
          ...question.headers,
        },
        ...(question.body !== undefined && { body: question.body }),
        signal,
      });
      const { statusCode: status, headers, body } = response;
      try {
        if ((headers["content-encoding"] ?? "identity") !== "identity") throw malformed("the answer is compressed");
        return { status, headers, body: await whole(body, Number(headers["content-length"] ?? 0), maxBytes), address };
      } catch (error) {
        body.on("error", () => undefined).destroy();
        throw error;
      }
    } catch (error) {
      const failure = failureOf(error);
      failure.address = address;
      throw failure;
    }
  }

  #leave(origin: string): void {
    const left = (this.#running.get(origin) ?? 1) - 1;
    if (left > 0) this.#running.set(origin, left);
    else this.#running.delete(origin);
  }
}

async function whole(body: AsyncIterable<Buffer>, announced: number, maxBytes: number): Promise<Buffer> {
  if (announced > maxBytes) throw new UpstreamFailure(AttemptFailure.ANSWER_TOO_LARGE, "the answer is too large");
  const gathered = new Gatherer(maxBytes);
  for await (const chunk of body) gathered.add(chunk);
  return gathered.bytes();
}

/** What a status that isn't good means; the body's error text is for the server's owner. */
export function statusFailure({ status, headers, body, address }: HttpAnswer): UpstreamFailure {
  const { said, retryDelay } = toldIn(body);
  const failure = failureOfStatus(status, ownerText(said));
  failure.address = address;
  failure.retryAfterMs = waitIn(headers) ?? retryAfterMs(retryDelay, now());
  return failure;
}

/** How long the header of an answer asks to wait, in milliseconds; OpenAI and Azure have it in milliseconds too. */
export function waitIn(headers: HttpAnswer["headers"]): number | undefined {
  const exact = Number(headers["retry-after-ms"] ?? Number.NaN);
  return exact >= 0 ? retryAfterMs(String(exact / 1_000), now()) : retryAfterMs(headers["retry-after"], now());
}

const MAX_SAID = 4_096;

interface ToldError {
  readonly said: string;
  /** HTTP's number for it, where it has one. */
  readonly status: number | undefined;
  /** Google's seconds until the next try. */
  readonly retryDelay: string | undefined;
}

const UNTOLD: ToldError = { said: "", status: undefined, retryDelay: undefined };

/** The error of a JSON body; nothing of any other. */
function toldIn(body: Buffer): ToldError {
  if (body.length > 16 * MAX_SAID) return UNTOLD;
  try {
    return errorIn(JSON.parse(body.toString("utf8")));
  } catch {
    return UNTOLD;
  }
}

/** What an error's JSON says, and its status where it has one; an empty text where it says nothing. Google wraps it in a list. */
export function errorIn(value: unknown): ToldError {
  const body = Array.isArray(value) ? value[0] : value;
  if (!isObject(body)) return UNTOLD;
  const error = isObject(body.error) ? body.error : body;
  const told = error === body ? (body.error ?? body.detail ?? body.message ?? body.msg) : (error.message ?? error.msg);
  const code = [error.code, error.status, error.status_code].map(Number).find((each) => each >= 400 && each < 600);
  const kind = [error.code, error.type, error.status].find((each) => typeof each === "string" && /^\w+$/.test(each));
  const text = textOfError(told);
  // OpenAI's code says more than its sentence.
  const isMore = text !== "" && typeof kind === "string" && KINDS.has(kind);
  const details: unknown[] = Array.isArray(error.details) ? error.details : [];
  const delay = details
    .map((each) => (isObject(each) ? each.retryDelay : undefined))
    .find((each) => each !== undefined);
  const retryDelay = typeof delay === "string" ? delay.replace(/s$/, "") : undefined;
  return { said: isMore ? `${kind}: ${text}` : text, status: code, retryDelay };
}

const KINDS: ReadonlySet<string> = new Set([
  "insufficient_quota",
  "billing_hard_limit_reached",
  "context_length_exceeded",
]);

/** A text, or FastAPI's list of what is wrong with which field. */
function textOfError(told: unknown): string {
  if (typeof told === "string") return told.slice(-MAX_SAID);
  const list = isObject(told) ? told.detail : told;
  if (!Array.isArray(list)) return isObject(told) ? textOfError(told.message ?? told.error ?? "") : "";
  const lines = list.slice(0, 8).map((each: unknown) => {
    if (!isObject(each)) return typeof each === "string" ? each : "";
    const field = Array.isArray(each.loc) ? each.loc.join(".") : "";
    return `${field}${field && ": "}${typeof each.msg === "string" ? each.msg : ""}`;
  });
  return lines
    .filter((line) => line !== "")
    .join("; ")
    .slice(0, MAX_SAID);
}

/** Posts JSON to a path of a server; resolves with the answer's body. Rejects with an UpstreamFailure. */
export async function postJson(
  servers: HttpServers,
  target: UpstreamTarget,
  path: string,
  body: string,
  call: CallOptions,
): Promise<Buffer> {
  const headers = { "content-type": "application/json" };
  return (await servers.askFor(target, { method: "POST", path, headers, body, call })).body;
}

/** A JSON body. Throws an UpstreamFailure when it is none. */
export function readJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch (error) {
    throw malformed("the answer is not JSON", error);
  }
}

/** Whether a value of JSON is an object. */
export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
