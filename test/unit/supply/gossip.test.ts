import { describe, expect, it } from "vitest";
import { AttemptFailure } from "../../../src/contracts/contract.ts";
import { HealthTracker } from "../../../src/routing/health/health.ts";
import { buildSnapshot } from "../../../src/routing/snapshot/build.ts";
import { Gossip } from "../../../src/supply/shared-health.ts";
import { settle } from "../../support/manual-clock.ts";
import { offering, supplyOf } from "../../support/supply.ts";

const snapshot = buildSnapshot(supplyOf(Array.from({ length: 200 }, (_, i) => offering(`off_${i}`))));

function replica(name: string) {
  const health = new HealthTracker(snapshot, () => 0);
  const gossip = new Gossip(name, health);
  const told = async (mostBytes = 5_900): Promise<Uint8Array[]> => {
    const words: Uint8Array[] = [];
    await gossip.tell({ mostBytes, say: async (word) => void words.push(word) });
    return words;
  };
  const call = (id: string, count: number, outcome: "ok" | AttemptFailure = "ok", latencyMs = 500): void => {
    for (let i = 0; i < count; i++) health.report(id, { outcome, latencyMs, units: 16, cold: false, at: 1 });
  };
  const rate = (id: string): number | undefined => health.figureOf(id, performance.now())?.failureRate;
  return { health, gossip, told, call, rate };
}

describe("gossip", () => {
  it("transfers one replica's figures to another", async () => {
    const [a, b] = [replica("a"), replica("b")];
    a.call("off_0", 20);
    for (const word of await a.told()) expect(b.gossip.hear(word)).toBe(true);
    await settle();
    const row = snapshot.rowOf("off_0");
    expect(b.health.view.p50Ms[row]! / a.health.view.p50Ms[row]!).toBeCloseTo(1, 1);
    expect(b.health.view.unitsPerS[row]).toBeCloseTo(32);
    expect(b.health.view.usedAt[row]).toBeGreaterThan(Number.NEGATIVE_INFINITY);
  });

  it("reports an offering as warm while it answers a long call", async () => {
    const short = buildSnapshot(supplyOf([offering("off_0", { scaledownS: 4 })]));
    const [a, b] = [replica("a"), replica("b")];
    for (const { health } of [a, b]) health.adopt(short, 0);
    const at = performance.now();
    a.health.admit("off_0", at, 1000);
    a.health.report("off_0", { outcome: "ok", latencyMs: 500, units: 16, cold: true, at });
    a.health.admit("off_0", at, 60_000);
    for (let i = 0; i < 4; i++) await a.told();
    const words = await a.told();
    expect(words).toHaveLength(1);
    b.gossip.hear(words[0]!);
    await settle();
    expect(b.health.view.usedAt[0]).toBeGreaterThanOrEqual(at);
    a.health.report("off_0", { outcome: "ok", latencyMs: 500, units: 16, cold: false, at });
    for (let i = 0; i < 4; i++) await a.told();
    expect(await a.told()).toEqual([]);
  });

  it("counts a call once, despite repeated and lost messages", async () => {
    const [a, b] = [replica("a"), replica("b")];
    a.call("off_0", 10);
    const first = await a.told();
    for (const word of [...first, ...first, ...first]) b.gossip.hear(word);
    a.call("off_0", 10, AttemptFailure.UNREACHABLE);
    await a.told(); // lost
    a.call("off_0", 20);
    for (const word of await a.told()) b.gossip.hear(word);
    await settle();
    expect(b.rate("off_0")).toBeCloseTo(0.25);
  });

  it("ignores superseded, own and invalid messages", async () => {
    const [a, b] = [replica("a"), replica("b")];
    a.call("off_0", 4, AttemptFailure.UNREACHABLE);
    const early = await a.told();
    a.call("off_0", 12);
    const late = await a.told();
    for (const word of [...late, ...early]) b.gossip.hear(word);
    await settle();
    expect(b.rate("off_0")).toBeCloseTo(0.25);
    expect(a.gossip.hear(late[0]!)).toBe(false);
    for (const noise of ["", "noise", "\n\u0001x\u0010\u0001\u001a\u00ff"])
      expect(b.gossip.hear(new TextEncoder().encode(noise))).toBe(false);
  });

  it("sends nothing without calls, and each call's data three times", async () => {
    const a = replica("a");
    expect(await a.told()).toEqual([]);
    a.call("off_0", 1);
    const lengths: number[] = [];
    for (let i = 0; i < 5; i++) lengths.push((await a.told()).length);
    expect(lengths).toEqual([1, 1, 1, 0, 0]);
  });

  it("splits its data into messages that fit, and leaves nothing out", async () => {
    const [a, b] = [replica("a"), replica("b")];
    for (let i = 0; i < 200; i++) for (let ms = 1; ms < 1e6; ms *= 1.3) a.call(`off_${i}`, 1, "ok", ms);
    const words = await a.told();
    expect(words.length).toBeGreaterThan(1);
    for (const word of words) {
      expect(word.length).toBeLessThanOrEqual(5_900);
      b.gossip.hear(word);
    }
    for (let i = 0; i < 200; i++) await settle();
    for (let i = 0; i < 200; i++) expect(b.rate(`off_${i}`)).toBe(0);
  });
});
