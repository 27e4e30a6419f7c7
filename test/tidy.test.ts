/** The rules of the tree that a machine can judge: who imports whom, one place for each thing, documents that name what is there. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize, posix, relative } from "node:path";
import { getOption, hasOption } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { http } from "../gen/google/api/annotations_pb.ts";
import { Access, rpc } from "../gen/limber/edge/v1/options_pb.ts";
import { ReasonSchema } from "../gen/limber/v1/reason_pb.ts";
import { SERVICES } from "../src/app/services.ts";
import { PERMISSIONS } from "../src/services/permissions.ts";

const ROOT = join(import.meta.dirname, "..");

function filesUnder(folder: string, ending = ".ts"): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(ending) && !name.includes("node_modules/"))
    .map((name) => join(folder, name));
}

const read = (file: string): string => readFileSync(join(ROOT, file), "utf8");

/** Which folders of src/ a folder may import. `src/README.md` has the same table, which is compared below. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  edge: ["services", "inference", "billing", "events", "store", "codecs"],
  jobs: ["services", "inference", "billing", "scenarios", "events", "store", "codecs"],
  services: ["inference", "supply", "billing", "events", "routing", "upstream", "contracts", "scenarios", "store"],
  inference: ["supply", "billing", "events", "routing", "upstream", "contracts", "store", "codecs"],
  supply: ["billing", "events", "routing", "upstream", "contracts", "scenarios", "store"],
  billing: ["store"],
  events: ["store"],
  routing: ["contracts"],
  upstream: ["contracts", "codecs"],
  contracts: [],
  scenarios: ["contracts", "reference"],
  store: [],
  codecs: [],
  embedded: ["services", "store"],
  sidecar: ["codecs", "config.ts"],
  reference: ["contracts", "codecs"],
};
/** Files of src/ itself that every folder may import. */
const OPEN_TO_ALL = new Set(
  "brand call cancellation clock errors ids random side-note slices vault".split(" ").map((name) => `${name}.ts`),
);

/** Folders within a folder, each with the neighbours that it may import. */
const WITHIN: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  edge: {
    server: [],
    messages: [],
    gate: ["messages"],
    transports: ["server", "messages", "gate"],
  },
  upstream: {
    transport: [],
    pictures: ["transport"],
    payload: ["transport", "pictures"],
    post: ["transport"],
  },
  codecs: {
    pictures: ["python"],
    python: [],
  },
  routing: {
    snapshot: [],
    health: ["snapshot"],
    plan: ["snapshot", "health"],
    attempt: ["health", "plan"],
    loop: ["health", "plan", "attempt"],
  },
};

/** Folders whose inner folders are reached by their index alone. */
const CLOSED = new Set(["routing"]);

/** Packages that one folder alone may use. */
const OWNED_PACKAGES: Readonly<Record<string, readonly string[]>> = {
  fastify: ["edge"],
  "@connectrpc/connect": ["edge"],
  "@connectrpc/connect-node": ["edge"],
  "@connectrpc/connect-fastify": ["edge"],
  postgres: ["store"],
  nats: ["events", "embedded"],
  "@nats-io/jetstream": ["events"],
  undici: ["upstream"],
  "openid-client": ["services"],
  stripe: ["billing"],
  nodemailer: ["events"],
  pdfkit: ["services"],
  ws: ["upstream", "reference", "edge"],
  "@modelcontextprotocol/sdk": ["edge"],
  "@mujoco/mujoco": ["scenarios"],
};

/** Folders that have import cycles of their own still; the goal is none. */
const STILL_CYCLIC = new Set(["scenarios", "store", "upstream"]);

