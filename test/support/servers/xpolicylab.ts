/** A policy server of XPolicyLab that does as it's told. */
import { type OpenpiServer, startOpenpiServer } from "../openpi-server.ts";
import { pack, unpack } from "../plain-msgpack.ts";
import { tree } from "./vla-eval.ts";

type Tree = Map<string, Tree> & { [index: number]: Tree };
type Ids = Readonly<Record<string, unknown>>;

/** How a server differs from a plain one. */
export interface XPolicyOptions {
  /** What it says of itself beside its name. */
  readonly hello?: Readonly<Record<string, unknown>>;
  /** The actions of some steps; joints of one arm by default. */
  readonly actions?: (steps: readonly (readonly number[])[]) => unknown;
  /** Other ids of an answer. */
  readonly ids?: (asked: Ids) => Ids;
  /** Refuses to begin an episode with this text. */
  readonly refuse?: string;
}

/** Numbers as msgpack_numpy packs them: its keys are bytes. */
export const nd = (values: readonly number[], shape: readonly number[] = [values.length]): Map<Buffer, unknown> =>
  new Map<Buffer, unknown>([
    [Buffer.from("nd"), true],
    [Buffer.from("type"), "<f4"],
    [Buffer.from("kind"), Buffer.alloc(0)],
    [Buffer.from("shape"), shape],
    [Buffer.from("data"), Buffer.from(Float32Array.from(values).buffer)],
  ]);

const ID_KEYS = ["message_id", "evaluation_id", "action_case_id", "trial_id", "repeat_index", "step"];
const frame = (type: string, ids: Ids, payload: unknown): Buffer =>
  pack(tree({ message_type: type, ...ids, sent_at: "2026-01-01T00:00:00+00:00", payload }));

const joints = (steps: readonly (readonly number[])[]): unknown =>
  steps.map((step) => tree({ arm_joint_state: nd(step) }));

/** Starts a server on loopback. Every message that came stands in `requests`. */
export const startXPolicyServer = (options: XPolicyOptions = {}): Promise<OpenpiServer> => {
  const { hello = {}, actions = joints, ids = (asked) => asked, refuse } = options;
  const idsOf = (bytes: Buffer): Ids => {
    const said = unpack(bytes) as Tree;
    return ids(Object.fromEntries(ID_KEYS.map((key) => [key, said.get(key)])));
  };
  const error = (text: string, bytes: Buffer, code = "infer_failed"): Buffer =>
    frame("error", idsOf(bytes), { code, message: text, details: {} });
  return startOpenpiServer({
    metadata: undefined,
    healthPath: "/none",
    aside(bytes) {
      const type = (unpack(bytes) as Tree).get("message_type") as unknown;
      if (type === "hello")
        return frame("hello_ack", idsOf(bytes), { ok: true, server: "test_policy_server", ...hello });
      if (type !== "reset") return undefined;
      return refuse === undefined
        ? frame("reset_result", idsOf(bytes), { ok: true })
        : error(refuse, bytes, "reset_failed");
    },
    read(bytes, headers) {
      const seen = (unpack(bytes) as Tree).get("payload")!.get("observation")!;
      const data = seen.get("state")?.get("arm_joint_state")?.get("data") as Buffer | undefined;
      const proprio = data === undefined ? [] : [...new Float32Array(new Uint8Array(data).buffer)];
      return { instruction: String(seen.get("instruction")), proprio, headers };
    },
    answer: (steps, bytes) => frame("infer_result", idsOf(bytes), { actions: actions(steps), latency_ms: 0.5 }),
    error,
  });
};
