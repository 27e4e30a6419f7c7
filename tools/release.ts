/**
 * `npm run release`: every artefact of a release and its checksum, in `release/`: the npm packages of the gateway and of the TypeScript
 * client, the Python packages as wheels and as sources, the clients for C++ and ROS 2 as sources, the bill of materials (CycloneDX) and the
 * licences of what is shipped along.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "./build.ts";

const ROOT = join(import.meta.dirname, "..");
const OUT = join(ROOT, "release");
const NPM_CLIENT = "clients/typescript";
/** What `clients/python/check.sh` tries the packages with. */
const HATCHLING = "hatchling==1.32.4";

/** What tar is told, so that the same sources make the same bytes. */
export const SAME_BYTES: readonly string[] = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];

/** Clients that are released as sources, with all that their tests need: what of the tree goes where in the folder of their tarball. */
const SOURCES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  cpp: { "clients/cpp": "", "clients/conformance/traces": "/test/traces", LICENSE: "/LICENSE" },
  ros2: {
    "clients/ros2": "",
    "clients/python/tests/conftest.py": "/test/conftest.py",
    "clients/python/tests/test_ros2.py": "/test/test_ros2.py",
    LICENSE: "/LICENSE",
  },
};
/** Where those state their version. */
const SOURCES_VERSIONS: readonly (readonly [string, RegExp])[] = [
  ["clients/cpp/CMakeLists.txt", /^project\(\w+ VERSION ([\d.]+)/m],
  ["clients/ros2/limber_interfaces/package.xml", /<version>([^<]+)/],
  ["clients/ros2/limber_ros2/package.xml", /<version>([^<]+)/],
  ["clients/ros2/limber_ros2/setup.py", /version="([^"]+)"/],
];

/** The version that an artefact states, by the file that states it. */
export function versionsOf(root: string): ReadonlyMap<string, string> {
  const versions = new Map<string, string>();
  const files = [
    "package.json",
    ...foldersOf(join(root, "clients")).map((name) => join("clients", name, "package.json")),
  ];
  for (const file of files) {
    if (!existsSync(join(root, file))) continue;
    versions.set(file, (JSON.parse(readFileSync(join(root, file), "utf8")) as { version: string }).version);
  }
  for (const name of foldersOf(join(root, "clients"))) {
    const file = join("clients", name, "pyproject.toml");
    if (!existsSync(join(root, file))) continue;
    // One that takes its version from elsewhere states none.
    const version = /^version *= *"([^"]+)"/m.exec(readFileSync(join(root, file), "utf8"))?.[1];
    if (version !== undefined) versions.set(file, version);
  }
  for (const [file, stated] of SOURCES_VERSIONS) {
    const version = existsSync(join(root, file)) ? stated.exec(readFileSync(join(root, file), "utf8"))?.[1] : undefined;
    if (version !== undefined) versions.set(file, version);
  }
  return versions;
}

const foldersOf = (folder: string): string[] =>
  existsSync(folder)
    ? readdirSync(folder, { withFileTypes: true }).flatMap((entry) => (entry.isDirectory() ? [entry.name] : []))
    : [];

/** One package of npm's lock file. */
interface Locked {
  readonly version?: string;
  readonly license?: string;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
  readonly link?: boolean;
}

/** What is shipped along, each with its licence and that licence's text where the package brings it. */
export function licencesOf(root: string): string {
  const { packages } = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as {
    packages: Readonly<Record<string, Locked>>;
  };
  const parts: string[] = [];
  for (const [path, { version, license, dev, devOptional, link }] of Object.entries(packages)) {
    if (!path.startsWith("node_modules/") || dev || devOptional || link) continue;
    const name = path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
    const folder = join(root, path);
    const files = existsSync(folder)
      ? readdirSync(folder).filter((file) => /^(licen[cs]e|copying|notice)(\.|-|$)/i.test(file))
      : [];
    const texts = files.map((file) => readFileSync(join(folder, file), "utf8").trim());
    parts.push([`${name} ${version}: ${license ?? "see its text"}`, ...texts].join("\n\n"));
  }
  return `${parts.join(`\n\n${"-".repeat(80)}\n\n`)}\n`;
}

const run = (command: string, args: readonly string[], cwd = ROOT): string =>
  execFileSync(command, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"], maxBuffer: 2 ** 28 });

const packInto = (folder: string): string => run("npm", ["pack", folder, "--pack-destination", OUT, "--silent"]).trim();

/** Wheels and sources of the Python packages, by the build tool that they name, in an environment of its own. */
function packPython(): void {
  const folders = foldersOf(join(ROOT, "clients"))
    .map((name) => join(ROOT, "clients", name))
    .filter((folder) => existsSync(join(folder, "pyproject.toml")));
  const venv = mkdtempSync(join(tmpdir(), "limber-release-"));
  try {
    run("python3", ["-m", "venv", venv]);
    run(join(venv, "bin/pip"), ["install", "--quiet", HATCHLING]);
    for (const folder of folders) run(join(venv, "bin/python"), ["-m", "hatchling", "build", "-d", OUT], folder);
  } finally {
    rmSync(venv, { recursive: true, force: true });
  }
}

/** Packs clients as sources into `out`, each as one folder named like its tarball, which is answered. */
export function packSources(version: string, out: string): readonly string[] {
  return Object.entries(SOURCES).map(([name, parts]) => {
    const folder = `limber-${name}-${version}`;
    const archive = join(out, `${folder}.tar.gz`);
    const moved = Object.entries(parts).map(([from, to]) => `--transform=s,^${from},${folder}${to},`);
    run("tar", [...SAME_BYTES, "--exclude=__pycache__", ...moved, "-C", ROOT, "-czf", archive, ...Object.keys(parts)]);
    return archive;
  });
}

function release(): void {
  const versions = versionsOf(ROOT);
  if (new Set(versions.values()).size > 1)
    throw new Error(`the artefacts have several versions: ${JSON.stringify(Object.fromEntries(versions))}`);
  rmSync(OUT, { recursive: true, force: true });
  mkdirSync(OUT);
  packInto(build());
  // Its `prepack` builds it.
  if (existsSync(join(ROOT, NPM_CLIENT, "tsconfig.json"))) packInto(`./${NPM_CLIENT}`);
  packPython();
  packSources(versions.get("package.json")!, OUT);
  const sbom = ["sbom", "--sbom-format", "cyclonedx", "--omit", "dev", "--package-lock-only"];
  writeFileSync(join(OUT, "limber.cdx.json"), run("npm", sbom));
  writeFileSync(join(OUT, "THIRD_PARTY_LICENSES.txt"), licencesOf(ROOT));
  const sums = readdirSync(OUT)
    .sort()
    .map(
      (name) =>
        `${createHash("sha256")
          .update(readFileSync(join(OUT, name)))
          .digest("hex")}  ${name}\n`,
    );
  writeFileSync(join(OUT, "SHA256SUMS"), sums.join(""));
  console.log(sums.join("").trimEnd());
}

if (import.meta.main) release();