/** Groups of files that import one another, in any number of steps. Algorithm: Tarjan, 1972. */
function cyclesOf(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const cycles: string[][] = [];
  const low = new Map<string, number>();
  const path: string[] = [];
  const visit = (file: string): number => {
    const place = low.size;
    low.set(file, place);
    let lowest = place;
    path.push(file);
    for (const target of graph.get(file) ?? []) {
      if (!graph.has(target)) continue;
      if (!low.has(target)) lowest = Math.min(lowest, visit(target));
      else if (path.includes(target)) lowest = Math.min(lowest, low.get(target)!);
    }
    if (lowest === place) {
      const group = path.splice(path.indexOf(file));
      if (group.length > 1) cycles.push(group.sort());
    } else low.set(file, lowest);
    return lowest;
  };
  for (const file of graph.keys()) if (!low.has(file)) visit(file);
  return cycles;
}

const roomOf = (file: string): string => relative("src", file).split("/")[0] ?? "";
const importsOf = (file: string): string[] =>
  [...read(file).matchAll(/(?:from|import)\s*\(?\s*"([^"]+)"/g)].map((match) => match[1] ?? "");

describe("folders", () => {
  it("import only what the table allows", () => {
    const faults: string[] = [];
    for (const file of filesUnder("src")) {
      const room = roomOf(file);
      if (!(room in MAY_IMPORT)) continue;
      for (const target of importsOf(file)) {
        if (!target.startsWith(".")) continue;
        const path = normalize(join(dirname(file), target));
        if (path.startsWith("gen/")) continue;
        const wanted = roomOf(path);
        if (wanted === room || OPEN_TO_ALL.has(wanted) || MAY_IMPORT[room]?.includes(wanted)) continue;
        faults.push(`${file} imports ${path}`);
      }
    }
    expect(faults).toEqual([]);
  });

  it("have inner folders that import one another in one direction", () => {
    const within = (file: string): string => relative("src", file).split("/")[1]?.replace(/\.ts$/, "") ?? "";
    const faults: string[] = [];
    for (const file of filesUnder("src")) {
      for (const target of importsOf(file)) {
        const path = normalize(join(dirname(file), target));
        const inner = WITHIN[roomOf(path)];
        const [mine, wanted] = [within(file), within(path)];
        if (!target.startsWith(".") || !inner || !(wanted in inner)) continue;
        const open =
          roomOf(file) === roomOf(path)
            ? mine === wanted || !(mine in inner) || inner[mine]?.includes(wanted)
            : !CLOSED.has(roomOf(path));
        if (!open) faults.push(`${file} imports ${path}`);
      }
    }
    expect(faults).toEqual([]);
  });

  it("have no import cycles, type-only ones included", () => {
    const graph = new Map(
      filesUnder("src").map((file) => [
        file,
        importsOf(file)
          .filter((target) => target.startsWith("."))
          .map((target) => normalize(join(dirname(file), target))),
      ]),
    );
    const faults = cyclesOf(graph).filter((cycle) => cycle.some((file) => !STILL_CYCLIC.has(roomOf(file))));
    expect(faults).toEqual([]);
  });

  it("keep their packages to themselves", () => {
    const faults: string[] = [];
    for (const file of filesUnder("src")) {
      for (const target of importsOf(file)) {
        const owners = Object.entries(OWNED_PACKAGES).find(
          ([name]) => target === name || target.startsWith(`${name}/`),
        )?.[1];
        if (owners && !owners.includes(roomOf(file))) faults.push(`${file} imports ${target}`);
      }
    }
    expect(faults).toEqual([]);
  });
});

describe("time, chance and the environment", () => {
  const BANNED = [
    /\bDate\.now\(/,
    /\bnew Date\(\)/,
    /\bMath\.random\(/,
    /(?<!\.)\bsetTimeout\(/,
    /\bsetInterval\(/,
    /\bperformance\.now\(/,
  ];

  it("come in through clock.ts, random.ts and config.ts alone", () => {
    const faults: string[] = [];
    for (const file of filesUnder("src")) {
      const text = read(file).replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, "");
      if (!["src/clock.ts", "src/random.ts"].includes(file)) {
        for (const pattern of BANNED) if (pattern.test(text)) faults.push(`${file}: ${pattern.source}`);
      }
      if (file !== "src/config.ts" && /\bprocess\.env\b/.test(text)) faults.push(`${file}: process.env`);
    }
    expect(faults).toEqual([]);
  });
});

/** The services that callers reach; the wire that partners implement is not among them. */
const serviceFiles = (): string[] =>
  ["proto/limber/v1", "proto/limber/scim"].flatMap((folder) => filesUnder(folder, "_service.proto"));

describe("the schema", () => {
  const methods = SERVICES.flatMap(({ methods }) => methods);

  it("has a row in the table of services for every service file, except the wires that partners implement", () => {
    const files = serviceFiles().map((file) => file.split("/").at(-1)?.replace("_service.proto", ""));
    const known = SERVICES.map(({ file }) => file.name.split("/").at(-1)?.replace("_service", ""));
    expect(known.filter((name) => name !== "outbound").sort()).toEqual(files.sort());
  });

  it("gives every RPC a REST path, an access rule, and a permission that roles hold", () => {
    const faults = methods.filter((method) => {
      if (!hasOption(method, http) || !hasOption(method, rpc)) return true;
      const rule = getOption(method, rpc);
      return (
        rule.access === Access.UNSPECIFIED ||
        (rule.permission !== "" && !PERMISSIONS.some(({ id }) => id === rule.permission))
      );
    });
    expect(faults.map((method) => method.name)).toEqual([]);
  });

  it("has no reason that is thrown nowhere", () => {
    const sources = filesUnder("src")
      .filter((file) => file !== "src/errors.ts")
      .map(read)
      .join("\n");
    const unused = ReasonSchema.values
      .map((value) => value.localName)
      .filter((name) => name !== "UNSPECIFIED" && !new RegExp(`\\bReason\\.${name}\\b|"${name}"`).test(sources));
    expect(unused).toEqual([]);
  });

  it("has an implementation of the same stem for every service, and tests beside it", () => {
    const stems = serviceFiles().map((file) => file.split("/").at(-1)?.replace("_service.proto", ""));
    const implemented = new Set(filesUnder("src/services").map((file) => file.split("/").at(-1)?.replace(".ts", "")));
    // The runner's tests start a process.
    const tested = new Set([...readdirSync(join(ROOT, "test/api")), "runner"]);
    expect(stems.filter((stem) => !implemented.has(stem ?? "") || !tested.has(stem ?? ""))).toEqual([]);
  });
});

describe("what is committed", () => {
  it("speaks of the project alone", () => {
    const faults = [...filesUnder("src"), ...filesUnder("test"), ...filesUnder("proto", ".proto")]
      .filter((file) => file !== "test/tidy.test.ts")
      .filter((file) => /\/work\/|\b(TODO|FIXME|XXX|HACK)\b/.test(read(file)));
    expect(faults).toEqual([]);
  });

  const PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    ...["src", "test", "proto", "docs"].flatMap((folder) => filesUnder(folder, ".md")),
  ];

  it("is where the documents say", () => {
    const files = [
      ...readdirSync(ROOT),
      ...["src", "test", "proto", "tools", "examples", "docs", "data", "clients", "deploy", ".ci", ".github"].flatMap(
        (folder) => filesUnder(folder, ""),
      ),
    ];
    const faults = PAGES.flatMap((page) =>
      [...read(page).matchAll(/`([\w./-]+\.(?:tsx?|sql|proto|py|hpp|cpp|md|svg|ya?ml))`/g)]
        // A name that begins with N's stands for many files.
        .filter(([, name = ""]) => !/(^|\/)N+_/.test(name))
        .map(([, name = ""]) => [name, name.startsWith(".") ? posix.join(dirname(page), name) : name] as const)
        .filter(([, path]) => !files.some((file) => `/${file}`.endsWith(`/${path}`)))
        .map(([name]) => `${page} names ${name}`),
    );
    expect(faults).toEqual([]);
  });

  it("is on the page of a REST act by its path in src/, or beside the file that stands before it", () => {
    const page = "docs/architecture/act-over-rest.md";
    const faults: string[] = [];
    for (const block of read(page).split(/\n\n|\n(?=\|)/)) {
      let beside = "src";
      for (const [, name = ""] of block.matchAll(/`([\w./-]+(?:\.ts|\/))`/g)) {
        const path = [name, `src/${name}`, `${beside}/${name}`].find((path) => existsSync(join(ROOT, path)));
        if (path === undefined) faults.push(name);
        else beside = path.endsWith("/") ? path.slice(0, -1) : dirname(path);
      }
    }
    expect(faults).toEqual([]);
  });

  it("is where the links of the documents lead", () => {
    const faults = PAGES.flatMap((page) =>
      // Code holds what looks like links.
      [
        ...read(page)
          .replaceAll(/^```.*?^```/gms, "")
          .matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g),
      ]
        .filter(([, path = "", heading]) => !leads(path === "" ? page : posix.join(dirname(page), path), heading))
        .map(([link]) => `${page} has ${link.slice(1)}`),
    );
    expect(faults).toEqual([]);
  });

  it("has the commands that the documents give", () => {
    const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
    const faults = PAGES.flatMap((page) =>
      [...read(page).matchAll(/npm run (?:-s )?([\w:-]+)/g)]
        .filter(([, name = ""]) => !(name in scripts))
        .map(([command]) => `${page} has ${command}`),
    );
    expect(faults).toEqual([]);
  });

  it("serves the calls that the documents name", () => {
    const { paths } = JSON.parse(read("gen/openapi.json")) as { paths: Record<string, object> };
    const shape = (path: string): string => path.replaceAll(/\{\w+\}/g, "{}");
    // Not in the schema: Prometheus reads it.
    const served = new Set(["GET /metrics"]);
    for (const [path, verbs] of Object.entries(paths))
      for (const verb of Object.keys(verbs)) served.add(`${verb.toUpperCase()} ${shape(path)}`);
    const faults = PAGES.flatMap((page) =>
      [...read(page).matchAll(/`((?:GET|POST|PUT|PATCH|DELETE) )(\/[\w/{}.-]*)(?:\?[^`]*)?`/g)]
        .filter(([, verb, path = ""]) => !served.has(`${verb}${shape(path)}`))
        .map(([call]) => `${page} has ${call}`),
    );
    expect(faults).toEqual([]);
  });

  it("shows the metrics that the documents name", () => {
    const shown = read("src/edge/metrics.ts") + read("src/app/cluster.ts");
    const faults = PAGES.flatMap((page) =>
      [...read(page).matchAll(/`limber_(\w+?)_?\*?`/g)]
        .filter(([, name = ""]) => !new RegExp(`"${name}`).test(shown))
        .map(([metric]) => `${page} has ${metric}`),
    );
    expect(faults).toEqual([]);
  });
});

/** Whether a file is there, and has a heading of that anchor where one is named. */
function leads(path: string, heading: string | undefined): boolean {
  if (!existsSync(join(ROOT, path))) return false;
  if (heading === undefined) return true;
  const anchors = [...read(path).matchAll(/^#+ (.*)$/gm)].map(([, title = ""]) =>
    title
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, "")
      .replaceAll(" ", "-"),
  );
  return anchors.includes(heading);
}

describe("the map in src/README.md", () => {
  const map = read("src/README.md");

  it("shows the import table that the test above holds", () => {
    const rows = [...map.matchAll(/^\| `(\w+)\/` \| [^|]+ \| ([^|]+) \|$/gm)].map(([, folder = "", may = ""]) => [
      folder,
      may === "–" ? [] : may.split(", "),
    ]);
    expect(Object.fromEntries(rows)).toEqual(MAY_IMPORT);
  });

  it("names the files that every folder may import", () => {
    const [, sentence = ""] =
      /Every folder may import `gen\/` and these files of `src\/` itself: ([^;]*?)\. /s.exec(map) ?? [];
    const named = [...sentence.matchAll(/`([\w.-]+)`/g)].map(([, name]) => name);
    expect(named.sort()).toEqual([...OPEN_TO_ALL].sort());
  });

  it("shows every file and folder of src/, and every folder within edge/ and routing/", () => {
    const [, tree = ""] = /^src\/\n([\s\S]*?)^```$/m.exec(map) ?? [];
    const words = new Set(tree.split(/\s+/));
    const entries = ["src", "src/edge", "src/routing"].flatMap((folder) =>
      readdirSync(join(ROOT, folder), { withFileTypes: true })
        .filter((entry) => entry.isDirectory() || (folder === "src" && entry.name.endsWith(".ts")))
        .map((entry) => (entry.isDirectory() ? `${entry.name}/` : entry.name)),
    );
    expect(entries.filter((name) => !words.has(name))).toEqual([]);
  });

  it("is one page", () => {
    expect(map.split(/\s+/).length).toBeLessThanOrEqual(1_200);
  });
});

describe("docs/operations/settings.md", () => {
  const rows = new Map(
    [...read("docs/operations/settings.md").matchAll(/^\| `([A-Z][A-Z0-9_]+)` \| ([^|]*) \|/gm)].map(
      ([, name = "", usual = ""]) => [name, usual.trim()],
    ),
  );
  const settings = [...read(".env.example").matchAll(/^(# )?([A-Z][A-Z0-9_]+)=(.*)$/gm)].map(
    ([, isOut, name = "", value = ""]) => ({ name, usual: isOut === undefined ? value : undefined }),
  );
  // Whatever the code reads, be it as a member of the environment or by its name.
  const code = [...read("src/config.ts").matchAll(/(?:\benv\.|")([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)\b"?/g)]
    .map(([, name = ""]) => name)
    .filter((name) => name !== "PATH" && name.length > 3);

  it("has a row for each variable that the code reads or .env.example lists, and for no other", () => {
    const wanted = new Set([...code, ...settings.map(({ name }) => name)]);
    expect([...rows.keys()].sort()).toEqual([...wanted].sort());
  });

  it("gives the defaults of .env.example", () => {
    const wrong = settings.filter(
      ({ name, usual }) => usual !== undefined && rows.get(name) !== (usual === "" ? "none" : `\`${usual}\``),
    );
    expect(wrong).toEqual([]);
  });
});

describe("tests", () => {
  it("have their hooks in their own files: what others import is loaded once for all files of a process", () => {
    const faults = filesUnder("test")
      .filter((file) => !file.endsWith(".test.ts") && file !== "test/support/setup.ts")
      .filter((file) => /^(before|after)(Each|All)\(/m.test(read(file)));
    expect(faults).toEqual([]);
  });

  it("that check the invariants of all money have a database of their own", () => {
    // Other files write rows into the shared one.
    const faults = filesUnder("test")
      .filter((file) => file.endsWith(".test.ts") && file !== "test/tidy.test.ts")
      .filter((file) => read(file).includes("brokenInvariants(") && read(file).includes("openWorld("));
    expect(faults).toEqual([]);
  });

  it("of the fast suite open gateways, clocks and ports through test/support, which gives them back", () => {
    // A sleep waits for a time, not for a fact; a port that was free a moment ago may be another file's.
    const DIRECT = /\b(openApp|replaceAmbient|replaceClock|freePort)\b|\bsetTimeout\(/;
    const others = new Set(["bench", "golden", "nightly", "node_modules", "slow", "support"]);
    const faults = readdirSync(join(ROOT, "test"), { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && !others.has(entry.name))
      .flatMap(({ name }) => filesUnder(join("test", name)))
      .filter((file) => DIRECT.test(read(file)));
    expect(faults).toEqual([]);
  });
});
