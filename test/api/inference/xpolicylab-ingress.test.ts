/** XPolicyLab's client at the gateway: both generations of its messages, its episodes, and what is refused before anything runs. */
import { once } from "node:events";
import sharp from "sharp";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { WebSocket } from "ws";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { setClock } from "../../support/clocks.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { pack, unpack } from "../../support/plain-msgpack.ts";
import { tree } from "../../support/servers/vla-eval.ts";
import { nd } from "../../support/servers/xpolicylab.ts";
import { SkippingClock } from "../../support/skipping-clock.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme", "one");

type Tree = Map<string, Tree> & { [index: number]: Tree };

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  const supply = { provider: named.one, endpoint: model.endpoint };
  await app.supply({ ...supply, model: `${named.acme}/arm`, action_spaces: ["joint_pos_7"] });
  await app.supply({ ...supply, model: `${named.acme}/hand`, action_spaces: ["ee_delta_6d_grip"] });
  caller = await app.caller(10);
});

/** What the client's `WsModelClient` does: one frame, and the frame that answers it. */
async function connect(path = `/v1/xpolicylab/${named.acme}/arm`, user = "", { key } = caller) {
  const authorization = user === "" ? `Bearer ${key}` : `Basic ${Buffer.from(`${user}:${key}`).toString("base64")}`;
  const socket = new WebSocket(app.url.replace("http", "ws") + path, { headers: { authorization } });
  onTestFinished(() => socket.terminate());
  await once(socket, "open");
  let count = 0;
  const send = (type: string, payload: unknown): string => {
    const message_id = `m-${++count}`;
    const ids = { message_id, evaluation_id: "e", action_case_id: null, trial_id: "t", repeat_index: null, step: 3 };
    socket.send(
      pack(tree({ message_type: type, ...ids, sent_at: "2026-01-01T00:00:00+00:00", payload: tree(payload) })),
    );
    return message_id;
  };
  const ask = async (type: string, payload: unknown = {}): Promise<{ type: string; payload: Tree }> => {
    const heard = once(socket, "message");
    const asked = send(type, payload);
    const answer = unpack(((await heard) as [Buffer])[0]) as Tree;
    expect([answer.get("message_id"), answer.get("trial_id"), answer.get("step")]).toEqual([asked, "t", 3]);
    return { type: String(answer.get("message_type")), payload: answer.get("payload")! };
  };
  return {
    socket,
    send,
    ask,
    call: (func_name: string, obs?: unknown) => ask("call", { func_name, ...(obs !== undefined && { obs }) }),
  };
}

const u1 = (shape: readonly number[], data: Buffer) =>
  new Map<unknown, unknown>([
    [Buffer.from("nd"), true],
    [Buffer.from("type"), "|u1"],
    [Buffer.from("kind"), Buffer.alloc(0)],
    [Buffer.from("shape"), shape],
    [Buffer.from("data"), data],
  ]);
const COLOR = u1([4, 4, 3], Buffer.alloc(48, 7));
const STATE = { ee_joint_state: nd([7]), arm_joint_state: nd([1, 2, 3, 4, 5, 6]), mobile: tree({ base_pose: [0, 0] }) };
const seen = (more: object = {}) =>
  tree({
    instruction: "fold",
    vision: { cam_head: { color: COLOR, depth: COLOR } },
    state: STATE,
    env_idx: 0,
    ...more,
  });
const numbers = (array: Tree): number[] => [
  ...new Float32Array(new Uint8Array(array.get("data") as unknown as Buffer).buffer),
];
/** Rows of an action, part by part. */
const rowsOf = (actions: Tree): number[][] =>
  (actions as unknown as Tree[]).map((step) => [...step.values()].flatMap(numbers));
const wanted = () => honestSteps(model.acts.at(-1)!, 7).map((row) => row.map((value) => expect.closeTo(value, 4)));

