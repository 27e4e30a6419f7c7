/** Clocks that a test controls. Each is put back at the end of the test or file that replaced it. */
import type { Clock } from "../../src/clock.ts";
import { replaceAmbient } from "./ambient.ts";
import { closedAtEnd } from "./opened.ts";

/** Replaces business time by `clock`; open what is to follow it afterwards. */
export function setClock<C extends Clock>(clock: C): C {
  setAmbient({ clock });
  return clock;
}

/** Replaces the clock, the source of randomness or both; the returned function restores the old ones early. */
export const setAmbient = (by: Parameters<typeof replaceAmbient>[0]): (() => void) => closedAtEnd(replaceAmbient(by));
