/** The REST transport over real sockets: what it says no to, and how. */
import { once } from "node:events";
import * as http from "node:http";
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { AcceptInviteResponseSchema } from "../../gen/limber/v1/identity_service_pb.ts";
import { ActResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { Reason, refuse } from "../../src/errors.ts";
import { KEY, message, shareGateways } from "./gateway.ts";
import { AUTH, get, open, overHttp2, post, SOUND } from "./rest-caller.ts";

shareGateways();

describe("400", () => {
  it.each([
    ["no JSON", "{"],
    ["NaN", '{"model":"m","horizon":NaN}'],
    ["a key that comes twice", '{"model":"m","model":"n"}'],
    ["nesting of 100,000", "[".repeat(100_000)],
  ])("refuses a body with %s", async (_, body) => {
    const gateway = await open();
    const { status, json } = await post(gateway, "/v1/act", body);
    expect(status).toBe(400);
    expect(json.error).toMatchObject({ code: "malformed_body", type: "validation_error", status: 400 });
    expect(json.detail).toBe(json.error.message);
    expect(gateway.inside()).toBe(0);
  });

  it("refuses bytes that are not UTF-8", async () => {
    const gateway = await open();
    const { json } = await post(gateway, "/v1/act", Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]));
    expect(json.error.code).toBe("malformed_body");
  });
});

describe("401", () => {
  it("is returned before the body is read", async () => {
    const gateway = await open();
    const socket = connect(gateway.port, "127.0.0.1");
    socket.write("POST /v1/act HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n");
    const [chunk] = await once(socket, "data");
    socket.destroy();
    expect(String(chunk)).toMatch(/^HTTP\/1\.1 401 .*www-authenticate: Bearer\r\n/s);
    expect(String(chunk)).toContain('"code":"missing_api_key"');
  });

  it("is logged with its code and without the key", async () => {
    const gateway = await open();
    await post(gateway, "/v1/act", SOUND, { authorization: "Bearer wrong-secret" });
    expect(gateway.lines).toMatchObject([{ status: 401, code: "invalid_api_key" }]);
    expect(JSON.stringify(gateway.lines)).not.toContain("wrong-secret");
  });
});

describe("404 and 405", () => {
  it.each(["/nope", "/v1", "/v1/act/more", "/v1/%zz", "/v1/orgs//keys"])(
    "is returned for the path %s",
    async (path) => {
      const gateway = await open();
      const { status, headers, json } = await post(gateway, path, "{");
      expect(status).toBe(404);
      expect(json.error).toMatchObject({ code: "not_found", request_id: headers.get("x-request-id") });
    },
  );

  it("lists the methods of the path", async () => {
    const gateway = await open();
    const { status, headers, json } = await post(gateway, "/v1/usage", {});
    expect([status, headers.get("allow")]).toEqual([405, "GET, HEAD, OPTIONS"]);
    expect(json.error.code).toBe("method_not_allowed");
    expect((await get(gateway, "/v1/act")).status).toBe(405);
    expect((await get(gateway, "/v1/act", { method: "DELETE" })).headers.get("allow")).toBe("POST, OPTIONS");
  });
});

