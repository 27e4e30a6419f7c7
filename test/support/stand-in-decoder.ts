/** A decoder beyond our walls, for machines without one: a program `ffmpeg` that prints the PNG pictures which a video of `servers/world-models.ts` holds as they are. */
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const SCRIPT = `#!/bin/sh
for word; do
  [ "$last" = -i ] && file=$word
  last=$word
done
set -- $(od -An -tu1 -j16 -N4 "$file")
tail -c +25 "$file" | head -c $((($1 << 24 | $2 << 16 | $3 << 8 | $4) - 8))
`;

/** Puts the program first on the path; the returned function takes it away again. */
export async function installStandInDecoder(): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), "decoder-"));
  await writeFile(join(folder, "ffmpeg"), SCRIPT);
  await chmod(join(folder, "ffmpeg"), 0o755);
  const before = process.env.PATH;
  process.env.PATH = `${folder}:${before}`;
  return async () => {
    process.env.PATH = before;
    await rm(folder, { recursive: true });
  };
}
