/** A model server of vla-evaluation-harness that does as it's told. */
import { type OpenpiServer, startOpenpiServer } from "../openpi-server.ts";
import { pack, unpack } from "../plain-msgpack.ts";

type Tree = Map<string, Tree> & { [index: number]: Tree };

/** How a server differs from a plain one. */
export interface VlaEvalOptions {
  /** What it says of itself. */
  readonly hello?: Readonly<Record<string, unknown>>;
  /** The payload of its answer to some steps; `actions`, an array of [T, D], by default. */
  readonly payload?: (steps: readonly (readonly number[])[]) => unknown;
  /** The number of the message that an answer is said to be to; the right one by default. */
  readonly seq?: (asked: unknown) => unknown;
}

/** A map with keys of text, nested ones too. */
export const tree = (value: unknown): unknown =>
  value instanceof Object && value.constructor === Object
    ? new Map(Object.entries(value).map(([key, item]) => [key, tree(item)]))
    : value;

const message = (type: string, payload: unknown, seq: unknown): Buffer =>
  pack(tree({ type, payload, seq, timestamp: 1.5 }));

/** An array as the harness packs it. */
const array = (steps: readonly (readonly number[])[]) => ({
  __ndarray__: true,
  data: Buffer.from(Float32Array.from(steps.flat()).buffer),
  dtype: "<f4",
  shape: [steps.length, steps[0]?.length ?? 0],
});

/** Starts a server on loopback. Every message that came stands in `requests`. */
export const startVlaEvalServer = ({ hello = {}, payload, seq }: VlaEvalOptions = {}): Promise<OpenpiServer> =>
  startOpenpiServer({
    metadata: undefined,
    healthPath: "/health",
    aside(bytes) {
      const said = unpack(bytes) as Tree;
      const type = said.get("type") as unknown;
      if (type === "hello")
        return message("hello", { harness_version: "0.8.0", model_server: "Test", ...hello }, said.get("seq"));
      return type === "observation" ? undefined : "nothing";
    },
    read(bytes, headers) {
      const seen = (unpack(bytes) as Tree).get("payload")!;
      const data = seen.get("states")?.get("data") as Buffer | undefined;
      const proprio = data === undefined ? [] : [...new Float64Array(new Uint8Array(data).buffer)];
      return { instruction: String(seen.get("task_description")), proprio, headers };
    },
    answer(steps, bytes) {
      const asked = (unpack(bytes) as Tree).get("seq");
      const said = payload?.(steps) ?? { actions: array(steps) };
      return message("action", said, seq ? seq(asked) : asked);
    },
    error: (text, bytes) => message("error", { error: text }, (unpack(bytes) as Tree).get("seq")),
  });