describe("XPolicyLab's client", () => {
  it("of the first generation gets a chunk per observation, as one map per step", async () => {
    const { ask } = await connect();
    expect((await ask("hello")).payload.get("ok")).toBe(true);
    expect((await ask("reset", { trial_id: "t" })).type).toBe("reset_result");
    const { type, payload } = await ask("infer", { observation: seen() });
    expect(type).toBe("infer_result");
    const [first] = payload.get("actions") as unknown as Tree[];
    expect([...first!.keys()]).toEqual(["arm_joint_state", "ee_joint_state"]);
    expect(first!.get("arm_joint_state")!.get("shape")).toEqual([6]);
    expect(rowsOf(payload.get("actions")!)).toEqual(wanted());
    const asked = model.acts.at(-1)!;
    expect([asked.instruction, asked.observations.at(-1)?.proprio]).toEqual(["fold", [1, 2, 3, 4, 5, 6, 7]]);
    expect(asked.observations.at(-1)?.frames.map(({ camera }) => camera)).toEqual(["cam_head"]);
  });

  it("of the second generation updates its observation at every step and pays only for actions", async () => {
    const { call } = await connect();
    const before = model.acts.length;
    for (const gripper of [1, 2, 3]) {
      const state = { ...STATE, ee_joint_state: nd([gripper]) };
      expect((await call("update_obs", seen({ state }))).payload.get("ok")).toBe(true);
    }
    expect(model.acts).toHaveLength(before);
    const { type, payload } = await call("get_action");
    expect([type, payload.get("ok")]).toEqual(["call_result", true]);
    expect(rowsOf(payload.get("result")!)).toEqual(wanted());
    expect(model.acts.at(-1)?.observations.at(-1)?.proprio.at(-1)).toBe(3);
    await call("update_obs_batch", [seen()]);
    expect(rowsOf((await call("get_action_batch", [0])).payload.get("result")![0]!)).toEqual(wanted());
  });

  it("gets the age of the kept observation", async () => {
    const clock = setClock(new SkippingClock());
    const { call } = await connect();
    const ageMs = async () => Number((await call("get_action")).payload.get("gateway")?.get("observation_age_ms"));
    await call("update_obs", seen());
    expect(await ageMs()).toBeLessThan(60_000);
    clock.skip(60_000);
    expect(await ageMs()).toBeGreaterThan(60_000);
    await call("update_obs", seen());
    expect(await ageMs()).toBeLessThan(60_000);
  });

  it("starts an episode by a reset, which drops earlier observations", async () => {
    const { ask, call } = await connect();
    await call("update_obs", seen());
    await ask("reset");
    const { type, payload } = await call("get_action");
    expect([type, payload.get("code")]).toEqual(["error", "call_failed"]);
    expect(String(payload.get("message"))).toContain("call update_obs first");
  });

  it("carries the model as user of an address without a path", async () => {
    const { ask } = await connect("/", `xpolicylab%2F${named.acme}%2Farm`);
    expect((await ask("infer", { observation: seen() })).type).toBe("infer_result");
  });

  it("may send a JPEG marked with its channel order, and no other file", async () => {
    const { ask } = await connect();
    const jpeg = await sharp({ create: { width: 8, height: 8, channels: 3, background: "#f00" } })
      .jpeg()
      .toBuffer();
    const mark = Buffer.concat([Buffer.of(0xff, 0xfe, 0x00, 0x0a), Buffer.from("XPL-RGB1")]);
    const marked = Buffer.concat([jpeg.subarray(0, 2), mark, jpeg.subarray(2)]);
    for (const color of [marked, u1([marked.length], marked)])
      expect((await ask("infer", { observation: seen({ vision: { cam_head: { color } } }) })).type).toBe(
        "infer_result",
      );
    const { payload } = await ask("infer", { observation: seen({ vision: { cam_head: { color: jpeg } } }) });
    expect(String(payload.get("message"))).toContain("`vision.cam_head.color` must have XPolicyLab's mark XPL-RGB1");
  });

  it("requests the parts named in its address", async () => {
    const query = "state_keys=ee_pose,ee_joint_state&action_keys=delta_ee_pose:6,ee_joint_state:1";
    const { ask } = await connect(`/v1/xpolicylab/${named.acme}/hand?${query}`);
    const state = { ee_pose: nd([1, 2, 3, 1, 0, 0, 0]), ee_joint_state: nd([0.5]) };
    const { payload } = await ask("infer", { observation: seen({ state }) });
    expect([...(payload.get("actions") as unknown as Tree[])[0]!.keys()]).toEqual(["delta_ee_pose", "ee_joint_state"]);
    expect(model.acts.at(-1)?.observations.at(-1)?.proprio).toEqual([1, 2, 3, 1, 0, 0, 0, 0.5]);
  });

  it("can end the connection with `close`", async () => {
    const { socket, send } = await connect();
    send("close", { reason: "done" });
    const [code] = await once(socket, "close");
    expect(code).toBe(1000);
  });
});

