/** What models read: requests against contracts, each refusal by its field; the quick check against the thorough one; and what meanings differ in. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, it, test } from "vitest";
import {
  ActionMeaningSchema,
  ActionReference,
  InputContractSchema,
  InputNeed,
  RotationForm,
} from "../../../gen/limber/v1/input_contract_pb.ts";
import { FrameSchema, ImageFormat, ObservationSchema } from "../../../gen/limber/v1/observation_pb.ts";
import {
  differenceOf,
  type GivenInput,
  inputDeclarationFault,
  inputFaults,
  meaningIn,
  meetsContract,
  quickCheckOf,
  type ReadPicture,
  readsOf,
} from "../../../src/contracts/inputs.ts";
import { readPicture } from "../../../src/upstream/pictures/header.ts";
import { redSquareAs } from "../../../src/upstream/pictures/test-picture.ts";
import { seeded } from "../../support/chance.ts";
import { runs } from "../../support/runs.ts";

type Contract = MessageInitShape<typeof InputContractSchema>;
type Meaning = MessageInitShape<typeof ActionMeaningSchema>;
type Seen = MessageInitShape<typeof ObservationSchema>;

const contractOf = (said: Contract) => create(InputContractSchema, said);
const given = (seen: Seen | readonly Seen[], more: Omit<GivenInput, "observations"> = {}): GivenInput => ({
  observations: (Array.isArray(seen) ? seen : [seen]).map((each: Seen) => create(ObservationSchema, each)),
  ...more,
});
const shot = (camera: string, more: object = {}) => ({ camera, url: "https://robot.example/picture", ...more });
const goalImage = create(FrameSchema, shot("goal"));

const TWO: Contract = {
  cameras: {
    cameras: [
      { name: "front", required: true },
      { name: "wrist", aliases: ["hand"] },
    ],
  },
};
const SIZED: Contract = { cameras: { cameras: [{ name: "front", width: 224, height: 224, required: true }] } };
const JPEG: Contract = { cameras: { cameras: [{ name: "front", formats: [ImageFormat.JPEG] }] } };
const NAMED: Contract = { proprio: [{ names: ["x", "y", "grip"], units: ["m", "m", "1"] }] };

/** Name, contract, request, and the path and rule of every fault. */
const TABLE: readonly (readonly [string, Contract, GivenInput, Readonly<Record<string, string>>])[] = [
  ["nothing declared", {}, given({ proprio: [1] }), {}],
  ["both pictures", TWO, given({ frames: [shot("front"), shot("wrist")] }), {}],
  ["the required picture alone", TWO, given({ frames: [shot("front")] }), {}],
  ["a picture under another name of its camera", TWO, given({ frames: [shot("front"), shot("hand")] }), {}],
  ["pictures without names, by place", TWO, given({ frames: [shot(""), shot("")] }), {}],
  ["no picture at all", TWO, given({}), { "observations.0.frames": "missing" }],
  [
    "a misspelt camera",
    TWO,
    given({ frames: [shot("frnt")] }),
    { "observations.0.frames": "missing", "observations.0.frames.0.camera": "extra_forbidden" },
  ],
  [
    "a camera too many",
    TWO,
    given({ frames: [shot("front"), shot("rear")] }),
    { "observations.0.frames.1.camera": "extra_forbidden" },
  ],
  [
    "a picture too many, without names",
    SIZED,
    given({ frames: [shot(""), shot("")] }),
    { "observations.0.frames.1": "extra_forbidden" },
  ],
  [
    "the same camera twice",
    TWO,
    given({ frames: [shot("front"), shot("front")] }),
    { "observations.0.frames.1.camera": "extra_forbidden" },
  ],
  [
    "another camera, where others may be sent",
    { ...TWO, otherCameras: true },
    given({ frames: [shot("front"), shot("rear")] }),
    {},
  ],
  [
    "another camera beside a missing one, where others may be sent",
    { ...TWO, otherCameras: true },
    given({ frames: [shot("rear")] }),
    { "observations.0.frames": "missing", "observations.0.frames.0.camera": "extra_forbidden" },
  ],
  [
    "any picture for a model without cameras",
    { cameras: { cameras: [] } },
    given({ frames: [shot("front")] }),
    { "observations.0.frames.0.camera": "extra_forbidden" },
  ],
  [
    "a stated width that is another",
    SIZED,
    given({ frames: [shot("front", { width: 640, height: 224 })] }),
    { "observations.0.frames.0.width": "value_error" },
  ],
  ["a size that is not stated", SIZED, given({ frames: [shot("front")] }), {}],
  [
    "another size, where any is taken",
    { cameras: { cameras: [{ name: "front", width: 224, height: 224, anySize: true }] } },
    given({ frames: [shot("front", { width: 640, height: 480 })] }),
    {},
  ],
  [
    "another encoding",
    JPEG,
    given({ frames: [shot("front", { format: ImageFormat.PNG })] }),
    { "observations.0.frames.0.format": "value_error" },
  ],
  ["the numbers of a layout", NAMED, given({ proprio: [1, 2, 3] }), {}],
  ["no numbers", NAMED, given({}), { "observations.0.proprio": "missing" }],
  ["too few numbers", NAMED, given({ proprio: [1, 2] }), { "observations.0.proprio": "length" }],
  ["too many numbers", NAMED, given({ proprio: [1, 2, 3, 4] }), { "observations.0.proprio": "length" }],
  [
    "more numbers, where more may be sent",
    { proprio: [{ dimension: 3, moreValues: true }] },
    given({ proprio: [1, 2, 3, 4] }),
    {},
  ],
  [
    "numbers for a model that reads none",
    { proprio: [{ dimension: 0 }] },
    given({ proprio: [1] }),
    { "observations.0.proprio": "extra_forbidden" },
  ],
  [
    "names that are others",
    NAMED,
    given({ proprio: [1, 2, 3], proprioNames: ["x", "y", "z"] }),
    { "observations.0.proprio_names": "extra_forbidden" },
  ],
  [
    "names in another order",
    NAMED,
    given({ proprio: [1, 2, 3], proprioNames: ["y", "x", "grip"] }),
    { "observations.0.proprio_names": "value_error" },
  ],
  [
    "names in another order, where any order will do",
    { proprio: [{ names: ["x", "y"], anyOrder: true }] },
    given({ proprio: [1, 2], proprioNames: ["y", "x"] }),
    {},
  ],
  ["the second layout", { proprio: [{ dimension: 2 }, { dimension: 5 }] }, given({ proprio: [1, 2, 3, 4, 5] }), {}],
  [
    "a layout of another action space",
    {
      proprio: [
        { dimension: 2, actionSpace: "joint_pos_7" },
        { dimension: 3, actionSpace: "joint_pos_14" },
      ],
    },
    given({ proprio: [1, 2, 3] }, { actionSpace: "joint_pos_7" }),
    { "observations.0.proprio": "length" },
  ],
  ["no instruction", { language: { need: InputNeed.REQUIRED } }, given({}), { instruction: "missing" }],
  [
    "an instruction that is not read",
    { language: { need: InputNeed.NONE } },
    given({}, { instruction: "go" }),
    { instruction: "extra_forbidden" },
  ],
  ["an instruction that is ignored", { language: { need: InputNeed.IGNORED } }, given({}, { instruction: "go" }), {}],
  ["no goal", { goalImage: { need: InputNeed.REQUIRED } }, given({}), { goal_image: "missing" }],
  [
    "a goal that is not read",
    { goalImage: { need: InputNeed.NONE } },
    given({}, { goalImage }),
    { goal_image: "extra_forbidden" },
  ],
  ["too few moments", { history: { least: 2 } }, given({}), { observations: "length" }],
  ["too many moments", { history: { most: 1 } }, given([{}, {}]), { observations: "length" }],
  ["the newest of several moments counts", NAMED, given([{ proprio: [1] }, { proprio: [1, 2, 3] }]), {}],
  [
    "the newest of several moments is named",
    NAMED,
    given([{ proprio: [1, 2, 3] }, { proprio: [1] }]),
    { "observations.1.proprio": "length" },
  ],
  [
    "several things at once",
    { ...SIZED, ...NAMED, language: { need: InputNeed.REQUIRED } },
    given({ proprio: [1] }),
    { "observations.0.frames": "missing", "observations.0.proprio": "length", instruction: "missing" },
  ],
];

