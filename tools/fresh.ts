/** Fails when generated code is not what proto/ makes: generates into a folder of its own and compares. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const CLIENT = "clients/typescript";
const CPP = "clients/cpp/gen";
const fresh = mkdtempSync(join(tmpdir(), "limber-gen-"));
const run = (command: string, ...args: string[]): void => void execFileSync(command, args, { stdio: "inherit" });
const filesOf = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: "utf8", withFileTypes: false })
    .filter((name) => /\.\w+$/.test(name))
    .sort();

run("buf", "generate", "--output", fresh);
run("buf", "generate", "--template", join(CLIENT, "buf.gen.yaml"), "--output", fresh);
run(process.execPath, "tools/openapi.ts", join(fresh, "gen"));
run(process.execPath, "tools/client-reasons.ts", join(fresh, CLIENT, "src/gen/reasons.ts"));
run(process.execPath, "tools/client-cpp.ts", join(fresh, CPP));

const staleIn = (folder: string): string[] => {
  const [made, kept] = [filesOf(join(fresh, folder)), filesOf(folder)];
  return [...new Set([...made, ...kept])]
    .filter(
      (name) =>
        !made.includes(name) ||
        !kept.includes(name) ||
        !readFileSync(join(fresh, folder, name)).equals(readFileSync(join(folder, name))),
    )
    .map((name) => join(folder, name));
};

const stale = ["gen", join(CLIENT, "src/gen"), CPP].flatMap(staleIn);
rmSync(fresh, { recursive: true, force: true });
if (stale.length > 0) {
  console.error(`generated code is stale: run npm run gen\n  ${stale.join("\n  ")}`);
  process.exit(1);
}
