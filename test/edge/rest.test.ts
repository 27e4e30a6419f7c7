/** The REST face over real sockets: what it takes, what it says no to and how, and what it does when a caller leaves. */
import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import { connect } from "node:net";
import type { Message } from "@bufbuild/protobuf";
import { afterEach, describe, expect, it } from "vitest";
import {
  AddCreditsResponseSchema,
  type CreateKeyRequest,
  CreateKeyResponseSchema,
  type ListUsageRequest,
  ListUsageResponseSchema,
} from "../../gen/limber/v1/account_service_pb.ts";
import { Contract } from "../../gen/limber/v1/contract_pb.ts";
import {
  type ActRequest,
  ActResponseSchema,
  type PredictStreamRequest,
  PredictStreamResponseSchema,
  type PreviewRoutesRequest,
  PreviewRoutesResponseSchema,
} from "../../gen/limber/v1/inference_service_pb.ts";
import { GetHealthResponseSchema } from "../../gen/limber/v1/operations_service_pb.ts";
import { VerifyOfferingResponseSchema } from "../../gen/limber/v1/supply_service_pb.ts";
import { type Clock, replaceAmbient } from "../../src/ambient.ts";
import type { CallContext } from "../../src/edge/gate.ts";
import { Reason, refuse } from "../../src/refusal.ts";
import { type House, type HouseOptions, KEY, message, openHouse } from "./house.ts";

const houses: House[] = [];
const restore: (() => void)[] = [];

afterEach(async () => {
  for (const put of restore.splice(0)) put();
  for (const house of houses.splice(0)) await house[Symbol.asyncDispose]();
});

async function open(rpcs: HouseOptions["rpcs"] = {}, options: HouseOptions = {}): Promise<House> {
  const house = await openHouse({ ...options, rpcs });
  houses.push(house);
  return house;
}

const AUTH = { authorization: `Bearer ${KEY}` };
const SOUND = { model: "o/n", observations: [{ proprio: [1, 2] }] };
const CHUNK = message(ActResponseSchema, {
  id: "act_1",
  object: "world.action",
  model: "o/n",
  action: { space: "joint_pos_7", steps: [{ values: [1, 2] }, { values: [3, 4] }], dtMs: 20 },
  route: { model: "o/n", provider: "p" },
  usage: { actionSteps: 2 },
});

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: the tests say what is inside
  readonly json: any;
}

