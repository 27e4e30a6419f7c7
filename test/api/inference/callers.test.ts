/** Failures that belong to one caller: they open no breaker for others, and slow that caller alone. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { robot } from "../../support/loop-client.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { startOpenpiServer } from "../../support/openpi-server.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme", "met", "picky");

let app: App;
const servers: { close(): Promise<void> }[] = [];

beforeAll(async () => {
  app = await openWorld();
});
afterAll(async () => {
  for (const server of servers) await server.close();
});

const [GOOD, BAD] = [0.5, 666];
const FAILED = { kind: "error", text: "InvalidInput: no camera here is called wrist" } as const;

/** Fails what it cannot bear by an error of its own, as servers do. */
const delicate: Model["script"]["act"] = (call, answer, _served, fail) =>
  call.observations[0]?.proprio[0] === BAD ? fail("KeyError: 'wrist'") : answer(honestSteps(call, 2));
const broken: Model["script"]["act"] = (_call, _answer, served) => served.end(13, "CUDA error");

async function supplied(name: string, act: Model["script"]["act"]) {
  const model = await openModel();
  servers.push(model);
  await app.supply({ provider: name, model: `${named.acme}/${name}`, endpoint: model.endpoint });
  model.script.act = act;
  return acting(name, [GOOD]);
}

function acting(name: string, usual: readonly number[]) {
  const body = { model: `${named.acme}/${name}`, action_space: "base_twist_2d", horizon: 2 };
  return {
    act: (caller: Caller, proprio: readonly number[] = usual) =>
      app.call("/v1/act", { ...body, observations: [{ proprio }] }, { key: caller.key }),
    state: async (): Promise<string> => {
      const { providers } = (await app.call("/v1/status", undefined, { key: (await app.caller(0)).key })).body;
      return providers.find(({ provider }: { provider: string }) => provider === name).offerings[0].state;
    },
  };
}

it("a caller whose input breaks a server opens no breaker and is throttled alone", async () => {
  const { act, state } = await supplied("delicate", delicate);
  const [careless, careful] = [await app.caller(10), await app.caller(10)];
  const codes: string[] = [];
  // A slow machine lets a few more through.
  let answer = await act(careless, [BAD]);
  for (; answer.status !== 429; answer = await act(careless, [BAD])) codes.push(answer.body.error.code);
  expect(new Set(codes)).toEqual(new Set(["all_attempts_failed"]));
  expect(codes.length).toBeGreaterThanOrEqual(20);
  const { status, body, headers } = answer;
  expect([status, body.error.code, body.error.retryable]).toEqual([429, "too_many_failed_calls", true]);
  expect(Number(headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
  // Its organisation's other keys do not wait, nor does anybody else, and the first offering that is asked answers.
  expect((await act({ ...careless, key: await app.key(careless.org) })).status).toBe(200);
  expect((await act(careful)).body.route.attempts).toHaveLength(1);
  expect(await state()).toBe("closed");
});

it("an organization whose keys all fail is throttled", async () => {
  const { act } = await supplied("many-keys", delicate);
  const careless = await app.caller(10);
  const keys = await Promise.all(Array.from({ length: 12 }, () => app.key(careless.org)));
  const waited = async (): Promise<string> => {
    for (let i = 0; i < 18; i++)
      for (const key of keys) {
        const { status, body } = await act({ ...careless, key }, [BAD]);
        if (status === 429) return body.error.message;
      }
    return "none of them";
  };
  expect(await waited()).toContain("your organization");
});

it("a throttled caller can still preview", async () => {
  const { act } = await supplied("previewed", delicate);
  const careless = await app.caller(10);
  while ((await act(careless, [BAD])).status !== 429);
  const request = {
    model: `${named.acme}/previewed`,
    action_space: "base_twist_2d",
    observations: [{ proprio: [GOOD] }],
  };
  const { status, body } = await app.call("/v1/routes/preview", request, { key: careless.key });
  expect([status, body.plan.length]).toEqual([200, 1]);
});

it("a server that fails every call opens its breaker after five calls of one caller, confirmed by a check", async () => {
  const { act, state } = await supplied("broken", broken);
  const caller = await app.caller(10);
  for (let i = 0; i < 5; i++) expect((await act(caller)).status).toBe(502);
  await eventually(async () => expect(await state()).toBe("open"));
  expect((await act(caller)).status).toBe(503);
});

it("failures of two organizations open the breaker without a check", async () => {
  const { act, state } = await supplied("shared", delicate);
  const callers = [await app.caller(10), await app.caller(10)];
  for (let i = 0; i < 3; i++) for (const caller of callers) await act(caller, [BAD]);
  expect(await state()).toBe("open");
});

describe("a server that rejects what it declared that it reads", () => {
  const profile = {
    proprio: [{ start: 0, end: 2, key: "observation/state" }],
    proprio_dim: 2,
    instruction_key: "prompt",
  };
  const STEPS = [
    [0, 0.5],
    [0.125, 0.5],
  ];

  it("opens its breaker if it also rejects the gateway's check", async () => {
    const server = await startOpenpiServer();
    servers.push(server);
    server.behave(
      { kind: "steps", steps: STEPS },
      { kind: "steps", steps: [...STEPS].reverse() },
      { kind: "steps", steps: STEPS },
    );
    await app.supply({
      provider: named.picky,
      model: `${named.acme}/${named.picky}`,
      runtime: "openpi-ws",
      endpoint: server.endpoint,
      profile,
    });
    const { act, state } = acting(named.picky, [0, 0]);
    server.behave(FAILED);
    const caller = await app.caller(10);
    for (let i = 0; i < 5; i++) {
      const { status, body } = await act(caller);
      expect([status, body.error.code, body.error.retryable]).toEqual([422, "input_contract", false]);
    }
    await eventually(async () => expect(await state()).toBe("open"));
  });

  it("stays in routing if the input violated the contract", async () => {
    const server = await startOpenpiServer();
    servers.push(server);
    server.behave(
      { kind: "steps", steps: STEPS },
      { kind: "steps", steps: [...STEPS].reverse() },
      { kind: "steps", steps: STEPS },
    );
    await app.supply({
      provider: named.met,
      model: `${named.acme}/${named.met}`,
      runtime: "openpi-ws",
      endpoint: server.endpoint,
      profile,
    });
    const { act, state } = acting(named.met, [0, 0]);
    const asked = server.acts.length;
    for (const caller of [await app.caller(10), await app.caller(10)])
      for (let i = 0; i < 5; i++) expect((await act(caller, [0])).status).toBe(422);
    expect([await state(), server.acts.length]).toEqual(["closed", asked]);
  });
});

it("a robot whose observations keep failing holds for a while, and its loop continues", async () => {
  const { state } = await supplied("loop", delicate);
  const caller = await app.caller(10);
  const loop = robot(app, caller.key, { model: `${named.acme}/loop`, actionSpace: "base_twist_2d", horizon: 2 });
  await loop.expect("opened");
  const reasons: HoldReason[] = [];
  for (let step = 1; reasons.at(-1) !== HoldReason.RATE_LIMITED; step++) {
    loop.observe(step, { observations: [{ proprio: [BAD] }] });
    reasons.push((await loop.expect("hold")).reason);
    if (step >= 100) throw new Error(reasons.join());
  }
  expect(reasons.length).toBeGreaterThan(20);
  loop.leave();
  expect(await state()).toBe("closed");
});
