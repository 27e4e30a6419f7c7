/** The two gRPC clients against generated and hostile servers: equal messages, and an equal failure. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { frameMessage } from "../../../../src/codecs/grpc.ts";
import type { UpstreamFailure } from "../../../../src/contracts/failure.ts";
import { openFastGrpc } from "../../../../src/fast/http2-client/grpc.ts";
import type { GrpcClient, GrpcClientFactory } from "../../../../src/upstream/transport/grpc.ts";
import { guardedLookup } from "../../../../src/upstream/transport/guard.ts";
import { openHttp2Grpc } from "../../../../src/upstream/transport/http2-grpc.ts";
import { type Heard, SERVER_HELLO, startBareServer } from "../../../support/h2-server.ts";
import { nameOf } from "../../../support/wire-calls.ts";
import { FLAG, FRAME, fieldBlock, frame, uint32 } from "../../../support/wire-client.ts";

const lookup = guardedLookup({ allowPrivate: true });
const END = FLAG.endHeaders | FLAG.endStream;
/** The stream of the first call on a connection. */
const STREAM = 1;

/** What a server says to one call: frames, and then what it does with the connection. */
interface Script {
  readonly frames: readonly Buffer[];
  readonly closing: "none" | "end" | "reset";
  /** Instead of a greeting. */
  readonly hello?: "nothing" | "HTTP/1.1";
}

/** What became of a call. */
interface Outcome {
  readonly messages: string[];
  readonly failure: string | undefined;
}

const head = (fields: Record<string, string>, flags: number = FLAG.endHeaders): Buffer =>
  frame(FRAME.headers, flags, STREAM, fieldBlock(fields));
const data = (bytes: Buffer, flags = 0): Buffer => frame(FRAME.data, flags, STREAM, bytes);
const OK_HEAD = head({ ":status": "200", "content-type": "application/grpc" });

const status = fc.oneof(
  { weight: 3, arbitrary: fc.constant("0") },
  fc.integer({ min: 1, max: 20 }).map(String),
  fc.constantFrom("", "x", "00", "-1"),
);
const told = fc.constantFrom("", "full", "%E2%82%AC", "%zz");
const trailers = fc.record({ "grpc-status": status, "grpc-message": told });

const heads = fc.oneof(
  { weight: 12, arbitrary: fc.constant([OK_HEAD]) },
  { weight: 2, arbitrary: fc.constant([head({ ":status": "103" }), OK_HEAD]) },
  fc.constant([head({ ":status": "200", "content-type": "application/grpc+proto", "x-more": "y".repeat(3_000) })]),
  fc.constant([head({ ":status": "200", "content-type": "text/html" })]),
  fc.constant([head({ ":status": "200" })]),
  fc.constantFrom("401", "404", "413", "429", "500", "502", "503", "504").map((code) => [head({ ":status": code })]),
  trailers.map((fields) => [head({ ":status": "200", "content-type": "application/grpc", ...fields }, END)]),
  trailers.map((fields) => [head({ ":status": "200", "content-type": "application/grpc", ...fields })]),
  fc.constant([]),
);

const message = fc.oneof(
  { weight: 8, arbitrary: fc.nat(3_000).map((bytes) => frameMessage(Buffer.alloc(bytes, bytes))) },
  fc.nat(50).map((bytes) => frameMessage(Buffer.alloc(bytes), true)),
  fc.constantFrom(
    Buffer.of(7, 0, 0, 0, 1, 1), // flags that gRPC reserves
    Buffer.concat([Buffer.of(0), uint32(2 ** 26 + 1)]), // larger than a message may be
    Buffer.concat([Buffer.of(0), uint32(9), Buffer.alloc(4)]), // half of a message
    Buffer.of(0, 0),
  ),
);
/** Messages, cut into frames anywhere. */
const bodies = fc
  .record({ messages: fc.array(message, { maxLength: 3 }), cuts: fc.array(fc.nat(9_000), { maxLength: 4 }) })
  .map(({ messages, cuts }) => {
    const bytes = Buffer.concat(messages);
    const places = [0, ...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b), bytes.length];
    return places.slice(1).map((to, i) => data(bytes.subarray(places[i], to)));
  });

const ends: fc.Arbitrary<Pick<Script, "frames" | "closing">> = fc.oneof(
  { weight: 8, arbitrary: trailers.map((fields) => ({ frames: [head(fields, END)], closing: "none" as const })) },
  fc.constant({ frames: [head({ "x-nothing": "said" }, END)], closing: "none" as const }),
  fc.constant({ frames: [head({ "grpc-status": "0" })], closing: "none" as const }),
  fc.constant({ frames: [head({ ":status": "200", "grpc-status": "0" }, END)], closing: "none" as const }),
  fc.constant({ frames: [data(Buffer.alloc(0), FLAG.endStream)], closing: "none" as const }),
  fc
    .integer({ min: 0, max: 14 })
    .map((code) => ({ frames: [frame(FRAME.reset, 0, STREAM, uint32(code))], closing: "none" as const })),
  fc.constantFrom(0, 2, 7, 11).map((code) => ({
    frames: [frame(FRAME.goaway, 0, 0, Buffer.concat([uint32(0), uint32(code)]))],
    closing: "none" as const,
  })),
  fc.constant({ frames: [], closing: "end" as const }),
  fc.constant({ frames: [], closing: "reset" as const }),
  fc.constant({ frames: [], closing: "none" as const }),
);

