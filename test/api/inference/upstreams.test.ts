/** Upstreams that misbehave: each a failed attempt with the gateway's own word for it, nothing of theirs in the answer, no harm done. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { ActServer, Behaviour } from "../../support/act-server.ts";
import type { App, Caller } from "../../support/app.ts";
import { MISBEHAVIOURS, startBadUpstream } from "../../support/bad-upstream.ts";
import { setClock } from "../../support/clocks.ts";
import { eventually } from "../../support/eventually.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { startOpenpiServer } from "../../support/openpi-server.ts";
import { startPolicyServer } from "../../support/policy-server.ts";
import { SkippingClock } from "../../support/skipping-clock.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let caller: Caller;
const clock = new SkippingClock();

beforeAll(async () => {
  setClock(clock);
  app = await ownGateway();
  caller = await app.caller(100);
});
afterAll(async () => {
  expect(await brokenInvariants(app.sql)).toEqual([]);
});

/** Longer than any machine needs for an answer: what takes so long is skipped. */
const TIMEOUT_S = 10;
const SECRET = "Traceback: password=hunter2 at /srv/secret.py";
const STEPS = Array.from({ length: 4 }, (_, i) => [i / 10, 0.5]);
const OTHER = STEPS.map(([a, b]) => [a! + 1, b!]);
const GOOD: Behaviour = { kind: "steps", steps: STEPS };
/** What the probe wants to see. */
const HONEST = [GOOD, { kind: "steps", steps: OTHER }, GOOD] as const;

const act = (model: string, provider: object = {}, { key } = caller) =>
  app.call(
    "/v1/act",
    {
      model,
      action_space: "base_twist_2d",
      horizon: 4,
      observations: [{ proprio: [0.1, 0.2] }],
      provider: { allow_fallbacks: false, ...provider },
    },
    { key },
  );

const FAULTS: readonly (readonly [string, Behaviour, string])[] = [
  ["resets", { kind: "reset" }, "connection_lost"],
  ["hangs up in the middle", { kind: "truncated" }, "connection_lost"],
  ["answers garbage", { kind: "garbage" }, "malformed_answer"],
  ["answers with a traceback", { kind: "error", text: SECRET }, "upstream_error"],
  ["answers 100 MB", { kind: "oversized" }, "answer_too_large"],
  ["answers nothing", { kind: "steps", steps: [] }, "empty_answer"],
  ["answers the wrong dimension", { kind: "steps", steps: STEPS.map((step) => [...step, 1]) }, "action_dim_mismatch"],
  [
    "answers one step of the wrong dimension",
    { kind: "steps", steps: [[1], ...STEPS.slice(1)] },
    "action_dim_mismatch",
  ],
  ["answers NaN", { kind: "steps", steps: [[Number.NaN, 0], ...STEPS.slice(1)] }, "non_finite_action"],
  [
    "answers infinity",
    { kind: "steps", steps: [...STEPS.slice(1), [0, Number.NEGATIVE_INFINITY]] },
    "non_finite_action",
  ],
  ["answers too few steps", { kind: "steps", steps: STEPS.slice(1) }, "wrong_step_count"],
];

