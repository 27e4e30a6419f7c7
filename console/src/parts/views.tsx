/** Saved views of a page: its filters under a name, kept in this browser. */
import { useState } from "react";
import { Modal, TextField } from "./basics.tsx";
import { Pick } from "./filters.tsx";

/** Filters as an address has them. */
type Search = Readonly<Record<string, string | undefined>>;

/** The same filters have the same text, whatever their order. */
const textOf = (search: Search): string =>
  JSON.stringify(
    Object.entries(search)
      .filter(([, value]) => value !== undefined)
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );

function readViews(place: string): Readonly<Record<string, string>> {
  try {
    return JSON.parse(localStorage.getItem(place) ?? "{}") as Record<string, string>;
  } catch {
    return {};
  }
}

/** Chooses, saves and deletes views of `page`. `filters` are the present ones; `onChoose` receives those of a view. */
export function Views({
  page,
  filters,
  onChoose,
}: {
  page: string;
  filters: Search;
  onChoose: (filters: Search) => void;
}) {
  const place = `views:${page}`;
  const [views, setViews] = useState(() => readViews(place));
  const [name, setName] = useState<string>();
  const chosen = Object.keys(views).find((view) => views[view] === textOf(filters));
  const keep = (changed: Readonly<Record<string, string>>): void => {
    localStorage.setItem(place, JSON.stringify(changed));
    setViews(changed);
  };
  return (
    <>
      {Object.keys(views).length > 0 && (
        <Pick
          label="View"
          value={chosen}
          onChange={(view) => onChoose(view === undefined ? {} : Object.fromEntries(JSON.parse(views[view] ?? "[]")))}
          options={Object.keys(views).map((view) => [view, view] as const)}
          any="none"
        />
      )}
      {chosen === undefined ? (
        textOf(filters) !== "[]" && (
          <button type="button" className="button" onClick={() => setName("")}>
            Save view
          </button>
        )
      ) : (
        <button
          type="button"
          className="button"
          onClick={() => keep(Object.fromEntries(Object.entries(views).filter(([view]) => view !== chosen)))}
        >
          Delete view
        </button>
      )}
      <Modal title="Save view" open={name !== undefined} onClose={() => setName(undefined)}>
        <form
          className="grid gap-3"
          onSubmit={(event) => {
            event.preventDefault();
            keep({ ...views, [name?.trim() || "unnamed"]: textOf(filters) });
            setName(undefined);
          }}
        >
          <TextField label="Name" value={name ?? ""} onChange={setName} required />
          <button type="submit" className="button button-main justify-center">
            Save
          </button>
        </form>
      </Modal>
    </>
  );
}
