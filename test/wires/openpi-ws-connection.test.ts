/** How the openpi wire holds its connections, and what it asks for health. */
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { WebSocketServer } from "ws";
import { startBadUpstream } from "../support/bad-upstream.ts";
import { setClock } from "../support/clocks.ts";
import { eventually } from "../support/eventually.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { plainAnswer, startOpenpiServer } from "../support/openpi-server.ts";
import { actInput, callWith, failureIn, nameOf, rowsOf, targetAt } from "../support/wire-calls.ts";
import { selfSigned } from "../support/wire-client.ts";
import { act, begin, end, NO_FRAMES, received, STEPS, serve, server, upstream, wire } from "./openpi-ws-server.ts";

beforeEach(begin);
afterEach(end);

describe("an openpi upgrade", () => {
  it.each([
    [401, "UPSTREAM_AUTH"],
    [403, "UPSTREAM_AUTH"],
    [404, "UPSTREAM_ERROR"],
    [429, "UPSTREAM_BUSY"],
    [500, "UPSTREAM_ERROR"],
    [502, "UNREACHABLE"],
    [503, "UPSTREAM_BUSY"],
  ])("refused with %i fails with %s and quotes nothing of the answer", async (refuse, name) => {
    await serve({ refuse });
    const failure = await failureIn(act());
    expect(nameOf(failure)).toBe(name);
    expect(failure.message).toBe(`answered HTTP ${refuse}`);
  });

  it("does not follow redirects", async () => {
    const other = await startOpenpiServer();
    await serve({ refuse: 302, location: other.endpoint });
    expect(nameOf(await failureIn(act()))).toBe("UPSTREAM_ERROR");
    expect(other.counts.connections).toBe(0);
    await other.close();
  });

  it("offers no compression", async () => {
    await serve();
    await act();
    expect(server.acts[0]?.headers["sec-websocket-extensions"]).toBeUndefined();
  });

  it("with TLS requires a trusted certificate", async () => {
    const { key, cert } = selfSigned();
    const https = createServer({ key, cert }, (_, response) => response.end("OK\n"));
    new WebSocketServer({ server: https }).on("connection", (client) => {
      client.send(Buffer.from([0x80]));
      client.on("message", () => client.send(plainAnswer(STEPS)));
    });
    await new Promise<void>((resolve) => https.listen(0, "127.0.0.1", resolve));
    const target = targetAt(`wss://localhost:${(https.address() as AddressInfo).port}`);
    expect(nameOf(await failureIn(wire.act(target, actInput(), NO_FRAMES, callWith())))).toBe("UNREACHABLE");
    expect(nameOf(await failureIn(wire.health(target, callWith())))).toBe("UNREACHABLE");

    const before = getCACertificates("default");
    setDefaultCACertificates([...before, cert]);
    expect(rowsOf(await wire.act(target, actInput(), NO_FRAMES, callWith()))).toEqual(STEPS);
    await wire.health(target, callWith());
    setDefaultCACertificates(before);
    await upstream.close();
    https.closeAllConnections();
    await new Promise((resolve) => https.close(resolve));
  });
});

