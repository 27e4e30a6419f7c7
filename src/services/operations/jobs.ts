/** How much work waits, runs and failed, for the status page. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { JobsStatusSchema } from "../../../gen/limber/v1/operations_service_pb.ts";

/** The jobs of all organisations, counted. There is nothing that is done later yet. */
export async function countJobs(): Promise<MessageInitShape<typeof JobsStatusSchema>> {
  return { queued: 0, running: 0, failed24h: 0 };
}