describe("a request against an input contract", () => {
  test.each(TABLE)("%s", (_, said, request, wanted) => {
    const contract = contractOf(said);
    const faults = inputFaults(contract, request);
    expect(Object.fromEntries(faults.map(({ path, type }) => [path, type]))).toEqual(wanted);
    expect(meetsContract(contract, request)).toBe(faults.length === 0);
    // Whoever reads the refusal reads what would serve.
    for (const { message, change } of faults) expect(message.length * change.length).toBeGreaterThan(0);
    if (quickCheckOf(contract)(request)) expect(faults).toEqual([]);
  });

  it("is checked by an image's bytes before its declared values", async () => {
    const data = await redSquareAs({ x: 0.5, y: 0.5 }, { width: 64, height: 48 });
    const lying = given({ frames: [{ camera: "front", data, width: 224, height: 224 }] });
    expect(inputFaults(contractOf(SIZED), lying, readPicture).map(({ path }) => path)).toEqual([
      "observations.0.frames.0.width",
      "observations.0.frames.0.height",
    ]);
    const url = `data:image/jpeg;base64,${data.toString("base64")}`;
    const [fault] = inputFaults(contractOf(JPEG), given({ frames: [{ camera: "front", url }] }), readPicture);
    expect(fault).toMatchObject({ path: "observations.0.frames.0.format", message: expect.stringContaining("is png") });
    const broken = given({ frames: [{ camera: "front", url: "data:image/png;base64,%%%" }] });
    expect(inputFaults(contractOf(SIZED), broken, readPicture)).toEqual([]);
  });

  it("admits by the quick check nothing that the thorough check refuses, and all of the simplest requests", () => {
    const random = seeded(11);
    const below = (limit: number): number => Math.floor(random() * limit);
    const pick = <T>(all: readonly T[]): T => all[below(all.length)]!;
    const names = ["", "front", "wrist", "hand"];
    const read: ReadPicture = () => undefined;
    let agreed = 0;
    for (let i = 0; i < runs(800); i++) {
      const contract = contractOf({
        ...(below(2) && {
          cameras: {
            cameras: names.slice(below(2), 1 + below(3)).map((name) => ({
              name,
              required: below(2) === 1,
              anySize: below(2) === 1,
              ...(below(3) === 0 && { width: 8 }),
              formats: below(4) === 0 ? [ImageFormat.PNG] : [],
            })),
          },
        }),
        otherCameras: below(2) === 1,
        proprio: Array.from({ length: below(3) }, () => ({
          ...(below(4) > 0 && { dimension: below(3) }),
          moreValues: below(3) === 0,
          actionSpace: pick(["", "", "joint_pos_7"]),
        })),
        ...(below(3) === 0 && { language: { need: pick([1, 2, 3, 4]) } }),
        ...(below(3) === 0 && { goalImage: { need: pick([1, 2, 3, 4]) } }),
        ...(below(3) === 0 && { history: { least: 1 + below(2), most: 2 } }),
      });
      const seen = Array.from({ length: 1 + below(3) }, () => ({
        frames: Array.from({ length: below(3) }, () => shot(pick(names), below(2) ? { width: 8 } : {})),
        proprio: Array.from({ length: below(4) }, () => 0),
        proprioNames: below(8) === 0 ? ["x"] : [],
      }));
      const request = given(seen, {
        instruction: pick(["", "go"]),
        goalImage: pick([undefined, goalImage]),
        actionSpace: pick([undefined, "joint_pos_7", "joint_pos_14"]),
      });
      const isFine = inputFaults(contract, request, read).length === 0;
      if (quickCheckOf(contract)(request)) {
        expect(isFine, JSON.stringify([contract, request])).toBe(true);
        agreed++;
      }
    }
    expect(agreed).toBeGreaterThan(100);
  });

  it("has a sentence that describes what is read", () => {
    const contract = contractOf({
      cameras: { cameras: [{ name: "front", width: 224, height: 224, required: true }, { name: "wrist" }] },
      proprio: [
        { names: ["x", "y"], units: ["m"] },
        { dimension: 0, actionSpace: "joint_pos_7" },
      ],
      language: { need: InputNeed.OPTIONAL },
      goalImage: { need: InputNeed.REQUIRED },
      history: { least: 2 },
    });
    expect(readsOf(contract, "joint_pos_14")).toBe(
      "pictures of front (224 by 224), wrist if there is one; 2 values in m (x, y) of proprioception; an instruction if there is one; a goal_image; at least 2 observations",
    );
    expect(readsOf(contractOf({}))).toBeUndefined();
  });
});

