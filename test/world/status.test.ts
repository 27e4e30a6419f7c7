/** What the statuses of model servers, their proxies and hosted APIs mean, and how long they ask to be left alone. */
import { describe, expect, it } from "vitest";
import { retryAfterMs } from "../../src/codecs/retry-after.ts";
import { UpstreamFailure } from "../../src/contracts/contract.ts";
import { readCompletion } from "../../src/upstream/openai-chat/completion.ts";
import { failureOfClose } from "../../src/upstream/transport/failures.ts";
import { ReplyStatus } from "../../src/upstream/transport/grpc.ts";
import { statusFailure } from "../../src/upstream/transport/http.ts";
import { nameOf } from "../support/wire-calls.ts";

const grpc = (status: number, message: string, more: object = {}): UpstreamFailure => {
  const reply = new ReplyStatus();
  reply.head({ "grpc-status": String(status), "grpc-message": encodeURIComponent(message), ...more });
  return reply.failure ?? new UpstreamFailure(0, "none");
};
const http = (status: number, body: unknown = "", headers: Record<string, string> = {}): UpstreamFailure =>
  statusFailure({ status, headers, body: Buffer.from(JSON.stringify(body)), address: "http://server.example/act" });

const catching = (read: () => unknown): UpstreamFailure => {
  try {
    read();
  } catch (thrown) {
    if (thrown instanceof UpstreamFailure) return thrown;
  }
  throw new Error("expected an UpstreamFailure");
};

describe("a gRPC status", () => {
  it.each([
    ["grpcio", 8, "Received message larger than max (4915200 vs. 4194304)"],
    ["grpc-go", 8, "grpc: received message larger than max (4915200 vs. 4194304)"],
    ["grpc-java", 8, "gRPC message exceeds maximum size 4194304: 4915200"],
    [".NET", 8, "Received message exceeds the maximum configured message size."],
    ["tonic", 11, "Error, message length too large: found 4915200 bytes, the limit is: 4194304 bytes"],
  ])(
    "of %s for a message that is too large is rejected input, and its owner can read the limit",
    (maker, status, message) => {
      const failure = grpc(status, message);
      expect(nameOf(failure)).toBe("INPUT_REJECTED");
      expect(failure.message).toContain(maker === ".NET" ? "too large for the server" : "messages of 4 MiB at most");
    },
  );

  it.each([
    ["a full queue of MLServer", 8, "queue is full", "UPSTREAM_BUSY"],
    ["a quota of requests", 8, "Quota exceeded for requests per minute", "UPSTREAM_BUSY"],
    ["Triton's full queue", 14, "Exceeds maximum queue size", "UPSTREAM_BUSY"],
    ["a server that is not there", 14, "failed to connect to all addresses", "UNREACHABLE"],
    ["TensorFlow's lack of memory", 8, "OOM when allocating tensor with shape[4,3,480,640]", "UPSTREAM_ERROR"],
    [
      "an answer that grpc-go cannot send",
      8,
      "trying to send message larger than max (9000000 vs. 4194304)",
      "ANSWER_TOO_LARGE",
    ],
    ["a failed allocation of Triton", 8, "Memory allocation failed", "UPSTREAM_ERROR"],
    ["wrong arguments", 3, "unexpected shape", "INPUT_REJECTED"],
  ])("of %s has its meaning", (_, status, message, name) => {
    expect(nameOf(grpc(status, message))).toBe(name);
  });
});

