/** What goes wrong at offerings is counted once for their owners, whatever becomes of the database, and repeats nothing that callers sent. */
import { describe, expect, it } from "vitest";
import { AttemptFailure, UpstreamFailure } from "../../../src/contracts/contract.ts";
import { HealthTracker, notifyOwner, planFor } from "../../../src/routing/index.ts";
import { buildSnapshot } from "../../../src/routing/snapshot/build.ts";
import type { TroubleRecord } from "../../../src/store/history/series.ts";
import { Troubles } from "../../../src/supply/shared-health.ts";
import { offering, planArgs, supplyOf } from "../../support/supply.ts";

const KIND = AttemptFailure.UPSTREAM_ERROR;

describe("a failure count", () => {
  it("is written once, and waits if the store is unavailable", async () => {
    const written: TroubleRecord[] = [];
    let away = true;
    const troubles = new Troubles(async (records) => {
      if (away) throw new Error("away");
      written.push(...records);
    });
    troubles.note("off_1", { kind: KIND, count: 1 });
    troubles.note("off_1", { kind: KIND, count: 0, said: "out of memory\u0007" });
    troubles.note("off_2", { kind: "hold", count: 1 });
    await expect(troubles.write()).rejects.toThrow("away");
    troubles.note("off_1", { kind: KIND, count: 1 });
    away = false;
    await Promise.all([troubles.write(), troubles.write()]);
    const day = expect.stringMatching(/^\d{4}-\d{2}-\d{2}$/);
    expect(written).toEqual([
      { offeringId: "off_1", day, kind: "upstream_error", count: 2, said: "out of memory" },
      { offeringId: "off_2", day, kind: "hold", count: 1, said: null },
    ]);
  });

  it("includes only real offerings and failures that ended an attempt", () => {
    const heard: string[] = [];
    const supply = supplyOf([offering("real"), offering("placeholder", { simulated: true })]);
    const health = new HealthTracker(buildSnapshot(supply), () => 0);
    health.onTrouble = (id, { kind, count }) => heard.push(`${id} ${kind} ${count}`);
    const report = { latencyMs: 1, units: 0, cold: false, at: 0 };
    for (const id of ["real", "placeholder", "gone"]) {
      health.report(id, { ...report, outcome: KIND });
      health.report(id, { ...report, outcome: "ok" });
      health.report(id, { ...report, outcome: "cancelled" });
      health.held(id);
    }
    expect(heard).toEqual([`real ${KIND} 1`, "real hold 1"]);
  });
});

describe("a server's own error text", () => {
  it("is shown, unless it may repeat the input", () => {
    const supply = supplyOf([offering("one")]);
    const [step] = planFor(planArgs(supply)).steps;
    const told: string[] = [];
    const health = Object.assign(new HealthTracker(buildSnapshot(supply), () => 0), {
      said: (_id: string, _failure: AttemptFailure, text: string) => told.push(text),
    });
    const say = (failure: AttemptFailure, { quiet = false, ownKey = false } = {}) =>
      notifyOwner(
        { health, quiet },
        { ...step!, ownKey },
        new UpstreamFailure(failure, `${failure} ${quiet} ${ownKey}`),
      );
    say(KIND);
    say(KIND, { quiet: true });
    say(AttemptFailure.INPUT_REJECTED);
    say(AttemptFailure.UPSTREAM_AUTH, { ownKey: true });
    say(AttemptFailure.UPSTREAM_AUTH);
    expect(told).toEqual([`${KIND} false false`, `${AttemptFailure.UPSTREAM_AUTH} false false`]);
  });
});