const meaning = (said: MessageInitShape<typeof ActionMeaningSchema>) => create(ActionMeaningSchema, said);

describe("action semantics", () => {
  const arm = { names: ["x", "y"], units: ["m"], reference: ActionReference.RELATIVE, referenceFrame: "base" } as const;
  test.each([
    ["the same", arm, arm, undefined],
    ["what one leaves out", arm, {}, undefined],
    ["one unit for all", arm, { units: ["m", "m"] }, undefined],
    ["another unit for all", arm, { units: ["rad"] }, "units"],
    ["another unit of one number", arm, { units: ["m", "rad"] }, "units"],
    ["other names", arm, { names: ["x", "z"] }, "names"],
    ["fewer names", arm, { names: ["x"] }, "names"],
    ["absolute and relative", arm, { reference: ActionReference.ABSOLUTE }, "reference"],
    ["another frame", arm, { referenceFrame: "tool" }, "reference_frame"],
    ["another form of turns", { rotation: RotationForm.AXIS_ANGLE }, { rotation: RotationForm.EULER_XYZ }, "rotation"],
    ["a gripper turned round", { gripper: { open: 1, closed: 0 } }, { gripper: { open: 0, closed: 1 } }, "gripper"],
    ["a gripper elsewhere", { gripper: { indexes: [6], open: 1 } }, { gripper: { indexes: [7], open: 1 } }, "gripper"],
    ["a gripper of which one says nothing", { gripper: { open: 1, closed: 0 } }, {}, undefined],
  ] as const)("%s", (_, one, other, wanted) => {
    expect(differenceOf(meaning(one as object), meaning(other as object))).toBe(wanted);
    expect(differenceOf(meaning(other as object), meaning(one as object))).toBe(wanted);
  });

  it("of one space take precedence over those of every space", () => {
    const all = meaning({ referenceFrame: "base" });
    const one = meaning({ actionSpace: "joint_pos_7" });
    expect([
      meaningIn([all, one], "joint_pos_7"),
      meaningIn([all, one], "joint_pos_14"),
      meaningIn([one], "x"),
    ]).toEqual([one, all, undefined]);
  });
});