const scripts: fc.Arbitrary<Script> = fc.oneof(
  {
    weight: 30,
    arbitrary: fc
      .tuple(heads, bodies, ends)
      .map(([first, body, last]) => ({ frames: [...first, ...body, ...last.frames], closing: last.closing })),
  },
  fc.constantFrom<Script>(
    { frames: [], closing: "end", hello: "nothing" },
    { frames: [], closing: "none", hello: "HTTP/1.1" },
  ),
);

/** The three forms of a call. Each ends with the server's word, or when the signal says so. */
const FORMS: Readonly<Record<string, (client: GrpcClient, signal: AbortSignal) => Promise<Outcome>>> = {
  async unary(client, signal) {
    try {
      return {
        messages: [digest(await client.unary(exchange(signal), frameMessage(Buffer.alloc(9))))],
        failure: undefined,
      };
    } catch (thrown) {
      return { messages: [], failure: nameOf(thrown as UpstreamFailure) };
    }
  },
  async stream(client, signal) {
    const messages: string[] = [];
    try {
      const ask = async () => frameMessage(Buffer.alloc(9));
      for await (const part of client.stream(exchange(signal), ask, digest)) messages.push(part);
      return { messages, failure: undefined };
    } catch (thrown) {
      return { messages, failure: nameOf(thrown as UpstreamFailure) };
    }
  },
  duplex(client, signal) {
    const messages: string[] = [];
    return new Promise((resolve) => {
      const events = {
        message: (bytes: Buffer) => void messages.push(digest(bytes)),
        ended: (failure: UpstreamFailure | undefined) => resolve({ messages, failure: failure && nameOf(failure) }),
        idle: () => undefined,
      };
      const duplex = client.duplex("/a/b", events);
      duplex.send(frameMessage(Buffer.alloc(9)));
      signal.addEventListener("abort", () => {
        duplex.cancel();
        resolve({ messages, failure: "TIMEOUT" });
      });
    });
  },
};

const exchange = (signal: AbortSignal) => ({ path: "/a/b", signal, budgetMs: 10_000, requestId: "req_1" });
const digest = (bytes: Buffer): string => `${bytes.length} of ${bytes[0]}`;

/** Whether nothing that the server said ends the call: a caller has to call it off. */
const SILENT = Symbol("silent");

async function outcomeOf(open: GrpcClientFactory, form: string, script: Script): Promise<Outcome> {
  const answered = Promise.withResolvers<void>();
  const answer = (heard: Heard): void => {
    heard.send(...script.frames, frame(FRAME.ping, 0, 0, Buffer.alloc(8)));
    if (script.closing === "end") heard.socket.end();
    if (script.closing === "reset") heard.socket.resetAndDestroy();
  };
  const server = await startBareServer((heard, { type, flags, stream }, index) => {
    if (index === 0 && script.hello === undefined) heard.send(SERVER_HELLO);
    if (index === 0 && script.hello === "nothing") heard.socket.end();
    if (index === 0 && script.hello === "HTTP/1.1") heard.send(Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n"));
    if (type === FRAME.data && stream === STREAM && script.hello === undefined) answer(heard);
    // It has read all that was said before, and said nothing itself: nothing more will come of it.
    if (type === FRAME.ping && (flags & FLAG.ack) === 1) answered.resolve();
  });
  const client = open({ url: server.url, lookup, authorization: undefined });
  const caller = new AbortController();
  try {
    const call = FORMS[form]!(client, caller.signal);
    const first = await Promise.race([call, answered.promise.then((): typeof SILENT => SILENT)]);
    if (first !== SILENT) return first;
    // What ends the call is told in the turns that follow; a call that is still open then waits for more.
    const late = await Promise.race([call, turns(20).then((): typeof SILENT => SILENT)]);
    if (late !== SILENT) return late;
    caller.abort();
    return await call;
  } finally {
    client.close();
    await server.close();
  }
}

async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
}

it.each(Object.keys(FORMS))("a %s call comes to the same with both clients, whatever a server says", async (form) => {
  await fc.assert(
    fc.asyncProperty(scripts, async (script) => {
      const [plain, fast] = await Promise.all([
        outcomeOf(openHttp2Grpc, form, script),
        outcomeOf(openFastGrpc, form, script),
      ]);
      expect(fast).toEqual(plain);
    }),
    { numRuns: 200 },
  );
});

it("holds the two to more than failures: an answer comes through both", async () => {
  const frames = [OK_HEAD, data(frameMessage(Buffer.from("abc"))), head({ "grpc-status": "0" }, END)];
  for (const open of [openHttp2Grpc, openFastGrpc])
    expect(await outcomeOf(open, "unary", { frames, closing: "none" })).toEqual({
      messages: ["3 of 97"],
      failure: undefined,
    });
});
