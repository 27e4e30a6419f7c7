/** ActStream: what loops do with bad input, and when providers, credit or limits go. */
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { refusalIn } from "../../support/clients.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { robot } from "../../support/loop-client.ts";
import { ACT, app, begin, caller, clock, dead, endEach, OPEN, one, pinnedTo, two } from "./act-stream-supply.ts";

beforeAll(begin);
afterEach(endEach);

describe("a key's rate limit", () => {
  const FEW = { requests: 1, window_s: 3600, burst: 8 };

  it("counts each step as a request; a step beyond it is held with the reason, and the loop continues", async () => {
    const key = await app.key(caller.org, { role: "owner", rate_limit: FEW });
    const loop = robot(app, key, OPEN);
    await loop.expect("opened");
    for (let step = 1; step <= 7; step++) {
      loop.observe(step);
      await loop.expect("chunk");
    }
    for (const step of [8, 9]) {
      loop.observe(step);
      expect(await loop.expect("hold")).toMatchObject({
        step,
        reason: HoldReason.RATE_LIMITED,
        detail: expect.stringContaining("1 requests and control-loop steps in 3600 s"),
      });
    }
    loop.say({ case: "close", value: {} });
    expect(await loop.expect("ended")).toMatchObject({ code: "", chunks: 7, holds: 2 });
  });

  it("is not consumed by other keys", async () => {
    const [noisy, quiet] = await Promise.all([1, 2].map(() => app.key(caller.org, { role: "owner", rate_limit: FEW })));
    const loop = robot(app, quiet!, OPEN);
    await loop.expect("opened");
    const refused = await Promise.all(Array.from({ length: 20 }, () => app.call("/v1/act", ACT, { key: noisy! })));
    expect(refused.filter(({ status }) => status === 429).length).toBeGreaterThan(10);
    for (let step = 1; step <= 6; step++) {
      loop.observe(step);
      await loop.expect("chunk");
    }
    loop.leave();
  });
});

describe("402", () => {
  it("is returned before any request if there is no credit", async () => {
    const poor = await app.caller(0.0001);
    const before = one.acts.length + two.acts.length;
    const loop = robot(app, poor.key, OPEN);
    expect(await refusalIn(loop.next())).toMatchObject({
      code: "FailedPrecondition",
      reason: "insufficient_credits",
      details: { requiredUsd: 0.0005, availableUsd: 0.0001 },
    });
    expect(one.acts.length + two.acts.length).toBe(before);
  });

  it("ends a loop with its details after the last chunk that the balance covers", async () => {
    const poor = await app.caller(0.0062);
    const loop = robot(app, poor.key, OPEN);
    await loop.expect("opened");
    let chunks = 0;
    let step = 0;
    const refused = (async () => {
      for (;;) {
        loop.observe(++step);
        const told = await loop.next();
        if (told?.kind === "chunk") chunks += 1;
        if (told?.kind === "ended") expect(told.value).toMatchObject({ code: "insufficient_credits", chunks: 12 });
      }
    })();
    expect(await refusalIn(refused)).toMatchObject({
      reason: "insufficient_credits",
      details: { requiredUsd: 0.0005, availableUsd: 0.0002, shortfallUsd: 0.0003 },
    });
    expect(chunks).toBe(12);
    await expect
      .poll(async () => (await app.call("/v1/billing/balance", undefined, poor)).body)
      .toMatchObject({ spent_usd: 0.006, balance_usd: 0.0002, held_usd: 0 });
    expect(await brokenInvariants(app.sql)).toEqual([]);
  });

  it("follows exactly the paid chunks when several observations arrive at once", async () => {
    const poor = await app.caller(0.0062);
    const loop = robot(app, poor.key, OPEN);
    await loop.expect("opened");
    let step = 0;
    let chunks = 0;
    const refused = (async () => {
      for (;;) {
        for (let i = 0; i < 3; i++) loop.observe(++step);
        for (;;) {
          const told = await loop.next();
          if (told?.kind === "ended") expect(told.value).toMatchObject({ code: "insufficient_credits", chunks });
          if (told?.kind !== "chunk") continue;
          chunks += 1;
          if (told.value.startStep === step) break;
        }
      }
    })();
    expect(await refusalIn(refused)).toMatchObject({ reason: "insufficient_credits" });
    expect(chunks).toBe(12);
    await expect
      .poll(async () => (await app.call("/v1/billing/balance", undefined, poor)).body)
      .toMatchObject({ spent_usd: 0.006, balance_usd: 0.0002, held_usd: 0 });
    expect(await brokenInvariants(app.sql)).toEqual([]);
  });
});

