/** What a Cog container answers. Source: replicate/cog, docs/http.md. */
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { fileIn } from "../payload/world-model.ts";
import { malformed, ownerText } from "../transport/failures.ts";
import { isObject, readJson } from "../transport/http.ts";

const MAX_FILES = 512;

/** The files of a prediction's output. Throws an UpstreamFailure: a prediction that didn't succeed, or an answer to another one. */
export function readPrediction(body: Buffer, id: string): Buffer[] {
  const prediction = readJson(body);
  if (!isObject(prediction)) throw malformed("the prediction is not an object");
  const { status, output, error } = prediction;
  if (typeof prediction.id === "string" && prediction.id !== id) throw malformed("the answer is to another prediction");
  if (status === "canceled") throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, "the prediction was cancelled");
  if (status !== "succeeded")
    throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, ownerText(String(error ?? status ?? "")));
  const files = Array.isArray(output) ? output : [output];
  if (files.length > MAX_FILES) throw new UpstreamFailure(AttemptFailure.ANSWER_TOO_LARGE, "too many files");
  return files.map(fileIn);
}

/** The names of a model's inputs, from its OpenAPI document; none where it has no such document. */
export function inputsIn(document: unknown): ReadonlySet<string> {
  let at = document;
  for (const key of ["components", "schemas", "Input", "properties"]) at = isObject(at) ? at[key] : undefined;
  return new Set(isObject(at) ? Object.keys(at) : []);
}
