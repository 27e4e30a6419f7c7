/**
 * How an Isaac-GR00T server speaks, which its messages do not say: it is told by its modality configuration, and by what it answers to a first
 * observation. Source: NVIDIA/Isaac-GR00T, gr00t/policy/server_client.py and gr00t_policy.py, of N1.5, N1.6 and N1.7.
 */
import { ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import type { Signal } from "../../cancellation.ts";
import type { Gr00tArrays } from "../../codecs/python/gr00t.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { type ModalityConfig, type ModalityTag, readModalityConfig } from "./decode.ts";
import { encodeCall, type Layout } from "./encode.ts";
import type { ZmqChannel } from "./exchange.ts";

/** What is known of a server. */
export interface Speech {
  readonly arrays: Gr00tArrays;
  readonly layout: Layout;
  /** What it wants to see; undefined where it was not asked, or did not say. */
  readonly config: ModalityConfig | undefined;
}

const BY_TAG: Readonly<Record<ModalityTag, Pick<Speech, "arrays" | "layout">>> = {
  json: { arrays: "npy", layout: "bare" },
  class: { arrays: "npy", layout: "nested" },
  config: { arrays: "numpy", layout: "nested" },
};

/** How a server of a declared generation speaks that does not tell. */
const USUAL = { arrays: "npy", layout: "nested", config: undefined } as const;
const DECLARED: Readonly<Partial<Record<ServerDialect, Speech>>> = {
  [ServerDialect.GR00T_N1_5]: { ...USUAL, layout: "bare" },
  [ServerDialect.GR00T_N1_6]: USUAL,
  [ServerDialect.GR00T_N1_7]: { ...USUAL, arrays: "numpy" },
};

/** Generations that have one way to speak: they are not asked. */
const PLAIN: ReadonlySet<ServerDialect | undefined> = new Set([ServerDialect.GR00T_N1_5, ServerDialect.GR00T_N1_6]);

/** Failures of a server that does not know the question, or answers it in its own way. */
const UNTOLD: ReadonlySet<AttemptFailure> = new Set([AttemptFailure.UPSTREAM_ERROR, AttemptFailure.MALFORMED_ANSWER]);

/** How the server behind a channel speaks; asks it once for each connection. Rejects with an UpstreamFailure. */
export async function speechOf(
  channel: ZmqChannel,
  { dialect, token, signal }: { dialect: ServerDialect | undefined; token: string; signal: Signal },
): Promise<Speech> {
  if (channel.speech) return channel.speech;
  const usual = (dialect === undefined ? undefined : DECLARED[dialect]) ?? USUAL;
  if (PLAIN.has(dialect)) return usual;
  return channel.converse(signal, async (send) => {
    if (channel.speech) return channel.speech;
    const answer = await send(encodeCall("get_modality_config", undefined, token));
    const speech = told(answer, usual);
    channel.speech = speech;
    return speech;
  });
}

function told(answer: Buffer, usual: Speech): Speech {
  try {
    const config = readModalityConfig(answer);
    return { ...usual, ...(config.tag && BY_TAG[config.tag]), config };
  } catch (thrown) {
    if (thrown instanceof UpstreamFailure && UNTOLD.has(thrown.failure)) return usual;
    throw thrown;
  }
}

/** Whether a server that got a nested observation says that it looks for one of these flat keys: it was started with the wrapper. */
export const wantsFlat = (thrown: unknown, keys: Iterable<string>): boolean =>
  thrown instanceof UpstreamFailure &&
  thrown.failure === AttemptFailure.UPSTREAM_ERROR &&
  [...keys].some((key) => thrown.message.includes(`'${key}'`));
