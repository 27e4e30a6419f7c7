/** What LeRobot's server takes and a robot may send: bytes that CPython's pickle and numpy wrote for all that a driver makes. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { NdArray } from "../../src/codecs/python/ndarray.ts";
import { writePickle } from "../../src/codecs/python/pickle-write.ts";
import { readNumber, readPicture } from "../../src/sidecar/messages.ts";
import { readObservation, readSetup } from "../../src/sidecar/pickles.ts";

const SAMPLES = join(import.meta.dirname, "../golden/wire-samples");
const sample = (name: string): Buffer => readFileSync(join(SAMPLES, name));

/** The picture of the samples, by its own formula. */
const PIXELS = Buffer.from(Array.from({ length: 6 * 8 * 3 }, (_, i) => (37 * i) % 256));
const [MOTORS, STATE] = [
  ["motor_1.pos", "motor_2.pos", "motor_3.pos"],
  [-9.25, 91.5, -34.75],
];

describe.each([2, 3, 4, 5])("an observation in pickle protocol %i", (protocol) => {
  const seen = readObservation(sample(`lerobot_observation_numpy_${protocol}.pkl`));

  it("has its time, its step and its task", () => {
    expect(seen).toMatchObject({ timestamp: 1795208610.5, timestep: 3, task: "pick up the cube" });
  });

  it("can have numpy numbers in either byte order, alone or as a zero-dimensional array", () => {
    expect(MOTORS.map((name) => readNumber(seen, name))).toEqual(STATE);
    expect([readNumber(seen, "is_gripping"), readNumber(seen, "counter")]).toEqual([1, 2 ** 70]);
  });

  it("can have images in Fortran's order and in floats up to 255, as LeRobot's server reads them", () => {
    for (const camera of ["front", "wrist"]) {
      const { dtype, shape, data } = readPicture(seen, camera);
      expect([camera, dtype, shape, Buffer.from(data)]).toEqual([camera, "|u1", [6, 8, 3], PIXELS]);
    }
  });

  it("can have an image that is a view of another one, transposed and flipped", () => {
    const { shape, data } = readPicture(seen, "side");
    expect(shape).toEqual([8, 6, 3]);
    const expected = Array.from({ length: 8 }, (_, column) =>
      Array.from({ length: 6 }, (__, row) => [...PIXELS.subarray(((5 - row) * 8 + column) * 3).subarray(0, 3)]),
    );
    expect([...data]).toEqual(expected.flat(2));
  });

  it("has no number and no image for texts, objects or None, and reports the key", () => {
    for (const name of ["when", "names", "objects", "empty", "texts", "velocity", "ordered", "queue", "none at all"])
      expect(() => readNumber(seen, name)).toThrow(`the observation has no number ${name}`);
    for (const name of ["task", "objects", "texts", "raw", "none at all"])
      expect(() => readPicture(seen, name)).toThrow(`the observation has no image ${name}`);
  });
});

describe.each([2, 5])("a setup in pickle protocol %i", (protocol) => {
  it("lists the color cameras, and no depth", () => {
    expect(readSetup(sample(`lerobot_policy_setup_${protocol}.pkl`))).toMatchObject({
      model: "lerobot/smolvla_base",
      motors: MOTORS,
      cameras: ["front", "wrist", "side"],
      chunk: 20,
    });
  });
});

it("a numpy array that claims more than its bytes is refused in either order", () => {
  for (const order of ["C", "F"]) {
    const type = { call: ["numpy", "dtype"] as const, args: ["u1", false, true] };
    expect(() => NdArray.fromFortran("|u1", [1000, 1000, 3], Buffer.alloc(3))).toThrow("bad_shape");
    const pickle = writePickle({
      instance: ["lerobot.async_inference.helpers", "TimedObservation"],
      fields: new Map<string, never>([
        ["timestamp", 1 as never],
        ["timestep", 1 as never],
        [
          "observation",
          new Map([
            [
              "front",
              { call: ["numpy._core.numeric", "_frombuffer"], args: [Buffer.alloc(3), type, { tuple: [9] }, order] },
            ],
          ]) as never,
        ],
      ]),
    });
    expect(() => readPicture(readObservation(pickle), "front")).toThrow("no image front");
  }
});
