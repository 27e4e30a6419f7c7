/** Pictures that a server predicted, as arrays of pixels. */
import sharp from "sharp";
import { ImageFormat } from "../../gen/limber/v1/observation_pb.ts";
import type { PredictedFrame } from "../../gen/limber/v1/prediction_pb.ts";
import type { NdArray } from "../codecs/ndarray.ts";
import { malformed } from "./failures.ts";

const MAX_PREDICTED = 256;
const MAX_SIDE = 4_096;

/** The frames of an array u1 [T, H, W, 3], or [1, T, H, W, 3], as PNG pictures `dtMs` apart; at most `most`. Throws an UpstreamFailure. */
export async function framesIn(video: NdArray, dtMs: number, most = MAX_PREDICTED): Promise<PredictedFrame[]> {
  const shape = video.shape.length === 5 && video.shape[0] === 1 ? video.shape.slice(1) : video.shape;
  const [count = 0, height = 0, width = 0, channels] = shape;
  const isVideo = shape.length === 4 && channels === 3 && video.dtype === "|u1" && width > 0 && height > 0;
  if (!isVideo || count > MAX_PREDICTED || width > MAX_SIDE || height > MAX_SIDE) {
    throw malformed(`a video of shape [${video.shape}]`);
  }
  const size = width * height * 3;
  return Promise.all(
    Array.from({ length: Math.min(most, count) }, async (_, index) => {
      const pixels = video.data.subarray(index * size, (index + 1) * size);
      const data = await sharp(pixels, { raw: { width, height, channels: 3 } })
        .png()
        .toBuffer();
      const tMs = (index + 1) * dtMs;
      const facts = { width, height, format: ImageFormat.PNG };
      return { $typeName: "limber.v1.PredictedFrame" as const, index, tMs, camera: "", ...facts, data };
    }),
  );
}
