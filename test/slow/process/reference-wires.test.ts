/** The reference provider as it ships: a process of its own, reached over both of its wires. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { ServedModel } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { NumberType, WireProfileSchema } from "../../../gen/limber/v1/supply_pb.ts";
import type { ActAnswer, PredictAnswerPart } from "../../../src/contracts/contract.ts";
import { blankImage, encodeImage } from "../../../src/reference/image.ts";
import { type Reference, startReference } from "../../../src/reference/launch.ts";
import { REFERENCE_MODELS } from "../../../src/reference/models.ts";
import { createUpstream, type Upstream } from "../../../src/upstream/index.ts";
import type { UpstreamTarget, Wire } from "../../../src/upstream/wire.ts";
import { eventually } from "../../support/eventually.ts";
import { iou, movingShapes, overheadView, tableScene } from "../../support/scenes.ts";
import {
  actInput,
  callWith,
  failureIn,
  framesOf,
  groundInput,
  nameOf,
  observed,
  predictInput,
  rowsOf,
  targetAt,
} from "../../support/wire-calls.ts";

let reference: Reference;
let upstream: Upstream;
let models: readonly ServedModel[];
let native: Required<Wire>;

beforeAll(async () => {
  reference = await startReference();
  upstream = createUpstream({ allowPrivate: true });
  native = upstream.native as Required<Wire>; // it serves all three contracts
  models = await upstream.native.describe(targetAt(reference.grpc), callWith());
});
afterAll(async () => {
  await upstream.close();
  await reference.stop();
});

const at = (model: string) => targetAt(reference.grpc, { model });

/** A state of the robot that every layout understands: at rest, with a goal to its front. */
const VALUES: Readonly<Record<string, number>> = { cos_theta: -1, sin_theta: 0.1 };
const stateFor = (names: readonly string[]): number[] =>
  names.map((name) => VALUES[name] ?? (name.includes("goal") ? 0.3 : 0));

const SPACES = REFERENCE_MODELS.flatMap(({ slug, actions }) =>
  actions.map(({ space, dim, dtMs, proprioLayouts, visualLayouts }) => {
    const names = proprioLayouts.find(({ length }) => length > 0 && !visualLayouts.includes(length)) ?? [];
    return { slug, space, dim, dtMs, names };
  }),
);

it("the reference servers serve every action space of the specification", () => {
  expect([...new Set(SPACES.map(({ space }) => space))].sort()).toEqual([
    "base_twist_2d",
    "continuous_nd",
    "ee_delta_6d_grip",
    "joint_pos_14",
    "joint_pos_23",
    "joint_pos_29",
    "joint_pos_7",
    "latent_action",
    "waypoint_se2",
  ]);
});

it("the reference servers describe every model with its limits, and openpi's wire also reaches every act model", () => {
  const here = models.filter(({ runtime }) => runtime === "");
  expect(here.map(({ slug }) => slug)).toEqual(REFERENCE_MODELS.map(({ slug }) => slug));
  for (const { summary, limits, contracts } of here) {
    expect(summary).not.toBe("");
    expect(limits).not.toBe("");
    expect(contracts).toHaveLength(1);
  }
  const elsewhere = models.filter(({ runtime }) => runtime === "openpi-ws");
  expect(elsewhere.flatMap(({ actionSpaces }) => actionSpaces)).toEqual(SPACES.map(({ space }) => space));
  for (const { endpoint, maxHorizon } of elsewhere) {
    expect(endpoint.startsWith(`${reference.openpi}/reference/`)).toBe(true);
    expect(maxHorizon).toBe(50);
  }
});

