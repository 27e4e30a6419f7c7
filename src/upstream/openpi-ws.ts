/**
 * The openpi wire: WebSocket and MessagePack, as used by openpi and the many servers that follow it. Sources of its profiles: the observation
 * keys of openpi's own policies (Physical-Intelligence/openpi, src/openpi/policies), of RoboArena's and SGLang's servers, and of NVIDIA
 * cosmos-framework's RoboLab server.
 */
import { create } from "@bufbuild/protobuf";
import { ActionReference, RotationForm } from "../../gen/limber/v1/input_contract_pb.ts";
import { ObservationSchema } from "../../gen/limber/v1/observation_pb.ts";
import { NumberType, PixelLayout, ServerDialect, WireReset, WireSession } from "../../gen/limber/v1/supply_pb.ts";
import { episodeOf, UpstreamFailure } from "../contracts/contract.ts";
import { OpenpiPool, requestHealth } from "./openpi-ws/exchange.ts";
import {
  encodeRequest,
  encodeReset,
  type ImageSize,
  readAnswer,
  readMetadata,
  readPrediction,
} from "./openpi-ws/messages.ts";
import { partsOf } from "./payload/observe.ts";
import { type Profile, Profiles, picture, plainProfile, readsOf, values } from "./payload/profile.ts";
import { FrameSet, frameSources } from "./pictures/frames.ts";
import { redSquare } from "./pictures/test-picture.ts";
import { guardedAgent } from "./transport/guard.ts";
import { type ServerReach, Servers } from "./transport/servers.ts";
import type { CallOptions, UpstreamTarget, Wire, WireProbe } from "./wire.ts";

const SCHEMES: Readonly<Record<string, string>> = { "ws:": "ws:", "wss:": "wss:" };

/** Opens the wire; connections are made on first use. */
export function openpiWs(reach: ServerReach): Wire {
  const pools = new Servers(
    reach,
    SCHEMES,
    (address) => new OpenpiPool(address, { hello: undefined, read: readMetadata, tellsEpisodes: false }),
  );
  return {
    id: "openpi-ws",
    schemes: Object.keys(SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    pictureSize(target) {
      const ownFrames = (target.profile?.frames.length ?? 0) > 0;
      return ownFrames ? undefined : pools.of(target).told?.imageSize;
    },
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    layout: ({ profile }) => PROFILES.layout(profile),
    dialects: [
      ServerDialect.OPENPI,
      ServerDialect.ROBOARENA,
      ServerDialect.VLLM_OMNI,
      ServerDialect.SGLANG,
      ServerDialect.COSMOS_ROBOLAB,
      ServerDialect.STARVLA,
    ],
    probes: probesOf(pools),
    async act(target, given, frames, { signal, requestId }) {
      const profile = PROFILES.of(target.profile);
      const input =
        profile.session === WireSession.NONE ? { ...given, sessionId: undefined, episode: undefined } : given;
      const pool = pools.of(target);
      const ownFrames = (target.profile?.frames.length ?? 0) > 0;
      const partsIn = (size: ImageSize | undefined) =>
        partsOf(ownFrames || !size ? profile : sized(profile, size), input, frames);
      // Input that does not match is refused before it takes a connection.
      const size = pool.told?.imageSize;
      const parts = await partsIn(size);
      const episode = episodeOf(input);
      const isReset = profile.reset === WireReset.MESSAGE && input.sessionId !== undefined;
      let spoken: ServerDialect = ServerDialect.OPENPI;
      const answer = await pool.exchange(input.sessionId, {
        async encode({ dialect, imageSize }, room) {
          const isKnown = size?.width === imageSize?.width && size?.height === imageSize?.height;
          const fitting = isKnown ? parts : await partsIn(imageSize);
          spoken = profile.dialect ?? dialect;
          return encodeRequest({ profile, parts: fitting, input, episode, requestId }, spoken, room);
        },
        opening: isReset ? encodeReset(episode) : undefined,
        episode,
        signal,
      });
      const { horizon, returnPrediction } = input;
      const chunk = readAnswer(answer, { profile, horizon, dim: target.actionDim, requestId, dialect: spoken });
      return returnPrediction ? { ...chunk, prediction: await readPrediction(answer, target.dtMs) } : chunk;
    },
    async health(target, { signal }) {
      await requestHealth(pools.addressOf(target), signal);
    },
    async close() {
      pools.close();
    },
  };
}

type Pools = Servers<OpenpiPool>;

/** The checks, in order. */
function probesOf(pools: Pools): readonly WireProbe[] {
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
        // The default profile is a guess: the offering declares none.
        const declared = (target.profile?.preset ?? "") !== "" || (target.profile?.frames.length ?? 0) > 0;
        if (!first || !declared) return "no profile is declared that names a camera";
        const answered = await answers(pools, target, { ...rest, frames: others }, call);
        // Servers close the connection on unreadable messages, but the next connection must work.
        await pools.of(target).metadata(call.signal);
        if (!answered) return `without ${first.key} it answers with an error, and goes on`;
        throw new Error(`it acts without the picture ${first.key} as if nothing were missing`);
      },
    },
  ];
}

