/**
 * One POST to a user-supplied address: a webhook or a trace collector. The guard checks the address at every connection, no redirect is
 * followed, few bytes of the response are read, and the exchange has one deadline.
 */
import type { LookupFunction } from "node:net";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { JsonTraceSerializer, ProtobufTraceSerializer } from "@opentelemetry/otlp-transformer";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import { type Dispatcher, request } from "undici";
import { BRAND } from "../brand.ts";
import { Cancel } from "../cancellation.ts";
import { after, now } from "../clock.ts";
import { pathsUnder } from "../codecs/base-address.ts";
import { frameMessage } from "../codecs/grpc.ts";
import { retryAfterMs } from "../codecs/retry-after.ts";
import { AttemptFailure, UpstreamFailure } from "../contracts/contract.ts";
import { newId } from "../ids.ts";
import { GrpcClient } from "./transport/grpc.ts";
import { AddressRefused, checkUrl } from "./transport/guard.ts";

/** The response to a POST. */
interface PostAnswer {
  readonly status: number;
  /** Seconds, from the header `Retry-After`; undefined if it is absent, unreadable, or a past date. */
  readonly retryAfterS: number | undefined;
  readonly type: string;
  readonly body: Buffer;
}

/** Why there was no response. */
type PostFailure = "refused_address" | "unreachable" | "timed_out" | "too_large";

/** No response arrived. */
class PostFailed extends Error {
  override readonly name = "PostFailed";
  readonly failure: PostFailure;

  constructor(failure: PostFailure, cause?: unknown) {
    super(failure, { cause });
    this.failure = failure;
  }
}

/** The posted content, and the limits of the exchange. */
interface PostOptions {
  /** From `guardedAgent`, with the same `allowPrivate`. */
  readonly agent: Dispatcher;
  readonly allowPrivate: boolean;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | string;
  readonly timeoutMs: number;
  /** Maximum bytes of the response before the exchange is aborted. */
  readonly maxBytes: number;
}

const SCHEMES = ["https:", "http:"];

/** Posts, and reads the entire response. Rejects with `PostFailed`. */
export async function post(address: string, options: PostOptions): Promise<PostAnswer> {
  const { agent, allowPrivate, headers, body, timeoutMs, maxBytes } = options;
  const late = new AbortController();
  const forget = after(timeoutMs, () => late.abort(new PostFailed("timed_out")));
  try {
    const url = checkUrl(address, { schemes: SCHEMES, allowPrivate });
    const answer = await request(url, { dispatcher: agent, method: "POST", headers, body, signal: late.signal });
    let bytes = 0;
    const chunks: Buffer[] = [];
    for await (const chunk of answer.body) {
      bytes += chunk.length;
      if (bytes > maxBytes) throw new PostFailed("too_large");
      chunks.push(chunk);
    }
    const waitMs = retryAfterMs(answer.headers["retry-after"], now());
    const retryAfterS = waitMs === undefined ? undefined : waitMs / 1_000;
    const type = String(answer.headers["content-type"] ?? "");
    return { status: answer.statusCode, retryAfterS, type, body: Buffer.concat(chunks) };
  } catch (thrown) {
    if (late.signal.aborted) throw late.signal.reason;
    if (thrown instanceof PostFailed) throw thrown;
    throw new PostFailed(thrown instanceof AddressRefused ? "refused_address" : "unreachable", thrown);
  } finally {
    forget();
  }
}

/** Why spans were not accepted: `rejected` means that the receiver rejected some in a response of success. */
type OtlpWord = PostFailure | "bad_status" | "rejected";

/** The spans were not accepted. */
export class OtlpFailed extends Error {
  override readonly name = "OtlpFailed";
  readonly word: OtlpWord;
  /** The receiver's HTTP status, if any. */
  readonly status: number | undefined;
  /** Whether a retry may succeed. */
  readonly again: boolean;
  /** The retry time that the receiver requested, in milliseconds. */
  readonly retryAfterMs: number | undefined;

