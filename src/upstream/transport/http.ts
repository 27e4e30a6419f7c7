/** HTTP client for model servers: one request, one complete response of limited size, no redirects, a timeout for every wait. */
import type { Dispatcher } from "undici";
import { BRAND } from "../../brand.ts";
import { Cancel, type Signal } from "../../cancellation.ts";
import { after, now } from "../../clock.ts";
import { pathsUnder } from "../../codecs/base-address.ts";
import { Gatherer } from "../../codecs/gatherer.ts";
import { parseJson } from "../../codecs/json.ts";
import { retryAfterMs, retryInText } from "../../codecs/retry-after.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { type CallOptions, traceOf, type UpstreamTarget } from "../wire.ts";
import { calledOff, failureOf, failureOfStatus, malformed, ownerText } from "./failures.ts";
import { guardedAgent } from "./guard.ts";
import { type Address, addressOf, MAX_MESSAGE_BYTES, type ServerReach } from "./servers.ts";

/** A request body: JSON, or bytes with their own type. */
export type HttpBody = string | HttpBytes;

/** A body with its own type. */
export interface HttpBytes {
  readonly body: Buffer;
  readonly contentType: string;
}

/** One request. */
interface HttpRequest {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Under the endpoint's own path, as `pathsUnder` finds it: `/v1/models` under `…/v1` is `…/v1/models`. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: HttpBody;
  /** Largest response in bytes; 64 MiB by default. */
  readonly maxBytes?: number;
}

/** A complete response. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
  /** The address that sent it, without a query. */
  readonly address: string;
}

/** The schemes of every plain HTTP wire. */
export const HTTP_SCHEMES: Readonly<Record<string, string>> = { "http:": "http:", "https:": "https:" };

/** Concurrent requests to one server; more than any of them has workers for. */
const MAX_EXCHANGES = 256;
const CONNECTIONS = 64;
/** Maximum number of endpoints with remembered paths. */
const MAX_SETTLED = 4_096;
/** Statuses of a server without a resource at a path. */
const NOWHERE: ReadonlySet<number> = new Set([404, 405]);
/** Largest response, in bytes, to a request for a status or a list. */
export const MAX_STATUS_BYTES = 16 * 2 ** 20;
/** Time that a server has to stop some work, in milliseconds. After that the work runs to its end. */
const STOP_MS = 2_000;

/** One server during one call. Every method but `stop` rejects with an UpstreamFailure. */
export class HttpServer {
  readonly #exchange: (request: HttpRequest, call: HttpCall) => Promise<HttpAnswer>;
  readonly #call: HttpCall;

  constructor(exchange: (request: HttpRequest, call: HttpCall) => Promise<HttpAnswer>, call: HttpCall) {
    this.#exchange = exchange;
    this.#call = call;
  }

  /** Resolves with the response, whatever its status. */
  ask(request: HttpRequest): Promise<HttpAnswer> {
    return this.#exchange(request, this.#call);
  }

  /** Gets a path; resolves with the body of a 2xx response. */
  async get(path: string, maxBytes = MAX_STATUS_BYTES): Promise<Buffer> {
    return (await this.expect({ method: "GET", path, maxBytes })).body;
  }

  /** Posts a body; resolves with the body of a 2xx response. */
  async post(path: string, body: HttpBody, headers?: Readonly<Record<string, string>>): Promise<Buffer> {
    return (await this.expect({ method: "POST", path, body, ...(headers && { headers }) })).body;
  }

  /** Resolves with a 2xx response; rejects with the failure of any other status. */
  async expect(request: HttpRequest): Promise<HttpAnswer> {
    const answer = await this.ask(request);
    expectSuccess(answer);
    return answer;
  }

  /** Requests the server to stop some work of an aborted call. Never rejects. */
  async stop(method: "POST" | "DELETE", path: string): Promise<void> {
    const signal = new Cancel();
    const clear = after(STOP_MS, () => signal.abort(undefined));
    await this.#exchange({ method, path, maxBytes: MAX_STATUS_BYTES }, { ...this.#call, signal }).catch(
      () => undefined,
    );
    clear();
  }
}

type HttpCall = Pick<CallOptions, "signal" | "requestId" | "traceparent">;