async function post(house: House, path: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> {
  const response = await fetch(house.base + path, {
    method: "POST",
    headers: { ...AUTH, "content-type": "application/json", ...headers },
    body: typeof body === "string" || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
  });
  return answerOf(response);
}

async function get(house: House, path: string, init: RequestInit = {}): Promise<Answer> {
  return answerOf(await fetch(house.base + path, { headers: AUTH, ...init }));
}

async function answerOf(response: Response): Promise<Answer> {
  const text = await response.text();
  const isJson = response.headers.get("content-type") === "application/json" && text !== "";
  return { status: response.status, headers: response.headers, text, json: isJson ? JSON.parse(text) : undefined };
}

/** Waits for something that the other side of a socket brings about. */
async function until(check: () => boolean): Promise<void> {
  while (!check()) await new Promise((resolve) => setImmediate(resolve));
}

describe("200", () => {
  it("answers with the specification's JSON, the request's id, the version and what the limits leave", async () => {
    const house = await open({ Act: () => CHUNK });
    const { status, headers, json } = await post(house, "/v1/act", SOUND);
    expect(status).toBe(200);
    expect(json).toMatchObject({
      object: "world.action",
      action: {
        steps: [
          [1, 2],
          [3, 4],
        ],
        dt_ms: 20,
      },
    });
    expect(headers.get("x-request-id")).toMatch(/^req_/);
    expect(headers.get("x-api-version")).toBe("0.1.0");
    expect(headers.get("ratelimit")).toBe('"key";r=5;t=1');
    expect(headers.get("cache-control")).toBe("no-store");
    expect(house.inside()).toBe(0);
  });

  it("answers the same over HTTP/2", async () => {
    const house = await open({ Act: () => CHUNK });
    const session = http2.connect(house.base);
    const stream = session.request({
      ":path": "/v1/act",
      ":method": "POST",
      "content-type": "application/json",
      ...AUTH,
    });
    stream.end(JSON.stringify(SOUND));
    const [head] = await once(stream, "response");
    let text = "";
    for await (const chunk of stream) text += chunk;
    session.close();
    expect(head).toMatchObject({ ":status": 200, "content-type": "application/json", ratelimit: '"key";r=5;t=1' });
    expect(JSON.parse(text)).toEqual((await post(house, "/v1/act", SOUND)).json);
  });

  it("hands on what the call carries: address, idempotency key, and the caller's own id for the log alone", async () => {
    let seen: CallContext | undefined;
    const house = await open({
      Act: (_, context) => {
        seen = context;
        return CHUNK;
      },
    });
    const { headers } = await post(house, "/v1/act", SOUND, { "idempotency-key": "k1", "x-request-id": "theirs-1" });
    expect(seen).toMatchObject({ idempotencyKey: "k1", deadline: undefined, requestId: headers.get("x-request-id") });
    expect(house.heads[0]).toMatchObject({ remoteAddress: "127.0.0.1", authorization: `Bearer ${KEY}` });
    expect(house.lines).toMatchObject([
      { face: "rest", rpc: "limber.v1.InferenceService/Act", status: 200, keyId: "key_1", callerRequestId: "theirs-1" },
    ]);
    await post(house, "/v1/act", SOUND, { "x-request-id": "no good\tid" });
    expect(house.lines[1]?.callerRequestId).toBeUndefined();
  });

  it("hears the admin token in its header", async () => {
    const house = await open({ GetHealth: () => message(GetHealthResponseSchema, { status: "ok" }) });
    await get(house, "/health", { headers: { "x-service-admin-token": "t" } });
    expect(house.heads[0]).toMatchObject({ adminToken: "t", authorization: undefined });
  });

  it("reads fields from the path, the query and the body, and answers with the part that the schema names", async () => {
    const seen: Message[] = [];
    const note = (request: never): void => void seen.push(request);
    const house = await open({
      CreateKey: (request) => {
        note(request);
        return message(CreateKeyResponseSchema, { key: { id: "key_2", environment: 1 } });
      },
      AddCredits: (request) => {
        note(request);
        return message(AddCreditsResponseSchema, { orgId: "org_9", balanceUsd: 1.5 });
      },
      ListUsage: (request) => {
        note(request);
        return message(ListUsageResponseSchema, { object: "list" });
      },
      PreviewRoutes: (request) => {
        note(request);
        return message(PreviewRoutesResponseSchema, { object: "route_plan", contract: Contract.ACT });
      },
    });
    const created = await post(house, "/v1/orgs/org%2F%C3%A4/keys", { name: "robot" });
    expect(created.status).toBe(201);
    expect(created.json).toMatchObject({ id: "key_2", expires_at: null });
    expect(seen[0] as CreateKeyRequest).toMatchObject({ orgId: "org/ä", name: "robot" });
    expect((await post(house, "/v1/orgs/o/credits", { amount_usd: 1.5 })).json).toMatchObject({ balance_usd: 1.5 });
    await get(house, "/v1/usage?limit=7&cursor=abc");
    expect(seen[2] as ListUsageRequest).toMatchObject({ limit: 7, cursor: "abc" });
    const preview = await post(house, "/v1/routes/preview?contract=act", { model: "m", return_prediction: true });
    expect(preview.json).toMatchObject({ contract: "act" });
    expect(seen[3] as PreviewRoutesRequest).toMatchObject({
      contract: Contract.ACT,
      request: { model: "m", returnPrediction: true },
    });
  });

  it.each([
    ["no body at all", undefined, {}],
    ["an empty one", "", { "content-type": "application/json" }],
    ["an empty object", "{}", { "content-type": "application/json; charset=UTF-8" }],
  ])("takes a call whose fields may all be left out with %s", async (_, body, headers) => {
    const house = await open({
      CreateKey: () => message(CreateKeyResponseSchema, { key: { environment: 1 } }),
      VerifyOffering: () => message(VerifyOfferingResponseSchema, {}),
    });
    const init = {
      method: "POST",
      headers: { ...AUTH, ...headers },
      ...(body !== undefined && { body }),
    } as RequestInit;
    expect((await get(house, "/v1/orgs/o/keys", init)).status).toBe(201);
    expect((await get(house, "/v1/supply/offerings/off_1/verify", init)).status).toBe(200);
  });

  it("answers HEAD as GET without the body, and OPTIONS with what the path takes", async () => {
    const house = await open({ GetHealth: () => message(GetHealthResponseSchema, { status: "ok" }) });
    const whole = await get(house, "/health");
    const head = await get(house, "/health", { method: "HEAD" });
    expect([head.status, head.text]).toEqual([200, ""]);
    expect(head.headers.get("content-length")).toBe(String(Buffer.byteLength(whole.text)));
    const options = await get(house, "/health", { method: "OPTIONS" });
    expect([options.status, options.headers.get("allow")]).toEqual([204, "GET, HEAD, OPTIONS"]);
    expect((await get(house, "/v1/act", { method: "OPTIONS" })).headers.get("allow")).toBe("POST, OPTIONS");
  });
});

describe("400", () => {
  it.each([
    ["no JSON", "{"],
    ["NaN", '{"model":"m","horizon":NaN}'],
    ["a key that comes twice", '{"model":"m","model":"n"}'],
    ["nesting of 100,000", "[".repeat(100_000)],
  ])("refuses a body with %s", async (_, body) => {
    const house = await open();
    const { status, json } = await post(house, "/v1/act", body);
    expect(status).toBe(400);
    expect(json.error).toMatchObject({ code: "malformed_body", type: "validation_error", status: 400 });
    expect(json.detail).toBe(json.error.message);
    expect(house.inside()).toBe(0);
  });

  it("refuses bytes that are not UTF-8", async () => {
    const house = await open();
    const { json } = await post(house, "/v1/act", Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]));
    expect(json.error.code).toBe("malformed_body");
  });
});