describe("the connections to one openpi server", () => {
  beforeEach(() => serve());

  it("number one per session, on which its acts take turns", async () => {
    const first = Promise.withResolvers<void>();
    server.behave({ kind: "later", steps: STEPS, after: first.promise }, { kind: "steps", steps: STEPS });
    const a1 = act({ sessionId: "a" });
    await received(1);
    const a2 = act({ sessionId: "a" });
    await act({ sessionId: "b" });
    expect(server.acts).toHaveLength(2);
    expect(server.counts.connections).toBe(2);
    first.resolve();
    await Promise.all([a1, a2]);
    expect(server.acts).toHaveLength(3);
    expect(server.counts.connections).toBe(2);
  });

  it("number one per episode of a session if the server does not support resets", async () => {
    for (const episode of [undefined, undefined, "a-2", "a-2", "a-3"]) await act({ sessionId: "a", episode });
    expect(server.counts.connections).toBe(3);
    await eventually(() => expect(server.open()).toBe(1));
  });

  it("number at most eight for acts without a session, which queue in order", async () => {
    server.behave({ kind: "silence" });
    const held = Array.from({ length: 8 }, () => new AbortController());
    const calls = held.map(({ signal }) => failureIn(act({}, signal)));
    await received(8);
    server.behave({ kind: "steps", steps: STEPS });
    const served: string[] = [];
    const waiting = ["first", "second"].map((name) => act({ instruction: name }).then(() => served.push(name)));
    await Promise.resolve();
    expect(server.acts).toHaveLength(8);
    held[3]?.abort();
    await Promise.all(waiting);
    expect(served).toEqual(["first", "second"]);
    for (const caller of held) caller.abort();
    await Promise.all(calls);
  });

  it("keep no place for a call that is canceled while it waits", async () => {
    server.behave({ kind: "silence" });
    const holder = new AbortController();
    const held = failureIn(act({ sessionId: "a" }, holder.signal));
    await received(1);
    const caller = new AbortController();
    const waiting = failureIn(act({ sessionId: "a", instruction: "too late" }, caller.signal));
    await eventually(() => expect(server.acts).toHaveLength(1));
    caller.abort();
    expect(nameOf(await waiting)).toBe("TIMEOUT");
    holder.abort();
    await held;
    server.behave({ kind: "steps", steps: STEPS });
    await act({ sessionId: "a" });
    expect(server.acts.map(({ instruction }) => instruction)).toEqual(["go on", "go on"]);
  });

  it("refuse more than 256 waiting calls", async () => {
    server.behave({ kind: "silence" });
    const caller = new AbortController();
    const calls = Array.from({ length: 1 + 256 }, () => failureIn(act({ sessionId: "a" }, caller.signal)));
    await received(1);
    expect(nameOf(await failureIn(act({ sessionId: "a" })))).toBe("UPSTREAM_BUSY");
    caller.abort();
    expect(new Set((await Promise.all(calls)).map(nameOf))).toEqual(new Set(["TIMEOUT"]));
  });

  it("make space for a new session by closing the least recently used one", async () => {
    setClock(new ManualClock()); // none has been idle for long
    for (let i = 0; i < 258; i++) await act({ sessionId: `s${i}` });
    expect(server.counts.connections).toBe(258);
    await act({ sessionId: "s257" });
    await act({ sessionId: "s2" });
    expect(server.counts.connections).toBe(258);
    await act({ sessionId: "s0" });
    expect(server.counts.connections).toBe(259);
  });

  it("are closed after 25 seconds without an act, before servers do it", async () => {
    const clock = new ManualClock();
    setClock(clock);
    await act();
    await clock.advance(24_999);
    await act();
    expect(server.counts.connections).toBe(1);
    await clock.advance(25_000);
    await expect.poll(() => clock.pending).toBe(0);
    await act();
    expect(server.counts.connections).toBe(2);
  });
});

describe("the health of an openpi server", () => {
  const health = () => wire.health(targetAt(server.endpoint, { auth: { type: "bearer", secret: "sk" } }), callWith());

  it("is queried at /healthz with the credential, and is good at 200, and at 426 of dialects without that route", async () => {
    await serve();
    await health();
    await server.close();
    await serve({ health: 426 });
    await health();
    expect(new Set(server.healthChecks.map(({ authorization }) => authorization))).toEqual(new Set(["Bearer sk"]));
  });

  it.each([
    [500, "UPSTREAM_ERROR"],
    [401, "UPSTREAM_AUTH"],
    [302, "UPSTREAM_ERROR"],
  ])("is bad at %i: %s", async (status, name) => {
    await serve({ health: status });
    expect(nameOf(await failureIn(health()))).toBe(name);
  });

  it("is awaited as long as the caller waits, because a server cannot answer during inference", async () => {
    const busy = await startBadUpstream(() => undefined);
    const caller = new AbortController();
    const call = failureIn(wire.health(targetAt(`ws://127.0.0.1:${busy.port}`), callWith(caller.signal)));
    await eventually(() => expect(busy.connections()).toBe(1));
    caller.abort();
    expect(nameOf(await call)).toBe("TIMEOUT");
    await busy.close();
    await serve();
  });
});
