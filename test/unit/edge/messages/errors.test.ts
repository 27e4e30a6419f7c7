/** One refusal on every transport. */

import { create, fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { describe, expect, it } from "vitest";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../../../gen/google/rpc/error_details_pb.ts";
import { StatusSchema } from "../../../../gen/google/rpc/status_pb.ts";
import { ErrorDetailsSchema, ViolationSchema } from "../../../../gen/limber/v1/error_pb.ts";
import { DroppedOfferingSchema, DropReason } from "../../../../gen/limber/v1/plan_pb.ts";
import { ReasonSchema } from "../../../../gen/limber/v1/reason_pb.ts";
import { AttemptFailure, AttemptStatus, RouteSchema } from "../../../../gen/limber/v1/route_pb.ts";
import { connectError, explainAt, refusalOf, restAnswer, wireBody } from "../../../../src/edge/messages/errors.ts";
import { grpcTrailersOf } from "../../../../src/edge/transports/grpc/status.ts";
import { factsOf, Reason, refuse } from "../../../../src/errors.ts";

const ID = "req_1";
const headersOf = (headers: readonly string[]): Record<string, string> =>
  Object.fromEntries(headers.flatMap((name, i) => (i % 2 === 0 ? [[name, headers[i + 1] ?? ""]] : [])));

describe("an error over REST", () => {
  it("has the complete error body, and only the details of its kind", () => {
    const dropped = [
      create(DroppedOfferingSchema, {
        offeringId: "off_1",
        model: "o/n",
        provider: "p",
        reason: DropReason.MAX_LATENCY_MS,
        detail: "p95 412 ms > 200 ms",
        stage: "remove",
      }),
    ];
    const route = create(RouteSchema, {});
    const refusal = refuse(
      Reason.NO_ROUTE_AVAILABLE,
      "1 offering considered",
      { dropped, excludedBy: ["region"] },
      { route },
    );
    explainAt("https://gateway.example");
    const { status, headers, body } = restAnswer(refusal, ID);
    expect(status).toBe(409);
    expect(headers).toEqual([]);
    expect(JSON.parse(body)).toEqual({
      error: {
        code: "no_route_available",
        type: "routing_error",
        status: 409,
        message: "1 offering considered",
        retryable: false,
        retry_after: null,
        param: null,
        source: "gateway",
        request_id: ID,
        docs_url: "https://gateway.example/docs/errors#no_route_available",
        details: {
          dropped: [
            {
              offering_id: "off_1",
              model: "o/n",
              provider: "p",
              reason: "max_latency_ms",
              detail: "p95 412 ms > 200 ms",
              stage: "remove",
            },
          ],
          excluded_by: ["region"],
        },
      },
      detail: "1 offering considered",
      route: {
        model: "",
        region: "",
        precision: "",
        attempts: [],
        fallback_used: false,
        simulated: false,
        provider: "",
        offering_id: "",
      },
    });
  });

  it("reports failed attempts of providers beside the error", () => {
    const attempts = [{ model: "o/n", status: AttemptStatus.ERROR, reason: AttemptFailure.TIMEOUT, latencyMs: 30000 }];
    const refusal = refuse(Reason.ALL_ATTEMPTS_FAILED, "no", {}, { route: create(RouteSchema, { attempts }) });
    const body = JSON.parse(restAnswer(refusal, ID).body);
    expect(body.error).toMatchObject({ source: "upstream", retryable: true, status: 502 });
    expect(body.route.attempts).toMatchObject([{ status: "error", reason: "timeout" }]);
  });

  it("lists the violations of a 422 as the described service does, with the sent values", () => {
    const violations = [
      create(ViolationSchema, {
        path: "horizon",
        message: "must be between 1 and 256, got 257",
        type: "less_than_equal",
      }),
      create(ViolationSchema, { path: "observations.0.proprio.1", message: "must be a number", type: "float_type" }),
      create(ViolationSchema, { path: "model", message: "must not be empty", type: "string_too_short" }),
    ];
    const inputs = { body: { horizon: 257, observations: [{ proprio: [0, "x".repeat(1000)] }] } };
    const locate = (path: string) => [
      "body",
      ...path.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part)),
    ];
    const body = JSON.parse(
      restAnswer(refuse(Reason.VALIDATION_FAILED, "", { violations }), ID, { inputs, locate }).body,
    );
    expect(body.detail).toEqual([
      { loc: ["body", "horizon"], msg: "must be between 1 and 256, got 257", type: "less_than_equal", input: 257 },
      { loc: ["body", "observations", 0, "proprio", 1], msg: "must be a number", type: "float_type" },
      { loc: ["body", "model"], msg: "is required", type: "missing" },
    ]);
    expect(body.error).toMatchObject({
      param: "horizon",
      message: "`horizon` must be between 1 and 256, got 257, and 2 more",
    });
    expect(body.error.details.violations).toHaveLength(3);
  });

  it("has one entry for a 422 without violations", () => {
    const refusal = refuse(Reason.ACTION_SPACE_MISMATCH, "o/n emits joint_pos_7", {}, { param: "action_space" });
    expect(JSON.parse(restAnswer(refusal, ID).body).detail).toEqual([
      { loc: ["body", "action_space"], msg: "o/n emits joint_pos_7", type: "action_space_mismatch" },
    ]);
  });

  it.each([
    [Reason.MISSING_API_KEY, {}, { "www-authenticate": "Bearer" }],
    [Reason.RATE_LIMIT_EXCEEDED, { retryAfter: 2.2 }, { "retry-after": "3" }],
    [Reason.RATE_LIMIT_EXCEEDED, {}, { "retry-after": "1" }],
    [Reason.CAPACITY_EXHAUSTED, { retryAfter: 0 }, { "retry-after": "1" }],
    [Reason.NOT_READY, {}, { "retry-after": "1" }],
    [Reason.IDEMPOTENCY_IN_PROGRESS, { retryAfter: 1 }, { "retry-after": "1" }],
    [Reason.INSUFFICIENT_CREDITS, {}, {}],
    [Reason.INVALID_ADMIN_TOKEN, {}, {}],
  ])("of reason %i with %j has the headers %j", (reason, extras, headers) => {
    expect(headersOf(restAnswer(refuse(reason, "no", {}, extras), ID).headers)).toEqual(headers);
  });

  it("caused by a bug reveals nothing of the bug", () => {
    const body = restAnswer(refusalOf(new Error("password=hunter2")), ID).body;
    expect(JSON.parse(body).error).toMatchObject({ code: "internal_error", status: 500, request_id: ID });
    expect(body).not.toContain("hunter2");
  });

  it("has its own status for every reason of the schema", () => {
    for (const { number } of ReasonSchema.values.filter((value) => value.number !== 0)) {
      const answer = restAnswer(refuse(number as Reason, "no"), ID);
      const { code, status } = factsOf(number as Reason);
      expect(answer.status).toBe(status);
      expect(JSON.parse(answer.body).error).toMatchObject({ code, status, type: expect.stringMatching(/_error$/) });
    }
  });

  it("has the same form for requests that are not valid HTTP", () => {
    expect(JSON.parse(wireBody(431, "headers_too_large", "too large", ID))).toMatchObject({
      error: { code: "headers_too_large", type: "validation_error", status: 431, request_id: ID },
      detail: "too large",
    });
  });
});

