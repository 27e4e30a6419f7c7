/** What the conformance probe asks of servers of the openpi wire alone. */
import { create } from "@bufbuild/protobuf";
import { ObservationSchema } from "../../../gen/limber/v1/observation_pb.ts";
import { ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import { UpstreamFailure } from "../../contracts/contract.ts";
import { partsOf } from "../payload/observe.ts";
import type { Profile } from "../payload/profile.ts";
import { FrameSet } from "../pictures/frames.ts";
import { frameSources } from "../pictures/order.ts";
import { redSquare } from "../pictures/test-picture.ts";
import { guardedAgent } from "../transport/guard.ts";
import type { Servers } from "../transport/servers.ts";
import type { CallOptions, UpstreamTarget, WireProbe } from "../wire.ts";
import { readAnswer } from "./decode.ts";
import { encodeRequest } from "./encode.ts";
import type { OpenpiPool } from "./exchange.ts";
import { PROFILES } from "./profiles.ts";

type Pools = Servers<OpenpiPool>;

/** The checks, in order. */
export function probesOf(pools: Pools): readonly WireProbe[] {
  return [
    {
      name: "metadata",
      required: true,
      async look(target, { signal }) {
        const { actionDim, chunk } = await pools.of(target).metadata(signal);
        const wanted = target.actionDim;
        if (actionDim !== undefined && wanted !== undefined && actionDim !== wanted) {
          throw new Error(`the server's metadata say ${actionDim} numbers per step, and ${wanted} are declared`);
        }
        const steps = chunk === undefined ? "" : `, with chunks of ${chunk} steps`;
        return `the first frame is a map of metadata${steps}`;
      },
    },
    {
      name: "missing_camera_refused",
      required: false,
      async look(target, call) {
        const { frames, ...rest } = PROFILES.of(target.profile);
        const [first, ...others] = frames;
        // The plain profile is a guess: the offering declares none.
        const declared = (target.profile?.preset ?? "") !== "" || (target.profile?.frames.length ?? 0) > 0;
        if (!first || !declared) return "no profile is declared that names a camera";
        const answered = await answers(pools, target, { ...rest, frames: others }, call);
        // Servers hang up on what they can't read: the next connection has to stand.
        await pools.of(target).metadata(call.signal);
        if (!answered) return `without ${first.key} it answers with an error, and goes on`;
        throw new Error(`it acts without the picture ${first.key} as if nothing were missing`);
      },
    },
  ];
}

/** Whether a made-up observation in these parts is answered with actions. */
async function answers(
  pools: Pools,
  target: UpstreamTarget,
  profile: Profile,
  { signal, requestId }: CallOptions,
): Promise<boolean> {
  const data = await redSquare(0.5, 0.5);
  const shown = create(ObservationSchema, {
    frames: profile.frames.map(({ camera }) => ({ camera, data })),
    proprio: Array.from({ length: PROFILES.wants(target.profile).proprioDim ?? 0 }, () => 0.1),
  });
  const asked = { instruction: "go on", seed: undefined, temperature: undefined, sessionId: undefined };
  const input = { ...asked, observations: [shown] };
  const agent = guardedAgent({ allowPrivate: false }); // for pictures at addresses, of which there are none here
  try {
    const parts = await partsOf(profile, input, new FrameSet(frameSources([shown]), { agent, allowPrivate: false }));
    let dialect: ServerDialect = ServerDialect.OPENPI;
    const answer = await pools.of(target).exchange(undefined, {
      async encode(told, room) {
        dialect = profile.dialect ?? told.dialect;
        return encodeRequest({ profile, parts, input, episode: undefined, requestId }, dialect, room);
      },
      opening: undefined,
      signal,
    });
    readAnswer(answer, { profile, horizon: 1, requestId, dialect });
    return true;
  } catch (thrown) {
    if (thrown instanceof UpstreamFailure && !signal.aborted) return false;
    throw thrown;
  } finally {
    await agent.destroy();
  }
}
