import { expect, test } from "vitest";
import { PinOutcome } from "../../../gen/limber/v1/route_pb.ts";
import { PIN_SILENCE_MS, PinBoard } from "../../../src/routing/pin.ts";

const arm = { model: "acme/arm", provider: "alpha" };
const other = { model: "acme/arm", provider: "beta" };

test("the first call sets the pin, the same server keeps it, another moves it", () => {
  const pins = new PinBoard();
  expect(pins.served("s", arm, 0)).toBe(PinOutcome.NEW);
  expect(pins.served("s", arm, 1)).toBe(PinOutcome.KEPT);
  expect(pins.served("s", other, 2)).toBe(PinOutcome.MOVED);
  expect(pins.get("s", 3)).toMatchObject(other);
});

test("the same provider with another checkpoint is a move", () => {
  const pins = new PinBoard();
  pins.served("s", arm, 0);
  expect(pins.served("s", { model: "acme/leg", provider: "alpha" }, 1)).toBe(PinOutcome.MOVED);
});

test("fifteen minutes of silence end a pin, and any call before renews it", () => {
  const pins = new PinBoard();
  pins.served("s", arm, 0);
  expect(pins.get("s", PIN_SILENCE_MS - 1)).toMatchObject(arm);
  pins.served("s", arm, PIN_SILENCE_MS - 1);
  expect(pins.get("s", 2 * PIN_SILENCE_MS - 2)).toMatchObject(arm);
  expect(pins.get("s", 2 * PIN_SILENCE_MS)).toBeUndefined();
  expect(pins.served("s", other, 2 * PIN_SILENCE_MS)).toBe(PinOutcome.NEW);
});

test("sessions do not share a pin", () => {
  const pins = new PinBoard();
  pins.served("org_1/s", arm, 0);
  expect(pins.get("org_2/s", 0)).toBeUndefined();
});

test("silent sessions are forgotten without anyone asking for them", () => {
  const pins = new PinBoard();
  for (let i = 0; i < 1000; i++) pins.served(`s${i}`, arm, i);
  pins.served("late", arm, 999 + PIN_SILENCE_MS);
  expect(pins.size).toBe(1);
});
