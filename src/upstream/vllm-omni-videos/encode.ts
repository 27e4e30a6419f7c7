/** A prediction as vLLM-Omni takes it: a form with the picture as a file, and what it's conditioned on beside it. */

import type { Profile } from "../payload/profile.ts";
import type { VideoQuestion } from "../payload/world-model.ts";
import type { EncodedFrame } from "../pictures/frames.ts";

/** A form, and the boundary between its parts. */
export interface Form {
  readonly body: Buffer;
  readonly contentType: string;
}

/** The form of one job; `boundary` must not occur in a file, so it holds chance. */
export function encodeJob(
  { constants, serverModel }: Profile,
  { bytes, format }: EncodedFrame,
  { instruction, pictures, seed, fps, resolution, actions }: VideoQuestion,
  boundary: string,
): Form {
  const fixed = constants.map(({ key, value }) => [key, String(value)] as const);
  const fields: (readonly [string, string | undefined])[] = [
    ["prompt", instruction === "" ? undefined : instruction],
    ["model", serverModel],
    ["num_frames", String(pictures)],
    ["seed", seed === undefined ? undefined : String(seed)],
    ["fps", fps === undefined ? undefined : String(fps)],
    ["size", resolution],
    ["extra_params", extraParams(actions, fixed.find(([key]) => key === "domain_name")?.[1])],
    ...fixed.filter(([key]) => key !== "domain_name"),
  ];
  const parts = fields.flatMap(([name, value]) =>
    value === undefined ? [] : [Buffer.from(`${head(boundary, name)}\r\n\r\n${value}\r\n`)],
  );
  const file = `${head(boundary, "input_reference")}; filename="frame.${format}"\r\ncontent-type: image/${format}\r\n\r\n`;
  const body = Buffer.concat([...parts, Buffer.from(file), bytes, Buffer.from(`\r\n--${boundary}--\r\n`)]);
  return { body, contentType: `multipart/form-data; boundary=${boundary}` };
}

/** Names are ours or the offering's; quotes and line ends would end them. */
const head = (boundary: string, name: string): string =>
  `--${boundary}\r\ncontent-disposition: form-data; name="${name.replace(/["\r\n]/g, "_")}"`;

/** Cosmos3's forward dynamics: the actions, in the space that the offering's domain has. */
function extraParams(actions: VideoQuestion["actions"], domain: string | undefined): string | undefined {
  if (actions.length === 0) return undefined;
  return JSON.stringify({
    action_mode: "forward_dynamics",
    ...(domain !== undefined && { domain_name: domain }),
    action_chunk_size: actions.length,
    action: actions.map(({ values }) => values),
  });
}