  constructor(
    word: OtlpWord,
    again: boolean,
    more: { status?: number; retryAfterMs?: number | undefined; cause?: unknown } = {},
  ) {
    super(word, { cause: more.cause });
    this.word = word;
    this.again = again;
    this.status = more.status;
    this.retryAfterMs = more.retryAfterMs;
  }
}

/** Which addresses are permitted. */
export interface OtlpReach {
  /** From `guardedAgent`, with the same `allowPrivate`. */
  readonly agent: Dispatcher;
  /** From `guardedLookup`, with the same `allowPrivate`. */
  readonly lookup: LookupFunction;
  readonly allowPrivate: boolean;
}

/** How to reach a receiver. */
interface OtlpReceiver {
  readonly endpoint: string;
  readonly protocol: "http/protobuf" | "http/json" | "grpc";
  readonly headers: Readonly<Record<string, string>>;
}

/** Sends spans to one receiver. */
export interface OtlpSender {
  /** Rejects with `OtlpFailed`. */
  send(spans: ReadableSpan[]): Promise<void>;
  close(): void;
}

const PATIENCE_MS = 10_000;
const ANSWER_BYTES = 64 << 10;
const TRACES_PATH = "/v1/traces";
/** Platforms print the address for gRPC as `host:port`. */
const SCHEMELESS = /^(?:[\w-]+(?:\.[\w-]+)+|localhost)(?=:\d+(?:\/|$)|\/|$)/i;
const LOCAL = /^(?:localhost|127\.)/i;
/** The paths of other signals, which exporters configure with the same base. */
const SIGNALS = /\/v1\/(?:logs|metrics)$/;
const EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/** Source: https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes, and statuses of intermediaries. */
const AGAIN = new Set([408, 429, 502, 503, 504]);

/**
 * Returns the addresses at which a receiver may accept traces, given its owner's address, the likeliest first. Over HTTP, `/v1/traces` is added
 * to a base without it; another kind of path may be the receiver's own. A host without a scheme is reached by https. `openOtlp` uses each unchanged. Source:
 * https://opentelemetry.io/docs/specs/otel/protocol/exporter/#endpoint-urls-for-otlphttp
 */
export function otlpAddresses({ endpoint: given, protocol }: Pick<OtlpReceiver, "endpoint" | "protocol">): string[] {
  const endpoint = given.trim().replace(SCHEMELESS, (host) => `${LOCAL.test(host) ? "http" : "https"}://${host}`);
  const url = URL.parse(endpoint);
  if (protocol === "grpc" || url === null || url.pathname === "/") return [endpoint];
  const pasted = url.pathname.replace(/\/+$/, "");
  const at = (path: string): string => Object.assign(new URL(url), { pathname: path }).href;
  const [known = TRACES_PATH] = pathsUnder(pasted.replace(SIGNALS, "/v1"), TRACES_PATH, []).filter((path) =>
    path.endsWith(TRACES_PATH),
  );
  return known === pasted ? [at(known)] : [at(known), endpoint];
}

/** Opens a sender; connections are made on first use. Throws `AddressRefused`. */
export function openOtlp(reach: OtlpReach, receiver: OtlpReceiver): OtlpSender {
  const { allowPrivate } = reach;
  const url = checkUrl(receiver.endpoint, { schemes: allowPrivate ? ["https:", "http:"] : ["https:"], allowPrivate });
  return receiver.protocol === "grpc" ? overGrpc(reach, url, receiver) : overHttp(reach, url, receiver);
}

function overHttp({ agent, allowPrivate }: OtlpReach, url: URL, { protocol, headers }: OtlpReceiver): OtlpSender {
  if (url.pathname === "/") url.pathname = TRACES_PATH;
  const [serializer, type] =
    protocol === "http/json"
      ? [JsonTraceSerializer, "application/json"]
      : [ProtobufTraceSerializer, "application/x-protobuf"];
  const sent = { ...headers, "content-type": type, "user-agent": BRAND };
  return {
    async send(spans) {
      const body = Buffer.from(serializer.serializeRequest(spans) ?? []);
      const options = { agent, allowPrivate, headers: sent, body, timeoutMs: PATIENCE_MS, maxBytes: ANSWER_BYTES };
      const { status, retryAfterS, ...answer } = await post(url.href, options).catch((thrown: unknown) => {
        const word = thrown instanceof PostFailed ? thrown.failure : "unreachable";
        throw new OtlpFailed(word, word !== "refused_address", { cause: thrown });
      });
      const wait = retryAfterS === undefined ? undefined : 1_000 * retryAfterS;
      if (status < 200 || status >= 300)
        throw new OtlpFailed("bad_status", AGAIN.has(status), { status, retryAfterMs: wait });
      if (rejectsSome(answer)) throw new OtlpFailed("rejected", false);
    },
    close() {},
  };
}

