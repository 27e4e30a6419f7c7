/** Search: pages, models, calls by id, titles and sections of the documentation. */
import { useQuery } from "@connectrpc/connect-query";
import { useQuery as useLoaded } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useDeferredValue, useEffect, useRef, useState } from "react";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import type { Page } from "../lib/routes.ts";
import type { router } from "../router.tsx";
import { Modal } from "./basics.tsx";

interface Found {
  readonly id: string;
  readonly title: string;
  readonly kind: string;
  readonly href: string;
}

/** Ids of calls, of their answers and of what was charged for them. */
const CALL = /^(?:req|act|pred|grnd|chunk|use)_\w+$/;
const ID: readonly (readonly [RegExp, string, string])[] = [
  [CALL, "call", "/console/calls?call="],
  [/^(?:eval|ev)_\w+$/, "evaluation", "/console/evaluations?run="],
  [/^(?:batch|bat)_\w+$/, "batch", "/console/jobs?job="],
  [/^key_\w+$/, "key", "/console/keys?key="],
  [/^off_\w+$/, "offering", "/console/supply?offering="],
];

/** How many titles and sections of the documentation are shown. */
const MOST_DOCS = 8;

/** Titles and sections of the documentation that contain a text; titles first. The index is loaded with the palette. */
function useDocs(wanted: string): readonly Found[] {
  const { data } = useLoaded({
    queryKey: ["docs"],
    queryFn: async () => {
      const [{ index }, { anchorOf }] = await Promise.all([
        import("virtual:docs"),
        import("../pages/docs/markdown.tsx"),
      ]);
      const found = (title: string, path: string, kind: string, hash = ""): Found => {
        const href = `/console/docs/${path}${hash}`;
        return { id: href, title, kind, href };
      };
      return [
        ...index.map(({ path, title }) => found(title, path, "documentation")),
        ...index.flatMap(({ path, title, headings }) =>
          headings.map((heading) => found(heading, path, title, `#${anchorOf(heading)}`)),
        ),
      ];
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (wanted.length < 3) return [];
  return (data ?? []).filter(({ title }) => title.toLowerCase().includes(wanted)).slice(0, MOST_DOCS);
}

/** The palette. */
export function Palette({ open, onClose, pages }: { open: boolean; onClose: () => void; pages: readonly Page[] }) {
  return (
    <Modal title="Go to" open={open} onClose={onClose}>
      {open && <Search onClose={onClose} pages={pages} />}
    </Modal>
  );
}

function Search({ onClose, pages }: { onClose: () => void; pages: readonly Page[] }) {
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const asked = useDeferredValue(text.trim());
  const models = useQuery(RegistryService.method.listModels, { q: asked, limit: 8 }, { enabled: asked.length > 1 });
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const wanted = text.trim().toLowerCase();
  const docs = useDocs(wanted);
  const found: Found[] = [
    ...ID.filter(([pattern]) => pattern.test(text.trim())).map(([, kind, href]) => ({
      id: kind,
      title: text.trim(),
      kind,
      href: href + encodeURIComponent(text.trim()),
    })),
    ...pages
      .filter(({ title }) => title.toLowerCase().includes(wanted))
      .map(({ path, title }) => ({ id: path, title, kind: "page", href: path })),
    ...(asked.length > 1 ? (models.data?.data ?? []) : []).map(({ id }) => ({
      id,
      title: id,
      kind: "model",
      href: `/console/models/${id}`,
    })),
    ...docs,
  ];
  const go = (to: Found | undefined): void => {
    if (to === undefined) return;
    onClose();
    void navigate({ href: to.href } as Parameters<typeof router.navigate>[0]);
  };
  return (
    <>
      <input
        ref={input}
        className="input w-full"
        role="combobox"
        aria-expanded="true"
        aria-controls="found"
        aria-activedescendant={found[chosen] === undefined ? undefined : `found-${chosen}`}
        aria-label="Name or id"
        placeholder="Page, model, id or topic"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(0);
        }}
        onKeyDown={(event) => {
          const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
          if (step !== 0) {
            event.preventDefault();
            setChosen((now) => Math.min(Math.max(now + step, 0), found.length - 1));
          }
          if (event.key === "Enter") go(found[chosen]);
        }}
      />
      <div
        id="found"
        role="listbox"
        aria-label="Found"
        className="grid max-h-80 grid-cols-[minmax(0,1fr)] overflow-auto"
      >
        {found.map((one, i) => (
          <div
            key={`${one.kind} ${one.id}`}
            id={`found-${i}`}
            role="option"
            tabIndex={-1}
            aria-selected={i === chosen}
            className="flex min-h-8 cursor-pointer items-center justify-between gap-2 rounded px-2 hover:bg-panel aria-selected:bg-chosen"
            onClick={() => go(one)}
          >
            <span className="truncate">{one.title}</span>
            <span className="shrink-0 text-sm text-muted max-sm:max-w-32 max-sm:truncate">{one.kind}</span>
          </div>
        ))}
      </div>
      {found.length === 0 && <p className="text-muted">No results.</p>}
    </>
  );
}