describe("401", () => {
  it("is said before the body is read", async () => {
    const house = await open();
    const socket = connect(house.port, "127.0.0.1");
    socket.write("POST /v1/act HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n");
    const [chunk] = await once(socket, "data");
    socket.destroy();
    expect(String(chunk)).toMatch(/^HTTP\/1\.1 401 .*www-authenticate: Bearer\r\n/s);
    expect(String(chunk)).toContain('"code":"missing_api_key"');
  });

  it("is logged with its code and no key", async () => {
    const house = await open();
    await post(house, "/v1/act", SOUND, { authorization: "Bearer wrong-secret" });
    expect(house.lines).toMatchObject([{ status: 401, code: "invalid_api_key" }]);
    expect(JSON.stringify(house.lines)).not.toContain("wrong-secret");
  });
});

describe("404 and 405", () => {
  it.each(["/nope", "/v1", "/v1/act/more", "/v1/%zz", "/v1/orgs//keys"])("knows no path %s", async (path) => {
    const house = await open();
    const { status, headers, json } = await post(house, path, "{");
    expect(status).toBe(404);
    expect(json.error).toMatchObject({ code: "not_found", request_id: headers.get("x-request-id") });
  });

  it("names the methods that the path does take", async () => {
    const house = await open();
    const { status, headers, json } = await post(house, "/v1/usage", {});
    expect([status, headers.get("allow")]).toEqual([405, "GET, HEAD, OPTIONS"]);
    expect(json.error.code).toBe("method_not_allowed");
    expect((await get(house, "/v1/act")).status).toBe(405);
    expect((await get(house, "/v1/act", { method: "DELETE" })).headers.get("allow")).toBe("POST, OPTIONS");
  });
});

