/** The worker thread of `Pictures`: runs jobs and answers each by its id. */
import { parentPort } from "node:worker_threads";
import { ground } from "./ground.ts";
import { decodeImage, encodeImage, type RgbFrame, type RgbImage, UnreadableImage } from "./image.ts";
import type { EncodedPicture, MadePicture, PictureJob, PictureReply, Results } from "./pictures.ts";
import { predict } from "./predict.ts";
import { UnsupportedObservation } from "./unsupported.ts";

const predictions = new Map<number, Iterator<RgbImage>>();

const WORK: { readonly [K in PictureJob["kind"]]: (job: Extract<PictureJob, { kind: K }>) => Promise<Results[K]> } = {
  async ground({ picture, instruction }) {
    return ground(await decoded(picture), instruction);
  },
  async predict({ id, pictures, horizon, actions }) {
    const frames = await Promise.all(pictures.map(decoded));
    const prediction = predict(frames, { horizon, actions });
    predictions.set(id, prediction.frames[Symbol.iterator]());
    return prediction.note;
  },
  async next({ id }) {
    const next = predictions.get(id)?.next();
    return next === undefined || next.done ? undefined : made(next.value);
  },
  async leave({ id }) {
    predictions.delete(id);
    return undefined;
  },
};

const decoded = async ({ camera, bytes }: EncodedPicture): Promise<RgbFrame> => ({
  camera,
  image: await decodeImage(bytes),
});

const made = async (image: RgbImage): Promise<MadePicture> => ({
  width: image.width,
  height: image.height,
  bytes: await encodeImage(image, "png"),
});

async function answer({ ticket, job }: { ticket: number; job: PictureJob }): Promise<PictureReply> {
  try {
    // The table has a function for each kind, which accepts jobs of that kind.
    const work = WORK[job.kind] as (job: PictureJob) => Promise<Results[keyof Results]>;
    return { ticket, result: await work(job) };
  } catch (error) {
    const unreadable = error instanceof UnreadableImage;
    if (!unreadable && !(error instanceof UnsupportedObservation)) throw error;
    return { ticket, refusal: error.message, unreadable };
  }
}

const port = parentPort;
port?.on("message", (message: { ticket: number; job: PictureJob }) => {
  void answer(message).then((reply) => port.postMessage(reply));
});