describe("before anything runs", () => {
  it.each(["action_keys=left,left", "action_keys=a:0", "state_keys=a b", "action_keys="])(
    "an address with %s is refused at each request",
    async (query) => {
      const { ask } = await connect(`/v1/xpolicylab/${named.acme}/arm?${query}`);
      const { payload } = await ask("infer", { observation: seen() });
      expect(String(payload.get("message"))).toContain(`\`${query.split("=")[0]}\` must list parts with their sizes`);
    },
  );

  it.each<[string, string, object, string]>([
    ["an action that is not joints", "hand", {}, "actions of ee_delta_6d_grip are not known to be joints"],
    [
      "joints that do not fill an action",
      "arm",
      { state: { arm_joint_state: nd([1, 2]) } },
      "the 7 numbers of joint_pos_7 do not fill arm_joint_state 2",
    ],
    ["a state without joints", "arm", { state: { ee_pose: nd([1]) } }, "`state.ee_pose` has no defined position"],
    [
      "a picture of two axes",
      "arm",
      { vision: { cam_head: { color: u1([2, 2], Buffer.alloc(4)) } } },
      "`vision.cam_head.color` must be an image",
    ],
    ["an instruction that is no text", "arm", { instruction: 7 }, "`instruction` must be one text"],
  ])("%s is refused in the client's own keys", async (_, name, more, text) => {
    const before = model.acts.length;
    const { ask } = await connect(`/v1/xpolicylab/${named.acme}/${name}`);
    const { type, payload } = await ask("infer", { observation: seen(more) });
    expect([type, payload.get("code")]).toEqual(["error", "infer_failed"]);
    expect(String(payload.get("message"))).toContain(text);
    expect(model.acts).toHaveLength(before);
  });

  it("several environments in one call, an unknown function and an unknown type are refused, and the connection stays open", async () => {
    const { ask, call } = await connect();
    await call("update_obs_batch", [seen(), seen()]);
    expect(String((await call("get_action_batch", [0, 1])).payload.get("message"))).toContain(
      "open a connection for each",
    );
    expect(String((await call("_secret")).payload.get("message"))).toContain("func_name");
    expect((await call("update_obs", 7)).payload.get("code")).toBe("invalid_frame");
    expect((await ask("infer_result")).payload.get("code")).toBe("invalid_frame");
    expect((await ask("heartbeat")).type).toBe("heartbeat_ack");
  });

  it("gets no action for an observation that it sent before its robot was stopped", async () => {
    const mine = await app.caller(1);
    const { call } = await connect(`/v1/xpolicylab/${named.acme}/arm?robot_id=arm-1`, "", mine);
    await call("update_obs", seen());
    const { status, text } = await app.call("/v1/robots/stop", { robot_id: "arm-1" }, mine);
    expect([status, text]).toEqual([200, text]);
    const { type, payload } = await call("get_action");
    expect([type, payload.get("code")]).toEqual(["error", "call_failed"]);
    expect(String(payload.get("message"))).toContain("robot_stopped");
  });

  it("gets no action by a key that is narrowed to other models", async () => {
    const mine = await app.caller(1, { models: [`${named.acme}/hand`] });
    const { ask } = await connect(undefined, "", mine);
    const before = model.acts.length;
    const { type, payload } = await ask("infer", { observation: seen() });
    expect([type, payload.get("code")], String(payload.get("message"))).toEqual(["error", "infer_failed"]);
    expect(model.acts).toHaveLength(before);
  });

  it("counts kept observations as the caller's memory and frees it", async () => {
    const held = async () => {
      const { text } = await app.call("/metrics", undefined, { admin: ADMIN_TOKEN });
      return Number(/^limber_body_bytes_held (\d+)$/m.exec(text)?.[1]);
    };
    const { socket, call } = await connect();
    const color = u1([512, 512, 3], Buffer.alloc(512 * 512 * 3));
    await call("update_obs", seen({ vision: { cam_head: { color } } }));
    await eventually(async () => expect(await held()).toBeGreaterThan(700_000));
    socket.terminate();
    await eventually(async () => expect(await held()).toBeLessThan(700_000));
  });
});