describe("413", () => {
  const LIMIT = 32 << 20;

  it("is said as soon as the length is announced", async () => {
    const house = await open();
    const socket = connect(house.port, "127.0.0.1");
    const head = `POST /v1/act HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\ncontent-type: application/json\r\n`;
    socket.write(`${head}content-length: ${LIMIT + 1}\r\n\r\n`);
    const [chunk] = await once(socket, "data");
    socket.destroy();
    expect(String(chunk)).toMatch(/^HTTP\/1\.1 413 /);
    expect(String(chunk)).toContain('"code":"payload_too_large"');
  });

  it.each(["HTTP/1.1", "HTTP/2"])(
    "is said when the bytes pass the limit, whatever was announced, over %s",
    async (version) => {
      const house = await open();
      const chunk = Buffer.alloc(1 << 20, 0x20);
      const answer = Promise.withResolvers<[number, string]>();
      if (version === "HTTP/1.1") {
        const request = http.request(`${house.base}/v1/act`, {
          method: "POST",
          headers: { ...AUTH, "content-type": "application/json" },
        });
        request.on("error", answer.reject).on("response", async (response) => {
          let text = "";
          for await (const part of response) text += part;
          answer.resolve([response.statusCode ?? 0, text]);
        });
        for (let sent = 0; sent <= LIMIT; sent += chunk.length) if (!request.write(chunk)) await once(request, "drain");
        request.end();
        await answer.promise;
      } else {
        const session = http2.connect(house.base);
        const stream = session.request({
          ":path": "/v1/act",
          ":method": "POST",
          "content-type": "application/json",
          ...AUTH,
        });
        let status = 0;
        let text = "";
        stream.on("response", (head) => (status = head[":status"] ?? 0));
        stream.on("data", (part) => (text += part)).on("end", () => answer.resolve([status, text]));
        for (let sent = 0; sent <= LIMIT && !stream.destroyed; sent += chunk.length) stream.write(chunk);
        stream.end();
        await answer.promise;
        session.destroy();
      }
      const [status, text] = await answer.promise;
      expect(status).toBe(413);
      expect(JSON.parse(text).error.code).toBe("payload_too_large");
      expect(house.inside()).toBe(0);
    },
  );

  it("is not said to the largest body that is allowed", async () => {
    const house = await open({ Act: () => CHUNK });
    const body = Buffer.alloc(LIMIT, 0x20);
    body.write(JSON.stringify(SOUND));
    expect((await post(house, "/v1/act", body)).status).toBe(200);
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
    const house = await open();
    const { status, json } = await post(house, "/v1/act", JSON.stringify(SOUND), headers as Record<string, string>);
    expect(status).toBe(415);
    expect(json.error.code).toBe("unsupported_media_type");
  });
});