describe.each(SPACES)("the reference model $slug in $space", ({ slug, space, dim, dtMs, names }) => {
  const input = (horizon: number) =>
    actInput({ actionSpace: space, horizon, observations: [observed({ proprio: stateFor(names) })] });
  const overGrpc = (horizon: number): Promise<ActAnswer> =>
    native.act(at(slug), input(horizon), framesOf(), callWith());

  it.each([1, 16, 256])("returns exactly %i finite steps of its dimension", async (horizon) => {
    const answer = await overGrpc(horizon);
    const rows = rowsOf(answer);
    expect(rows).toHaveLength(horizon);
    expect(rows.every((row) => row.length === dim && row.every(Number.isFinite))).toBe(true);
    expect(answer.dtMs).toBe(dtMs);
    expect(answer.note).not.toBe("");
  });

  it("returns the same over both wires", async () => {
    const { endpoint } = models.find(
      (each) => each.runtime !== "" && each.slug === slug && each.actionSpaces.includes(space),
    )!;
    // In double precision: without a profile the state would be rounded.
    const state = { start: 0, end: names.length, key: "observation/state", dtype: NumberType.F8 };
    const target = targetAt(endpoint, { profile: create(WireProfileSchema, { proprio: [state] }) });
    const answer = await upstream.wireOf("openpi-ws")!.act!(target, input(8), framesOf(), callWith());
    const [rows, same] = [rowsOf(answer), rowsOf(await overGrpc(50)).slice(0, 8)];
    expect(rows).toEqual(same);
  });
});

describe("a reference act with an image", () => {
  const view = async (y: number) => {
    const things = [{ paint: "green", shape: "square", x: 0, y, size: 0.05 }] as const;
    const { image } = overheadView(1, things, [0, 0], 0.64);
    return observed({ frames: [{ camera: "overhead", data: await encodeImage(image, "png") }] });
  };
  const sideways = async (wire: Wire, target: UpstreamTarget, y: number): Promise<number> => {
    const observation = await view(y);
    const input = actInput({
      actionSpace: "ee_delta_6d_grip",
      horizon: 50,
      instruction: "reach the green cube",
      observations: [observation],
    });
    const rows = rowsOf(await wire.act!(target, input, framesOf(observation), callWith()));
    return rows.reduce((sum, row) => sum + row[1]!, 0);
  };

  it("moves to the named object in the image, over both wires", async () => {
    const { endpoint } = models.find((each) => each.runtime !== "" && each.slug === "reference/visual-reach")!;
    const wires = [
      [native, at("reference/visual-reach")],
      [upstream.wireOf("openpi-ws")!, targetAt(endpoint)],
    ] as const;
    for (const [wire, target] of wires) {
      expect(await sideways(wire, target, 0.15)).toBeCloseTo(0.15, 1);
      expect(await sideways(wire, target, -0.1)).toBeCloseTo(-0.1, 1);
    }
  });

  it("refuses an image that cannot be decoded as invalid input", async () => {
    const png = await encodeImage(blankImage(64, 64), "png");
    png.fill(0, 60, 80); // its outline is whole, its pixels are not
    const observation = observed({ frames: [{ camera: "overhead", data: png }] });
    const input = actInput({
      actionSpace: "ee_delta_6d_grip",
      instruction: "the red cube",
      observations: [observation],
    });
    const call = native.act(at("reference/visual-reach"), input, framesOf(observation), callWith());
    expect(nameOf(await failureIn(call))).toBe("INPUT_REJECTED");
  });
});

describe("a reference grounding", () => {
  it("finds the drawn box, and reports what it did not find", async () => {
    const { frame, box } = tableScene(3, "green", "square");
    const observation = observed({ frames: [{ camera: "overhead", data: await encodeImage(frame.image, "png") }] });
    const input = groundInput(observation, "the green cube");
    const found = await native.ground(at("reference/colour-shape"), input, framesOf(observation), callWith());
    expect(iou(found.boxes[0]!, box)).toBeGreaterThan(0.7);
    expect(found).toMatchObject({
      note: "",
      inputTokens: 3,
      outputTokens: 2,
      points: [{ camera: "overhead", frame: 0 }],
    });
    const vague = groundInput(observation, "the thing");
    const none = await native.ground(at("reference/colour-shape"), vague, framesOf(observation), callWith());
    expect(none.boxes).toEqual([]);
    expect(none.note).toContain("color");
  });
});

