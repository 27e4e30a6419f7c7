/** What of a key's change ends the streams that it opened. */

import { expect, it } from "vitest";
import type { KeyPrincipal } from "../../../../src/call.ts";
import { isNarrowed } from "../../../../src/edge/gate/authenticate.ts";
import { DEVELOPER } from "../../../support/key-call.ts";

type Change = Partial<Omit<KeyPrincipal, "settings">> & { settings?: Partial<KeyPrincipal["settings"]> };

const key = ({ settings, ...change }: Change): KeyPrincipal => ({
  ...DEVELOPER,
  settings: { ...DEVELOPER.settings, ...settings },
  ...change,
});
const zdr = (zdr: boolean): Change => ({ settings: { zdr } });
const regions = (...allowedRegions: string[]): Change => ({ settings: { allowedRegions } });

it.each<[string, Change, Change, boolean]>([
  ["nothing", {}, {}, false],
  ["a retention setting", {}, { settings: { retentionDays: 1, maxHedgeRatio: 0, defaultPreset: "p" } }, false],
  ["another role", {}, { role: "developer" }, false],
  ["models after all were allowed", {}, { models: ["a/b"] }, true],
  ["one model less", { models: ["a/b", "a/c"] }, { models: ["a/c"] }, true],
  ["one model more", { models: ["a/b"] }, { models: ["a/c", "a/b"] }, false],
  ["all models", { models: ["a/b"] }, {}, false],
  ["regions after all were allowed", {}, regions("eu"), true],
  ["one more region", regions("eu"), regions("us", "eu"), false],
  ["no region", regions("eu"), regions(), true],
  ["all regions", regions("eu"), {}, false],
  ["zero data retention", {}, zdr(true), true],
  ["its end", zdr(true), {}, false],
  ["hardware", {}, { environment: "hardware" }, true],
  ["simulations", { environment: "hardware" }, {}, false],
  ["another robot", { robotId: "a" }, { robotId: "b" }, true],
])("reports whether a change narrows a key: %s", (_what, before, after, narrowed) => {
  expect(isNarrowed(key(after), key(before))).toBe(narrowed);
});
