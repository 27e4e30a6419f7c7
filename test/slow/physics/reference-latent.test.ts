import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decodeLatent, encodeLatent, LATENT_DIM } from "../../../src/reference/act/latent.ts";
import { plan } from "../../../src/reference/act/plan.ts";
import { UnsupportedObservation } from "../../../src/reference/unsupported.ts";
import { between, seeded } from "../../support/scenes.ts";

const numbers = (length: number) =>
  fc.array(fc.double({ min: -10, max: 10, noNaN: true }), { minLength: length, maxLength: length });

describe("the latent codec", () => {
  it("preserves any code through decoding and encoding", () => {
    fc.assert(
      fc.property(numbers(LATENT_DIM), (code) => {
        const back = encodeLatent(decodeLatent(code));
        for (const [i, value] of code.entries()) expect(back[i]).toBeCloseTo(value, 9);
      }),
    );
  });

  it("preserves resting joints exactly", () => {
    const rows = Array.from({ length: 56 }, (_, i) => i % 7);
    const back = decodeLatent(encodeLatent(rows));
    for (const [i, value] of rows.entries()) expect(back[i]).toBeCloseTo(value, 9);
  });

  it("keeps the nearest rows that its coefficients can represent: the lost part is orthogonal to the kept one", () => {
    fc.assert(
      fc.property(numbers(56), (rows) => {
        const energy = (values: ArrayLike<number>): number => Array.from(values).reduce((sum, v) => sum + v * v, 0);
        const kept = decodeLatent(encodeLatent(rows));
        const lost = rows.map((value, i) => value - kept[i]!);
        expect(energy(kept) + energy(lost)).toBeCloseTo(energy(rows), 6);
      }),
    );
  });

  it("keeps planned motion to within 0.02 rad", () => {
    const random = seeded(1);
    const proprio = [...Array.from({ length: 7 }, () => between(random, -1, 1)), 0.4, 0.2, 0.5];
    const rows = plan({ actionSpace: "joint_pos_7", horizon: 64, proprio, frames: [] }).steps;
    const codes = plan({ actionSpace: "latent_action", horizon: 8, proprio, frames: [] }).steps;
    for (let n = 0; n < 8; n++) {
      decodeLatent(codes.subarray(28 * n, 28 * (n + 1))).forEach((angle, i) => {
        expect(Math.abs(angle - rows[56 * n + i]!)).toBeLessThan(0.02);
      });
    }
  });

  it("refuses a chunk or code of another length", () => {
    expect(() => encodeLatent([1, 2, 3])).toThrow(UnsupportedObservation);
    expect(() => decodeLatent(new Float64Array(27))).toThrow(UnsupportedObservation);
  });
});
