/**
 * A wire over HTTP. A wire's own file defines its requests and responses; this file has the common parts: addresses, credentials, headers,
 * limits, cancellation, profiles, health and, for world models, the lengths of videos.
 */

import type { ActAnswer, ActInput, GroundAnswer, GroundInput, PredictInput } from "../contracts/contract.ts";
import { random } from "../random.ts";
import { type ObservationPart, partsOf } from "./payload/observe.ts";
import { type Profile, type Profiles, readsOf } from "./payload/profile.ts";
import { newestPicture, VideoLengths, type VideoQuestion } from "./payload/world-model.ts";
import type { EncodedFrame, FrameSet } from "./pictures/frames.ts";
import {
  expectSuccess,
  HTTP_SCHEMES,
  type HttpAnswer,
  type HttpBody,
  type HttpBytes,
  type HttpServer,
  HttpServers,
  MAX_STATUS_BYTES,
} from "./transport/http.ts";
import type { ServerReach } from "./transport/servers.ts";
import type { CallOptions, UpstreamTarget, Wire, WireProbe } from "./wire.ts";

/** An act to encode: the newest observation in the profile's parts. */
export interface HttpAct {
  readonly profile: Profile;
  readonly parts: readonly ObservationPart[];
  readonly input: ActInput;
  readonly target: UpstreamTarget;
  readonly call: CallOptions;
}

/** A prediction to encode, from the first image of the newest observation. */
export interface HttpPrediction {
  readonly profile: Profile;
  readonly picture: EncodedFrame;
  readonly input: PredictInput;
  readonly call: CallOptions;
}

/** The videos of a prediction. */
export interface HttpVideos {
  /** Creates one video of this many images, or its images as separate files. */
  make(question: VideoQuestion): Promise<Buffer[]>;
  /** Whether the server determines the number of images itself, for instance from the actions. */
  readonly hasOwnLength: boolean;
}

/** One wire over HTTP. */
export interface HttpWireOptions extends Pick<Wire, "faultOf" | "layout"> {
  readonly id: string;
  /** Paths of the server's operations. An owner may paste an address that ends in one of them. `*` stands for any segment. */
  readonly operations: readonly string[];
  readonly profiles: Profiles;
  readonly probes?: readonly HttpProbe[];
  readonly act?: {
    readonly path: string;
    /** Throws an UpstreamFailure `INPUT_REJECTED` for a profile that the wire cannot carry. */
    encode(act: HttpAct): HttpBody | Promise<HttpBody>;
    /** Throws an UpstreamFailure. */
    decode(body: Buffer, act: HttpAct): ActAnswer;
  };
  predict?(prediction: HttpPrediction, server: HttpServer): HttpVideos | Promise<HttpVideos>;
  ground?(target: UpstreamTarget, input: GroundInput, frames: FrameSet, server: HttpServer): Promise<GroundAnswer>;
  readonly health: {
    readonly path: string;
    /** Throws an UpstreamFailure for an unhealthy response; by default, for any status other than 2xx. */
    check?(answer: HttpAnswer): unknown;
  };
}

/** A check of the conformance probe, as `WireProbe`. */
export interface HttpProbe extends Omit<WireProbe, "look"> {
  look(server: HttpServer, target: UpstreamTarget): Promise<string>;
}

/** Opens a wire; connections are made on first use. */
export function httpWire(reach: ServerReach, options: HttpWireOptions): Wire {
  const { id, operations, profiles, act, predict, ground, health, probes, faultOf, layout } = options;
  const servers = new HttpServers(reach, operations);
  const lengths = new VideoLengths();
  return {
    id,
    schemes: Object.keys(HTTP_SCHEMES),
    ...(faultOf && { faultOf }),
    ...(layout && { layout }),
    ...((act ?? predict) && mappedBy(profiles)),
    ...(probes && {
      probes: probes.map((probe) => ({
        ...probe,
        look: (target: UpstreamTarget, call: CallOptions) => probe.look(servers.at(target, call), target),
      })),
    }),
    ...(act && {
      async act(target: UpstreamTarget, input: ActInput, frames: FrameSet, call: CallOptions): Promise<ActAnswer> {
        const profile = profiles.of(target.profile);
        const request: HttpAct = { profile, parts: await partsOf(profile, input, frames), input, target, call };
        return act.decode(await servers.at(target, call).post(act.path, await act.encode(request)), request);
      },
    }),
    ...(predict && {
      async *predict(target: UpstreamTarget, input: PredictInput, frames: FrameSet, call: CallOptions) {
        const picture = await newestPicture(input, frames);
        const prediction: HttpPrediction = { profile: profiles.of(target.profile), picture, input, call };
        const { make, hasOwnLength } = await predict(prediction, servers.at(target, call));
        const ofLength = (pictures: number): Promise<Buffer[]> => make({ ...input, pictures });
        yield* lengths.predict(target, { ...input, given: picture }, call, ofLength, hasOwnLength);
      },
    }),
    ...(ground && {
      ground: (target: UpstreamTarget, input: GroundInput, frames: FrameSet, call: CallOptions) =>
        ground(target, input, frames, servers.at(target, call)),
    }),
    async health(target, call) {
      const answer = await servers
        .at(target, call)
        .ask({ method: "GET", path: health.path, maxBytes: MAX_STATUS_BYTES });
      (health.check ?? expectSuccess)(answer);
    },
    close: () => servers.close(),
  };
}

const mappedBy = (profiles: Profiles): Pick<Wire, "profiles" | "wants" | "reads"> => ({
  profiles: profiles.names,
  wants: async ({ profile }) => profiles.wants(profile),
  reads: (profile) => readsOf(profiles.of(profile), profile),
});

/** A file of a form. */
interface FormFile {
  readonly name: string;
  readonly filename: string;
  readonly file: Pick<EncodedFrame, "bytes" | "format">;
}

/** A form: texts, then images as files. */
export function formOf(
  texts: readonly (readonly [name: string, value: string])[],
  files: readonly FormFile[],
): HttpBytes {
  // The boundary must not occur in a file, so it is random.
  const boundary = `part-${random().toString(36).slice(2)}${random().toString(36).slice(2)}`;
  // Names are the gateway's or the offering's; quotes and line ends would end them.
  const head = (name: string): string =>
    `--${boundary}\r\ncontent-disposition: form-data; name="${name.replace(/["\r\n]/g, "_")}"`;
  const body = Buffer.concat([
    ...texts.map(([name, value]) => Buffer.from(`${head(name)}\r\n\r\n${value}\r\n`)),
    ...files.flatMap(({ name, filename, file: { bytes, format } }) => [
      Buffer.from(`${head(name)}; filename="${filename}.${format}"\r\ncontent-type: image/${format}\r\n\r\n`),
      bytes,
      Buffer.from("\r\n"),
    ]),
    Buffer.from(`--${boundary}--\r\n`),
  ]);
  return { body, contentType: `multipart/form-data; boundary=${boundary}` };
}
