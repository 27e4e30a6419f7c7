/** What the code uses of Node beyond its documentation. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";

const SOURCES = join(import.meta.dirname, "../../src");

/**
 * Private fields of Node's objects, by the files that use them. `_read` is documented for implementers of streams; `port-abuse.test.ts` fails if Node
 * resumes connections in another way.
 */
const LISTED = { _read: ["edge/server/owned.ts"] };

it("the code uses only the listed Node internals", () => {
  const used = new Map<string, string[]>();
  for (const file of readdirSync(SOURCES, { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".ts")) continue;
    const text = readFileSync(join(SOURCES, file), "utf8");
    // Outside of texts, where names of Python's stand.
    const code = text.replaceAll(/"[^"\n]*"|`[^`]*`/g, '""');
    for (const [, name = ""] of code.matchAll(/\.(_[a-z]\w*|\[k[A-Z]\w*\])/g))
      used.set(name, [...(used.get(name) ?? []), file]);
    expect(text, file).not.toMatch(/process\.binding|internalBinding|new Function\(|\beval\(/);
  }
  const files = Object.fromEntries([...used].map(([name, found]) => [name, [...new Set(found)]]));
  expect(files).toEqual(LISTED);
});
