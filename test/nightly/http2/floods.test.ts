/** Clients that ask for more than they take: what is refused, reset or left unread is charged to the connection that asked for it. */
import { connect } from "node:http2";
import { afterEach, describe, expect, it, onTestFinished } from "vitest";
import type { PortOptions } from "../../../src/edge/server/port.ts";
import { Reason, refuse } from "../../../src/errors.ts";
import { KEY, openForTest, type TestGateway } from "../../edge/gateway.ts";
import { ACT, CHUNK, envelope, outcomeOf, REQUEST } from "../../edge/grpc-caller.ts";
import { saying } from "../../edge/port-caller.ts";
import { replaceAmbient } from "../../support/ambient.ts";
import { eventually } from "../../support/eventually.ts";
import { ALL_FAST } from "../../support/fast.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { FLAG, FRAME, fieldBlock, frame, framesIn, goawayIn, HELLO, uint32 } from "../../support/wire-client.ts";

const CALM = 11;
const END = FLAG.endHeaders | FLAG.endStream;
const fieldsOf = (path: string, type: string, more: Record<string, string>) =>
  fieldBlock({ ":method": "POST", ":scheme": "http", ":path": path, ":authority": "a", "content-type": type, ...more });
const times = (count: number, make: (stream: number) => Buffer): Buffer =>
  Buffer.concat(Array.from({ length: count }, (_, i) => make(2 * i + 1)));
const keyless = fieldsOf(ACT, "application/grpc", { te: "trailers" });
const keyed = fieldsOf(ACT, "application/grpc", { te: "trailers", authorization: `Bearer ${KEY}` });
const head = (stream: number, block = keyless, flags = END): Buffer => frame(FRAME.headers, flags, stream, block);
const reset = (stream: number): Buffer => frame(FRAME.reset, 0, stream, uint32(8));

const WAYS: readonly [string, string, Record<string, string>][] = [
  ["gRPC", ACT, { "content-type": "application/grpc", te: "trailers" }],
  ["Connect", ACT, { "content-type": "application/json" }],
  ["REST", "/v1/act", { "content-type": "application/json" }],
];

/** A gateway whose clock stands still, so that no budget fills. */
async function open(rpcs = {}, port: PortOptions = {}): Promise<TestGateway> {
  const gateway = await openForTest({ rpcs: { Act: () => CHUNK, ...rpcs }, port, fast: ALL_FAST });
  onTestFinished(replaceAmbient({ clock: new ManualClock() }));
  return gateway;
}

/** A client of good manners with a connection and a key of its own. */
async function goodClient(gateway: TestGateway): Promise<() => Promise<unknown>> {
  const session = connect(gateway.base);
  onTestFinished(() => session.destroy());
  return async () => {
    const headers = { ":method": "POST", ":path": ACT, "content-type": "application/grpc", te: "trailers" };
    const stream = session.request({ ...headers, authorization: `Bearer ${KEY}` });
    stream.end(envelope(REQUEST));
    return (await outcomeOf(stream)).status["grpc-status"];
  };
}

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const clean of cleanups.splice(0)) clean();
});

/** The most calls that were begun between two turns of the event loop. */
function mostInATurn(gateway: TestGateway): () => number {
  let seen = gateway.heads.length;
  let most = 0;
  let isOver = false;
  const look = (): void => {
    most = Math.max(most, gateway.heads.length - seen);
    seen = gateway.heads.length;
    if (!isOver) setImmediate(look);
  };
  setImmediate(look);
  cleanups.push(() => {
    isOver = true;
  });
  return () => most;
}

