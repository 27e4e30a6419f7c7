/** `npx limber plan`: the plan of a request that stands in a file. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { stringify } from "yaml";

describe("npx limber plan", () => {
  const folder = mkdtempSync(join(tmpdir(), "limber-plan-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  const tool = fileURLToPath(new URL("../../../tools/plan.ts", import.meta.url));
  const plan = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return execFileSync(process.execPath, [tool, join(folder, name)], { encoding: "utf8" });
  };

  test("prints the same plan for a case in YAML as in JSON", () => {
    const given = {
      request: { model: "service/auto:vla", provider: { objective: { price: 1, latency: 2 } } },
      seed: 3,
    };
    const printed = plan("case.json", JSON.stringify(given));
    expect(JSON.parse(printed)).toMatchObject({
      object: "route_plan",
      plan: [{ rank: 1 }, { rank: 2 }, { rank: 3 }, {}],
    });
    expect(plan("case.yaml", stringify(given))).toBe(printed);
  });

  test("parses a body as the gateway does, and reports its errors and a file without a body", () => {
    const said = (text: string) => {
      writeFileSync(join(folder, "wrong.yaml"), text);
      const { status, stdout, stderr } = spawnSync(process.execPath, [tool, join(folder, "wrong.yaml")], {
        encoding: "utf8",
      });
      expect(stderr).not.toMatch(/^ +at /m);
      return [status, stdout + stderr];
    };
    expect(said("request: { model: acme/arm, provider: { max_latancy_ms: 5 } }")).toEqual([
      1,
      expect.stringContaining("did you mean `max_latency_ms`?"),
    ]);
    expect(said("request: { model: acme/arm, preference: quick }")).toEqual([1, expect.stringContaining("cheapest")]);
    expect(said("plan: [a1]")).toEqual([1, expect.stringContaining("validation_failed")]);
    expect(said("request: [1")).toEqual([2, expect.stringContaining("line 1")]);
    expect(said("request: { model: acme/arm, embodiment: arm, preference: cheapest }")).toEqual([
      0,
      expect.stringMatching(/"contract": "act".*"reason": "embodiment"/s),
    ]);
  });
});
