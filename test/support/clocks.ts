/** Clocks that a test controls. Each is put back at the end of the test or file that replaced it. */
import type { Clock } from "../../src/clock.ts";
import { replaceAmbient } from "./ambient.ts";
import { closedAtEnd } from "./opened.ts";

/** Replaces business time by `clock`; open what is to follow it afterwards. The returned function puts the old one back early. */
export function setClock<C extends Clock>(clock: C): C {
  closedAtEnd(replaceAmbient({ clock }));
  return clock;
}
