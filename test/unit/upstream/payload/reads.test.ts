/** What follows from ready-made profiles: their contracts admit what their wires can send, and nothing that those would refuse. */
import { create } from "@bufbuild/protobuf";
import { describe, expect, it, test } from "vitest";
import { ActionReference, CameraRole } from "../../../../gen/limber/v1/input_contract_pb.ts";
import { FrameSchema, ObservationSchema } from "../../../../gen/limber/v1/observation_pb.ts";
import { WireProfileSchema } from "../../../../gen/limber/v1/supply_pb.ts";
import type { UpstreamFailure } from "../../../../src/contracts/contract.ts";
import { inputFaults } from "../../../../src/contracts/inputs.ts";
import { PROFILES as GR00T } from "../../../../src/upstream/gr00t-zmq/messages.ts";
import { createUpstream } from "../../../../src/upstream/index.ts";
import { PROFILES as OPENPI } from "../../../../src/upstream/openpi-ws.ts";
import { PROFILES as OPENVLA } from "../../../../src/upstream/openvla-act.ts";
import { partsOf } from "../../../../src/upstream/payload/observe.ts";
import { type Profiles, readsOf } from "../../../../src/upstream/payload/profile.ts";
import { FrameSet, frameSources } from "../../../../src/upstream/pictures/frames.ts";
import { redSquare } from "../../../../src/upstream/pictures/test-picture.ts";
import { seeded } from "../../../support/chance.ts";
import { runs } from "../../../support/runs.ts";

const PRESETS = [OPENPI, GR00T, OPENVLA].flatMap((profiles) =>
  profiles.names.map((preset) => [preset, profiles] as const),
);
const AGENT = {} as ConstructorParameters<typeof FrameSet>[1]["agent"];

const readBy = (profiles: Profiles, preset: string) => {
  const declared = create(WireProfileSchema, { preset });
  return readsOf(profiles.of(declared), declared)!;
};

describe("the input contract of", () => {
  test.each(PRESETS)("%s equals what its wire accepts", async (preset, profiles) => {
    const profile = profiles.of(create(WireProfileSchema, { preset }));
    const { input } = readBy(profiles, preset);
    const random = seeded(preset.length);
    const data = await redSquare(0.5, 0.5, 8);
    const cameras = profile.frames.flatMap(({ camera, key }) => [camera, key]);
    for (let i = 0; i < runs(5); i++) {
      const named = random() < 0.8;
      const frames = cameras
        .filter(() => random() < 0.75)
        .map((camera) => create(FrameSchema, { camera: named ? camera : "", data }));
      const wanted = input?.proprio[0]?.dimension ?? 0;
      const length = random() < 0.7 ? wanted : Math.floor(random() * (wanted + 10));
      const seen = create(ObservationSchema, { frames, proprio: Array<number>(length).fill(0.1) });
      const given = { observations: [seen], instruction: "go" };
      const set = new FrameSet(frameSources([seen]), { agent: AGENT, allowPrivate: false });
      const refused = await partsOf(
        profile,
        { ...given, seed: undefined, temperature: undefined, sessionId: undefined },
        set,
      ).then(
        () => undefined,
        (thrown: unknown) => thrown as UpstreamFailure,
      );
      const faults = inputFaults(input!, given);
      expect([refused?.message, faults], JSON.stringify(frames.map(({ camera }) => camera))).toEqual(
        refused ? [expect.any(String), expect.arrayContaining([expect.anything()])] : [undefined, []],
      );
    }
  });
});

describe("a profile preset", () => {
  it("declares its image sizes, its camera positions, and LIBERO's gripper convention", () => {
    const { input, actions } = readBy(OPENPI, "openpi/libero");
    expect(input?.cameras?.cameras).toMatchObject([
      { name: "agentview", role: CameraRole.SCENE, width: 224, height: 224, anySize: true, required: true },
      { name: "wrist", role: CameraRole.WRIST, required: true },
    ]);
    expect(input?.proprio).toMatchObject([{ dimension: 8 }]);
    expect(actions).toMatchObject([
      { reference: ActionReference.RELATIVE, gripper: { indexes: [6], open: -1, closed: 1 } },
    ]);
  });

  it("names the action's numbers by the parts of the answer", () => {
    expect(readBy(GR00T, "gr00t/libero").actions[0]?.names).toEqual(["x", "y", "z", "roll", "pitch", "yaw", "gripper"]);
    expect(readBy(GR00T, "gr00t/gr1_arms_waist").actions[0]?.names.slice(6, 9)).toEqual([
      "left_arm.6",
      "right_arm.0",
      "right_arm.1",
    ]);
  });

  it("of LeRobot names its motors", () => {
    const wire = createUpstream({ allowPrivate: true, dnsServers: undefined } as never).wireOf("lerobot-async");
    const { input } = wire!.reads!(create(WireProfileSchema, { preset: "lerobot/so101" }))!;
    expect(input?.proprio[0]?.names.slice(0, 2)).toEqual(["shoulder_pan.pos", "shoulder_lift.pos"]);
    expect(input?.cameras?.cameras).toMatchObject([{ name: "front", width: 640, height: 480 }, { name: "wrist" }]);
  });

  it("that does not exist declares nothing, and neither does a profile of samples alone", () => {
    const plain = create(WireProfileSchema, { samples: [{}, {}] });
    expect(readsOf(OPENPI.of(plain), plain)).toBeUndefined();
  });
});
