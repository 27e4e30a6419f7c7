/** The state of a job of vLLM-Omni. */
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { malformed, ownerText } from "../transport/failures.ts";
import { isObject, readJson } from "../transport/http.ts";

/** A job that is not done. */
export interface VideoJob {
  readonly id: string;
  readonly done: boolean;
}

const ON_ITS_WAY: readonly unknown[] = ["queued", "in_progress"];
const ID = /^[\w.-]{1,200}$/;

/** Where a job stands. Throws an UpstreamFailure: one that failed or was cancelled, another job's, or no job at all. */
export function readJob(body: Buffer, wanted?: string): VideoJob {
  const job = readJson(body);
  const { id, status, error } = isObject(job) ? job : {};
  if (typeof id !== "string" || !ID.test(id)) throw malformed("a job without an id");
  if (wanted !== undefined && id !== wanted) throw malformed("the answer is to another job");
  if (status === "completed") return { id, done: true };
  if (ON_ITS_WAY.includes(status)) return { id, done: false };
  const said = isObject(error) ? error.message : error;
  throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, ownerText(String(said ?? `the job is ${status}`)));
}
