/** The reference provider's two servers, as a client of another make would meet them. */
import { once } from "node:events";
import { type ClientHttp2Session, connect, type IncomingHttpHeaders } from "node:http2";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import {
  ActRequestSchema,
  ActResponseSchema,
  CallErrorCode,
  PredictRequestSchema,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { type ReferenceServer, serveReference } from "../../src/reference/server.ts";
import { f4 } from "../support/openpi-server.ts";
import { pack, unpack } from "../support/plain-msgpack.ts";
import { prefixed } from "../support/policy-server.ts";

let server: ReferenceServer;
let session: ClientHttp2Session;

beforeAll(async () => {
  server = await serveReference({ host: "127.0.0.1", grpcPort: 0, openpiPort: 0 });
  session = connect(server.grpc.replace("grpc:", "http:"));
});
afterAll(async () => {
  session.destroy();
  await server.close();
});

const SERVICE = "/limber.policy.v1.PolicyService";

interface Answer {
  readonly headers: IncomingHttpHeaders;
  readonly trailers: IncomingHttpHeaders;
  readonly body: Buffer;
}

async function post(path: string, body: Buffer, more: Record<string, string> = {}): Promise<Answer> {
  const stream = session.request({ ":method": "POST", ":path": path, "content-type": "application/grpc", ...more });
  const chunks: Buffer[] = [];
  let headers: IncomingHttpHeaders = {};
  let trailers: IncomingHttpHeaders = {};
  stream.on("response", (each) => {
    headers = each;
  });
  stream.on("trailers", (each) => {
    trailers = each;
  });
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  stream.end(body);
  await once(stream, "close");
  return { headers, trailers, body: Buffer.concat(chunks) };
}

const statusOf = ({ headers, trailers }: Answer): number => Number(headers["grpc-status"] ?? trailers["grpc-status"]);

describe("the reference gRPC server", () => {
  it("answers a call with headers, one framed message and trailers", async () => {
    const answer = await post(`${SERVICE}/Describe`, prefixed(Buffer.alloc(0)));
    expect(answer.headers).toMatchObject({ ":status": 200, "content-type": "application/grpc+proto" });
    expect(answer.trailers).toMatchObject({ "grpc-status": "0" });
    expect(answer.body.readUInt32BE(1)).toBe(answer.body.length - 5);
  });

  it.each<[string, number, string, Buffer, Record<string, string>?]>([
    ["an unimplemented method", 12, `${SERVICE}/Evaluate`, prefixed(Buffer.alloc(0))],
    ["a compressed message", 12, `${SERVICE}/Ground`, prefixed(Buffer.alloc(1), { flag: 1 })],
    ["no message", 3, `${SERVICE}/Ground`, Buffer.alloc(0)],
    ["two messages", 3, `${SERVICE}/Ground`, Buffer.concat([prefixed(Buffer.alloc(0)), prefixed(Buffer.alloc(0))])],
    ["a message that declares 100 MB", 13, `${SERVICE}/Ground`, prefixed(Buffer.alloc(9), { length: 100 * 2 ** 20 })],
    ["half a message", 13, `${SERVICE}/Ground`, prefixed(Buffer.alloc(9), { length: 90 })],
    ["an invalid message", 13, `${SERVICE}/Ground`, prefixed(Buffer.alloc(9, 0xff))],
    ["an empty request", 3, `${SERVICE}/Ground`, prefixed(Buffer.alloc(0))],
  ])("ends %s with status %i, and continues", async (_, status, path, body, more) => {
    expect(statusOf(await post(path, body, more))).toBe(status);
    expect(statusOf(await post(`${SERVICE}/Describe`, prefixed(Buffer.alloc(0))))).toBe(0);
  });

  it("ends a call at its deadline with status 4, while the client still sends", async () => {
    const headers = { "content-type": "application/grpc", "grpc-timeout": "1m" };
    const stream = session.request({ ":method": "POST", ":path": `${SERVICE}/Act`, ...headers });
    stream.resume();
    const [trailers] = await once(stream, "trailers");
    expect(trailers["grpc-status"]).toBe("4");
    stream.destroy();
  });

  it("answers non-gRPC requests with 415", async () => {
    expect(
      (await post(`${SERVICE}/Describe`, Buffer.alloc(0), { "content-type": "text/plain" })).headers[":status"],
    ).toBe(415);
  });

  it("does not answer a canceled act, and answers the others", async () => {
    const stream = session.request({
      ":method": "POST",
      ":path": `${SERVICE}/Act`,
      "content-type": "application/grpc",
    });
    const call = { model: "reference/potential-nav", actionSpace: "base_twist_2d", horizon: 1 };
    const observations = [{ proprio: [0, 0, 0, 1, 0, 0] }];
    const say = (init: Parameters<typeof create<typeof ActRequestSchema>>[1]): Buffer =>
      prefixed(toBinary(ActRequestSchema, create(ActRequestSchema, init)));
    const answers: number[] = [];
    stream.on("data", (chunk: Buffer) => {
      for (let at = 0; at < chunk.length; at += 5 + chunk.readUInt32BE(at + 1)) {
        const response = fromBinary(ActResponseSchema, chunk.subarray(at + 5, at + 5 + chunk.readUInt32BE(at + 1)));
        answers.push(response.callId);
        if (response.callId === 3) {
          expect(response.body).toMatchObject({ case: "error", value: { code: CallErrorCode.INVALID_INPUT } });
        }
      }
    });
    stream.write(
      Buffer.concat([
        say({ callId: 1, body: { case: "call", value: { ...call, observations } } }),
        say({ callId: 1, body: { case: "cancel", value: {} } }),
        say({ callId: 2, body: { case: "call", value: { ...call, observations } } }),
        say({ callId: 3, body: { case: "call", value: { ...call, horizon: 257, observations } } }),
      ]),
    );
    stream.end();
    await once(stream, "close");
    expect(answers.sort()).toEqual([2, 3]);
  });

  it("refuses a prediction without a frame as invalid input", async () => {
    const request = create(PredictRequestSchema, { model: "reference/block-flow", observations: [{}], horizon: 1 });
    const answer = await post(`${SERVICE}/Predict`, prefixed(toBinary(PredictRequestSchema, request)));
    expect(statusOf(answer)).toBe(3);
    expect(decodeURIComponent(String(answer.trailers["grpc-message"]))).toBe("the newest observation has no frame");
  });
});

describe("the reference openpi server", () => {
  const address = (path: string): string => server.openpi + path;
  const NAV = "/reference/potential-nav/base_twist_2d";

  /** Frames as they come: bytes unpacked, text as it is; then the code that it closed with. */
  async function converse(path: string, ...messages: readonly (Buffer | string)[]): Promise<unknown[]> {
    const socket = new WebSocket(address(path));
    const heard: unknown[] = [];
    socket.on("message", (data, isBinary) => {
      heard.push(isBinary ? unpack(data as Buffer) : String(data));
      const next = messages[heard.length - 1];
      if (next === undefined) socket.close(1000);
      else socket.send(next);
    });
    const [code] = await once(socket, "close");
    return [...heard, code];
  }

  const observation = (state: readonly number[], more: readonly [string, unknown][] = []): Buffer =>
    pack(new Map<string, unknown>([["observation/state", f4([state], [state.length])], ["prompt", ""], ...more]));

  it("sends its metadata first and answers observation after observation", async () => {
    const [metadata, first, second, code] = await converse(
      NAV,
      observation([0, 0, 0, 1, 0, 0]),
      observation([0, 0, 0, 1, 0, 0]),
    );
    const greeting = Object.fromEntries(metadata as Map<string, unknown>);
    expect(greeting).toMatchObject({ model: "reference/potential-nav", action_dim: 2, action_horizon: 50 });
    const actions = (first as Map<string, Map<string, unknown>>).get("actions");
    expect(actions?.get("shape")).toEqual([50, 2]);
    expect(actions?.get("dtype")).toBe("<f8");
    expect((second as Map<string, unknown>).get("actions")).toEqual(actions);
    expect(code).toBe(1000);
  });

  it.each<[string, Buffer | string]>([
    ["an unknown layout", observation([1, 2])],
    ["invalid bytes", Buffer.from([0xc1])],
    ["an observation that is not a map", pack(7)],
    ["a state that is not an array", pack(new Map([["observation/state", 7]]))],
    ["a prompt that is not text", observation([0, 0, 0, 1, 0, 0], [["prompt", 7]])],
    ["an image that is not an array", observation([0, 0, 0, 1, 0, 0], [["observation/image", 7]])],
    ["a text", "infer"],
  ])("answers %s with a text and closes with 1011, as openpi does", async (_, message) => {
    const [, text, code] = await converse(NAV, message);
    expect(text).toMatch(/^Traceback \(most recent call last\):\nInvalidInput: ./);
    expect(code).toBe(1011);
  });

  it("has no other path, is healthy at /healthz, and requires WebSocket elsewhere", async () => {
    const socket = new WebSocket(address("/reference/potential-nav/joint_pos_7"));
    const [error] = await once(socket, "error");
    expect(String(error)).toContain("404");
    const http = server.openpi.replace("ws:", "http:");
    const health = await fetch(`${http}/healthz`);
    expect([health.status, await health.text()]).toEqual([200, "OK\n"]);
    expect((await fetch(`${http}/`)).status).toBe(426);
  });
});