describe("an HTTP status", () => {
  it.each<[string, number, unknown, string]>([
    ["nginx's limit of bodies", 413, "", "INPUT_REJECTED"],
    [
      "Express, which reports its limit as an error of its own",
      500,
      { error: "request entity too large" },
      "INPUT_REJECTED",
    ],
    [
      "OpenAI's limit of one request",
      429,
      { error: { message: "Request too large for gpt-4o", code: "rate_limit_exceeded" } },
      "INPUT_REJECTED",
    ],
    [
      "OpenAI's rate",
      429,
      { error: { message: "Rate limit reached for requests", code: "rate_limit_exceeded" } },
      "UPSTREAM_BUSY",
    ],
    [
      "OpenAI's account without credit",
      429,
      { error: { message: "You exceeded your current quota", code: "insufficient_quota" } },
      "UPSTREAM_AUTH",
    ],
    [
      "Gemini's rate",
      429,
      [{ error: { message: "You exceeded your current quota", status: "RESOURCE_EXHAUSTED" } }],
      "UPSTREAM_BUSY",
    ],
    [
      "Gemini's wrong key",
      400,
      [{ error: { message: "API key not valid. Please pass a valid API key." } }],
      "UPSTREAM_AUTH",
    ],
    ["DeepSeek's account without credit", 402, { error: { message: "Insufficient Balance" } }, "UPSTREAM_AUTH"],
    ["Anthropic's overload", 529, { error: { type: "overloaded_error", message: "Overloaded" } }, "UPSTREAM_BUSY"],
    ["Cloudflare's server that is down", 521, "", "UNREACHABLE"],
    ["Cloudflare's server that is slow", 524, "", "TIMEOUT"],
    ["vLLM's lack of memory", 500, { error: "CUDA out of memory" }, "UPSTREAM_ERROR"],
    ["LM Studio without a model", 400, { error: "Model unloaded." }, "UPSTREAM_ERROR"],
    ["vLLM's text model", 400, { object: "error", message: "eyes is not a multimodal model" }, "UPSTREAM_ERROR"],
    ["llama.cpp without a projector", 500, { error: { message: "image input is not supported" } }, "UPSTREAM_ERROR"],
    [
      "Groq's removed model",
      400,
      { error: { message: "It was removed.", code: "model_decommissioned" } },
      "UPSTREAM_ERROR",
    ],
    ["AWS Bedrock's rate", 400, { __type: "ThrottlingException", message: "Please wait." }, "UPSTREAM_BUSY"],
    ["RunPod's full queue", 400, { error: "queue is full" }, "UPSTREAM_BUSY"],
    [
      "Gemini's expired key",
      400,
      [{ error: { message: "Renew it.", details: [{ reason: "API_KEY_INVALID" }] } }],
      "UPSTREAM_AUTH",
    ],
    [
      "Gemini's excluded country",
      400,
      { error: { message: "User location is not supported for the API use." } },
      "UPSTREAM_AUTH",
    ],
    ["OpenAI's closed account", 429, { error: { message: "Check it.", code: "billing_not_active" } }, "UPSTREAM_AUTH"],
    ["DashScope's account without credit", 400, { code: "Arrearage", message: "Access denied" }, "UPSTREAM_AUTH"],
    [
      "Zhipu's account without credit",
      429,
      { error: { code: "1113", message: "您的账户已欠费，请充值后重试" } },
      "UPSTREAM_AUTH",
    ],
    ["OpenRouter's moderation", 403, { error: { message: "Your input was flagged" } }, "INPUT_REJECTED"],
    ["SageMaker's lack of memory", 424, { OriginalMessage: "CUDA out of memory" }, "UPSTREAM_ERROR"],
    ["a caller's bad picture", 400, { error: { message: "Unable to process input image." } }, "INPUT_REJECTED"],
    ["Ollama's missing model", 404, { error: "model 'eyes' not found" }, "UPSTREAM_ERROR"],
  ])("of %s has its meaning", (_, status, body, name) => {
    expect(nameOf(http(status, body))).toBe(name);
  });

  it.each([
    ["OpenAI and Groq", "Rate limit reached. Please try again in 7.66s.", 7_660],
    ["Azure", "You exceeded the call rate limit. Please retry after 24 seconds.", 24_000],
    ["Gemini", "Quota exceeded. Please retry in 1m30s.", 90_000],
    ["Replicate", "Request was throttled. Expected available in 5 seconds.", 5_000],
    ["a server without a time", "Please try again in a while.", undefined],
  ])("of %s has the retry time of its text, unless a header has one", (_, message, ms) => {
    expect(http(429, { error: { message } }).retryAfterMs).toBe(ms);
    expect(http(429, { error: { message } }, { "retry-after": "3" }).retryAfterMs).toBe(3_000);
  });

  it.each([
    [
      "MiniMax",
      { choices: null, base_resp: { status_code: 1008, status_msg: "insufficient balance" } },
      "UPSTREAM_AUTH",
    ],
    ["Baidu", { error_code: 336_501, error_msg: "Rate limit reached for RPM" }, "UPSTREAM_BUSY"],
  ])("of 200 is the error that %s reports in it", (_, body, name) => {
    const failure = catching(() => readCompletion(Buffer.from(JSON.stringify(body)), 9));
    expect(nameOf(failure)).toBe(name);
  });

  it("of FastAPI names the refused fields", () => {
    const detail = [{ loc: ["body", "num_frames"], msg: "Input should be greater than or equal to 25" }];
    expect(http(422, { detail }).message).toBe("body.num_frames: Input should be greater than or equal to 25");
  });
});