describe.each([
  ["limber-policy", startPolicyServer],
  ["openpi-ws", startOpenpiServer],
] as const)("a server of %s that", (runtime, start: () => Promise<ActServer>) => {
  const opened: ActServer[] = [];
  afterAll(async () => {
    for (const server of opened) await server.close();
  });

  const live = async (name: string): Promise<{ server: ActServer; model: string }> => {
    const server = await start();
    opened.push(server);
    server.behave(...HONEST);
    const model = `${runtime}/${name}`;
    const profile =
      runtime === "openpi-ws"
        ? { proprio: [{ start: 0, end: 2, key: "observation/state" }], proprio_dim: 2, instruction_key: "prompt" }
        : undefined;
    await app.supply({ provider: runtime, model, runtime, endpoint: server.endpoint, timeout_s: TIMEOUT_S, profile });
    return { server, model };
  };

  /** The answer to a call, when `ms` have passed since the server was asked. */
  const skipping = async <T>(server: ActServer, call: () => Promise<T>, ms: number): Promise<T> => {
    const before = server.acts.length;
    const answer = call();
    await eventually(() => expect(server.acts.length).toBeGreaterThan(before));
    clock.skip(ms);
    return answer;
  };

  // openpi's arrays have one shape, so it can't say a ragged chunk.
  const sayable = FAULTS.filter(([name]) => runtime !== "openpi-ws" || !name.startsWith("answers one step"));
  it.each(sayable)("%s is a failed attempt, free, and does not affect the next call", async (name, fault, reason) => {
    const { server, model } = await live(name.replaceAll(" ", "-").toLowerCase());
    const payer = await app.caller(1);
    server.behave(fault, GOOD);
    const { status, body, text } = await act(model, {}, payer);
    expect([status, body.error.code, body.error.source, body.error.retryable]).toEqual([
      502,
      "all_attempts_failed",
      "upstream",
      true,
    ]);
    const [attempt] = body.route.attempts;
    if (runtime === "openpi-ws" && name === "answers nothing")
      expect(["empty_answer", "malformed_answer"]).toContain(attempt.reason);
    else expect(attempt).toMatchObject({ status: "error", reason });
    for (const secret of ["hunter2", "Traceback", "secret.py", new URL(server.endpoint).port])
      expect(text).not.toContain(secret);
    const { body: balance } = await app.call("/v1/billing/balance", undefined, payer);
    expect(balance.spent_usd).toBe(0);
    expect((await act(model)).body.action?.steps).toMatchObject(STEPS.map(() => [expect.any(Number), 0.5]));
  });

  it("that hangs ends with its attempt's budget and is canceled; its late answer is dropped", async () => {
    const { server, model } = await live("hangs");
    const late = Promise.withResolvers<void>();
    server.behave({ kind: "later", steps: OTHER, after: late.promise }, GOOD);
    const { status, body } = await skipping(server, () => act(model), TIMEOUT_S * 1_000);
    expect([status, body.error.code]).toEqual([502, "all_attempts_failed"]);
    expect(body.route.attempts).toMatchObject([{ status: "error", reason: "timeout" }]);
    await expect.poll(() => server.counts.cancelled).toBeGreaterThan(0);
    late.resolve();
    const next = await act(model);
    expect(next.body.action?.steps[0][0]).toBe(0);
  });

  it("that is still working at the deadline returns 504 with reason deadline", async () => {
    const { server, model } = await live("late");
    server.behave({ kind: "silence" }, GOOD);
    const { status, body } = await skipping(server, () => act(model, { deadline_ms: 9_000 }), 9_000);
    expect([status, body.error.code]).toEqual([504, "deadline_exceeded"]);
    expect(body.route.attempts).toMatchObject([{ status: "error", reason: "deadline" }]);
    expect((await act(model)).status).toBe(200);
  });

  it("that is unreachable opens its breaker after five consecutive failures", async () => {
    const { server, model } = await live("gone");
    await server.close();
    opened.splice(opened.indexOf(server), 1);
    for (let i = 0; i < 5; i++) {
      const { status, body } = await act(model);
      expect(status).toBe(502);
      expect(body.route.attempts).toMatchObject([{ status: "error" }]);
      expect(["unreachable", "connection_lost"]).toContain(body.route.attempts[0].reason);
    }
    const { status, body, headers } = await act(model);
    expect([status, body.error.code, body.error.retryable]).toEqual([503, "capacity_exhausted", true]);
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    expect(body.error.details.dropped).toMatchObject([{ reason: "circuit_open" }]);
  });
});

describe("what doesn't even speak", () => {
  it.each(Object.keys(MISBEHAVIOURS) as (keyof typeof MISBEHAVIOURS)[])(
    "a listener of %s is rejected by the probe in the gateway's own words",
    async (kind) => {
      const bad = await startBadUpstream(MISBEHAVIOURS[kind]);
      const { key } = await app.caller(0, { role: "supplier" });
      const provider = `bad-${kind.toLowerCase()}`;
      await app.call("/v1/supply/providers", { name: provider }, { key });
      for (const [runtime, scheme] of [
        ["limber-policy", "grpc"],
        ["openpi-ws", "ws"],
      ] as const) {
        const declaration = {
          model: `bad/${kind.toLowerCase()}`,
          runtime,
          endpoint: `${scheme}://127.0.0.1:${bad.port}`,
          hardware: "cpu",
          contracts: ["act"],
          action_spaces: ["base_twist_2d"],
          timeout_s: 0.4,
        };
        const { body: offering } = await app.call(`/v1/supply/providers/${provider}/models`, declaration, { key });
        let isOver = false;
        const verified = app.call(`/v1/supply/offerings/${offering.id}/verify`, {}, { key }).finally(() => {
          isOver = true;
        });
        // What says nothing is waited for again and again.
        await eventually(() => {
          if (kind === "silence" && !isOver) clock.skip(1_000);
          expect(isOver).toBe(true);
        });
        const { status, body, text } = await verified;
        expect([status, body.offering.status, body.report.passed]).toEqual([200, "rejected", false]);
        expect(body.report.checks.at(-1)).toMatchObject({ passed: false, required: true });
        expect(body.report.checks.at(-1).detail).not.toBe("");
        expect(text).not.toContain("hunter2");
      }
      await bad.close();
    },
  );
});
