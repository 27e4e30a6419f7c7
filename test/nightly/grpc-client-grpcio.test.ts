/** The gRPC client against the server that most models in the field are served by: Python's grpcio. */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { describe, expect, it } from "vitest";
import { frameMessage } from "../../src/codecs/grpc.ts";
import { GrpcClient } from "../../src/upstream/transport/grpc.ts";
import { guardedLookup } from "../../src/upstream/transport/guard.ts";
import { failureIn, nameOf } from "../support/wire-calls.ts";

const SERVER = `
import grpc, sys
from concurrent import futures
same = lambda b: b
def echo(request, context):
    context.set_trailing_metadata((("x-more", "y" * 3000),))
    return request
def many(request, context):
    for i in range(int(request)): yield bytes([i % 256]) * (i * 100)
def total(requests, context): return str(sum(len(each) for each in requests)).encode()
def fail(request, context): context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "zu voll")
def hang(request, context):
    context.add_callback(lambda: print("left", flush=True))
    import time; time.sleep(5)
    return request
class Handler(grpc.GenericRpcHandler):
    def service(self, call):
        return {
            "/t/Echo": grpc.unary_unary_rpc_method_handler(echo, same, same),
            "/t/Many": grpc.unary_stream_rpc_method_handler(many, same, same),
            "/t/Total": grpc.stream_unary_rpc_method_handler(total, same, same),
            "/t/Fail": grpc.unary_unary_rpc_method_handler(fail, same, same),
            "/t/Hang": grpc.unary_unary_rpc_method_handler(hang, same, same),
        }.get(call.method)
size = 100 * 2**20
server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", size), ("grpc.max_send_message_length", size)])
server.add_generic_rpc_handlers((Handler(),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
`;

const lookup = guardedLookup({ allowPrivate: true });

describe.runIf(existsSync("/usr/lib/python3/dist-packages/grpc"))("a grpcio server", () => {
  it("is called for one response and for streams, with large and small messages, reports its errors, and is closed", async () => {
    const child = spawn("/usr/bin/python3", ["-c", SERVER], { stdio: ["ignore", "pipe", "inherit"] });
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
    const { value: port } = await lines.next();
    const calls = new GrpcClient({ url: new URL(`http://127.0.0.1:${port}`), lookup, authorization: undefined });
    const exchange = (method: string, signal = new AbortController().signal) => {
      return { path: `/t/${method}`, signal, budgetMs: 10_000, requestId: "req_1" };
    };
    for (const bytes of [0, 1, 100, 20_000, 3 * 2 ** 20, 30 * 2 ** 20]) {
      const message = Buffer.alloc(bytes, 7);
      expect((await calls.unary(exchange("Echo"), frameMessage(message))).equals(message)).toBe(true);
    }
    const small = Array.from({ length: 200 }, (_, i) => Buffer.from(`message ${i}`));
    const answers = await Promise.all(small.map((each) => calls.unary(exchange("Echo"), frameMessage(each))));
    expect(answers.map(String)).toEqual(small.map(String));

    const sizes: number[] = [];
    const ask = async () => frameMessage(Buffer.from("300"));
    for await (const size of calls.stream(exchange("Many"), ask, ({ length }) => length)) sizes.push(size);
    expect(sizes).toEqual(Array.from({ length: 300 }, (_, i) => i * 100));
    const three = Buffer.concat([
      frameMessage(Buffer.alloc(5)),
      frameMessage(Buffer.alloc(70_000)),
      frameMessage(Buffer.alloc(1)),
    ]);
    expect((await calls.unary(exchange("Total"), three)).toString()).toBe("70006");

    const failure = await failureIn(calls.unary(exchange("Fail"), frameMessage(Buffer.alloc(1))));
    expect([nameOf(failure), failure.message]).toEqual(["UPSTREAM_BUSY", "status 8: zu voll"]);
    expect(nameOf(await failureIn(calls.unary(exchange("None"), frameMessage(Buffer.alloc(1)))))).toBe(
      "UPSTREAM_ERROR",
    );

    const caller = new AbortController();
    const left = failureIn(calls.unary(exchange("Hang", caller.signal), frameMessage(Buffer.alloc(1))));
    setImmediate(() => setImmediate(() => caller.abort()));
    expect(nameOf(await left)).toBe("TIMEOUT");
    calls.close();
    child.kill("SIGKILL");
  });
});