describe("422", () => {
  it("lists the fields that cannot be read and the rules that the others break, in one answer", async () => {
    const house = await open();
    const body = { model: 5, observations: [{ proprio: ["x"] }, 3], horizon: 257, horizn: 1, provider: { hedge: {} } };
    const { status, json } = await post(house, "/v1/act", body);
    expect(status).toBe(422);
    expect(json.detail).toEqual([
      { loc: ["body", "model"], msg: "must be a string", type: "string_type", input: 5 },
      { loc: ["body", "observations", 0, "proprio", 0], msg: "must be a number", type: "float_type", input: "x" },
      { loc: ["body", "observations", 1], msg: "must be an object", type: "dict_type", input: 3 },
      {
        loc: ["body", "horizn"],
        msg: "there is no such field; the nearest is horizon",
        type: "extra_forbidden",
        input: 1,
      },
      { loc: ["body", "provider", "hedge", "after_ms"], msg: "is required", type: "missing" },
      {
        loc: ["body", "horizon"],
        msg: "must be greater than or equal to 1 and less than or equal to 256",
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
    const house = await open();
    const { status, json } = await post(house, "/v1/act", body);
    expect(status).toBe(422);
    expect(json.detail.map((entry: { loc: string[] }) => entry.loc[1])).toEqual(fields);
    expect(json.detail[0].type).toBe(type);
  });

  it("places what the path and the query carry, and speaks of a body that is one field without that field", async () => {
    const house = await open();
    const usage = await get(house, "/v1/usage?limit=abc&lmit=1");
    expect(usage.json.detail).toEqual([
      { loc: ["query", "lmit"], msg: "there is no such parameter", type: "extra_forbidden" },
      { loc: ["query", "limit"], msg: "must be an integer", type: "int_type", input: "abc" },
    ]);
    expect((await get(house, "/v1/usage?limit=501")).json.detail).toMatchObject([
      { loc: ["query", "limit"], input: 501 },
    ]);
    expect((await post(house, "/v1/act?horizon=3", SOUND)).json.detail).toMatchObject([{ loc: ["query", "horizon"] }]);
    expect((await post(house, "/v1/orgs/a%00b/keys", {})).json.detail).toMatchObject([
      { loc: ["path", "org_id"], type: "string_unicode" },
    ]);
    expect((await post(house, "/v1/orgs/o/keys", { org_id: "other" })).json.detail).toMatchObject([
      { loc: ["path", "org_id"], type: "extra_forbidden" },
    ]);
    const stream = await post(house, "/v1/predict/stream", { ...SOUND, horizon: 0 });
    expect(stream.json.error).toMatchObject({ param: "horizon", details: { violations: [{ path: "horizon" }] } });
    expect(stream.json.error.message).toMatch(/^horizon must be/);
    expect(stream.json.detail).toMatchObject([{ loc: ["body", "horizon"], input: 0 }]);
    expect((await post(house, "/v1/predict/stream", "null")).json.detail).toMatchObject([{ loc: ["body"] }]);
    expect((await post(house, "/v1/supply/offerings/o/verify", { a: 1 })).json.detail).toMatchObject([
      { loc: ["body", "a"] },
    ]);
  });

  it("refuses a stream of a call that is answered whole, and a key on a call that cannot be replayed", async () => {
    const house = await open();
    const predict = await post(house, "/v1/predict", { ...SOUND, stream: true });
    expect([predict.status, predict.json.error.code]).toEqual([422, "stream_unsupported"]);
    const stream = await post(house, "/v1/predict/stream", SOUND, { "idempotency-key": "k" });
    expect([stream.status, stream.json.error.code]).toEqual([422, "idempotency_unsupported"]);
    expect(stream.headers.get("content-type")).toBe("application/json");
  });
});

describe("429, 500 and 503", () => {
  it("carry the header that says when to come back", async () => {
    const reasons = [Reason.RATE_LIMIT_EXCEEDED, Reason.CAPACITY_EXHAUSTED];
    const house = await open({
      Act: () => {
        throw refuse(reasons.shift() ?? Reason.NOT_READY, "later", {}, { retryAfter: 2.5 });
      },
    });
    const limited = await post(house, "/v1/act", SOUND);
    expect([limited.status, limited.headers.get("retry-after"), limited.json.error.retry_after]).toEqual([
      429,
      "3",
      2.5,
    ]);
    expect((await post(house, "/v1/act", SOUND)).status).toBe(503);
    expect(limited.headers.get("ratelimit")).not.toBeNull();
  });

  it("a bug is masked for the caller and told to the log", async () => {
    const house = await open({
      Act: () => {
        throw new Error("upstream said password=hunter2");
      },
    });
    const { status, json, text, headers } = await post(house, "/v1/act", SOUND);
    expect([status, json.error.code]).toEqual([500, "internal_error"]);
    expect(text).not.toContain("hunter2");
    expect(house.lines).toMatchObject([
      {
        status: 500,
        code: "internal_error",
        requestId: headers.get("x-request-id"),
        cause: { message: "upstream said password=hunter2" },
      },
    ]);
    expect(house.inside()).toBe(0);
  });

  it("an answer that JSON cannot carry is a bug", async () => {
    const house = await open({ Act: () => message(ActResponseSchema, { usage: { costUsd: Number.NaN } }) });
    expect((await post(house, "/v1/act", SOUND)).status).toBe(500);
  });
});

describe("a caller who leaves", () => {
  it("calls off the call that the gateway works on", async () => {
    const reasons: unknown[] = [];
    const house = await open({
      Act: (_, { signal }) =>
        new Promise((_resolve, reject) =>
          signal.addEventListener("abort", () => {
            reasons.push(signal.reason);
            reject(new Error("aborted"));
          }),
        ),
    });
    const body = JSON.stringify(SOUND);
    const socket = connect(house.port, "127.0.0.1");
    const head = `POST /v1/act HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\ncontent-type: application/json\r\n`;
    socket.write(`${head}content-length: ${body.length}\r\n\r\n${body}`);
    await until(() => house.inside() === 1);
    socket.destroy();
    await until(() => house.inside() === 0);
    // A call that was let in and not yet begun has nothing to call off.
    for (const reason of reasons) expect(reason).toMatchObject({ reason: Reason.CLIENT_CLOSED_REQUEST });
    expect(house.lines).toMatchObject([{ code: "client_closed_request", status: 499 }]);
  });

  it("in the middle of a body is let go without an answer", async () => {
    const house = await open();
    const socket = connect(house.port, "127.0.0.1");
    socket.write(
      `POST /v1/act HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{`,
    );
    await until(() => house.inside() === 1);
    socket.destroy();
    await until(() => house.inside() === 0);
    expect(house.lines).toMatchObject([{ code: "client_closed_request", status: 499 }]);
  });
});

describe("events", () => {
  const route = message(PredictStreamResponseSchema, { event: { case: "route", value: { id: "pred_1" } } });
  const frame = (index: number, size = 3) =>
    message(PredictStreamResponseSchema, {
      event: { case: "frame", value: { index, format: 1, data: new Uint8Array(size) } },
    });
  const done = message(PredictStreamResponseSchema, { event: { case: "done", value: { frames: 2, finishReason: 1 } } });

  interface Event {
    event: string;
    id: string | undefined;
    data: Record<string, unknown>;
  }

  const parsed = (text: string): Event[] =>
    text
      .split("\n\n")
      .filter((block) => block.startsWith("event:"))
      .map((block) => {
        const lines = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s).slice(0, 2)));
        return { event: lines.event, id: lines.id, data: JSON.parse(lines.data) };
      });

  it.each(["HTTP/1.1", "HTTP/2"])(
    "come one after the other, frames with their index as id, over %s",
    async (version) => {
      const house = await open({
        PredictStream: async function* ({ predict }: PredictStreamRequest) {
          expect(predict?.model).toBe("o/n");
          yield* [route, frame(0), frame(1), done];
        },
      });
      let text = "";
      if (version === "HTTP/1.1") {
        const answer = await post(house, "/v1/predict/stream", SOUND);
        expect(answer.headers.get("content-type")).toMatch(/^text\/event-stream/);
        expect(answer.headers.get("ratelimit")).not.toBeNull();
        text = answer.text;
      } else {
        const session = http2.connect(house.base);
        const stream = session.request({
          ":path": "/v1/predict/stream",
          ":method": "POST",
          "content-type": "application/json",
          ...AUTH,
        });
        stream.end(JSON.stringify(SOUND));
        for await (const chunk of stream) text += chunk;
        session.close();
      }
      expect(parsed(text).map(({ event, id }) => [event, id])).toEqual([
        ["route", undefined],
        ["frame", "0"],
        ["frame", "1"],
        ["done", undefined],
      ]);
      expect(parsed(text)[1]?.data).toMatchObject({ index: 0, format: "png", data: "AAAA" });
      expect(parsed(text)[3]?.data).toMatchObject({ finish_reason: "complete" });
      expect(house.inside()).toBe(0);
    },
  );

  it("are not begun when the first is refused: that is a plain error", async () => {
    const house = await open({
      // biome-ignore lint/correctness/useYield: the refusal comes before anything
      PredictStream: async function* () {
        throw refuse(Reason.NO_ROUTE_AVAILABLE, "nothing fits");
      },
    });
    const { status, json } = await post(house, "/v1/predict/stream", SOUND);
    expect([status, json.error.code]).toEqual([409, "no_route_available"]);
  });

  it("end with one named error when something fails later", async () => {
    const house = await open({
      PredictStream: async function* () {
        yield* [route, frame(0)];
        throw refuse(Reason.ALL_ATTEMPTS_FAILED, "it broke");
      },
    });
    const { status, text, headers } = await post(house, "/v1/predict/stream", SOUND);
    expect(status).toBe(200);
    const events = parsed(text);
    expect(events.map(({ event }) => event)).toEqual(["route", "frame", "error"]);
    expect(events[2]?.data).toMatchObject({
      error: { code: "all_attempts_failed", request_id: headers.get("x-request-id") },
    });
    expect(house.lines).toMatchObject([{ code: "all_attempts_failed" }]);
  });

  it("are an action chunk step by step when act is asked to stream", async () => {
    const house = await open({ Act: ({ stream }: ActRequest) => (stream ? CHUNK : undefined) });
    const { text } = await post(house, "/v1/act", { ...SOUND, stream: true });
    const events = parsed(text);
    expect(events.map(({ event, id }) => [event, id])).toEqual([
      ["route", undefined],
      ["step", "0"],
      ["step", "1"],
      ["done", undefined],
    ]);
    expect(events[1]?.data).toEqual({ index: 0, values: [1, 2] });
    expect(events[3]?.data).toMatchObject({
      id: "act_1",
      action: { steps: [], dt_ms: 20 },
      usage: { action_steps: 2 },
    });
  });

  it("say that they live when nothing happens for ten seconds", async () => {
    const clock = manualClock();
    restore.push(replaceAmbient({ clock }));
    const more = Promise.withResolvers<void>();
    const house = await open({
      PredictStream: async function* () {
        yield route;
        await more.promise;
        yield done;
      },
    });
    const response = await fetch(`${house.base}/v1/predict/stream`, {
      method: "POST",
      headers: { ...AUTH, "content-type": "application/json" },
      body: JSON.stringify(SOUND),
    });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    expect((await reader?.read())?.value).toMatch(/^event: route/);
    clock.advance(9_999);
    clock.advance(1);
    expect((await reader?.read())?.value).toBe(": keep-alive\n\n");
    clock.advance(10_000);
    expect((await reader?.read())?.value).toBe(": keep-alive\n\n");
    more.resolve();
    expect((await reader?.read())?.value).toMatch(/^event: done/);
  });

  it.each(["HTTP/1.1", "HTTP/2"])(
    "are made no faster than they are read, and no more once the reader has left, over %s",
    async (version) => {
      let made = 0;
      let closed = false;
      const house = await open({
        PredictStream: async function* () {
          try {
            yield route;
            for (;;) yield frame(made++, 1 << 18);
          } finally {
            closed = true;
          }
        },
      });
      let leave: () => void;
      if (version === "HTTP/1.1") {
        const request = http.request(`${house.base}/v1/predict/stream`, {
          method: "POST",
          headers: { ...AUTH, "content-type": "application/json" },
        });
        request.on("error", () => undefined);
        request.end(JSON.stringify(SOUND));
        await once(request, "response");
        leave = () => request.destroy();
      } else {
        const session = http2.connect(house.base);
        const stream = session.request({
          ":path": "/v1/predict/stream",
          ":method": "POST",
          "content-type": "application/json",
          ...AUTH,
        });
        stream.end(JSON.stringify(SOUND));
        await once(stream, "response");
        leave = () => session.destroy();
      }
      // It stands still when two looks, many turns apart, see the same.
      let before = -1;
      while (made !== before) {
        before = made;
        for (let turn = 0; turn < 2000; turn++) await new Promise((resolve) => setImmediate(resolve));
      }
      expect(made).toBeLessThan(200);
      expect(closed).toBe(false);
      leave();
      await until(() => closed);
      await until(() => house.inside() === 0);
      expect(house.lines).toMatchObject([{ code: "client_closed_request" }]);
    },
  );
});

