/** Draws the Markdown of the documentation: headings, paragraphs, lists, tables, quotes and code. */
import { Link } from "@tanstack/react-router";
import { Fragment, type ReactNode } from "react";
import { Block } from "../../parts/basics.tsx";

/** The anchor of a heading, as GitHub makes it. */
export const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "")
    .trim()
    .replaceAll(" ", "-");

const PART = /`([^`]+)`|\*\*([^*]+)\*\*|\[((?:[^\]`]|`[^`]*`)+)\]\(([^)\s]+)\)/;

/** A line's code, bold words and links. `at` is the page's path, to which links relate. */
function Inline({ text, at }: { text: string; at: string }): ReactNode {
  const found = PART.exec(text);
  if (found === null) return text;
  const [whole, code, bold, label, href] = found;
  return (
    <>
      {text.slice(0, found.index)}
      {code !== undefined && <code className="rounded bg-panel px-1 [overflow-wrap:anywhere]">{code}</code>}
      {bold !== undefined && (
        <strong className="font-semibold">
          <Inline text={bold} at={at} />
        </strong>
      )}
      {label !== undefined && href !== undefined && (
        <To href={href} at={at}>
          <Inline text={label} at={at} />
        </To>
      )}
      <Inline text={text.slice(found.index + whole.length)} at={at} />
    </>
  );
}

/** A link to another page of the documentation, to the web, or only its text: the repository's files are not served. */
function To({ href, at, children }: { href: string; at: string; children: ReactNode }) {
  if (/^https?:\/\//.test(href))
    return (
      <a href={href} target="_blank" rel="noreferrer noopener" className="underline">
        {children}
      </a>
    );
  const { pathname, hash } = new URL(href, `file:///docs/${at}.md`);
  const path = /^\/docs\/(.+)\.md$/.exec(pathname)?.[1];
  if (path === undefined) return children;
  return (
    <Link to="/console/docs/$" params={{ _splat: path }} hash={hash.slice(1)} className="underline">
      {children}
    </Link>
  );
}

/** A document, block by block. */
export function Markdown({ text, at }: { text: string; at: string }) {
  return blocksOf(text.split("\n")).map((block, i) => <Fragment key={i}>{drawn(block, at)}</Fragment>);
}

type MarkdownBlock =
  | { readonly kind: "code"; readonly text: string }
  | { readonly kind: "heading"; readonly level: number; readonly text: string }
  | { readonly kind: "table"; readonly rows: readonly (readonly string[])[] }
  | { readonly kind: "list"; readonly ordered: boolean; readonly items: readonly (readonly string[])[] }
  | { readonly kind: "quote" | "text"; readonly text: string };

const ITEM = /^( *)(?:[-*]|\d+\.) +/;

/** The blocks of some lines. */
function blocksOf(lines: readonly string[]): readonly MarkdownBlock[] {
  const blocks: MarkdownBlock[] = [];
  for (let i = 0; i < lines.length; ) {
    const take = (isMore: (line: string) => boolean): string[] => {
      const from = i++;
      while (i < lines.length && isMore(lines[i]!)) i++;
      return lines.slice(from, i);
    };
    const line = lines[i]!;
    const heading = /^(#+) +(.*)$/.exec(line);
    if (line.trim() === "") i++;
    else if (line.startsWith("```")) {
      blocks.push({
        kind: "code",
        text: take((more) => !more.startsWith("```"))
          .slice(1)
          .join("\n"),
      });
      i++;
    } else if (heading !== null) {
      blocks.push({ kind: "heading", level: heading[1]!.length, text: heading[2]! });
      i++;
    } else if (line.startsWith("|")) {
      const rows = take((more) => more.startsWith("|")).filter((row) => !/^\|[-: |]+\|$/.test(row));
      blocks.push({ kind: "table", rows: rows.map(cellsOf) });
    } else if (ITEM.test(line)) {
      const ordered = /^\d/.test(line);
      const own = take((more) => ITEM.test(more) || /^ {2,}\S/.test(more));
      const items: string[][] = [];
      for (const each of own) {
        const indent = ITEM.exec(each)?.[1]?.length;
        if (indent === 0) items.push([each.replace(ITEM, "")]);
        else items.at(-1)?.push(each.replace(/^ {1,3}/, ""));
      }
      blocks.push({ kind: "list", ordered, items });
    } else if (line.startsWith(">")) {
      const own = take((more) => more.startsWith(">"));
      blocks.push({ kind: "quote", text: own.map((each) => each.replace(/^> ?/, "")).join(" ") });
    } else
      blocks.push({
        kind: "text",
        text: take((more) => more.trim() !== "" && !/^(?:#+ |```|\||>)/.test(more) && !ITEM.test(more)).join(" "),
      });
  }
  return blocks;
}

/** The cells of a table's row; a pipe in code is part of its cell. */
const cellsOf = (row: string): string[] =>
  row
    .replace(/^\||\|$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.replaceAll("\\|", "|").trim());

const SIZES = ["text-xl", "text-lg mt-4", "text-base mt-2"] as const;

function drawn(block: MarkdownBlock, at: string): ReactNode {
  switch (block.kind) {
    case "code":
      return <Block text={block.text} wrap={false} />;
    case "heading": {
      // The page's own title is drawn by its frame.
      if (block.level === 1) return null;
      const Level = `h${Math.min(block.level, 4)}` as "h2";
      return (
        <Level id={anchorOf(block.text)} className={`scroll-mt-4 font-semibold ${SIZES[block.level - 1] ?? "mt-2"}`}>
          <Inline text={block.text} at={at} />
        </Level>
      );
    }
    case "table": {
      const [head = [], ...rows] = block.rows;
      return (
        <div className="panel overflow-x-auto" tabIndex={0} role="group" aria-label={`table: ${head.join(", ")}`}>
          <table className="w-full text-left">
            <thead className="bg-panel text-muted">
              <tr>
                {head.map((cell, i) => (
                  <th key={cell + String(i)} scope="col" className="px-3 py-1 font-normal">
                    <Inline text={cell} at={at} />
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row, i) => (
                <tr key={i} className="border-t border-line align-top">
                  {row.map((cell, nth) => (
                    <td key={nth} className="px-3 py-1.5">
                      <Inline text={cell} at={at} />
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    }
    case "list": {
      const Kind = block.ordered ? "ol" : "ul";
      return (
        <Kind className={`grid gap-1 pl-5 ${block.ordered ? "list-decimal" : "list-disc"}`}>
          {block.items.map(([first = "", ...more], i) => (
            <li key={i}>
              <Markdown text={[first, ...more].join("\n")} at={at} />
            </li>
          ))}
        </Kind>
      );
    }
    case "quote":
      return (
        <blockquote className="border-l-2 border-line pl-3 text-muted">
          <Inline text={block.text} at={at} />
        </blockquote>
      );
    default:
      return (
        <p>
          <Inline text={block.text} at={at} />
        </p>
      );
  }
}
