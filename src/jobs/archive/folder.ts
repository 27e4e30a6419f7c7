/** The folder of the archive. Files are written once, under a name that includes their content's hash, and never changed. */
import { mkdir, open, readFile, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import { newId } from "../../ids.ts";

/** Files by their path in the archive. */
export interface ArchiveFolder {
  /** Resolves once the file is on disk. */
  write(name: string, bytes: Uint8Array): Promise<void>;
  /** Rejects if the file does not exist. */
  read(name: string): Promise<Uint8Array>;
}

/** Where the archive is. */
export type ArchivePlace = { readonly folder: string } | ArchiveBucket;

/** A bucket of S3, or of a store with its API. */
export interface ArchiveBucket {
  readonly bucket: string;
  /** The beginning of every object's name; empty, or ends in a slash. */
  readonly prefix: string;
  /** An origin such as `https://s3.eu-central-1.amazonaws.com`. */
  readonly endpoint: string;
  readonly region: string;
  readonly credentials: {
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly sessionToken?: string;
  };
}

/** A folder of this machine, or one that it mounts. */
export function openFolder(root: string): ArchiveFolder {
  return {
    async write(name, bytes) {
      const path = join(root, name);
      await mkdir(dirname(path), { recursive: true });
      const unfinished = `${path}.${newId("entry")}.part`;
      await synced(unfinished, "wx", (file) => file.writeFile(bytes));
      await rename(unfinished, path);
      // The new names, too, must survive a crash.
      for (const folder of [dirname(path), root]) await synced(folder, "r", async () => undefined);
    },
    read: (name) => readFile(join(root, name)),
  };
}

async function synced(
  path: string,
  flags: string,
  work: (file: Awaited<ReturnType<typeof open>>) => Promise<unknown>,
): Promise<void> {
  const file = await open(path, flags);
  try {
    await work(file);
    await file.sync();
  } finally {
    await file.close();
  }
}
