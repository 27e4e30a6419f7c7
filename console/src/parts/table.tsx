/** One table for every list: sorted by its heads, moved through by keys, and drawn as far as it is seen. */
import { createSortedRowModel, rowSortingFeature, sortFn_basic, tableFeatures, useTable } from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useKeys } from "../lib/keys.ts";

/** A column of a table. */
export interface Column<T> {
  readonly id: string;
  /** Its heading; empty for a column of buttons, which is never cut. */
  readonly title: string;
  readonly cell: (row: T) => ReactNode;
  /** What it is sorted by; not sorted by where absent. */
  readonly value?: (row: T) => string | number;
  /** Its width: pixels, or a share of what is left, such as `2fr`. */
  readonly width: number | `${number}fr`;
  /** Its width on a phone, in pixels. */
  readonly phone?: number;
  /** Numbers stand at the right. */
  readonly right?: boolean;
  /** Left out where the window is as narrow as a phone. */
  readonly wide?: boolean;
}

/** What a table shows. */
export interface TableProps<T extends object> {
  /** What the rows are, for readers of screens: `calls`. */
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly keyOf: (row: T) => string;
  readonly onOpen?: (row: T) => void;
  /** The key of the row that is open. */
  readonly open?: string | undefined;
  /** What stands there when there are no rows. */
  readonly empty?: ReactNode;
  readonly loading?: boolean;
  /** Loads more rows; called when the last ones are seen. */
  readonly more?: (() => void) | undefined;
  /** Fills the window down to its end, and scrolls in itself. */
  readonly tall?: boolean;
}

const FEATURES = tableFeatures({
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
  sortFns: { basic: sortFn_basic },
});

/** How many rows may be drawn without being seen. */
const OVERSCAN = 12;
const ROW_PX = { "": 33, dense: 29 } as const;

const useNarrow = (): boolean => {
  const query = useMemo(() => matchMedia("(max-width: 700px)"), []);
  const [narrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const changed = () => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, [query]);
  return narrow;
};

/** A table. */
export function Table<T extends object>({
  label,
  columns,
  rows,
  keyOf,
  onOpen,
  open,
  empty,
  loading = false,
  more,
  tall = false,
}: TableProps<T>) {
  const narrow = useNarrow();
  const shown = useMemo(() => columns.filter(({ wide }) => !(narrow && wide)), [columns, narrow]);
  const defs = useMemo(
    () =>
      columns.map((column) => ({
        id: column.id,
        accessorFn: (row: T) => column.value?.(row) ?? "",
        enableSorting: column.value !== undefined,
        sortFn: "basic" as const,
      })),
    [columns],
  );
  const table = useTable({ features: FEATURES, columns: defs, data: rows as T[], getRowId: keyOf });
  // A list as it came is drawn as it came: its rows are looked at once it is sorted, which for thousands of them takes its time.
  const isSorted = table.state.sorting.length > 0;
  const sorted = isSorted ? table.getRowModel().rows.map(({ original }) => original) : rows;
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: sorted.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX[document.documentElement.dataset.density === "dense" ? "dense" : ""],
    overscan: OVERSCAN,
    initialRect: { width: 1_000, height: 700 },
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? -1;
  useEffect(() => {
    if (more !== undefined && !loading && last >= sorted.length - OVERSCAN && sorted.length > 0) more();
  }, [last, sorted.length, more, loading]);

  const [active, setActive] = useState(-1);
  useKeys((key) => {
    if (onOpen === undefined || (key !== "j" && key !== "k")) return false;
    const next = Math.min(Math.max(active + (key === "j" ? 1 : -1), 0), sorted.length - 1);
    setActive(next);
    virtual.scrollToIndex(next);
    requestAnimationFrame(() =>
      scroller.current?.querySelector<HTMLElement>(`[data-row="${next}"] [data-open]`)?.focus(),
    );
    return true;
  });

  // A phone has no room to spare behind a figure, and half a figure says something else.
  const gap = narrow ? "pr-2" : "pr-5";
  const template = shown
    .map(({ width: wide, phone }) => (narrow && phone !== undefined ? phone : wide))
    .map((width) => (typeof width === "number" ? `${width}px` : `minmax(${narrow ? 0 : 80}px, ${width})`))
    .join(" ");
  const least = shown.reduce((sum, { width }) => sum + (typeof width === "number" ? width : 110), 24);
  return (
    <div
      ref={scroller}
      role="region"
      aria-label={`${label}, scrollable`}
      tabIndex={0}
      className={`panel relative overflow-auto ${tall ? "min-h-40 shrink" : "max-h-[70vh] shrink-0"}`}
    >
      <div
        role="table"
        aria-label={label}
        aria-rowcount={more === undefined ? sorted.length + 1 : -1}
        aria-busy={loading}
        className="text-sm"
        style={{ minWidth: narrow ? undefined : least }}
      >
        <div role="rowgroup" className="sticky top-0 z-1 bg-panel">
          <div role="row" aria-rowindex={1} className="row-cells px-3" style={{ gridTemplateColumns: template }}>
            {shown.map((column) => {
              const handle = table.getColumn(column.id);
              const direction = handle?.getIsSorted() ?? false;
              const side = column.right ? `text-right justify-self-end ${gap}` : "pr-3";
              return (
                <div
                  key={column.id}
                  role="columnheader"
                  aria-sort={direction === false ? undefined : direction === "asc" ? "ascending" : "descending"}
                  className={`truncate text-muted ${side}`}
                >
                  {column.value === undefined ? (
                    column.title || <span className="sr-only">what to do</span>
                  ) : (
                    <button type="button" className="min-h-6 hover:text-ink" onClick={() => handle?.toggleSorting()}>
                      {column.title}
                      <span aria-hidden="true">{direction === "asc" ? " ↑" : direction === "desc" ? " ↓" : ""}</span>
                    </button>
                  )}
                </div>
              );
            })}
          </div>
        </div>
        <div
          role="rowgroup"
          className="relative"
          style={{ height: sorted.length === 0 ? undefined : virtual.getTotalSize() }}
        >
          {items.map(({ index, start }) => {
            const row = sorted[index];
            if (row === undefined) return null;
            const key = keyOf(row);
            return (
              <div
                key={key}
                role="row"
                aria-rowindex={index + 2}
                aria-selected={key === open ? true : undefined}
                data-row={index}
                className={`row-cells absolute inset-x-0 px-3 ${onOpen === undefined ? "" : "cursor-pointer hover:bg-panel"} ${key === open ? "bg-chosen hover:bg-chosen" : ""}`}
                style={{ gridTemplateColumns: template, transform: `translateY(${start}px)` }}
                onClick={() => onOpen?.(row)}
              >
                {shown.map((column, i) => (
                  <div
                    key={column.id}
                    role="cell"
                    className={`min-w-0 ${column.title === "" ? "justify-self-end" : `truncate ${column.right ? `${gap} text-right` : "pr-3"}`}`}
                  >
                    {i === 0 && onOpen !== undefined ? (
                      <button
                        type="button"
                        data-open=""
                        className="block min-h-6 w-full truncate text-left"
                        onFocus={() => setActive(index)}
                        onClick={(event) => {
                          event.stopPropagation();
                          onOpen(row);
                        }}
                      >
                        {column.cell(row)}
                      </button>
                    ) : (
                      column.cell(row)
                    )}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
      {sorted.length === 0 &&
        (loading ? (
          <p className="p-6 text-center text-muted">Loading…</p>
        ) : (
          (empty ?? <p className="p-6 text-center text-muted">Nothing yet.</p>)
        ))}
    </div>
  );
}
