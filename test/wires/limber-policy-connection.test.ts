/** How the native wire holds its connections, and the one stream that all acts share. */
import { createSecureServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { fromBinary } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ActRequestSchema } from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { createUpstream } from "../../src/upstream/index.ts";
import { startBadUpstream, startCable } from "../support/bad-upstream.ts";
import { setAmbient } from "../support/clocks.ts";
import { eventually } from "../support/eventually.ts";
import { ManualClock, settle } from "../support/manual-clock.ts";
import { response, startPolicyServer } from "../support/policy-server.ts";
import { actInput, callWith, failureIn, framesOf, nameOf, observed, rowsOf, targetAt } from "../support/wire-calls.ts";
import { selfSigned } from "../support/wire-client.ts";
import { act, begin, end, ground, png, STEPS, serve, server, upstream, wire } from "./limber-policy-server.ts";

beforeEach(begin);
afterEach(end);

describe("the act stream of the limber-policy wire", () => {
  it("carries all acts, on a connection of its own beside predictions", async () => {
    let streams = 0;
    await serve({
      Act: (served) => {
        streams++;
        let answered = 0;
        served.stream.on("grpc-message", () => {
          while (answered < served.messages.length) {
            const { callId } = fromBinary(ActRequestSchema, served.messages[answered++]!);
            served.send(response(callId, { case: "chunk", value: { steps: [{ values: [callId] }] } }));
          }
        });
      },
    });
    const answers = await Promise.all(Array.from({ length: 50 }, () => act({ horizon: 1 })));
    expect(answers.map((answer) => rowsOf(answer)[0]?.[0])).toEqual(answers.map((_, i) => i + 1));
    await wire.health(targetAt(server.endpoint), callWith());
    expect(streams).toBe(1);
    expect(server.counts.connections).toBe(2);
  });

  it("accepts answers in any order, each for its own call", async () => {
    const first = Promise.withResolvers<void>();
    await serve();
    server.behave({ kind: "later", steps: [[1, 1]], after: first.promise }, { kind: "steps", steps: [[2, 2]] });
    const slow = act({ horizon: 1 });
    await eventually(() => expect(server.acts).toHaveLength(1));
    expect(rowsOf(await act({ horizon: 1 }))).toEqual([[2, 2]]);
    first.resolve();
    expect(rowsOf(await slow)).toEqual([[1, 1]]);
  });

  it("continues after one call fails", async () => {
    await serve();
    server.behave({ kind: "error", text: "no" }, { kind: "steps", steps: STEPS });
    await failureIn(act());
    await act();
    expect(server.counts.connections).toBe(1);
  });

  it.each([0, 999])(
    "is closed with all its calls if the server answers call %i, which does not exist",
    async (callId) => {
      await serve({
        Act: ({ stream, send }) => void stream.once("grpc-message", () => send(response(callId, undefined))),
      });
      const calls = [failureIn(act()), failureIn(act())];
      for (const call of calls) expect(nameOf(await call)).toBe("MALFORMED_ANSWER");
    },
  );

  it("fails its calls with the status that it ends with, and the next call opens another", async () => {
    let streams = 0;
    await serve({
      Act: ({ stream, end }) => {
        streams++;
        stream.once("grpc-message", () => end(8, "full"));
      },
    });
    expect(nameOf(await failureIn(act()))).toBe("UPSTREAM_BUSY");
    expect(nameOf(await failureIn(act()))).toBe("UPSTREAM_BUSY");
    expect(streams).toBe(2);
  });

  it("carries at most 4096 waiting acts, and as many again once those have ended", async () => {
    await serve({ Act: () => {} });
    const caller = new AbortController();
    const waiting = Array.from({ length: 4096 }, () => failureIn(act({ horizon: 1 }, caller.signal)));
    expect(nameOf(await failureIn(act({ horizon: 1 })))).toBe("UPSTREAM_BUSY");
    const other = await startPolicyServer({});
    other.behave({ kind: "steps", steps: STEPS });
    expect(rowsOf(await act({ horizon: 2 }, undefined, other.endpoint))).toEqual(STEPS);
    await other.close();
    caller.abort();
    await Promise.all(waiting);
    const next = new AbortController();
    const again = failureIn(act({ horizon: 1 }, next.signal));
    next.abort();
    expect(nameOf(await again)).not.toBe("UPSTREAM_BUSY");
  });

  it("drains on the server's GOAWAY: running calls are answered, and new ones use a new connection", async () => {
    const { promise: later, resolve } = Promise.withResolvers<void>();
    await serve();
    server.behave({ kind: "later", steps: [[1, 1]], after: later }, { kind: "steps", steps: [[2, 2]] });
    const before = act({ horizon: 1 });
    await eventually(() => expect(server.acts).toHaveLength(1));
    await server.goAway();
    expect(rowsOf(await act({ horizon: 1 }))).toEqual([[2, 2]]);
    expect(server.counts.connections).toBe(2);
    resolve();
    expect(rowsOf(await before)).toEqual([[1, 1]]);
  });

  it("sends at most 64 MiB to a server that does not read", async () => {
    await serve({ Act: ({ stream }) => void stream.pause() });
    const picture = Buffer.concat([await png(1), Buffer.alloc(15 * 2 ** 20)]);
    const observation = observed({ frames: [{ data: picture }] });
    const caller = new AbortController();
    const calls = Array.from({ length: 8 }, () => {
      const input = actInput({ observations: [observation] });
      return failureIn(wire.act(targetAt(server.endpoint), input, framesOf(observation), callWith(caller.signal)));
    });
    expect(nameOf(await Promise.race(calls))).toBe("UPSTREAM_BUSY");
    caller.abort();
    const names = (await Promise.all(calls)).map(nameOf);
    expect(new Set(names)).toEqual(new Set(["UPSTREAM_BUSY", "TIMEOUT"]));
  });
});

