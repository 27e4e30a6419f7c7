/** A decoder beyond our walls, for machines without one: a program `ffmpeg` that prints the PNG pictures which a video of ours holds as they are. */
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const SCRIPT = `#!${process.execPath}
const { readFileSync, writeSync } = require("node:fs");
const after = (name) => process.argv[process.argv.indexOf(name) + 1];
const file = readFileSync(after("-i"));
const start = Buffer.from("89504e470d0a1a0a", "hex");
let at = file.indexOf(start);
for (let left = Number(after("-frames:v")); left > 0 && at >= 0; left--) {
  const end = file.indexOf("IEND", at) + 8;
  writeSync(1, file.subarray(at, end));
  at = file.indexOf(start, end);
}
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
