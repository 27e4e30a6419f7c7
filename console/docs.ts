/** The documentation as modules of the console: an index of titles and headings, and the text of each page, loaded when it is opened. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

/** The folder of the documentation. */
export const DOCS = join(import.meta.dirname, "../docs");

/** A page of the documentation, as search finds it. */
export interface DocPage {
  /** Path without its ending, such as `guides/first-call`. */
  readonly path: string;
  readonly title: string;
  /** Titles of its sections. */
  readonly headings: readonly string[];
}

/** A page's title and sections; headings in code blocks are no headings. */
export function indexed(path: string, text: string): DocPage {
  const lines = text.replace(/^```[\s\S]*?^```/gm, "").split("\n");
  const plain = (line: string): string => line.replace(/^#+ +/, "").replaceAll("`", "");
  const title = lines.find((line) => line.startsWith("# ")) ?? path;
  return { path, title: plain(title), headings: lines.filter((line) => line.startsWith("## ")).map(plain) };
}

/** Folders in reading order; other pages come between operations and architecture. */
const ORDER = ["guides/", "operations/", "", "architecture/", "decisions/"];
const rankOf = (path: string): number =>
  ORDER.indexOf(ORDER.find((folder) => folder !== "" && path.startsWith(folder)) ?? "");

/** Pages of the documentation by path, in reading order. Without the folder, as in a package, there are none. */
function pagesOf(folder: string): ReadonlyMap<string, string> {
  if (!existsSync(folder)) return new Map();
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".md"));
  const paths = names.map((name) => name.slice(0, -3).replaceAll("\\", "/"));
  return new Map(
    paths
      .sort((a, b) => rankOf(a) - rankOf(b) || (a < b ? -1 : 1))
      .map((path) => [path, readFileSync(join(folder, `${path}.md`), "utf8")]),
  );
}

/** Provides `virtual:docs`, whose exports `src/docs.d.ts` declares. */
export function docsPlugin(): Plugin {
  const pages = pagesOf(DOCS);
  return {
    name: "docs",
    resolveId: (id) => (id.startsWith("virtual:doc") ? `\0${id}` : undefined),
    load(id) {
      if (id === "\0virtual:docs") {
        const index = [...pages].map(([path, text]) => indexed(path, text));
        const texts = [...pages.keys()].map((path) => `${JSON.stringify(path)}: () => import("virtual:doc/${path}")`);
        return `export const index = ${JSON.stringify(index)};\nexport const texts = {${texts.join(", ")}};`;
      }
      const text = id.startsWith("\0virtual:doc/") ? pages.get(id.slice("\0virtual:doc/".length)) : undefined;
      return text === undefined ? undefined : `export default ${JSON.stringify(text)};`;
    },
  };
}
