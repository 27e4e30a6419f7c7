/** Calls over time, stacked by outcome. Each bar is a button that filters. */
import { useEffect, useMemo, useRef, useState } from "react";
import { moment } from "../lib/format.ts";

/** What a bar is made of, from its foot up. */
export interface Outcome {
  readonly name: string;
  readonly tone: "good" | "wait" | "bad" | "off";
}

/** One bar: from when, to when, how many of each outcome. */
export interface Bar {
  readonly from: number;
  readonly until: number;
  readonly counts: readonly number[];
}

const FILL = { good: "bg-good", wait: "bg-wait", bad: "bg-bad", off: "bg-muted" } as const;

/** Calls that ended at the same time, in Unix seconds, with the same outcome, which is given by its index. */
export interface Point {
  readonly at: number;
  readonly outcome: number;
  readonly calls: number;
}

/** Each bar is a button, so it is at least 24 pixels wide (WCAG 2.5.8), and one pixel lies between two. */
const BAR_WIDTH_PX = 25;

/** At most this many bars, however wide the window is. */
const MAX_BARS = 60;

/** Returns the bars between two moments in Unix seconds, at most `most` of them. */
function barsOf(
  from: number,
  until: number,
  points: readonly Point[],
  outcomes: number,
  { most, stepS }: { most: number; stepS: number },
): Bar[] {
  const span = Math.max(until - from, LEAST_S);
  const step = niceStep(Math.max(span / most, stepS));
  const first = Math.floor((until - span) / step) * step;
  const bars = Array.from({ length: Math.ceil((until - first) / step) || 1 }, (_, i) => ({
    from: first + i * step,
    until: first + (i + 1) * step,
    counts: Array.from({ length: outcomes }, () => 0),
  }));
  for (const { at, outcome, calls } of points) {
    const bar = bars[Math.floor((at - first) / step)];
    if (bar !== undefined) bar.counts[outcome] = (bar.counts[outcome] ?? 0) + calls;
  }
  return bars;
}

/** The shortest time that is shown, in seconds: one call is no block. */
const LEAST_S = 300;

/** Seconds that a person reads as one step. */
function niceStep(seconds: number): number {
  const steps = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 604_800,
  ];
  return steps.find((step) => step >= seconds) ?? 2_592_000;
}

/** A chart of calls over time, 120 pixels high, with the same figures as a table. */
export function Histogram({
  from,
  until,
  points,
  stepS = 1,
  outcomes,
  what,
  onPick,
  picked,
}: {
  /** The time that is shown, in Unix seconds. */
  from: number;
  until: number;
  points: readonly Point[];
  /** The time that a point stands for, in seconds: no bar is shorter. */
  stepS?: number;
  outcomes: readonly Outcome[];
  what: string;
  onPick?: (bar: Bar | undefined) => void;
  picked?: { from: number; until: number } | undefined;
}) {
  const [table, setTable] = useState(false);
  const plot = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const resize = new ResizeObserver(() => setWidth(plot.current?.clientWidth ?? 0));
    if (plot.current !== null) resize.observe(plot.current);
    return () => resize.disconnect();
  }, []);
  const bars = useMemo(() => {
    // Aligning bars to whole steps of time adds up to one bar at each end.
    const fitting = Math.floor(width / BAR_WIDTH_PX) - 2;
    const most = Math.min(Math.max(fitting, 1), MAX_BARS);
    return width === 0 ? [] : barsOf(from, until, points, outcomes.length, { most, stepS });
  }, [from, until, points, stepS, outcomes, width]);
  const sums = bars.map(({ counts }) => counts.reduce((sum, n) => sum + n, 0));
  const most = Math.max(1, ...sums);
  const now = new Date();
  const name = (bar: Bar): string => {
    const parts = outcomes.flatMap(({ name }, i) => ((bar.counts[i] ?? 0) > 0 ? [`${bar.counts[i]} ${name}`] : []));
    return `${moment(new Date(bar.from * 1000), now)}: ${parts.length === 0 ? "none" : parts.join(", ")}`;
  };
  return (
    <figure className="mb-3" aria-label={`${what} over time`}>
      <div ref={plot} className="flex h-[72px] items-stretch gap-px border-b border-edge sm:h-[120px]">
        {bars.map((bar, i) => {
          const inside = picked === undefined || (bar.from >= picked.from && bar.until <= picked.until);
          return (
            <button
              key={bar.from}
              type="button"
              tabIndex={sums[i] === 0 ? -1 : 0}
              title={name(bar)}
              aria-label={name(bar)}
              className={`flex min-w-0 flex-1 flex-col-reverse hover:bg-line ${inside ? "" : "opacity-35"}`}
              onClick={() => onPick?.(picked?.from === bar.from ? undefined : bar)}
            >
              {outcomes.map(({ name, tone }, k) => {
                const share = (bar.counts[k] ?? 0) / most;
                return share === 0 ? null : (
                  <span key={name} className={FILL[tone]} style={{ height: `max(2px, ${share * 100}%)` }} />
                );
              })}
            </button>
          );
        })}
      </div>
      <figcaption className="mt-1 flex items-center justify-between gap-2 text-sm text-muted">
        <span>{bars[0] && moment(new Date(bars[0].from * 1000), now)}</span>
        <span className="flex flex-wrap justify-center gap-x-3">
          {outcomes.map(({ name, tone }) => (
            <span key={name} className="inline-flex items-center gap-1.5">
              <span aria-hidden="true" className={`size-2.5 ${FILL[tone]}`} />
              {name}
            </span>
          ))}
          <span>
            highest {most} ·{" "}
            <button type="button" className="min-h-6 underline" onClick={() => setTable(!table)}>
              {table ? "hide the table" : "as a table"}
            </button>
          </span>
        </span>
        <span>{bars.at(-1) && moment(new Date(bars.at(-1)!.until * 1000), now)}</span>
      </figcaption>
      {table && (
        <table className="mt-2 text-sm">
          <caption className="sr-only">{what} over time</caption>
          <thead>
            <tr className="text-muted">
              <th scope="col" className="pr-4 text-left font-normal">
                from
              </th>
              {outcomes.map(({ name }) => (
                <th key={name} scope="col" className="pr-4 text-right font-normal">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {bars
              .filter((_, i) => sums[i] !== 0)
              .map((bar) => (
                <tr key={bar.from}>
                  <th scope="row" className="pr-4 text-left font-normal">
                    {moment(new Date(bar.from * 1000), now)}
                  </th>
                  {bar.counts.map((n, k) => (
                    <td key={outcomes[k]?.name} className="pr-4 text-right">
                      {n}
                    </td>
                  ))}
                </tr>
              ))}
          </tbody>
        </table>
      )}
    </figure>
  );
}