/** Whether a generated observation in these parts is answered with actions. */
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
  const agent = guardedAgent({ allowPrivate: false }); // for images at addresses, which do not occur here
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

const CHW = { layout: PixelLayout.CHW } as const;
const OPTIONAL = { optional: true } as const;

/** Without a profile: one image if there is one, the complete proprioception, the instruction. */
const PLAIN = plainProfile({
  frames: [picture("", "observation/image", OPTIONAL)],
  proprio: [values(0, undefined, "observation/state", NumberType.F4)],
  instructionKey: "prompt",
});

const DROID: Profile = {
  ...PLAIN,
  frames: [
    picture("exterior_1", "observation/exterior_image_1_left"),
    picture("wrist", "observation/wrist_image_left"),
  ],
  proprio: [values(0, 7, "observation/joint_position"), values(7, 8, "observation/gripper_position")],
  proprioDim: 8,
};

const PRESETS: Readonly<Record<string, Profile>> = {
  "openpi/droid": DROID,
  "openpi/libero": {
    ...PLAIN,
    frames: [
      picture("agentview", "observation/image", { rotate180: true }),
      picture("wrist", "observation/wrist_image", { rotate180: true }),
    ],
    proprio: [values(0, 8, "observation/state")],
    proprioDim: 8,
    // The deltas of LIBERO's own controller: fractions of its largest step, not meters and radians.
    meaning: {
      reference: ActionReference.RELATIVE,
      rotation: RotationForm.AXIS_ANGLE,
      gripper: { indexes: [6], open: -1, closed: 1 },
    },
  },
  "openpi/aloha": {
    ...PLAIN,
    frames: [
      picture("cam_high", "images.cam_high", CHW),
      picture("cam_low", "images.cam_low", { ...CHW, ...OPTIONAL }),
      picture("cam_left_wrist", "images.cam_left_wrist", { ...CHW, ...OPTIONAL }),
      picture("cam_right_wrist", "images.cam_right_wrist", { ...CHW, ...OPTIONAL }),
    ],
    proprio: [values(0, 14, "state")],
    proprioDim: 14,
    meaning: { reference: ActionReference.ABSOLUTE, gripper: { indexes: [6, 13], open: 1, closed: 0 } },
  },
  "roboarena/droid": {
    ...DROID,
    frames: [
      picture("exterior_1", "observation/exterior_image_0_left"),
      picture("exterior_2", "observation/exterior_image_1_left", OPTIONAL),
      picture("wrist", "observation/wrist_image_left", OPTIONAL),
    ],
    dialect: ServerDialect.ROBOARENA,
  },
  "sglang/pi05": {
    ...PLAIN,
    frames: [
      picture("base", "observation.images.base_0_rgb"),
      picture("left_wrist", "observation.images.left_wrist_0_rgb", OPTIONAL),
      picture("right_wrist", "observation.images.right_wrist_0_rgb", OPTIONAL),
    ],
    proprio: [values(0, undefined, "observation.state", NumberType.F4)],
    dialect: ServerDialect.SGLANG,
  },
  "cosmos/robolab": { ...DROID, dialect: ServerDialect.COSMOS_ROBOLAB },
  starvla: {
    ...PLAIN,
    frames: [picture("", "image"), picture("", "image", OPTIONAL), picture("", "image", OPTIONAL)],
    proprio: [],
    instructionKey: "lang",
    dialect: ServerDialect.STARVLA,
  },
};

/** The presets of this wire's offerings. */
export const PROFILES = new Profiles(PLAIN, PRESETS);

/** Returns a profile whose images have the size that the server announces. An offering's own frames declare their sizes themselves. */
const sized = (profile: Profile, { width, height }: ImageSize): Profile => ({
  ...profile,
  frames: profile.frames.map((frame) => ({ ...frame, width, height })),
});
