/** The Connect transport as plain HTTP has it: JSON bodies, statuses, limits, and whatever bytes come in. */

import { once } from "node:events";
import * as http from "node:http";
import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import { type ActRequest, ActRequestSchema, ActResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { sleep } from "../../src/clock.ts";
import type { CallContext } from "../../src/edge/gate/authenticate.ts";
import { Reason } from "../../src/errors.ts";
import { runs } from "../support/runs.ts";
import { ACT, AUTH, CHUNK, open, SOUND, untilAborted } from "./connect-caller.ts";
import { KEY, message, shareGateways, type TestGateway, until } from "./gateway.ts";

shareGateways();

afterEach(() => void vi.restoreAllMocks());

describe("Connect in JSON", () => {
  const post = (gateway: TestGateway, body: string | Uint8Array, headers: Record<string, string> = {}) =>
    fetch(gateway.base + ACT, {
      method: "POST",
      headers: { ...AUTH, "content-type": "application/json", ...headers },
      body: body as string,
    });

  it("is canonical, and accepts schema names too", async () => {
    let seen: ActRequest | undefined;
    const gateway = await open({
      Act: (request) => {
        seen = request;
        return CHUNK;
      },
    });
    const response = await post(
      gateway,
      '{"model":"m","observations":[{}],"action_space":"a","returnPrediction":true}',
    );
    expect(await response.json()).toMatchObject({ validUntilMs: 5, action: { steps: [{ values: [1] }] } });
    expect(seen).toMatchObject({ actionSpace: "a", returnPrediction: true });
  });

  it.each([
    ["an unknown field", '{"model":"m","horizn":1}'],
    ["no JSON", "{"],
    ["deep nesting", "[".repeat(100_000)],
    ["a free-form value that nests too deep", `{"metadata":{"a":${"[".repeat(5000)}${"]".repeat(5000)}}}`],
    ["a number beyond its type", '{"horizon":-1}'],
  ])("reports %s as the caller's error", async (_, body) => {
    const gateway = await open({ Act: () => CHUNK });
    const response = await post(gateway, body);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      code: "invalid_argument",
      details: [{ type: "google.rpc.ErrorInfo" }],
    });
    expect(gateway.lines).toMatchObject([{ code: "malformed_body" }]);
    expect(gateway.inside()).toBe(0);
  });

  it("refuses unauthorized callers before the body is read, with HTTP headers", async () => {
    const gateway = await open();
    const socket = connect(gateway.port, "127.0.0.1");
    socket.write(`POST ${ACT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n`);
    const [chunk] = await once(socket, "data");
    socket.destroy();
    expect(String(chunk)).toMatch(/^HTTP\/1\.1 401 /);
    expect(String(chunk).toLowerCase()).toContain("www-authenticate: bearer");
    expect(String(chunk)).toContain('"unauthenticated"');
  });

  it("ends and cancels a call at its timeout", async () => {
    const reasons: unknown[] = [];
    const gateway = await open({ Act: (_: ActRequest, { signal }: CallContext) => untilAborted(signal, reasons) });
    const response = await post(gateway, JSON.stringify(SOUND), { "connect-timeout-ms": "300" });
    expect(await response.json()).toMatchObject({
      code: "deadline_exceeded",
      details: [{ debug: { reason: "deadline_exceeded" } }],
    });
    expect(reasons).toMatchObject([{ reason: Reason.DEADLINE_EXCEEDED }]);
    expect(gateway.inside()).toBe(0);
  });

  it("treats a timeout beyond any timer as none", async () => {
    // Node makes a millisecond of a time that is too long: a timer of as much that is set later ends later.
    const gateway = await open({ Act: () => sleep(1).then(() => CHUNK) });
    expect((await post(gateway, JSON.stringify(SOUND), { "connect-timeout-ms": "9999999999" })).status).toBe(200);
    expect((await post(gateway, JSON.stringify(SOUND), { "connect-timeout-ms": "soon" })).status).toBe(400);
  });

  it("does not compress control loop messages", async () => {
    const action = { steps: Array.from({ length: 256 }, () => ({ values: Array.from({ length: 29 }, () => 1) })) };
    const gateway = await open({ Act: () => message(ActResponseSchema, { action }) });
    const response = await post(gateway, JSON.stringify(SOUND), { "accept-encoding": "gzip" });
    expect(response.headers.get("content-encoding")).toBeNull();
  });

  it("refuses bodies above 32 MiB, declared or decompressed", async () => {
    const gateway = await open();
    const bomb = gzipSync(Buffer.alloc((32 << 20) + 1));
    expect((await post(gateway, bomb, { "content-encoding": "gzip" })).status).toBe(429);
    const request = http.request(gateway.base + ACT, {
      method: "POST",
      headers: { ...AUTH, "content-type": "application/json", "content-length": (32 << 20) + 1 },
    });
    request.on("error", () => undefined);
    request.write("{");
    const [response] = await once(request, "response");
    let text = "";
    for await (const part of response) text += part;
    request.destroy();
    expect(JSON.parse(text)).toMatchObject({
      code: "resource_exhausted",
      details: [{ debug: { reason: "payload_too_large" } }],
    });
  });

  it.each(["HTTP/1.0\r\n", "HTTP/1.1\r\nhost: a:b:c\r\n", "HTTP/1.1\r\nhost: %zz\r\n"])(
    "answers headers without a usable host: %j",
    async (head) => {
      const gateway = await open();
      for (const type of ["application/json", "application/grpc"]) {
        const socket = connect(gateway.port, "127.0.0.1");
        socket.write(`POST ${ACT} ${head}content-type: ${type}\r\ncontent-length: 2\r\n\r\n{}`);
        const [chunk] = await once(socket, "data");
        socket.destroy();
        expect(String(chunk)).toMatch(type === "application/grpc" ? /grpc-status: 3\r\n/ : /^HTTP\/1\.1 400 /);
      }
    },
  );

  it("refuses other methods", async () => {
    const gateway = await open();
    expect((await fetch(gateway.base + ACT, { headers: AUTH })).status).toBe(405);
    expect((await fetch(`${gateway.base}/limber.v1.InferenceService/Nope`, { method: "POST" })).status).toBe(404);
  });
});

