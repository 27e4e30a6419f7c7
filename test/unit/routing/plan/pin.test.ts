import { expect, test } from "vitest";
import { PinOutcome } from "../../../../gen/limber/v1/route_pb.ts";
import { PIN_SILENCE_MS, PinStore } from "../../../../src/routing/plan/pin.ts";

const arm = { model: "acme/arm", provider: "alpha" };
const other = { model: "acme/arm", provider: "beta" };

test("the first call sets the pin, the same server keeps it, another moves it", () => {
  const pins = new PinStore();
  expect(pins.served("s", arm, 0)).toBe(PinOutcome.NEW);
  expect(pins.served("s", arm, 1)).toBe(PinOutcome.KEPT);
  expect(pins.served("s", other, 2)).toBe(PinOutcome.MOVED);
  expect(pins.get("s", 3)).toMatchObject(other);
});

test("the same provider with another checkpoint moves the pin", () => {
  const pins = new PinStore();
  pins.served("s", arm, 0);
  expect(pins.served("s", { model: "acme/leg", provider: "alpha" }, 1)).toBe(PinOutcome.MOVED);
});

test("a pin expires after fifteen minutes of silence, and any call before renews it", () => {
  const pins = new PinStore();
  pins.served("s", arm, 0);
  expect(pins.get("s", PIN_SILENCE_MS - 1)).toMatchObject(arm);
  pins.served("s", arm, PIN_SILENCE_MS - 1);
  expect(pins.get("s", 2 * PIN_SILENCE_MS - 2)).toMatchObject(arm);
  expect(pins.get("s", 2 * PIN_SILENCE_MS)).toBeUndefined();
  expect(pins.served("s", other, 2 * PIN_SILENCE_MS)).toBe(PinOutcome.NEW);
});

test("sessions do not share a pin", () => {
  const pins = new PinStore();
  pins.served("org_1/s", arm, 0);
  expect(pins.get("org_2/s", 0)).toBeUndefined();
});

test("silent sessions are dropped without a query for them", () => {
  const pins = new PinStore();
  for (let i = 0; i < 1000; i++) pins.served(`s${i}`, arm, i);
  pins.served("late", arm, 999 + PIN_SILENCE_MS);
  expect(pins.size).toBe(1);
});

test("another replica's report of a session is adopted with its age, and expires 15 minutes after the last call", () => {
  const pins = new PinStore();
  pins.learn("s", { model: "o/n", provider: "p" }, 1_000);
  expect(pins.get("s", PIN_SILENCE_MS + 999)).toMatchObject({ model: "o/n", provider: "p" });
  expect(pins.get("s", PIN_SILENCE_MS + 1_000)).toBeUndefined();
});

test("replicas report a new or moved pin at once, and a kept one every half minute", () => {
  const pins = new PinStore();
  pins.served("s", { model: "o/n", provider: "p" }, 0);
  expect([pins.isUntold("s", 0), pins.isUntold("s", 0)]).toEqual([true, false]);
  pins.served("s", { model: "o/n", provider: "p" }, 10_000);
  expect(pins.isUntold("s", 10_000)).toBe(false);
  pins.served("s", { model: "o/n", provider: "q" }, 11_000);
  expect(pins.isUntold("s", 11_000)).toBe(true);
  pins.served("s", { model: "o/n", provider: "q" }, 41_000);
  expect(pins.isUntold("s", 41_000)).toBe(true);
});