describe("an input declaration", () => {
  const faultOf = (input: Contract, actions: readonly Meaning[] = []) =>
    inputDeclarationFault({
      input: contractOf(input),
      actions: actions.map(meaning),
      actionSpaces: ["joint_pos_7", "ee_delta_6d_grip"],
      dimOf: () => 7,
    })?.path;
  test.each([
    ["without contradictions", { ...TWO, ...NAMED }, [{ units: ["rad"] }], undefined],
    [
      "with one name for two cameras",
      { cameras: { cameras: [{ name: "a" }, { name: "b", aliases: ["a"] }] } },
      [],
      "input.cameras.1",
    ],
    [
      "with another number of names than of values",
      { proprio: [{ names: ["x"], dimension: 2 }] },
      [],
      "input.proprio.0.names",
    ],
    ["with a name twice", { proprio: [{ names: ["x", "x"] }] }, [], "input.proprio.0.names"],
    ["with too few units", { proprio: [{ dimension: 3, units: ["m", "m"] }] }, [], "input.proprio.0.units"],
    [
      "of a layout for a space that it does not emit",
      { proprio: [{ actionSpace: "base_twist_2d" }] },
      [],
      "input.proprio.0.action_space",
    ],
    ["of more values than it does not say", { proprio: [{ moreValues: true }] }, [], "input.proprio.0.more_values"],
    ["of a history that cannot be", { history: { least: 3, most: 2 } }, [], "input.history.least"],
    ["of actions in a space that it does not emit", {}, [{ actionSpace: "base_twist_2d" }], "actions.0.action_space"],
    ["of two meanings of one space", {}, [{}, {}], "actions.1.action_space"],
    ["with names for another number of actions", {}, [{ names: ["x"] }], "actions.0.names"],
    ["with units for another number of actions", {}, [{ units: ["m", "m"] }], "actions.0.units"],
    ["with a gripper beyond the action", {}, [{ gripper: { indexes: [7], open: 1 } }], "actions.0.gripper.indexes.0"],
    ["with a gripper that never closes", {}, [{ gripper: { open: 1, closed: 1 } }], "actions.0.gripper.closed"],
  ] as const)("%s", (_, input, actions, path) => {
    expect(faultOf(input as Contract, actions as readonly object[] as readonly Meaning[])).toBe(path);
  });
});