describe("whatever bytes come in", () => {
  it("the response is never an internal error", async () => {
    vi.spyOn(console, "error");
    const gateway = await open({ Act: () => CHUNK });
    const sound = toBinary(ActRequestSchema, create(ActRequestSchema, SOUND));
    const mutant = fc
      .tuple(
        fc.array(fc.tuple(fc.nat(sound.length - 1), fc.nat(255)), { maxLength: 4 }),
        fc.nat(sound.length),
        fc.uint8Array({ maxLength: 8 }),
      )
      .map(([changes, cut, tail]) => {
        const bytes = Buffer.concat([sound.subarray(0, cut), tail]);
        for (const [at, value] of changes) if (at < bytes.length) bytes[at] = value;
        return bytes;
      });
    const types = fc.constantFrom(
      "application/proto",
      "application/json",
      "application/grpc-web+proto",
      "application/grpc-web+json",
    );
    await fc.assert(
      fc.asyncProperty(mutant, types, fc.boolean(), async (bytes, type, whole) => {
        const head = Buffer.from([0, 0, 0, 0, bytes.length]);
        const body = type.includes("grpc") && whole ? Buffer.concat([head, bytes]) : bytes;
        const response = await fetch(gateway.base + ACT, {
          method: "POST",
          headers: { ...AUTH, "content-type": type },
          body: body as unknown as string,
        });
        const text = await response.text();
        expect(response.status).toBeLessThan(500);
        expect(text).not.toMatch(/grpc-status: (2|13)\b/);
      }),
      { numRuns: runs(60) },
    );
    expect(gateway.lines.filter(({ status }) => status >= 500)).toEqual([]);
    expect(gateway.inside()).toBe(0);
    expect(console.error).not.toHaveBeenCalled();
  });

  it("an aborted call leaves no state and no console output", async () => {
    vi.spyOn(console, "error");
    const gateway = await open({
      Act: (_: ActRequest, { signal }: CallContext) =>
        new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
    });
    const request = `POST ${ACT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\ncontent-type: application/json\r\ncontent-length: 60\r\n\r\n${JSON.stringify(SOUND).padEnd(60)}`;
    for (const sent of [request.length - 30, request.length]) {
      const socket = connect(gateway.port, "127.0.0.1");
      socket.write(request.slice(0, sent));
      await until(() => gateway.inside() === 1);
      socket.destroy();
      await until(() => gateway.inside() === 0);
    }
    expect(gateway.lines).toMatchObject([{ code: "client_closed_request" }, { code: "client_closed_request" }]);
    expect(console.error).not.toHaveBeenCalled();
  });
});
