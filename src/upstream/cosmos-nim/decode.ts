/** What a Cosmos NIM answers: one video, or one picture, in base64. */

import { fileIn } from "../payload/world-model.ts";
import { malformed } from "../transport/failures.ts";
import { isObject, readJson } from "../transport/http.ts";

/** The file of an inference. Throws an UpstreamFailure when there is none. */
export function readInfer(body: Buffer): Buffer[] {
  const answer = readJson(body);
  const file = isObject(answer) ? (answer.b64_video ?? answer.b64_image) : undefined;
  if (file === undefined || file === null) throw malformed("the answer has neither a video nor a picture");
  return [fileIn(file)];
}