describe("a house that closes", () => {
  it("lets running calls end within its patience", async () => {
    const running = Promise.withResolvers<void>();
    const finish = Promise.withResolvers<void>();
    const house = await open({
      Act: async () => {
        running.resolve();
        await finish.promise;
        return CHUNK;
      },
    });
    const answer = post(house, "/v1/act", SOUND);
    await running.promise;
    const drained = house.server.drain(60_000);
    await until(() => !house.server.fastify.server.listening);
    finish.resolve();
    const { status, headers } = await answer;
    expect([status, headers.get("connection")]).toEqual([200, "close"]);
    await drained;
  });

  it("ends what outlasts it: whole calls with 503, streams with an error event", async () => {
    let started = 0;
    const house = await open({
      Act: (_, { signal }) => {
        started++;
        return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      },
      PredictStream: async function* (_: never, { signal }: CallContext) {
        yield message(PredictStreamResponseSchema, { event: { case: "route", value: {} } });
        started++;
        await new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))));
      },
    });
    const whole = post(house, "/v1/act", SOUND);
    const stream = post(house, "/v1/predict/stream", SOUND);
    await until(() => started === 2);
    await house.server.drain(10);
    expect(await whole).toMatchObject({ status: 503, json: { error: { code: "not_ready" } } });
    expect((await stream).text).toMatch(/event: error\ndata: \{"error":\{"code":"not_ready"/);
    expect(house.inside()).toBe(0);
  });
});

/** A clock that stands still until it is told to move. */
function manualClock(): Clock & { advance(ms: number): void } {
  let time = 1_764_547_200_000;
  const timers = new Map<() => void, number>();
  return {
    wall: () => time,
    steady: () => time,
    after(ms, run) {
      const once = (): void => run();
      timers.set(once, time + ms);
      return () => void timers.delete(once);
    },
    advance(ms) {
      time += ms;
      for (const [run, at] of [...timers]) {
        if (at > time || !timers.delete(run)) continue;
        run();
      }
    },
  };
}