it("of WebSocket in the frameworks' range is HTTP's, as FastAPI's servers write it", () => {
  const codes = [4_401, 4_404, 4_413, 4_429, 4_500, 3_000, 3_003, 3_008, 1_009, 1_012, 4_000];
  expect(codes.map((code) => nameOf(failureOfClose(code)))).toEqual([
    "UPSTREAM_AUTH",
    "UPSTREAM_ERROR",
    "INPUT_REJECTED",
    "UPSTREAM_BUSY",
    "UPSTREAM_ERROR",
    "UPSTREAM_AUTH", // IANA's registered codes
    "UPSTREAM_AUTH",
    "TIMEOUT",
    "INPUT_REJECTED",
    "UNREACHABLE",
    "CONNECTION_LOST",
  ]);
});

describe("a retry time", () => {
  const NOW = Date.UTC(2026, 10, 26, 12, 0, 0);
  it.each<[string, string, number | undefined]>([
    ["seconds", "120", 120_000],
    ["a part of a second, of OpenAI", "0.5", 500],
    ["a unit, of Groq", "7.66s", 7_660],
    ["units of Go's durations", "1m30s", 90_000],
    ["milliseconds", "500ms", 500],
    ["a date in another zone", "Thu, 26 Nov 2026 13:15:00 +0100", 900_000],
    ["a date of ISO 8601", "2026-11-26T12:15:00Z", 900_000],
    ["a date without a zone", "2026-11-26T12:15:00", undefined],
    ["hexadecimal digits", "0x10", undefined],
    ["a date, as of a CDN's maintenance page", "Thu, 26 Nov 2026 12:15:00 GMT", 900_000],
    ["a date of RFC 850", "Thursday, 26-Nov-26 12:15:00 GMT", 900_000],
    ["a date of asctime", "Thu Nov 26 12:15:00 2026", 900_000],
    ["a past date", "Thu, 01 Jan 1970 00:00:00 GMT", undefined],
    ["no number", "soon", undefined],
    ["a negative number", "-5", undefined],
    ["nothing", "", undefined],
    ["an absurd number", "1e9", 86_400_000],
  ])("as %s is parsed", (_, text, wait) => {
    expect(retryAfterMs(text, NOW)).toBe(wait);
  });

  it("of a model server is kept with its failure, from any header or field", () => {
    expect(http(429, "", { "retry-after": "7" }).retryAfterMs).toBe(7_000);
    expect(http(429, "", { "retry-after-ms": "250", "retry-after": "1" }).retryAfterMs).toBe(250);
    const google = [
      {
        error: {
          message: "quota",
          details: [{ "@type": "type.googleapis.com/google.rpc.RetryInfo", retryDelay: "17.5s" }],
        },
      },
    ];
    expect(http(429, google).retryAfterMs).toBe(17_500);
    expect(grpc(8, "queue is full", { "grpc-retry-pushback-ms": "300" }).retryAfterMs).toBe(300);
    expect(grpc(8, "queue is full", { "retry-after": "2" }).retryAfterMs).toBe(2_000);
    expect(http(500, "", {}).retryAfterMs).toBeUndefined();
  });
});