/**
 * Whether a response of success rejects spans. Other bodies, which some receivers send, reject none. Source:
 * https://opentelemetry.io/docs/specs/otlp/#partial-success-1
 */
function rejectsSome({ type, body }: Pick<PostAnswer, "type" | "body">): boolean {
  try {
    if (/json/i.test(type)) {
      const { partialSuccess } = JSON.parse(body.toString("utf8")) as { partialSuccess?: { rejectedSpans?: unknown } };
      return Number(partialSuccess?.rejectedSpans ?? 0) > 0;
    }
    if (!/protobuf/i.test(type)) return false;
    const [partial] = fieldsOf(body, WireType.LengthDelimited);
    const [rejected] = partial instanceof Uint8Array ? fieldsOf(partial, WireType.Varint) : [];
    return typeof rejected === "string" && Number(rejected) > 0;
  } catch {
    return false;
  }
}

/** The values of field 1 of a message, if it has this wire type. */
function fieldsOf(bytes: Uint8Array, wanted: WireType): (Uint8Array | string)[] {
  const reader = new BinaryReader(bytes);
  const values: (Uint8Array | string)[] = [];
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (field !== 1 || type !== wanted) reader.skip(type, field);
    else values.push(type === WireType.Varint ? String(reader.int64()) : reader.bytes());
  }
  return values;
}

function overGrpc({ lookup }: OtlpReach, url: URL, { headers }: OtlpReceiver): OtlpSender {
  const small = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  const calls = new GrpcClient({ url: new URL(url.origin), lookup, authorization: undefined, headers: small });
  return {
    async send(spans) {
      const message = frameMessage(ProtobufTraceSerializer.serializeRequest(spans) ?? new Uint8Array());
      const signal = new Cancel();
      const forget = after(PATIENCE_MS, () =>
        signal.abort(new UpstreamFailure(AttemptFailure.TIMEOUT, "the receiver did not respond")),
      );
      try {
        await calls.unary({ path: EXPORT, signal, budgetMs: PATIENCE_MS, requestId: newId("req") }, message);
      } catch (thrown) {
        throw failedOf(thrown);
      } finally {
        forget();
      }
    },
    close: () => calls.close(),
  };
}

/** The code of each failure, and whether a retry may succeed. Unlisted failures are refusals of the receiver. */
const BY_FAILURE: Readonly<Partial<Record<AttemptFailure, readonly [PostFailure | "bad_status", boolean]>>> = {
  [AttemptFailure.TIMEOUT]: ["timed_out", true],
  [AttemptFailure.UNREACHABLE]: ["unreachable", true],
  [AttemptFailure.CONNECTION_LOST]: ["unreachable", true],
  [AttemptFailure.UPSTREAM_BUSY]: ["bad_status", true],
  [AttemptFailure.ANSWER_TOO_LARGE]: ["too_large", false],
};

function failedOf(thrown: unknown): OtlpFailed {
  if (isRefusedAddress(thrown)) return new OtlpFailed("refused_address", false, { cause: thrown });
  const known = thrown instanceof UpstreamFailure ? BY_FAILURE[thrown.failure] : undefined;
  const [word, again] = known ?? ["bad_status", false];
  const retryAfterMs = thrown instanceof UpstreamFailure ? thrown.retryAfterMs : undefined;
  return new OtlpFailed(word, again, { retryAfterMs, cause: thrown });
}

const isRefusedAddress = (thrown: unknown): boolean =>
  thrown instanceof AddressRefused || (thrown instanceof Error && thrown.cause instanceof AddressRefused);
