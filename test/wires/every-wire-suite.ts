/** What every wire promises about what it is asked, be it to act, to predict or to find, whatever the server does. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { AttemptFailure, UpstreamFailure } from "../../src/contracts/contract.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { type ActServer, ODDITIES } from "../support/act-server.ts";
import { MISBEHAVIOURS, startBadUpstream } from "../support/bad-upstream.ts";
import { eventually } from "../support/eventually.ts";
import { callWith, failureIn, nameOf, observed, targetAt } from "../support/wire-calls.ts";
import type { EveryWire } from "./every-wire.ts";

const STEPS = [
  [0.5, -0.25],
  [1.5, -0.75],
];

/** Runs the suite over these wires. */
export function suiteOver(rows: readonly EveryWire[]): void {
  describe.each(rows)("$contract over $id", (row) => {
    const { id, scheme, start, told } = row;
    let upstream: Upstream;
    let wire: Wire;
    let server: ActServer;

    beforeEach(async () => {
      upstream = createUpstream({ allowPrivate: true });
      wire = upstream.wireOf(id)!;
      server = await start();
    });
    afterEach(async () => {
      await upstream.close();
      await server.close();
    });

    const act = (more = {}, signal?: AbortSignal, endpoint = server.endpoint) =>
      row.ask(wire, target(endpoint), more, signal);
    const target = (endpoint = server.endpoint, more = {}) => targetAt(endpoint, { ...told, ...more });
    const received = (count: number) => eventually(() => expect(server.acts).toHaveLength(count));

    it("sends the observation to the server and returns the server's numbers", async () => {
      server.behave({ kind: "steps", steps: STEPS });
      const answer = await act({ observations: [observed({ proprio: [9] }), observed({ proprio: [1, 2, 3] })] });
      expect(answer.rows).toEqual(STEPS);
      expect(answer.gpuSeconds).toBe(row.gpuSeconds);
      expect(server.acts).toMatchObject([{ instruction: "go on", proprio: row.contract === "act" ? [1, 2, 3] : [] }]);
    });

    it("reuses one connection over many acts", async () => {
      server.behave({ kind: "steps", steps: STEPS });
      for (let i = 0; i < 5; i++) expect((await act()).rows).toEqual(STEPS);
      expect(server.counts.connections).toBeLessThanOrEqual(row.connections);
    });

    it("matches each of many concurrent acts with its own answer", async () => {
      const answers = Array.from({ length: 20 }, (_, i) => [[i, i + 0.5]]);
      server.behave(
        ...(answers.map((steps) => ({ kind: "steps", steps }) as const) as [{ kind: "steps"; steps: number[][] }]),
      );
      const acts = answers.map((_, i) => act({ horizon: 1, instruction: `call ${i}` }));
      const rows = (await Promise.all(acts)).map((answer) => answer.rows[0]);
      const asked = server.acts.map(({ instruction }) => Number(instruction.slice(5)));
      expect(new Set(asked).size).toBe(20);
      for (const [order, call] of asked.entries()) expect(rows[call]).toEqual(answers[order]?.[0]);
    });

    it("sends the offering's credential, and no other header of the gateway's except the agent", async () => {
      server.behave({ kind: "steps", steps: STEPS });
      const auth = { type: "api_key", secret: "sk-123" } as const;
      await row.ask(wire, target(server.endpoint, { auth }));
      const bearer = { ...auth, type: "bearer" } as const;
      await row.ask(wire, target(server.endpoint, { auth: bearer }));
      await act();
      const seen = server.acts.map(({ headers }) => headers.authorization);
      expect(seen).toEqual(row.shows);
      if (row.namesAgent) expect(server.acts[0]?.headers["user-agent"]).toBe("limber");
    });

    it.runIf(row.contract === "act")(
      "passes on what only the contract can check: a wrong dimension and non-finite numbers",
      async () => {
        const odd = [
          [1, 2, 3],
          [Number.NaN, Number.POSITIVE_INFINITY, 0],
        ];
        const carried = row.carriesNaN
          ? odd
          : odd.map((step) => step.map((value) => (Number.isFinite(value) ? value : 0)));
        server.behave({ kind: "steps", steps: carried });
        expect((await act()).rows).toEqual(carried);
      },
    );

    it.each([
      ["reset", ["CONNECTION_LOST"]],
      ["truncated", ["CONNECTION_LOST"]],
      ["oversized", ["ANSWER_TOO_LARGE"]],
      ["garbage", ["MALFORMED_ANSWER"]],
    ] as const)("fails on an answer that is %s, and the next act gets a right one", async (kind, names) => {
      server.behave({ kind }, { kind: "steps", steps: STEPS });
      expect(names).toContain(nameOf(await failureIn(act())));
      expect((await act()).rows).toEqual(STEPS);
    });

    it.each(ODDITIES)(
      "fails on an odd answer, %s, with the gateway's own text, and the next act gets a right one",
      async (kind) => {
        server.behave({ kind }, { kind: "steps", steps: STEPS });
        const failure = await failureIn(act());
        expect(row.odd ?? ["MALFORMED_ANSWER", "UPSTREAM_ERROR", "CONNECTION_LOST", "ANSWER_TOO_LARGE"]).toContain(
          nameOf(failure),
        );
        expect(failure.message).not.toMatch(/html.{20}/);
        expect((await act()).rows).toEqual(STEPS);
      },
    );

    it("quotes only the last line of a server's error, at most 200 characters, and the next act works", async () => {
      const text = `Traceback (most recent call last):\n  File "/srv/secret/key.py", token=hunter2\nValueError: \u001b[31m${"x".repeat(500)}\n`;
      server.behave({ kind: "error", text }, { kind: "steps", steps: STEPS });
      const failure = await failureIn(act());
      expect(nameOf(failure)).toBe("UPSTREAM_ERROR");
      expect(failure.message).not.toContain("hunter2");
      expect(failure.message).toMatch(row.says);
      expect(failure.message.length).toBeLessThanOrEqual(200);
      expect((await act()).rows).toEqual(STEPS);
    });

    it("ends at once when canceled, notifies the server by the protocol, and the next act works", async () => {
      server.behave({ kind: "silence" }, { kind: "steps", steps: STEPS });
      const caller = new AbortController();
      const call = failureIn(act({}, caller.signal));
      await received(1);
      caller.abort();
      expect(nameOf(await call)).toBe("TIMEOUT");
      await eventually(() => expect(server.counts.cancelled).toBe(1));
      expect((await act()).rows).toEqual(STEPS);
    });

    it("ends with the failure of the caller's signal if it has one", async () => {
      const caller = new AbortController();
      const call = failureIn(act({}, caller.signal));
      await received(1);
      caller.abort(new UpstreamFailure(AttemptFailure.DEADLINE, "out of time"));
      expect(nameOf(await call)).toBe("DEADLINE");
    });

    it("sends nothing for a call that is canceled before it starts", async () => {
      expect(nameOf(await failureIn(act({}, AbortSignal.abort())))).toBe("TIMEOUT");
      expect(server.counts.connections).toBe(0);
    });

    it("never matches an earlier act's answer with a later act", async () => {
      const { promise: later, resolve: answerNow } = Promise.withResolvers<void>();
      server.behave({ kind: "later", steps: [[7, 7]], after: later }, { kind: "steps", steps: [[8, 8]] });
      const caller = new AbortController();
      const first = failureIn(act({ horizon: 1 }, caller.signal));
      await received(1);
      caller.abort();
      await first;
      const second = act({ horizon: 1 });
      answerNow();
      expect((await second).rows).toEqual([[8, 8]]);
      server.behave({ kind: "steps", steps: [[9, 9]] });
      expect((await act({ horizon: 1 })).rows).toEqual([[9, 9]]);
    });

    it("never matches a second answer to one act with the next act", async () => {
      server.behave({ kind: "twice", steps: STEPS }, { kind: "steps", steps: [[5, 5]] });
      expect((await act()).rows).toEqual(STEPS);
      expect((await act({ horizon: 1 })).rows).toEqual([[5, 5]]);
    });

    it("continues after a server restart between two acts", async () => {
      server.behave({ kind: "steps", steps: STEPS });
      await act();
      await server.restart();
      expect((await act()).rows).toEqual(STEPS);
      expect(server.counts.connections).toBeGreaterThan(1);
    });

    it("fails each running act exactly once when the server exits", async () => {
      const calls = Array.from({ length: row.atOnce }, () => failureIn(act()));
      await received(row.atOnce);
      await server.restart();
      for (const call of calls) expect(nameOf(await call)).toBe("CONNECTION_LOST");
    });

    it("finds a server that starts late: unreachable before, served after", async () => {
      await server.close();
      expect(nameOf(await failureIn(act()))).toBe("UNREACHABLE");
      await server.restart();
      server.behave({ kind: "steps", steps: STEPS });
      const rows = await eventually(async () => (await act()).rows);
      expect(rows).toEqual(STEPS);
    });

    it.each([
      ["silence", ["TIMEOUT"]],
      ["reset", ["CONNECTION_LOST", "UNREACHABLE"]],
      ["garbage", ["MALFORMED_ANSWER"]],
      ["html", ["MALFORMED_ANSWER", "UPSTREAM_ERROR"]],
      ["hangUp", ["CONNECTION_LOST", "UNREACHABLE"]],
    ] as const)("fails on a listener that offers %s, and quotes none of it in the failure", async (kind, names) => {
      const bad = await startBadUpstream(MISBEHAVIOURS[kind]);
      const caller = new AbortController();
      const call = failureIn(act({}, caller.signal, `${scheme}://127.0.0.1:${bad.port}`));
      await eventually(() => expect(bad.connections()).toBeGreaterThan(0));
      if (kind === "silence") caller.abort();
      const failure = await call;
      expect(names).toContain(nameOf(failure));
      expect(failure.message).not.toContain("hunter2");
      await bad.close();
    });

    it.each(["169.254.169.254", "[fd00:ec2::254]", "0.0.0.0:1", "localhost:22"])("never calls %s", async (host) => {
      const failure = await failureIn(act({}, undefined, `${scheme}://${host}`));
      expect(nameOf(failure)).toBe("UNREACHABLE");
      expect(failure.message).toMatch(/^the address is refused: \w+$/);
    });

    it("never calls loopback, by address or by name, unless private addresses are allowed", async () => {
      const guarded = createUpstream({ allowPrivate: false });
      const strict = guarded.wireOf(id)!;
      const port = new URL(server.endpoint).port;
      for (const host of ["127.0.0.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]"]) {
        const call = row.ask(strict, target(`${scheme}://${host}:${port}`));
        expect(nameOf(await failureIn(call))).toBe("UNREACHABLE");
      }
      expect(server.counts.connections).toBe(0);
      await guarded.close();
    });

    it("refuses addresses of another scheme", async () => {
      const call = act({}, undefined, server.endpoint.replace(scheme, "gopher"));
      expect((await failureIn(call)).message).toBe("the address is refused: scheme_not_allowed");
    });

    it("reports the server as healthy if it answers, and not after it exits", async () => {
      await wire.health(target(), callWith());
      await server.close();
      expect(nameOf(await failureIn(wire.health(target(), callWith())))).toMatch(/UNREACHABLE|CONNECTION/);
      await server.restart();
    });

    it("fails the running acts when closed", async () => {
      const call = failureIn(act());
      await received(1);
      await upstream.close();
      expect(nameOf(await call)).toBe("CONNECTION_LOST");
    });
  });
}