describe("a connection without a key", () => {
  it.each(WAYS)(
    "is cut off, a good client is served beside it, when it calls over %s without end",
    async (_, path, fields) => {
      const gateway = await open();
      const good = await goodClient(gateway);
      expect(await good()).toBe("0");
      const block = fieldsOf(path, fields["content-type"]!, fields);
      const wire = await saying(gateway.port, Buffer.concat([HELLO, times(20_000, (stream) => head(stream, block))]));
      let isOpen = true;
      const goaway = wire.closed.then(goawayIn).finally(() => {
        isOpen = false;
      });
      let served = 0;
      while (isOpen) {
        expect(await good()).toBe("0");
        served++;
      }
      expect(await goaway).toBe(CALM);
      expect(gateway.heads.length - served).toBeLessThan(1_500);
      expect(await good()).toBe("0");
    },
  );

  it("is cut off when it reads nothing of what it is told", async () => {
    const gateway = await open();
    const good = await goodClient(gateway);
    const wire = await saying(gateway.port, HELLO);
    wire.socket.pause();
    wire.send(times(50_000, head));
    await eventually(() => expect(gateway.heads.length).toBeGreaterThan(500));
    for (let i = 0; i < 20; i++) expect(await good()).toBe("0");
    expect(gateway.heads.length).toBeLessThan(1_500);
  });

  it.each<[string, number]>([
    ["whole", END],
    ["unfinished", FLAG.endHeaders],
  ])("is cut off when it resets calls as it begins them, %s", async (_, flags) => {
    const gateway = await open();
    const good = await goodClient(gateway);
    const flood = times(20_000, (stream) => Buffer.concat([head(stream, keyless, flags), reset(stream)]));
    const wire = await saying(gateway.port, Buffer.concat([HELLO, flood]));
    expect(await good()).toBe("0");
    expect(goawayIn(await wire.closed)).toBe(CALM);
    expect(gateway.heads.length).toBeLessThan(1_500);
  });

  it("may be refused for as long as it asks at a pace", async () => {
    const clock = new ManualClock();
    const gateway = await openForTest({ fast: ALL_FAST });
    onTestFinished(replaceAmbient({ clock }));
    const wire = await saying(gateway.port, Buffer.concat([HELLO, frame(FRAME.settings, FLAG.ack, 0)]));
    for (let second = 0; second < 30; second++) {
      wire.send(Buffer.concat(Array.from({ length: 100 }, (_, i) => head(200 * second + 2 * i + 1))));
      await eventually(() => expect(gateway.heads.length).toBe(100 * (second + 1)), { interval: 1 });
      await clock.advance(1_000);
    }
    expect(goawayIn(wire.received())).toBeUndefined();
  });
});

describe("a connection with a key", () => {
  it("has no more of its calls begun in a turn than others can wait for", async () => {
    const gateway = await open();
    const most = mostInATurn(gateway);
    const flood = times(900, (stream) =>
      Buffer.concat([
        head(stream, keyed, FLAG.endHeaders),
        frame(FRAME.data, FLAG.endStream, stream, envelope(REQUEST)),
      ]),
    );
    const wire = await saying(gateway.port, Buffer.concat([HELLO, flood]));
    await wire.until((bytes) =>
      framesIn(bytes).filter(({ flags, type }) => type === FRAME.headers && flags & FLAG.endStream).length === 900
        ? true
        : undefined,
    );
    expect(gateway.heads.length).toBe(900);
    // A read and the immediate behind it are one turn of the loop.
    expect(most()).toBeLessThanOrEqual(64);
  });

  it("is not read while it reads no answers, and then is", async () => {
    const text = "x".repeat(4_000);
    const gateway = await open({
      Act: () => {
        throw refuse(Reason.MODEL_NOT_FOUND, text);
      },
    });
    const wire = await saying(gateway.port, HELLO);
    wire.socket.pause();
    const calls = 9_000;
    wire.send(
      times(calls, (stream) =>
        Buffer.concat([
          head(stream, keyed, FLAG.endHeaders),
          frame(FRAME.data, FLAG.endStream, stream, envelope(REQUEST)),
        ]),
      ),
    );
    let seen = -1;
    await eventually(() => {
      const before = seen;
      seen = gateway.heads.length;
      expect(seen).toBeGreaterThan(100);
      expect(seen).toBe(before);
    });
    expect(seen).toBeLessThan(calls);
    wire.socket.resume();
    await eventually(() => expect(gateway.heads.length).toBe(calls));
  });
});
