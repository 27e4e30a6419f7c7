import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { describe, expect, it } from "vitest";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { ErrorDetailsSchema } from "../../gen/limber/v1/error_pb.ts";
import {
  type ActRequest,
  InferenceService,
  PreviewRoutesResponseSchema,
} from "../../gen/limber/v1/inference_service_pb.ts";
import type { CallContext } from "../../src/edge/gate/authenticate.ts";
import { Reason, refuse } from "../../src/errors.ts";
import { setClock } from "../support/clocks.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { AUTH, CHUNK, frame, open, SOUND, untilAborted } from "./connect-caller.ts";
import { message, shareGateways, type TestGateway, until } from "./gateway.ts";

shareGateways();

const TRANSPORTS: readonly (readonly [string, (baseUrl: string) => Transport])[] = [
  ["Connect over HTTP/1.1", (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1" })],
  ["Connect over HTTP/2", (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "2" })],
  ["Connect in JSON", (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: false })],
  ["Connect by GET", (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1", useHttpGet: true })],
  ["gRPC", (baseUrl) => createGrpcTransport({ baseUrl })],
  ["gRPC-Web over HTTP/1.1", (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "1.1" })],
  [
    "gRPC-Web in JSON over HTTP/2",
    (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "2", useBinaryFormat: false }),
  ],
];

