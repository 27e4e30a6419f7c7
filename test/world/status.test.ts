/** What the statuses of model servers, their proxies and hosted APIs mean, and how long they ask to be left alone. */
import { describe, expect, it } from "vitest";
import { retryAfterMs } from "../../src/codecs/retry-after.ts";
import { UpstreamFailure } from "../../src/contracts/contract.ts";
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
    ["Ollama's missing model", 404, { error: "model 'eyes' not found" }, "UPSTREAM_ERROR"],
  ])("of %s has its meaning", (_, status, body, name) => {
    expect(nameOf(http(status, body))).toBe(name);
  });

  it("of FastAPI names the refused fields", () => {
    const detail = [{ loc: ["body", "num_frames"], msg: "Input should be greater than or equal to 25" }];
    expect(http(422, { detail }).message).toBe("body.num_frames: Input should be greater than or equal to 25");
  });
});

it("of WebSocket in the frameworks' range is HTTP's, as FastAPI's servers write it", () => {
  expect([4_401, 4_413, 4_429, 1_009, 1_012, 4_000].map((code) => nameOf(failureOfClose(code)))).toEqual([
    "UPSTREAM_AUTH",
    "INPUT_REJECTED",
    "UPSTREAM_BUSY",
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