describe("failover", () => {
  it("to the same checkpoint leaves no gap and is reported once", async () => {
    const loop = robot(app, caller.key, OPEN);
    await loop.expect("opened");
    loop.observe(1);
    const first = (await loop.expect("chunk")).route!.provider;
    pinnedTo(first).script.act = dead;
    loop.observe(2);
    const chunk = await loop.expect("chunk");
    expect(chunk).toMatchObject({ startStep: 2, episodeBreak: false });
    expect(chunk.route).toMatchObject({
      provider: first === "one" ? "two" : "one",
      attempts: [{ provider: first }, {}],
    });
    loop.observe(3);
    expect((await loop.expect("chunk")).route).toBeUndefined();
    loop.leave();
  });

  it("to another model happens inside an episode only if the caller listed it, and is reported", async () => {
    const strict = robot(app, caller.key, { ...OPEN, model: "acme/base" });
    const listing = robot(app, caller.key, { ...OPEN, models: ["other/base"] });
    for (const loop of [strict, listing]) {
      await loop.expect("opened");
      loop.observe(1);
      await loop.expect("chunk");
    }
    one.script.act = dead;
    two.script.act = dead;
    strict.observe(2);
    expect(await strict.expect("hold")).toMatchObject({ step: 2, reason: HoldReason.UPSTREAM_FAILED });
    listing.observe(2);
    expect(await listing.expect("chunk")).toMatchObject({ episodeBreak: true, route: { model: "other/base" } });
    listing.observe(3);
    expect(await listing.expect("chunk")).toMatchObject({ episodeBreak: false });
    for (const loop of [strict, listing]) loop.leave();
  });
});

describe("a hold", () => {
  it("replaces a late answer, which is canceled and free", async () => {
    const poor = await app.caller(1);
    one.script.act = () => {};
    two.script.act = () => {};
    const cancelled = one.cancelled() + two.cancelled();
    const asked = (): number => one.acts.length + two.acts.length;
    const before = asked();
    const loop = robot(app, poor.key, { ...OPEN, provider: { deadlineMs: 9_000 } });
    await loop.expect("opened");
    loop.observe(1);
    await expect.poll(asked).toBe(before + 1);
    clock.skip(9_000);
    const hold = await loop.expect("hold");
    expect(hold).toMatchObject({ step: 1, reason: HoldReason.LATE });
    expect(hold.observationAgeMs).toBeGreaterThanOrEqual(9_000);
    await expect.poll(() => one.cancelled() + two.cancelled()).toBe(cancelled + 1);
    loop.halfClose();
    expect(await loop.rest()).toMatchObject([{ kind: "ended", value: { chunks: 0, holds: 1, staleRatio: 1 } }]);
    await expect
      .poll(async () => (await app.call("/v1/billing/balance", undefined, poor)).body)
      .toMatchObject({ spent_usd: 0, held_usd: 0 });
  });

  it("replaces a chunk beyond the safety bounds", async () => {
    const loop = robot(app, caller.key, { ...OPEN, bounds: { lowest: [-1], highest: [1] } });
    await loop.expect("opened");
    loop.observe(1, { observations: [{ proprio: [5] }] });
    expect(await loop.expect("hold")).toMatchObject({ reason: HoldReason.OUT_OF_BOUNDS });
    loop.observe(2, { observations: [{ proprio: [0.5] }] });
    await loop.expect("chunk");
    loop.leave();
  });

  it("answers observations with changed dimensions, a future time or an invalid image", async () => {
    const loop = robot(app, caller.key, OPEN);
    await loop.expect("opened");
    loop.observe(1, { observations: [{ proprio: [1, 2], tMs: 1000 }] });
    await loop.expect("chunk");
    loop.observe(2, { observations: [{ proprio: [1], tMs: 1020 }] });
    expect(await loop.expect("hold")).toMatchObject({
      reason: HoldReason.INVALID_OBSERVATION,
      detail: expect.stringContaining("1 numbers"),
    });
    loop.observe(3, { observations: [{ proprio: [1, 2], tMs: 9_999_999 }] });
    expect(await loop.expect("hold")).toMatchObject({ detail: expect.stringContaining("future") });
    loop.say({ case: "reset", value: { instruction: "again" } });
    expect(await loop.expect("episode")).toMatchObject({ episode: 2 });
    loop.observe(1, { observations: [{ proprio: [1], frames: [{ data: new Uint8Array([1, 2, 3]) }] }] });
    expect(await loop.expect("hold")).toMatchObject({
      reason: HoldReason.INVALID_OBSERVATION,
      detail: expect.stringContaining("PNG"),
      episode: 2,
    });
    loop.leave();
  });
});

