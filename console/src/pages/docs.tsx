/** The documentation that this gateway was built with. */

import { index, texts } from "virtual:docs";
import { useQuery } from "@tanstack/react-query";
import { Link, useLocation, useParams } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { Empty, Head, Part } from "../parts/basics.tsx";
import { Filters, Find } from "../parts/filters.tsx";
import { Markdown } from "./docs/markdown.tsx";

/** Folders of the documentation, in reading order, and what they are for. */
const FOLDERS = [
  ["guides", "Guides"],
  ["operations", "Operations"],
  ["", "Policies"],
  ["architecture", "Architecture"],
  ["decisions", "Decisions"],
] as const;

const folderOf = (path: string): string => (path.includes("/") ? path.slice(0, path.indexOf("/")) : "");

/** The page: all pages by folder, or one of them. */
export function DocsPage() {
  const { _splat: path = "" } = useParams({ strict: false });
  return path === "" ? <DocsIndex /> : <DocPage path={path} />;
}

function DocsIndex() {
  const [text = "", find] = useState<string>();
  const wanted = text.toLowerCase();
  const found = useMemo(
    () =>
      index.filter(({ title, headings }) =>
        [title, ...headings].some((heading) => heading.toLowerCase().includes(wanted)),
      ),
    [wanted],
  );
  return (
    <>
      <Head title="Documentation" facts="As of this gateway's version.">
        <a href="/docs" className="button text-ink">
          API reference
        </a>
        <a href="/docs/errors" className="button text-ink">
          Error codes
        </a>
      </Head>
      <Filters>
        <Find label="Search titles and sections" value={text} onChange={find} width="w-64" />
      </Filters>
      {found.length === 0 && <Empty>No title or section contains “{text}”.</Empty>}
      <div className="grid max-w-[1440px] gap-8 *:mt-0 sm:grid-cols-2 lg:grid-cols-3">
        {FOLDERS.map(([folder, title]) => {
          const own = found.filter(({ path }) => folderOf(path) === folder && !path.endsWith("README"));
          return (
            own.length > 0 && (
              <Part key={folder} title={title}>
                <ul className="grid gap-0.5">
                  {own.map(({ path, title: name }) => (
                    <li key={path}>
                      <Link to="/console/docs/$" params={{ _splat: path }} className="inline-block min-h-6">
                        {name}
                      </Link>
                    </li>
                  ))}
                </ul>
              </Part>
            )
          );
        })}
      </div>
    </>
  );
}

function DocPage({ path }: { path: string }) {
  const { hash } = useLocation();
  const known = index.find((page) => page.path === path);
  const { data } = useQuery({
    queryKey: ["docs", path],
    queryFn: async () => (await texts[path]?.())?.default ?? "",
    staleTime: Number.POSITIVE_INFINITY,
  });
  useEffect(() => {
    if (data === undefined) return;
    const heading = hash === "" ? undefined : document.getElementById(hash);
    if (heading) heading.scrollIntoView();
    else document.getElementById("page")?.scrollTo(0, 0);
  }, [data, hash]);
  return (
    <>
      <Head title={known?.title ?? "Page not found"}>
        <Link to="/console/docs" className="button text-ink">
          All pages
        </Link>
      </Head>
      {data !== undefined && (
        <article className="grid max-w-[760px] gap-3 pb-16 text-[14px] leading-[22px] *:min-w-0">
          <Markdown text={data} at={path} />
        </article>
      )}
    </>
  );
}