describe("413", () => {
  const LIMIT = 32 << 20;
  /** A call that needs no key has a lower limit, which is passed sooner. */
  const PUBLIC = "/v1/members/accept";
  const PUBLIC_LIMIT = 64 << 10;

  it("is returned for the declared length", async () => {
    const gateway = await open();
    const socket = connect(gateway.port, "127.0.0.1");
    const head = `POST /v1/act HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\ncontent-type: application/json\r\n`;
    socket.write(`${head}content-length: ${LIMIT + 1}\r\n\r\n`);
    const [chunk] = await once(socket, "data");
    socket.destroy();
    expect(String(chunk)).toMatch(/^HTTP\/1\.1 413 /);
    expect(String(chunk)).toContain('"code":"payload_too_large"');
  });

  it.each(["HTTP/1.1", "HTTP/2"])(
    "is returned when the bytes exceed the limit, whatever was declared, over %s",
    async (version) => {
      const gateway = await open();
      const chunk = Buffer.alloc(16 << 10, 0x20);
      const answer = Promise.withResolvers<[number, string]>();
      if (version === "HTTP/1.1") {
        const request = http.request(`${gateway.base}${PUBLIC}`, {
          method: "POST",
          headers: { ...AUTH, "content-type": "application/json" },
        });
        request.on("error", answer.reject).on("response", async (response) => {
          let text = "";
          for await (const part of response) text += part;
          answer.resolve([response.statusCode ?? 0, text]);
        });
        for (let sent = 0; sent <= PUBLIC_LIMIT; sent += chunk.length)
          if (!request.write(chunk)) await once(request, "drain");
        request.end();
        await answer.promise;
      } else {
        const { session, stream } = overHttp2(gateway, PUBLIC);
        let status = 0;
        let text = "";
        stream.on("response", (head) => (status = head[":status"] ?? 0));
        stream.on("data", (part) => (text += part)).on("end", () => answer.resolve([status, text]));
        for (let sent = 0; sent <= PUBLIC_LIMIT && !stream.destroyed; sent += chunk.length) stream.write(chunk);
        stream.end();
        await answer.promise;
        session.destroy();
      }
      const [status, text] = await answer.promise;
      expect(status).toBe(413);
      expect(JSON.parse(text).error.code).toBe("payload_too_large");
      expect(gateway.inside()).toBe(0);
    },
  );

  it("is not returned for the largest allowed body", async () => {
    const gateway = await open({ AcceptInvite: () => message(AcceptInviteResponseSchema, {}) });
    const body = Buffer.alloc(PUBLIC_LIMIT, 0x20);
    body.write(JSON.stringify({ invite: "i" }));
    const { status, text } = await post(gateway, PUBLIC, body);
    expect(status, text).toBe(201);
    const socket = connect(gateway.port, "127.0.0.1");
    const head = `POST /v1/act HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\ncontent-type: application/json\r\n`;
    socket.write(`${head}expect: 100-continue\r\ncontent-length: ${LIMIT}\r\n\r\n`);
    const [chunk] = await once(socket, "data");
    socket.destroy();
    expect(String(chunk)).toMatch(/^HTTP\/1\.1 100 /);
  });
});

describe("415", () => {
  it.each([
    ["a form", { "content-type": "application/x-www-form-urlencoded" }],
    ["another charset", { "content-type": "application/json; charset=latin1" }],
    ["no type", { "content-type": "" }],
    ["a type that is none", { "content-type": ";;;" }],
    ["protobuf", { "content-type": "application/proto" }],
    ["gzip", { "content-encoding": "gzip" }],
  ])("refuses a body that is %s", async (_, headers) => {
    const gateway = await open();
    const { status, json } = await post(gateway, "/v1/act", JSON.stringify(SOUND), headers as Record<string, string>);
    expect(status).toBe(415);
    expect(json.error.code).toBe("unsupported_media_type");
  });
});