/** The servers of one wire, over HTTP/1.1. */
export class HttpServers {
  readonly #reach: ServerReach;
  readonly #agent: Dispatcher;
  readonly #running = new Map<string, number>();
  /** The operations in which an endpoint can end. */
  readonly #operations: readonly string[];
  /** The path of each operation that the server answered at, by endpoint. */
  readonly #settled = new Map<string, number>();

  /** `operations` are the paths that owners may have pasted with the address, `*` for any segment. */
  constructor(reach: ServerReach, operations: readonly string[]) {
    this.#reach = reach;
    this.#operations = operations;
    // A model can run longer than any web server's timeout; the call's own signal ends the wait.
    this.#agent = guardedAgent(reach, { silenceMs: 0, connections: CONNECTIONS });
  }

  /** Returns the server of a target, for one call. */
  at(target: UpstreamTarget, call: HttpCall): HttpServer {
    return new HttpServer((request, { signal, ...ids }) => this.#ask(target, request, signal, headersOf(ids)), call);
  }

  /** Resolves with the response, whatever its status. An aborted request closes its connection. */
  async #ask(
    target: UpstreamTarget,
    request: HttpRequest,
    signal: Signal,
    headers: Readonly<Record<string, string>>,
  ): Promise<HttpAnswer> {
    if (signal.aborted) throw calledOff(signal);
    const address = addressOf(target, HTTP_SCHEMES, this.#reach);
    const { origin } = address.url;
    const running = this.#running.get(origin) ?? 0;
    if (running >= MAX_EXCHANGES) throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many concurrent calls");
    this.#running.set(origin, running + 1);
    const hangUp = new AbortController();
    const leave = (): void => hangUp.abort();
    signal.addEventListener("abort", leave, { once: true });
    try {
      return await this.#find(
        target,
        address,
        { ...request, headers: { ...headers, ...request.headers } },
        hangUp.signal,
      );
    } catch (error) {
      throw signal.aborted ? calledOff(signal) : error;
    } finally {
      signal.removeEventListener("abort", leave);
      this.#leave(origin);
    }
  }

