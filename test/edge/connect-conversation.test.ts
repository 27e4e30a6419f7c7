/** Conversations by Connect: message by message, in both directions, to whichever end. */

import { once } from "node:events";
import * as http2 from "node:http2";
import type { AddressInfo } from "node:net";
import type { Message } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import Fastify from "fastify";
import { describe, expect, it, onTestFinished } from "vitest";
import {
  type ActRequest as PolicyActRequest,
  ActResponseSchema as PolicyActResponseSchema,
  PolicyService,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import type { StreamHandler, StreamWriter } from "../../src/call.ts";
import { BodyMemory } from "../../src/edge/body-memory.ts";
import type { LogLine } from "../../src/edge/call-log.ts";
import type { CallContext } from "../../src/edge/gate/authenticate.ts";
import type { Gate } from "../../src/edge/gate/gate.ts";
import { onePort, type PortHandler } from "../../src/edge/server/port.ts";
import { serveConnect } from "../../src/edge/transports/connect/connect.ts";
import { Reason, type Refusal } from "../../src/errors.ts";
import { untilAborted } from "./connect-caller.ts";
import { message, until } from "./gateway.ts";

describe("a conversation", () => {
  type Request = PolicyActRequest;

  /** A server of the schema's one bidirectional RPC, whose gate hands the stream to `serve`. */
  async function openTalk(
    serve: (requests: AsyncIterable<Request>, context: CallContext) => AsyncIterable<Message>,
    cut: (refusal: Refusal) => void = () => {},
  ) {
    const closing = new AbortController();
    const lines: LogLine[] = [];
    let inside = 0;
    const leave = (): void => void inside--;
    const fastify = Fastify({
      serverFactory: (handler) => onePort(handler as PortHandler),
      forceCloseConnections: "idle",
    });
    const gate = {
      admit: async () => {
        inside++;
        return { principal: { kind: "public" as const }, headers: [], leave };
      },
      conversation: (_method, _admission, speaker, context) => told(serve, cut, speaker, context),
    } satisfies Partial<Gate> as unknown as Gate;
    const log = (line: LogLine): void => void lines.push(line);
    const unreadable = (): never => expect.unreachable();
    const memory = new BodyMemory();
    const readiness = () => true;
    const endless = (): void => undefined;
    const options = { gate, readiness, log, memory, closing: closing.signal, endless, unreadable };
    serveConnect(fastify, [PolicyService], options);
    await fastify.listen({ host: "127.0.0.1", port: 0 });
    const { port } = fastify.server.address() as AddressInfo;
    onTestFinished(async () => {
      fastify.server.closeAllConnections();
      await fastify.close();
    });
    return {
      client: createClient(PolicyService, createGrpcTransport({ baseUrl: `http://127.0.0.1:${port}` })),
      port,
      closing,
      lines,
      inside: () => inside,
    };
  }

  /** A service that is written as a generator. */
  function told(
    serve: (requests: AsyncIterable<Request>, context: CallContext) => AsyncIterable<Message>,
    cut: (refusal: Refusal) => void,
    speaker: StreamWriter<Message>,
    context: CallContext,
  ): StreamHandler<Message> {
    const { readable, writable } = new TransformStream<Request, Request>(
      {},
      { highWaterMark: 100 },
      { highWaterMark: 100 },
    );
    const writer = writable.getWriter();
    const speak = async (): Promise<void> => {
      for await (const said of serve(readable as unknown as AsyncIterable<Request>, context)) speaker.say(said);
      speaker.end();
    };
    speak().catch((thrown) => speaker.end(thrown));
    return {
      hear: (request) => void writer.write(request as Request),
      room: () => undefined,
      close: () => void writer.close().catch(() => undefined),
      cut(refusal) {
        cut(refusal);
        speaker.end(refusal);
      },
    };
  }

  const echo = async function* (requests: AsyncIterable<Request>) {
    for await (const { callId } of requests) yield message(PolicyActResponseSchema, { callId });
  };

  it("with unreadable messages notifies its service, which ends it", async () => {
    const ended: unknown[] = [];
    const { port, inside } = await openTalk(echo, (refusal) => ended.push(refusal.reason));
    const session = http2.connect(`http://127.0.0.1:${port}`);
    onTestFinished(() => session.destroy());
    const path = "/limber.policy.v1.PolicyService/Act";
    const request = session.request({ ":method": "POST", ":path": path, "content-type": "application/grpc" });
    request.on("error", () => undefined).resume();
    request.write(Buffer.from([0, 0, 0, 0, 2, 8, 0xff]));
    const [trailers] = await once(request, "trailers");
    expect(trailers["grpc-status"]).toBe(String(Code.InvalidArgument));
    expect(ended).toEqual([Reason.MALFORMED_BODY]);
    await until(() => inside() === 0);
  });

  it("works message by message in both directions", async () => {
    const { client, lines, inside } = await openTalk(echo);
    const seen: number[] = [];
    const more: (() => void)[] = [];
    async function* asking() {
      for (let callId = 1; callId <= 3; callId++) {
        yield { callId };
        await new Promise<void>((resolve) => more.push(resolve));
      }
    }
    for await (const { callId } of client.act(asking())) {
      seen.push(callId);
      more.shift()?.();
    }
    expect(seen).toEqual([1, 2, 3]);
    await until(() => inside() === 0);
    expect(lines).toMatchObject([{ status: 200, rpc: "limber.policy.v1.PolicyService/Act" }]);
  });

  it("reports an unreadable message as the caller's error", async () => {
    const { port, lines, inside } = await openTalk(echo);
    const session = http2.connect(`http://127.0.0.1:${port}`);
    const stream = session.request({
      ":path": "/limber.policy.v1.PolicyService/Act",
      ":method": "POST",
      "content-type": "application/grpc",
      te: "trailers",
    });
    stream.end(Buffer.from([0, 0, 0, 0, 2, 8, 7, 0, 0, 0, 0, 1, 255]));
    stream.resume();
    const [trailers] = await once(stream, "trailers");
    session.destroy();
    expect(trailers["grpc-status"]).toBe(String(Code.InvalidArgument));
    await until(() => inside() === 0);
    expect(lines).toMatchObject([{ code: "malformed_body" }]);
  });

  it("ends as unavailable when the gateway closes, though both sides wait", async () => {
    const { client, closing, inside } = await openTalk(echo);
    const quiet = Promise.withResolvers<never>();
    const answers = client
      .act(
        (async function* () {
          yield { callId: 1 };
          await quiet.promise;
        })(),
      )
      [Symbol.asyncIterator]();
    expect((await answers.next()).value).toMatchObject({ callId: 1 });
    closing.abort(new ConnectError("closing", Code.Unavailable));
    expect(await answers.next().catch(ConnectError.from)).toMatchObject({ code: Code.Unavailable });
    await until(() => inside() === 0);
  });

  it("is canceled when the caller leaves, and ends if it was waiting", async () => {
    const reasons: unknown[] = [];
    const listened: string[] = [];
    const { client, inside } = await openTalk(async function* (requests, { signal }) {
      const calls = requests[Symbol.asyncIterator]();
      const { value } = await calls.next();
      yield message(PolicyActResponseSchema, { callId: value.callId });
      if (value.callId === 1) await untilAborted(signal, reasons);
      else listened.push((await calls.next()).done ? "end" : "more");
    });
    for (const callId of [1, 2]) {
      const caller = new AbortController();
      const asking = async function* () {
        yield { callId };
        await new Promise(() => undefined);
      };
      const answers = client.act(asking(), { signal: caller.signal })[Symbol.asyncIterator]();
      await answers.next();
      caller.abort();
      await answers.next().catch(() => undefined);
      await until(() => inside() === 0);
    }
    expect(reasons).toMatchObject([{ reason: Reason.CLIENT_CLOSED_REQUEST }]);
    expect(listened).toEqual(["end"]);
  });
});