describe("422", () => {
  it("lists unreadable fields and violations in one response", async () => {
    const gateway = await open();
    const body = { model: 5, observations: [{ proprio: ["x"] }, 3], horizon: 257, horizn: 1, provider: { hedge: {} } };
    const { status, json } = await post(gateway, "/v1/act", body);
    expect(status).toBe(422);
    expect(json.detail).toEqual([
      { loc: ["body", "model"], msg: "must be a string", type: "string_type", input: 5 },
      { loc: ["body", "observations", 0, "proprio", 0], msg: "must be a number", type: "float_type", input: "x" },
      { loc: ["body", "observations", 1], msg: "must be an object", type: "dict_type", input: 3 },
      {
        loc: ["body", "horizn"],
        msg: "is not a known field; did you mean `horizon`?",
        type: "extra_forbidden",
        input: 1,
      },
      { loc: ["body", "provider", "hedge", "after_ms"], msg: "is required", type: "missing" },
      {
        loc: ["body", "horizon"],
        msg: "must be between 1 and 256, got 257",
        type: "less_than_equal",
        input: 257,
      },
    ]);
    expect(json.error).toMatchObject({ code: "validation_failed", param: "model" });
    expect(json.error.details.violations.map(({ path }: { path: string }) => path)).toContain(
      "observations.0.proprio.0",
    );
  });

  it.each([
    [{}, ["model", "observations"], "missing"],
    [{ ...SOUND, observations: [] }, ["observations"], "too_short"],
    [{ ...SOUND, horizon: 0 }, ["horizon"], "greater_than_equal"],
    [{ ...SOUND, horizon: 257 }, ["horizon"], "less_than_equal"],
    [{ ...SOUND, instruction: "\u0000" }, ["instruction"], "string_unicode"],
    [{ ...SOUND, instruction: "\ud800" }, ["instruction"], "string_unicode"],
    [{ ...SOUND, constructor: 1 }, ["constructor"], "extra_forbidden"],
  ])("refuses %j", async (body, fields, type) => {
    const gateway = await open();
    const { status, json } = await post(gateway, "/v1/act", body);
    expect(status).toBe(422);
    expect(json.detail.map((entry: { loc: string[] }) => entry.loc[1])).toEqual(fields);
    expect(json.detail[0].type).toBe(type);
  });

  it("locates path and query fields, and names a body's fields without its prefix", async () => {
    const gateway = await open();
    const usage = await get(gateway, "/v1/usage?limit=abc&lmit=1");
    expect(usage.json.detail).toEqual([
      { loc: ["query", "lmit"], msg: "is not a known parameter; did you mean `limit`?", type: "extra_forbidden" },
      { loc: ["query", "limit"], msg: "must be an integer", type: "int_type", input: "abc" },
    ]);
    expect((await get(gateway, "/v1/usage?limit=501")).json.detail).toMatchObject([
      { loc: ["query", "limit"], input: 501 },
    ]);
    expect((await post(gateway, "/v1/act?horizon=3", SOUND)).json.detail).toMatchObject([
      { loc: ["query", "horizon"] },
    ]);
    expect((await post(gateway, "/v1/orgs/a%00b/keys", {})).json.detail).toMatchObject([
      { loc: ["path", "org_id"], type: "string_unicode" },
    ]);
    expect((await post(gateway, "/v1/orgs/o/keys", { org_id: "other" })).json.detail).toMatchObject([
      { loc: ["path", "org_id"], type: "extra_forbidden" },
    ]);
    const stream = await post(gateway, "/v1/predict/stream", { ...SOUND, horizon: 0 });
    expect(stream.json.error).toMatchObject({ param: "horizon", details: { violations: [{ path: "horizon" }] } });
    expect(stream.json.error.message).toMatch(/^`horizon` must be/);
    expect(stream.json.detail).toMatchObject([{ loc: ["body", "horizon"], input: 0 }]);
    expect((await post(gateway, "/v1/predict/stream", "null")).json.detail).toMatchObject([{ loc: ["body"] }]);
    expect((await post(gateway, "/v1/supply/offerings/o/verify", { a: 1 })).json.detail).toMatchObject([
      { loc: ["body", "a"] },
    ]);
  });

  it("refuses to stream a unary call, and an idempotency key where replay is unsupported", async () => {
    const gateway = await open();
    const predict = await post(gateway, "/v1/predict", { ...SOUND, stream: true });
    expect([predict.status, predict.json.error.code]).toEqual([422, "stream_unsupported"]);
    const stream = await post(gateway, "/v1/predict/stream", SOUND, { "idempotency-key": "k" });
    expect([stream.status, stream.json.error.code]).toEqual([422, "idempotency_unsupported"]);
    expect(stream.headers.get("content-type")).toBe("application/json");
  });
});

describe("429, 500 and 503", () => {
  it("have Retry-After", async () => {
    const reasons = [Reason.RATE_LIMIT_EXCEEDED, Reason.CAPACITY_EXHAUSTED];
    const gateway = await open({
      Act: () => {
        throw refuse(reasons.shift() ?? Reason.NOT_READY, "later", {}, { retryAfter: 2.5 });
      },
    });
    const limited = await post(gateway, "/v1/act", SOUND);
    expect([limited.status, limited.headers.get("retry-after"), limited.json.error.retry_after]).toEqual([
      429,
      "3",
      2.5,
    ]);
    expect((await post(gateway, "/v1/act", SOUND)).status).toBe(503);
    expect(limited.headers.get("ratelimit")).not.toBeNull();
  });

  it("mask internal errors and log them", async () => {
    const gateway = await open({
      Act: () => {
        throw new Error("upstream said password=hunter2");
      },
    });
    const { status, json, text, headers } = await post(gateway, "/v1/act", SOUND);
    expect([status, json.error.code]).toEqual([500, "internal_error"]);
    expect(text).not.toContain("hunter2");
    expect(gateway.lines).toMatchObject([
      {
        status: 500,
        code: "internal_error",
        requestId: headers.get("x-request-id"),
        cause: { message: "upstream said password=hunter2" },
      },
    ]);
    expect(gateway.inside()).toBe(0);
  });

  it("treat an unencodable response as an internal error", async () => {
    const gateway = await open({ Act: () => message(ActResponseSchema, { usage: { costUsd: Number.NaN } }) });
    expect((await post(gateway, "/v1/act", SOUND)).status).toBe(500);
  });
});