  /** Requests the path that answered before, or each possible path of the operation until one does not return 404 or 405. */
  async #find(
    target: UpstreamTarget,
    address: Address,
    request: HttpRequest,
    signal: AbortSignal,
  ): Promise<HttpAnswer> {
    const { url } = address;
    const paths = pathsUnder(url.pathname, request.path, this.#operations);
    const kind = `${target.endpoint} ${request.path.split("/", 3).join("/")}`;
    const known = this.#settled.get(kind);
    let first: HttpAnswer | undefined;
    for (const [at, path] of paths.entries()) {
      if (known !== undefined && known !== at) continue;
      const answer = await this.#exchange(address, path, request, signal);
      if (answer.status < 300) {
        if (this.#settled.size >= MAX_SETTLED) this.#settled.clear();
        this.#settled.set(kind, at);
        if (request.method !== "GET") this.#reach.found?.note(target.endpoint, answer.address);
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
    request: HttpRequest,
    signal: AbortSignal,
  ): Promise<HttpAnswer> {
    const { method, body: sent, maxBytes = MAX_MESSAGE_BYTES } = request;
    const address = url.origin + path;
    try {
      const response = await this.#agent.request({
        origin: url.origin,
        path: path + url.search,
        method,
        headers: {
          "user-agent": BRAND,
          "accept-encoding": "identity",
          ...(authorization !== undefined && { authorization }),
          ...(sent !== undefined && {
            "content-type": typeof sent === "string" ? "application/json" : sent.contentType,
          }),
          ...request.headers,
        },
        ...(sent !== undefined && { body: typeof sent === "string" ? sent : sent.body }),
        signal,
      });
      const { statusCode: status, headers, body } = response;
      try {
        if ((headers["content-encoding"] ?? "identity") !== "identity") throw malformed("the response is compressed");
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
  if (announced > maxBytes) throw new UpstreamFailure(AttemptFailure.ANSWER_TOO_LARGE, "the response is too large");
  const gathered = new Gatherer(maxBytes);
  for await (const chunk of body) gathered.add(chunk);
  return gathered.bytes();
}

const headersOf = ({ requestId, traceparent }: Omit<HttpCall, "signal">): Readonly<Record<string, string>> => ({
  "x-request-id": requestId,
  ...traceOf({ traceparent }),
});

/** Throws the UpstreamFailure for a status other than 2xx. */
export function expectSuccess(answer: HttpAnswer): void {
  if (answer.status < 200 || answer.status >= 300) throw statusFailure(answer);
}

/** Returns the failure for a status; the body's error text is for the server's owner. */
export function statusFailure({ status, headers, body, address }: HttpAnswer): UpstreamFailure {
  const { said, retryDelay } = toldIn(body);
  const failure = failureOfStatus(status, ownerText(said));
  failure.address = address;
  failure.retryAfterMs = waitIn(headers) ?? retryAfterMs(retryDelay, now()) ?? retryInText(said);
  return failure;
}

/** The retry time in a response header, in milliseconds; OpenAI and Azure also send it in milliseconds. */
export function waitIn(headers: HttpAnswer["headers"]): number | undefined {
  const exact = Number(headers["retry-after-ms"] ?? Number.NaN);
  return exact >= 0 ? retryAfterMs(String(exact / 1_000), now()) : retryAfterMs(headers["retry-after"], now());
}

const MAX_SAID = 4_096;

interface ToldError {
  readonly said: string;
  /** The HTTP status of the error, if stated. */
  readonly status: number | undefined;
  /** Google's retry time in seconds. */
  readonly retryDelay: string | undefined;
}

const UNTOLD: ToldError = { said: "", status: undefined, retryDelay: undefined };

/** Returns the error of a JSON body; empty for other bodies. */
function toldIn(body: Buffer): ToldError {
  if (body.length > 16 * MAX_SAID) return UNTOLD;
  try {
    return errorIn(JSON.parse(body.toString("utf8")));
  } catch {
    return UNTOLD;
  }
}

/** Returns an error's text and status from its JSON; an empty text if there is none. Google wraps it in a list. */
export function errorIn(value: unknown): ToldError {
  const body = Array.isArray(value) ? value[0] : value;
  if (!isObject(body)) return UNTOLD;
  const error = isObject(body.error) ? body.error : body;
  // MiniMax has its error in an object of its own, Baidu and SageMaker in other fields.
  const base = isObject(body.base_resp) ? body.base_resp.status_msg : undefined;
  const others = [body.error, body.detail, body.message, body.msg, body.error_msg, body.OriginalMessage, base];
  const told = error === body ? others.find((each) => Boolean(each)) : (error.message ?? error.msg);
  const code = [error.code, error.status, error.status_code].map(Number).find((each) => each >= 400 && each < 600);
  const details: unknown[] = Array.isArray(error.details) ? error.details : [];
  const reasons = details.map((each) => (isObject(each) ? each.reason : undefined));
  const text = textOfError(told);
  // A code is more specific than its sentence.
  const kind = [error.code, error.type, error.status, error.__type, ...reasons].find((each) => KINDS.has(String(each)));
  const isMore = text !== "" && kind !== undefined;
  // OpenAI names the refused parameter in a field, and not always in the text.
  const param = typeof error.param === "string" && text !== "" && !text.includes(error.param) ? `${error.param}: ` : "";
  const delay = details
    .map((each) => (isObject(each) ? each.retryDelay : undefined))
    .find((each) => each !== undefined);
  const retryDelay = typeof delay === "string" ? delay.replace(/s$/, "") : undefined;
  return { said: `${param}${isMore ? `${String(kind)}: ` : ""}${text}`, status: code, retryDelay };
}

/** Codes of OpenAI, Google, Alibaba, AWS, Groq and llama.cpp that explain a status. */
const KINDS: ReadonlySet<string> = new Set([
  "insufficient_quota",
  "billing_hard_limit_reached",
  "billing_not_active",
  "context_length_exceeded",
  "API_KEY_INVALID",
  "Arrearage",
  "ThrottlingException",
  "model_decommissioned",
]);

/** A text, or FastAPI's list of invalid fields. */
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

/** Returns a JSON body. Throws an UpstreamFailure for invalid JSON. */
export function readJson(body: Buffer): unknown {
  try {
    return parseJson(body.toString("utf8"));
  } catch (error) {
    throw malformed("the response is not JSON", error);
  }
}

/** Whether a JSON value is an object. */
export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