describe.each(TRANSPORTS)("%s", (name, transport) => {
  const clientOf = (gateway: TestGateway) => createClient(InferenceService, transport(gateway.base));
  const word = name.startsWith("Connect") ? "connect" : name.startsWith("gRPC-Web") ? "grpc-web" : "grpc";

  it("answers calls with the request id and remaining limits", async () => {
    const gateway = await open({
      Act: () => CHUNK,
      PreviewRoutes: () => message(PreviewRoutesResponseSchema, { considered: 3 }),
    });
    let head = new Headers();
    const answer = await clientOf(gateway).act(SOUND, { headers: AUTH, onHeader: (headers) => (head = headers) });
    expect(answer).toEqual(CHUNK);
    expect(head.get("x-request-id")).toMatch(/^req_/);
    expect(head.get("x-api-version")).toBe("0.1.0");
    expect(head.get("ratelimit")).toBe('"key";r=5;t=1');
    const preview = await clientOf(gateway).previewRoutes({ request: { model: "m" } }, { headers: AUTH });
    expect(preview.considered).toBe(3);
    await until(() => gateway.lines.length === 2);
    expect(gateway.lines).toMatchObject([{ transport: word, status: 200, keyId: "key_1" }, { transport: word }]);
    expect(gateway.inside()).toBe(0);
  });

  it("forwards deadline and idempotency key", async () => {
    let seen: CallContext | undefined;
    const gateway = await open({
      Act: (_, context) => {
        seen = context;
        return CHUNK;
      },
    });
    const clock = new ManualClock();
    setClock(clock);
    await clientOf(gateway).act(SOUND, { headers: { ...AUTH, "idempotency-key": "k" }, timeoutMs: 60_000 });
    expect(seen?.idempotencyKey).toBe("k");
    // Connect counts from when it read the head, by its own clock.
    expect(seen?.deadline).toBeGreaterThan(clock.steady());
    expect(seen?.deadline).toBeLessThanOrEqual(clock.steady() + 60_000);
  });

  it("returns the same reason as REST, with details", async () => {
    const gateway = await open({
      Act: () => {
        throw refuse(Reason.RATE_LIMIT_EXCEEDED, "später", { near: ["x"] }, { retryAfter: 2 });
      },
    });
    const error = ConnectError.from(
      await clientOf(gateway)
        .act(SOUND, { headers: AUTH })
        .catch((thrown) => thrown),
    );
    expect([error.code, error.rawMessage]).toEqual([Code.ResourceExhausted, "später"]);
    expect(error.findDetails(ErrorInfoSchema)).toMatchObject([{ reason: "rate_limit_exceeded", domain: "limber.dev" }]);
    expect(error.findDetails(RetryInfoSchema)).toMatchObject([{ retryDelay: { seconds: 2n } }]);
    expect(error.findDetails(ErrorDetailsSchema)).toMatchObject([{ near: ["x"] }]);
    expect(error.metadata.get("retry-after")).toBe("2");
    expect(error.metadata.get("x-request-id")).toBe(error.findDetails(ErrorInfoSchema)[0]?.metadata.request_id);
    await until(() => gateway.lines.length === 1);
    expect(gateway.lines).toMatchObject([{ status: 429, code: "rate_limit_exceeded" }]);
  });

  it("refuses unauthorized callers, lists every violation, and masks internal errors", async () => {
    const gateway = await open({
      Act: () => {
        throw new ConnectError("a provider's own words", Code.Unavailable);
      },
    });
    const client = clientOf(gateway);
    const errorOf = async (call: Promise<unknown>) => ConnectError.from(await call.catch((thrown) => thrown));
    expect(await errorOf(client.act(SOUND))).toMatchObject({ code: Code.Unauthenticated });
    const invalid = await errorOf(client.act({ horizon: 257 }, { headers: AUTH }));
    expect(invalid.code).toBe(Code.InvalidArgument);
    expect(
      invalid
        .findDetails(BadRequestSchema)[0]
        ?.fieldViolations.map(({ field }) => field)
        .sort(),
    ).toEqual(["horizon", "model", "observations"]);
    const streamed = await errorOf(client.act({ ...SOUND, stream: true }, { headers: AUTH }));
    expect(streamed.findDetails(ErrorInfoSchema)).toMatchObject([{ reason: "stream_unsupported" }]);
    const bug = await errorOf(client.act(SOUND, { headers: AUTH }));
    expect([bug.code, bug.rawMessage.includes("provider")]).toEqual([Code.Internal, false]);
    await until(() => gateway.lines.length === 4);
    expect(gateway.lines[3]).toMatchObject({ status: 500, cause: { rawMessage: "a provider's own words" } });
    expect(gateway.inside()).toBe(0);
  });

  it("streams, and reports errors at the end", async () => {
    const gateway = await open({
      PredictStream: async function* () {
        yield* [frame(0), frame(1)];
        throw refuse(Reason.ALL_ATTEMPTS_FAILED, "it broke");
      },
    });
    const frames: number[] = [];
    const error = await (async () => {
      for await (const { event } of clientOf(gateway).predictStream({ predict: SOUND }, { headers: AUTH })) {
        if (event.case === "frame") frames.push(event.value.index);
      }
      return undefined;
    })().catch(ConnectError.from);
    expect(frames).toEqual([0, 1]);
    expect(error).toMatchObject({ code: Code.Unavailable });
    expect(error?.findDetails(ErrorInfoSchema)).toMatchObject([{ reason: "all_attempts_failed" }]);
    const keyed = { headers: { ...AUTH, "idempotency-key": "k" } };
    const stream = clientOf(gateway).predictStream({ predict: SOUND }, keyed)[Symbol.asyncIterator]();
    const refused = ConnectError.from(await stream.next().catch((thrown) => thrown));
    expect(refused.findDetails(ErrorInfoSchema)).toMatchObject([{ reason: "idempotency_unsupported" }]);
  });

  it("cancels a call when the caller leaves", async () => {
    const reasons: unknown[] = [];
    const gateway = await open({ Act: (_: ActRequest, { signal }: CallContext) => untilAborted(signal, reasons) });
    const caller = new AbortController();
    const left = clientOf(gateway).act(SOUND, { headers: AUTH, signal: caller.signal }).catch(ConnectError.from);
    await until(() => gateway.inside() === 1);
    caller.abort();
    await left;
    await until(() => gateway.inside() === 0);
    // A call that was let in and not yet begun has nothing to call off.
    for (const reason of reasons) expect(reason).toMatchObject({ reason: Reason.CLIENT_CLOSED_REQUEST });
    await until(() => gateway.lines.length === 1);
    expect(gateway.lines).toMatchObject([{ code: "client_closed_request" }]);
  });
});
