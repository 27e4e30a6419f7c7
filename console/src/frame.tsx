/** What stands around every page: the bar with its pages, who is signed in, search, and STOP. */
import { Link, Outlet, useNavigate } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { isSignedOut } from "./lib/errors.ts";
import { useKeys } from "./lib/keys.ts";
import { PAGES, type Page } from "./lib/routes.ts";
import { useSession, type Who } from "./lib/session.ts";
import { chooseDensity, chooseTheme } from "./lib/theme.ts";
import { Modal, Refused } from "./parts/basics.tsx";
import { Palette } from "./parts/palette.tsx";
import { SignedOut } from "./parts/signed-out.tsx";
import { StopButton } from "./parts/stop.tsx";

const isSeen = (page: Page, who: Who): boolean => page.permission === undefined || who.permissions.has(page.permission);

/** The frame. */
export function Frame() {
  const { who, error, isPending } = useSession();
  if (isPending) return <p className="p-6 text-muted">Loading…</p>;
  if (who === undefined && isSignedOut(error)) return <SignedOut />;
  if (who === undefined)
    return (
      <main className="p-6">
        <Refused error={error} again={() => window.location.reload()} />
      </main>
    );
  return <Signed who={who} />;
}

function Signed({ who }: { who: Who }) {
  const navigate = useNavigate();
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  const seen = PAGES.filter((page) => isSeen(page, who));
  useKeys((keys) => {
    if (keys === "mod+k") {
      setPalette(true);
      return true;
    }
    if (keys === "?") {
      setHelp(true);
      return true;
    }
    if (keys === "/") {
      const filter = document.querySelector<HTMLElement>("[data-filter] input, [data-filter] select");
      filter?.focus();
      return filter !== null;
    }
    const page = keys.startsWith("g ")
      ? seen.find((candidate) => "key" in candidate && candidate.key === keys.slice(2))
      : undefined;
    if (page === undefined) return false;
    void navigate({ to: page.path });
    return true;
  });
  return (
    <div className="flex h-dvh flex-col">
      <a href="#page" className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:bg-page focus:p-2">
        Skip to the page
      </a>
      <header className="flex h-11 shrink-0 items-center gap-1 border-b border-line bg-panel px-3">
        <Link to="/console" className="mr-2 font-semibold text-ink">
          limber
        </Link>
        <nav aria-label="Pages" className="flex min-w-0 flex-1 items-center gap-0.5 overflow-x-auto max-md:hidden">
          {seen.filter(({ place }) => place === "bar").map(PageLink)}
          <More pages={seen.filter(({ place }) => place === "more")} />
        </nav>
        <span className="flex-1 md:hidden" />
        <span
          className="max-w-40 truncate px-2 text-sm text-muted max-lg:hidden"
          title={`${who.name}, ${who.role} of ${who.orgId}`}
        >
          {who.name}
        </span>
        <button
          type="button"
          className="button max-sm:px-2"
          onClick={() => setPalette(true)}
          aria-label="⌘K, search"
          title="Search"
        >
          ⌘K
        </button>
        <Phone pages={seen} />
        {who.permissions.has("robots.stop") && <StopButton />}
      </header>
      <main id="page" className="flex min-h-0 flex-1 flex-col overflow-auto p-4">
        <Outlet />
      </main>
      <Palette open={palette} onClose={() => setPalette(false)} pages={seen} />
      <Modal title="Keys" open={help} onClose={() => setHelp(false)}>
        <Keys pages={seen} />
      </Modal>
    </div>
  );
}

const LINK =
  "rounded px-2 py-1 whitespace-nowrap text-ink hover:bg-line hover:no-underline aria-[current=page]:bg-chosen aria-[current=page]:font-medium";

function PageLink({ path, title }: Page) {
  return (
    <Link
      key={path}
      to={path as (typeof PAGES)[number]["path"]}
      activeOptions={{ exact: path === "/console", includeSearch: false }}
      className={LINK}
    >
      {title}
    </Link>
  );
}

/** The width of the menu, in pixels, and its least distance from the window's edges. */
const MENU_PX = 224;
const MARGIN_PX = 8;

/** A menu that opens under its button. The browser's popovers are positioned against the window, so the place is measured when it opens. */
function More({ pages, label = "More", id = "more" }: { pages: readonly Page[]; label?: string; id?: string }) {
  const button = useRef<HTMLButtonElement>(null);
  const [left, setLeft] = useState(0);
  const place = (): void => {
    const at = button.current?.getBoundingClientRect().left ?? 0;
    setLeft(Math.max(MARGIN_PX, Math.min(at, window.innerWidth - MENU_PX - MARGIN_PX)));
  };
  return (
    <>
      <button ref={button} type="button" popoverTarget={id} className={LINK} aria-haspopup="true">
        {label} <span aria-hidden="true">▾</span>
      </button>
      <div
        id={id}
        popover="auto"
        className="panel fixed inset-auto top-11 m-0 max-h-[calc(100dvh-56px)] overflow-auto p-1 text-ink shadow-lg"
        style={{ left, width: MENU_PX }}
        onBeforeToggle={place}
        onClick={(event) => event.currentTarget.hidePopover()}
      >
        <div className="grid">{pages.map(PageLink)}</div>
        <hr className="my-1 border-line" />
        <Looks />
      </div>
    </>
  );
}

const Phone = ({ pages }: { pages: readonly Page[] }) => (
  <div className="md:hidden">
    <More pages={pages} label="Pages" id="pages" />
  </div>
);

/** Theme and density of this browser. */
function Looks() {
  return (
    <div className="flex flex-wrap gap-1 p-1">
      {(["system", "light", "dark"] as const).map((theme) => (
        <button key={theme} type="button" className="button" onClick={() => chooseTheme(theme)}>
          {theme}
        </button>
      ))}
      <button type="button" className="button" onClick={chooseDensity}>
        density
      </button>
    </div>
  );
}

function Keys({ pages }: { pages: readonly Page[] }) {
  const rows: (readonly [string, string])[] = [
    ["⌘K or Ctrl K", "search"],
    ["/", "filter"],
    ["j k", "next and previous row"],
    ["Enter", "open the row"],
    ["Esc", "close"],
    [". .", "stop robots"],
    ...pages.flatMap(({ key, title }) => (key === undefined ? [] : [[`g ${key}`, title] as const])),
    ["?", "this list"],
  ];
  return (
    <dl className="grid grid-cols-[max-content_1fr] gap-x-4 gap-y-1">
      {rows.map(([keys, what]) => (
        <div key={keys} className="contents">
          <dt>
            <kbd className="font-mono">{keys}</kbd>
          </dt>
          <dd>{what}</dd>
        </div>
      ))}
    </dl>
  );
}