describe("a connection of the limber-policy wire", () => {
  it("carries at most 1024 other calls at once, and as many again once those have ended", async () => {
    await serve({ Ground: () => {} });
    const caller = new AbortController();
    const waiting = Array.from({ length: 1024 }, () => failureIn(ground(caller.signal)));
    expect(nameOf(await failureIn(ground()))).toBe("UPSTREAM_BUSY");
    caller.abort();
    await Promise.all(waiting);
    const next = new AbortController();
    const again = failureIn(ground(next.signal));
    next.abort();
    expect(nameOf(await again)).not.toBe("UPSTREAM_BUSY");
  });

  it("that is silent is closed after a call times out on it, and the next call opens another", async () => {
    await serve();
    server.behave({ kind: "steps", steps: STEPS });
    const cable = await startCable(Number(new URL(server.endpoint).port));
    const endpoint = `grpc://127.0.0.1:${cable.port}`;
    await act({}, undefined, endpoint);

    const clock = new ManualClock();
    const restore = setAmbient({ clock });
    cable.pull();
    const caller = new AbortController();
    const call = failureIn(act({}, caller.signal, endpoint));
    await settle(); // it's on its way
    caller.abort();
    expect(nameOf(await call)).toBe("TIMEOUT");
    const waiting = failureIn(act({}, undefined, endpoint));
    await clock.advance(10_000);
    expect(nameOf(await waiting)).toBe("CONNECTION_LOST");
    expect(rowsOf(await act({}, undefined, endpoint))).toEqual(STEPS);
    restore();
    await upstream.close();
    await cable.close();
  });

  it("that is alive is kept after a call times out on it", async () => {
    await serve();
    server.behave({ kind: "steps", steps: STEPS }, { kind: "silence" }, { kind: "steps", steps: STEPS });
    const clock = new ManualClock();
    const restore = setAmbient({ clock });
    await act(); // the connection is ready
    const caller = new AbortController();
    const call = failureIn(act({}, caller.signal));
    await eventually(() => expect(server.acts).toHaveLength(2));
    const timers = clock.pending;
    caller.abort();
    await call;
    await eventually(() => expect(clock.pending).toBe(timers)); // the proof of life has come
    await clock.advance(60_000);
    await act();
    expect(server.counts.connections).toBe(1);
    restore();
  });

  it("is closed after five minutes without a call, and reopened for the next one", async () => {
    const clock = new ManualClock();
    const restore = setAmbient({ clock });
    let gone = 0;
    await serve();
    server.behave({ kind: "steps", steps: STEPS });
    server.onDisconnect(() => {
      gone++;
    });
    await act();
    await wire.health(targetAt(server.endpoint), callWith());
    await clock.advance(299_999);
    await act();
    await clock.advance(1);
    await eventually(() => expect(gone).toBe(1)); // the one that has had no call since
    await clock.advance(299_999);
    await eventually(() => expect(gone).toBe(2));
    await eventually(() => expect(clock.pending).toBe(0)); // the server notices the end before the client
    await act();
    expect(server.counts.connections).toBe(3);
    restore();
  });

  it("that fails to open is not retried at once, and calls fail meanwhile without waiting", async () => {
    const clock = new ManualClock();
    const restore = setAmbient({ clock, random: () => 0.5 });
    const bad = await startBadUpstream((socket) => socket.resetAndDestroy());
    await serve();
    const endpoint = `grpc://127.0.0.1:${bad.port}`;
    const attempts: number[] = [];
    for (let second = 0; second < 8; second++) {
      for (let i = 0; i < 5; i++) await failureIn(act({}, undefined, endpoint));
      attempts.push(bad.connections());
      await clock.advance(50);
    }
    // 19, 38, 75 and 150 ms of waiting, with this chance: a try at 0, 50, 100, 200 and 350 ms.
    expect(attempts).toEqual([1, 2, 3, 3, 4, 4, 4, 5]);
    restore();
    await bad.close();
  });

  it("that does not open within ten seconds is given up", async () => {
    const clock = new ManualClock();
    const restore = setAmbient({ clock });
    const bad = await startBadUpstream(() => undefined);
    await serve();
    const call = failureIn(act({}, undefined, `grpc://127.0.0.1:${bad.port}`));
    await eventually(() => expect(bad.connections()).toBe(1));
    await clock.advance(10_000);
    expect(nameOf(await call)).toBe("UNREACHABLE");
    restore();
    await bad.close();
  });

  it("with TLS requires a trusted certificate", async () => {
    const { key, cert } = selfSigned();
    const secure = createSecureServer({ key, cert }).on("stream", (stream) => {
      stream.respond({ ":status": 200, "content-type": "application/grpc", "grpc-status": "8" }, { endStream: true });
    });
    await new Promise<void>((resolve) => secure.listen(0, "127.0.0.1", resolve));
    const target = targetAt(`grpcs://localhost:${(secure.address() as AddressInfo).port}`);
    await serve();
    expect(nameOf(await failureIn(wire.health(target, callWith())))).toBe("UNREACHABLE");

    const before = getCACertificates("default");
    setDefaultCACertificates([...before, cert]);
    const trusting = createUpstream({ allowPrivate: true });
    expect(nameOf(await failureIn(trusting.native.health(target, callWith())))).toBe("UPSTREAM_BUSY");
    setDefaultCACertificates(before);
    await trusting.close();
    await upstream.close();
    await new Promise((resolve) => secure.close(resolve));
  });
});
