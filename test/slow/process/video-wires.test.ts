/** Wires whose answers are videos keep the promises of every wire. A program decodes each answer. */
import { afterAll, beforeAll } from "vitest";
import { installStandInDecoder } from "../../support/stand-in-decoder.ts";
import { EVERY_WIRE } from "../../wires/every-wire.ts";
import { suiteOver } from "../../wires/every-wire-suite.ts";

let uninstall: () => Promise<void>;
beforeAll(async () => {
  uninstall = await installStandInDecoder();
});
afterAll(() => uninstall());

suiteOver(EVERY_WIRE.filter(({ isVideo }) => isVideo));