describe("a reference prediction", () => {
  it("arrives frame by frame, and acts are answered in between", async () => {
    const film = await Promise.all(movingShapes(1, 3).map(({ image }) => encodeImage(image, "png")));
    const observations = film.map((data, i) => observed({ frames: [{ camera: "c", data }], tMs: 40 * i }));
    const input = predictInput({ observations, horizon: 12 });
    const parts: PredictAnswerPart[] = [];
    let actsBetween = 0;
    for await (const part of native.predict(at("reference/block-flow"), input, framesOf(...observations), callWith())) {
      parts.push(part);
      if (parts.length > 3) continue;
      const act = actInput({ horizon: 1, observations: [observed({ proprio: [0, 0, 0, 1, 0, 0] })] });
      await native.act(at("reference/potential-nav"), act, framesOf(), callWith());
      actsBetween++;
    }
    const frames = parts.flatMap((part) => (part.kind === "frame" ? [part.frame] : []));
    expect(frames.map(({ index }) => index)).toEqual(Array.from({ length: 12 }, (_, i) => i));
    expect(frames.map(({ tMs }) => tMs)).toEqual(frames.map((_, i) => 40 * (i + 1)));
    expect(frames.every(({ data }) => Buffer.from(data).subarray(1, 4).toString() === "PNG")).toBe(true);
    expect(parts.at(-1)).toMatchObject({ kind: "summary", note: expect.stringContaining("Motion") });
    expect(actsBetween).toBe(3);
  });

  it("ends at the provider when the reader leaves, so that 32 others can start", async () => {
    const data = await encodeImage(movingShapes(2, 1)[0]!.image, "png");
    const observations = [observed({ frames: [{ camera: "c", data }] })];
    for (let i = 0; i < 40; i++) {
      const input = predictInput({ observations, horizon: 256 });
      for await (const part of native.predict(
        at("reference/block-flow"),
        input,
        framesOf(...observations),
        callWith(),
      )) {
        expect(part.kind).toBe("frame");
        break;
      }
    }
  });
});

it.each<[string, string, number[]]>([
  ["an unknown layout", "reference/potential-nav", [1, 2]],
  ["an unknown model", "reference/none", [0, 0, 0, 1, 0, 0]],
  ["an action space that the model lacks", "reference/ik-reach", [0, 0, 0, 1, 0, 0]],
])("refuses %s as invalid input, and the server continues", async (_, model, proprio) => {
  const act = (slug: string, state: number[]) =>
    native.act(at(slug), actInput({ observations: [observed({ proprio: state })] }), framesOf(), callWith());
  expect(nameOf(await failureIn(act(model, proprio)))).toBe("INPUT_REJECTED");
  expect(rowsOf(await act("reference/potential-nav", [0, 0, 0, 1, 0, 0]))).toHaveLength(2);
});

describe("the reference process", () => {
  it("is restarted at the same addresses when it crashes", async () => {
    const log: string[] = [];
    const mortal = await startReference({ log: (text) => log.push(text) });
    const { grpc, openpi, pid } = mortal;
    process.kill(pid!, "SIGKILL");
    await eventually(() => expect(mortal.pid).not.toBe(pid));
    expect([mortal.grpc, mortal.openpi]).toEqual([grpc, openpi]);
    await native.health(targetAt(grpc), callWith());
    expect(log).toEqual(["the reference provider exited and is being restarted"]);
    await mortal.stop();
    expect(() => process.kill(mortal.pid!, 0)).toThrow("ESRCH");
  });

  it("exits when its parent is killed", async () => {
    const launch = new URL("../../../src/reference/launch.ts", import.meta.url);
    const script = `const { startReference } = await import(${JSON.stringify(launch.href)}); console.log((await startReference()).pid);`;
    const parent = spawn(process.execPath, ["--input-type=module", "-e", script], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [line] = await once(parent.stdout, "data");
    const pid = Number(String(line));
    process.kill(pid, 0);
    parent.kill("SIGKILL");
    await eventually(() => expect(() => process.kill(pid, 0)).toThrow("ESRCH"));
  });

  it("reports that it cannot listen", async () => {
    const port = Number(new URL(reference.grpc).port);
    await expect(startReference({ grpcPort: port })).rejects.toThrow("it exited before listening");
  });
});
