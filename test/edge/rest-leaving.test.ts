import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { PredictStreamResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import type { CallContext } from "../../src/edge/gate/authenticate.ts";
import { Reason } from "../../src/errors.ts";
import { KEY, message, until } from "./gateway.ts";
import { CHUNK, open, post, SOUND } from "./rest-caller.ts";

describe("a caller who leaves", () => {
  it("cancels the running call", async () => {
    const reasons: unknown[] = [];
    const gateway = await open({
      Act: (_, { signal }) =>
        new Promise((_resolve, reject) =>
          signal.addEventListener("abort", () => {
            reasons.push(signal.reason);
            reject(new Error("aborted"));
          }),
        ),
    });
    const body = JSON.stringify(SOUND);
    const socket = connect(gateway.port, "127.0.0.1");
    const head = `POST /v1/act HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\ncontent-type: application/json\r\n`;
    socket.write(`${head}content-length: ${body.length}\r\n\r\n${body}`);
    await until(() => gateway.inside() === 1);
    socket.destroy();
    await until(() => gateway.inside() === 0);
    // A call that was let in and not yet begun has nothing to call off.
    for (const reason of reasons) expect(reason).toMatchObject({ reason: Reason.CLIENT_CLOSED_REQUEST });
    expect(gateway.lines).toMatchObject([{ code: "client_closed_request", status: 499 }]);
  });

  it("during a body gets no answer", async () => {
    const gateway = await open();
    const socket = connect(gateway.port, "127.0.0.1");
    socket.write(
      `POST /v1/act HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{`,
    );
    await until(() => gateway.inside() === 1);
    socket.destroy();
    await until(() => gateway.inside() === 0);
    expect(gateway.lines).toMatchObject([{ code: "client_closed_request", status: 499 }]);
  });
});

describe("a gateway that closes", () => {
  it("lets running calls finish within its limit", async () => {
    const running = Promise.withResolvers<void>();
    const finish = Promise.withResolvers<void>();
    const gateway = await open({
      Act: async () => {
        running.resolve();
        await finish.promise;
        return CHUNK;
      },
    });
    const answer = post(gateway, "/v1/act", SOUND);
    await running.promise;
    const drained = gateway.server.drain(60_000);
    await until(() => !gateway.server.fastify.server.listening);
    finish.resolve();
    const { status, headers } = await answer;
    expect([status, headers.get("connection")]).toEqual([200, "close"]);
    await drained;
  });

  it("ends later ones: unary calls with 503, streams with an error event", async () => {
    let started = 0;
    const gateway = await open({
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
    const whole = post(gateway, "/v1/act", SOUND);
    const stream = post(gateway, "/v1/predict/stream", SOUND);
    await until(() => started === 2);
    await gateway.server.drain(10);
    expect(await whole).toMatchObject({ status: 503, json: { error: { code: "not_ready" } } });
    expect((await stream).text).toMatch(/event: error\ndata: \{"error":\{"code":"not_ready"/);
    expect(gateway.inside()).toBe(0);
  });
});