describe("a message that cannot be taken", () => {
  it.each<[string, Parameters<ReturnType<typeof robot>["say"]>[0]]>([
    ["a number that is none", { case: "observation", value: { step: 2, observations: [{ proprio: [Number.NaN] }] } }],
    ["a second `open`", { case: "open", value: OPEN as never }],
  ])("ends the loop with the same last words as every other end: %s", async (_what, message) => {
    const loop = robot(app, caller.key, OPEN);
    await loop.expect("opened");
    loop.observe(1);
    await loop.expect("chunk");
    loop.say(message);
    expect(await loop.expect("ended")).toMatchObject({ code: "validation_failed", chunks: 1 });
    expect(await refusalIn(loop.next())).toMatchObject({ code: "InvalidArgument", reason: "validation_failed" });
  });
});

describe("out of order", () => {
  it("observations are dropped and counted", async () => {
    const loop = robot(app, caller.key, OPEN);
    await loop.expect("opened");
    loop.observe(5);
    await loop.expect("chunk");
    for (const step of [5, 4, 1, 6]) loop.observe(step);
    expect(await loop.expect("chunk")).toMatchObject({ startStep: 6, droppedObservations: 3 });
    loop.leave();
  });
});

describe("the largest step", () => {
  it("is answered with a chunk whose steps fit the number range, and a larger one is refused", async () => {
    const loop = robot(app, caller.key, { ...OPEN, horizon: 256 });
    await loop.expect("opened");
    loop.observe(2 ** 32 - 257);
    expect(await loop.expect("chunk")).toMatchObject({ startStep: 2 ** 32 - 257, validUntilStep: 2 ** 32 - 1 });
    loop.observe(2 ** 32 - 256);
    await expect(loop.rest()).rejects.toThrow(/observation\.step/);
  });
});

describe("refused", () => {
  it.each([
    [
      "an observation before open",
      [{ case: "observation", value: { step: 1, observations: [{}] } }],
      "validation_failed",
    ],
    [
      "open twice",
      [
        { case: "open", value: OPEN },
        { case: "open", value: OPEN },
      ],
      "validation_failed",
    ],
    ["a model that is not known", [{ case: "open", value: { ...OPEN, model: "no/such" } }], "model_not_found"],
    [
      "another action space",
      [{ case: "open", value: { ...OPEN, actionSpace: "joint_pos_7" } }],
      "action_space_mismatch",
    ],
    [
      "constraints that leave nothing",
      [{ case: "open", value: { ...OPEN, provider: { region: ["moon"] } } }],
      "no_route_available",
    ],
    ["a preset that is not there", [{ case: "open", value: { ...OPEN, preset: "none" } }], "preset_not_found"],
    [
      "bounds that do not fit",
      [{ case: "open", value: { ...OPEN, bounds: { lowest: [1, 2, 3] } } }],
      "validation_failed",
    ],
    [
      "bounds that nothing keeps",
      [{ case: "open", value: { ...OPEN, bounds: { lowest: [2], highest: [1] } } }],
      "validation_failed",
    ],
    [
      "an observation of nothing",
      [
        { case: "open", value: OPEN },
        { case: "observation", value: { step: 1 } },
      ],
      "validation_failed",
    ],
    [
      "numbers that are none",
      [
        { case: "open", value: OPEN },
        { case: "observation", value: { step: 1, observations: [{ proprio: [Number.NaN] }] } },
      ],
      "validation_failed",
    ],
    ["an empty message", [{ case: undefined }], "validation_failed"],
  ])("%s", async (_, said, reason) => {
    const loop = robot(app, caller.key);
    for (const message of said) loop.say(message as never);
    expect(await refusalIn(loop.rest())).toMatchObject({ reason });
  });

  it("is refused over REST with the right protocol, and no other method exists at its path", async () => {
    const { status, body } = await app.call("/v1/act/stream", {}, caller);
    expect([status, body.error.code]).toEqual([422, "stream_unsupported"]);
    expect(body.error.message).toContain("limber.v1.InferenceService/ActStream");
    expect((await app.call("/v1/act/stream", undefined, caller)).status).toBe(405);
  });

  it("is refused over HTTP/1.1 by Connect", async () => {
    const response = await fetch(`${app.url}/limber.v1.InferenceService/ActStream`, {
      method: "POST",
      headers: { authorization: `Bearer ${caller.key}`, "content-type": "application/connect+proto" },
      body: "",
    });
    await response.text();
    expect(response.status).toBe(505);
  });
});
