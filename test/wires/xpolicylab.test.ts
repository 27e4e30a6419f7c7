/** The wire of XPolicyLab: what its policy servers are told, episode by episode, and what of their answers is taken. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import type { UpstreamTarget, Wire } from "../../src/upstream/wire.ts";
import type { OpenpiServer } from "../support/openpi-server.ts";
import { unpack } from "../support/plain-msgpack.ts";
import { tree } from "../support/servers/vla-eval.ts";
import { nd, startXPolicyServer, type XPolicyOptions } from "../support/servers/xpolicylab.ts";
import { actInput, callWith, failureIn, framesOf, nameOf, observed, rowsOf, targetAt } from "../support/wire-calls.ts";

type Tree = Map<string, Tree> & { [index: number]: Tree };
const STEPS = [
  [1, 2],
  [3, 4],
];

let upstream: Upstream;
let wire: Required<Pick<Wire, "act" | "probes" | "health">>;
let server: OpenpiServer;

beforeEach(() => {
  upstream = createUpstream({ allowPrivate: true });
  wire = upstream.wireOf("xpolicylab-ws") as Required<Wire>; // it has all of these
});
afterEach(async () => {
  await upstream.close();
  await server.close();
});

const serve = async (options: XPolicyOptions = {}): Promise<void> => {
  server = await startXPolicyServer(options);
  server.behave({ kind: "steps", steps: STEPS });
};
const target = (init: MessageInitShape<typeof WireProfileSchema> = {}, more: Partial<UpstreamTarget> = {}) =>
  targetAt(server.endpoint, { profile: create(WireProfileSchema, init), ...more });
const act = (more = {}, at = target(), seen = observed()) =>
  wire.act(at, actInput({ observations: [seen], ...more }), framesOf(seen), callWith());
const said = (): Tree[] => server.requests.map((bytes) => unpack(bytes) as Tree);
const told = (key: string) => said().map((each) => each.get(key) as unknown);

describe("an XPolicyLab policy server", () => {
  it("receives a greeting, the start of an episode, and colors, state and instruction by XPolicyLab's names", async () => {
    await serve();
    const frames = [{ camera: "front", data: await redSquare(0.5, 0.5, 32) }];
    expect(rowsOf(await act({}, target(), observed({ frames, proprio: [0.5, -1] })))).toEqual(STEPS);
    expect(told("message_type")).toEqual(["hello", "reset", "infer"]);
    for (const each of said()) {
      const { message_id, evaluation_id, action_case_id, sent_at } = Object.fromEntries(each) as Record<
        string,
        unknown
      >;
      expect([message_id, evaluation_id, action_case_id]).toEqual([expect.stringMatching(/^req_/), "limber", null]);
      expect(Number.isNaN(Date.parse(String(sent_at)))).toBe(false);
    }
    const observation = said().at(-1)!.get("payload")!.get("observation")!;
    expect([...observation.keys()]).toEqual(["vision", "state", "instruction"]);
    const color = observation.get("vision")!.get("cam_head")!.get("color")!;
    expect([color.get("type"), color.get("shape")]).toEqual(["|u1", [480, 640, 3]]);
    const state = observation.get("state")!.get("arm_joint_state")!;
    expect([state.get("type"), state.get("shape")]).toEqual(["<f4", [2]]);
  });

  it("receives arrays with byte keys, because it takes others for maps", async () => {
    await serve();
    await act();
    expect(server.requests.at(-1)!.includes(Buffer.concat([Buffer.of(0xc4, 2), Buffer.from("nd")]))).toBe(true);
  });

  it("starts each episode of a session with a reset, counts its inferences, and has one for each call without a session", async () => {
    await serve();
    const episodes = [undefined, undefined, "a-2", "a-2"];
    for (const episode of episodes) await act({ sessionId: "a", episode });
    expect(told("message_type")).toEqual(["hello", "reset", "infer", "infer", "reset", "infer", "infer"]);
    expect(told("step")).toEqual([0, 0, 0, 1, 0, 0, 1]);
    expect(told("trial_id").slice(1)).toEqual(["a", "a", "a", "a-2", "a-2", "a-2"]);
  });

  it("serves calls without a session as separate episodes", async () => {
    await serve();
    for (let i = 0; i < 2; i++) await act();
    expect(told("message_type")).toEqual(["hello", "reset", "infer", "reset", "infer"]);
    expect(server.counts.connections).toBe(1);
  });

  it("serves one session at a time, because its policy has one state", async () => {
    await serve();
    await act({ sessionId: "a" });
    expect(nameOf(await failureIn(act({ sessionId: "b" })))).toBe("UPSTREAM_BUSY");
    expect(rowsOf(await act({ sessionId: "a" }))).toEqual(STEPS);
  });

  it("starts the episode again after a failure", async () => {
    await serve();
    await act({ sessionId: "a" });
    server.behave({ kind: "error", text: "CUDA error" }, { kind: "steps", steps: STEPS });
    expect(nameOf(await failureIn(act({ sessionId: "a" })))).toBe("UPSTREAM_ERROR");
    expect(rowsOf(await act({ sessionId: "a" }))).toEqual(STEPS);
    expect(told("message_type").filter((type) => type === "reset")).toHaveLength(2);
  });

  it("that cannot start an episode fails the call, and receives no observation", async () => {
    await serve({ refuse: "model.reset is not callable" });
    expect(nameOf(await failureIn(act()))).toBe("UPSTREAM_ERROR");
    expect(server.acts).toEqual([]);
  });

  it("is alive if it has no health route and requires an upgrade", async () => {
    await serve();
    await wire.health(target(), callWith());
  });

  it("reports its name to the probe", async () => {
    await serve({ hello: { server_instance_id: "ab12" } });
    const [probe] = wire.probes;
    await expect(probe?.look(target(), callWith())).resolves.toBe("it is test_policy_server, started as ab12");
  });
});

describe("XPolicyLab actions", () => {
  const parts = (left: number[], right: number[]) =>
    tree({ right_arm_joint_state: nd(right), left_arm_joint_state: nd(left) });

  it("are the parts of each step in the profile's order", async () => {
    await serve({ actions: (steps) => steps.map(([a = 0, b = 0]) => parts([a], [b])) });
    const keys = { actionKeys: ["right_arm_joint_state", "left_arm_joint_state"] };
    expect(rowsOf(await act({}, target(keys)))).toEqual([
      [2, 1],
      [4, 3],
    ]);
  });

  it("without declared parts are joints, arm by arm", async () => {
    await serve({ actions: (steps) => steps.map(([a = 0, b = 0]) => parts([a], [b])) });
    expect(rowsOf(await act())).toEqual(STEPS);
  });

  it("of two arms and their grippers make 14 numbers by the preset profile", async () => {
    const step = tree({
      left_arm_joint_state: nd([1, 2, 3, 4, 5, 6]),
      left_ee_joint_state: nd([7]),
      right_arm_joint_state: nd([8, 9, 10, 11, 12, 13]),
      right_ee_joint_state: 14,
    });
    await serve({ actions: () => [step] });
    const frames = await Promise.all(
      ["cam_head", "cam_left_wrist", "cam_right_wrist"].map(async (camera) => ({
        camera,
        data: await redSquare(0.5, 0.5, 32),
      })),
    );
    const seen = observed({ frames, proprio: Array.from({ length: 14 }, (_, i) => i) });
    const answer = await act({ horizon: 1 }, target({ preset: "xpolicylab/two-arms" }, { actionDim: 14 }), seen);
    expect(rowsOf(answer)).toEqual([Array.from({ length: 14 }, (_, i) => i + 1)]);
    const state = said().at(-1)!.get("payload")!.get("observation")!.get("state")!;
    expect([...state.keys()]).toEqual([
      "left_arm_joint_state",
      "left_ee_joint_state",
      "right_arm_joint_state",
      "right_ee_joint_state",
    ]);
  });

  it.each<[string, unknown]>([
    ["a single step alone", tree({ arm_joint_state: nd([1, 2]) })],
    ["steps of plain lists", [tree({ arm_joint_state: [1, 2] })]],
    ["an array of rows", nd([1, 2], [1, 2])],
  ])("can be %s", async (_, actions) => {
    await serve({ actions: () => actions });
    expect(rowsOf(await act({ horizon: 1 }))).toEqual([[1, 2]]);
  });

  it.each<[string, XPolicyOptions, string]>([
    ["poses without declared parts", { actions: () => [tree({ ee_pose: nd([1, 2]) })] }, "MALFORMED_ANSWER"],
    [
      "steps of different length",
      { actions: () => [tree({ arm_joint_state: nd([1, 2]) }), tree({ arm_joint_state: nd([1]) })] },
      "MALFORMED_ANSWER",
    ],
    ["no steps", { actions: () => [] }, "EMPTY_ANSWER"],
    ["texts", { actions: () => [tree({ arm_joint_state: "left" })] }, "MALFORMED_ANSWER"],
    ["nothing", { actions: () => null }, "MALFORMED_ANSWER"],
    ["for another request", { ids: (asked) => ({ ...asked, message_id: "other" }) }, "MALFORMED_ANSWER"],
  ])("%s are invalid", async (_, options, name) => {
    await serve(options);
    expect(nameOf(await failureIn(act()))).toBe(name);
  });
});
