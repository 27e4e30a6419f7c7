/** A bucket of S3, or of a store with its API, that holds the archive. */
import { createHash } from "node:crypto";
import { AwsClient } from "aws4fetch";
import { inTime } from "../../clock.ts";
import type { ArchiveBucket, ArchiveFolder } from "./folder.ts";

/** Milliseconds for one file, retries included. */
const FILE_MS = 120_000;
const RETRIES = 3;

/** Opens a bucket. Objects are addressed by path, which every such store supports. */
export function openBucket({ bucket, prefix, endpoint, region, credentials }: ArchiveBucket): ArchiveFolder {
  const client = new AwsClient({ ...credentials, service: "s3", region, retries: RETRIES });
  const call = (name: string, init: RequestInit): Promise<Uint8Array> => {
    const leaving = new AbortController();
    const late = (): Error => {
      leaving.abort();
      return new Error(`the bucket ${bucket} did not answer within ${FILE_MS / 1000} s`);
    };
    const url = `${endpoint}/${bucket}/${prefix}${name}`;
    return inTime(answered(client.fetch(url, { ...init, redirect: "manual", signal: leaving.signal })), {
      ms: FILE_MS,
      late,
    });
  };
  const answered = async (sent: Promise<Response>): Promise<Uint8Array> => {
    const answer = await sent;
    const bytes = new Uint8Array(await answer.arrayBuffer());
    if (answer.ok) return bytes;
    const [, code = ""] = /<Code>(\w+)<\/Code>/.exec(Buffer.from(bytes).toString("latin1")) ?? [];
    throw new Error(`the bucket ${bucket} answered ${answer.status} ${code}`.trimEnd());
  };
  return {
    async write(name, bytes) {
      const sha256 = createHash("sha256").update(bytes).digest("hex");
      await call(name, { method: "PUT", body: new Uint8Array(bytes), headers: { "x-amz-content-sha256": sha256 } });
    },
    read: (name) => call(name, {}),
  };
}
