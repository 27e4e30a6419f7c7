/** Damaged messages of XPolicyLab's client: each is answered or refused, and nothing else is thrown. */
import { expect, it } from "vitest";
import { encodeGr00t } from "../../../../../src/codecs/python/gr00t.ts";
import { NdArray } from "../../../../../src/codecs/python/ndarray.ts";
import { XPolicyProtocol } from "../../../../../src/edge/transports/openpi/xpolicylab.ts";
import { Refusal } from "../../../../../src/errors.ts";
import { runs } from "../../../../support/runs.ts";
import { mutations } from "../../../codecs/fuzz.ts";

const BY = { asker: { key: "org_1", robot: "arm" } };
const observation = {
  instruction: "fold",
  env_idx: 1,
  vision: { cam_head: { color: NdArray.uint8(new Uint8Array(12), [2, 2, 3]) } },
  state: { arm_joint_state: NdArray.float32([1, 2, 3, 4, 5, 6]), ee_joint_state: NdArray.float32([7]) },
};
const frame = (message_type: string, payload: object): Buffer =>
  encodeGr00t({ message_type, message_id: "m", evaluation_id: "e", step: 0, payload: payload as never }, "numpy");
const FRAMES = [
  frame("infer", { observation }),
  frame("call", { func_name: "update_obs", obs: observation }),
  frame("call", { func_name: "get_action" }),
  frame("reset", { trial_id: "t" }),
];

it("the XPolicyLab transport answers or refuses damaged messages in any order", async () => {
  const query = { model: "a/b", actionSpace: "joint_pos_7", sessionId: "s", episode: 1 };
  let protocol = new XPolicyProtocol(query);
  let count = 0;
  for (const message of mutations(FRAMES, runs(1_500), 7)) {
    if (count++ % 5 === 0) protocol = new XPolicyProtocol(query);
    if (protocol.aside(message, true, 0)) continue;
    const heard = await protocol.read(message, true, BY).catch((thrown: unknown) => thrown);
    if (heard instanceof Refusal) expect(protocol.refused(heard.message).length).toBeGreaterThan(0);
    else expect(heard).toMatchObject({ kind: "act" });
  }
});