describe("an error over Connect and gRPC", () => {
  const violations = [create(ViolationSchema, { path: "horizon", message: "too much", type: "less_than_equal" })];
  const refusal = refuse(Reason.VALIDATION_FAILED, "horizon: too much ü", { violations }, { retryAfter: 1.25 });

  it("has details that every client can read", () => {
    const error = connectError(refusal, ID);
    expect(error.code).toBe(Code.InvalidArgument);
    expect(error.rawMessage).toBe("horizon: too much ü");
    expect(error.findDetails(ErrorInfoSchema)).toMatchObject([
      { reason: "validation_failed", domain: "limber.dev", metadata: { request_id: ID } },
    ]);
    expect(error.findDetails(RetryInfoSchema)).toMatchObject([{ retryDelay: { seconds: 1n, nanos: 250_000_000 } }]);
    expect(error.findDetails(BadRequestSchema)).toMatchObject([
      { fieldViolations: [{ field: "horizon", description: "too much", reason: "less_than_equal" }] },
    ]);
    expect(error.findDetails(ErrorDetailsSchema)).toMatchObject([{ violations: [{ path: "horizon" }] }]);
    expect(error.metadata.get("retry-after")).toBe("2");
  });

  it("has the same code, text and details in its trailers", () => {
    const trailers = grpcTrailersOf(refusal, ID);
    expect(trailers["grpc-status"]).toBe("3");
    expect(decodeURIComponent(String(trailers["grpc-message"]))).toBe("horizon: too much ü");
    const status = fromBinary(StatusSchema, Buffer.from(String(trailers["grpc-status-details-bin"]), "base64"));
    const info = status.details.map((any) => anyUnpack(any, ErrorInfoSchema)).find((each) => each !== undefined);
    expect(info).toMatchObject({ reason: "validation_failed" });
  });

  it("has the schema's code for every reason", () => {
    for (const { number } of ReasonSchema.values.filter((value) => value.number !== 0)) {
      const { rpcCode } = factsOf(number as Reason);
      expect(connectError(refuse(number as Reason, "no"), ID).code as number).toBe(rpcCode);
    }
  });
});

describe("an error of a canceled call", () => {
  it("is the reason of the cancellation", () => {
    const caller = new AbortController();
    const left = refuse(Reason.CLIENT_CLOSED_REQUEST, "gone");
    expect(refusalOf(new Error("aborted"), caller.signal).reason).toBe(Reason.INTERNAL_ERROR);
    caller.abort(left);
    expect(refusalOf(new Error("aborted"), caller.signal)).toBe(left);
    const own = refuse(Reason.DEADLINE_EXCEEDED, "late");
    expect(refusalOf(own, caller.signal)).toBe(own);
  });
});

describe("error details over gRPC", () => {
  it("fit into the trailers that clients accept for any number of dropped offerings", () => {
    const dropped = Array.from({ length: 500 }, (_, i) =>
      create(DroppedOfferingSchema, {
        offeringId: `off_${String(i).padStart(26, "0")}`,
        model: "some-laboratory/a-model-of-some-length",
        provider: "some-provider",
        reason: DropReason.MAX_LATENCY_MS,
        detail: "p95 412 ms > 200 ms",
        stage: "remove",
      }),
    );
    const refusal = refuse(Reason.NO_ROUTE_AVAILABLE, "500 offerings considered, none satisfies the constraints", {
      dropped,
    });
    const trailers = grpcTrailersOf(refusal, "req_1");
    expect(String(trailers["grpc-status-details-bin"]).length).toBeLessThan(8000);
    expect(JSON.parse(restAnswer(refusal, "req_1").body).error.details.dropped).toHaveLength(500);
  });
});
