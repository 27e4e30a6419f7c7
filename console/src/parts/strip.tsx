/** A number over time in a small strip: the zero line, its least and greatest value, and where the reader looks. */
import { plain } from "../lib/format.ts";

const WIDTH = 240;
const HEIGHT = 44;
const PAD = 4;

/** Two significant digits: small steps are not zero. */
const short = (n: number): string => (Math.abs(n) >= 10 ? plain(n, 0) : String(Number(n.toPrecision(2))));

/** The strip. Values from the index `valid` on are drawn dashed; a line marks the position `at`, from 0 to 1. */
export function Strip({
  name,
  unit,
  values,
  valid = values.length,
  at,
}: {
  name: string;
  unit?: string;
  values: readonly number[];
  valid?: number;
  at?: number | undefined;
}) {
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const span = high - low || 1;
  const x = (share: number): number => PAD + share * (WIDTH - 2 * PAD);
  const y = (value: number): number => PAD + (1 - (value - low) / span) * (HEIGHT - 2 * PAD);
  const points = values.map((value, i) => `${x(i / Math.max(values.length - 1, 1)).toFixed(1)},${y(value).toFixed(1)}`);
  const lowest = Math.min(...values);
  const highest = Math.max(...values);
  return (
    <figure>
      <figcaption className="flex justify-between gap-2 text-sm">
        <span className="truncate">
          {name} <span className="text-muted">{unit}</span>
        </span>
        <span className="whitespace-nowrap text-muted">
          {short(lowest)}
          {highest !== lowest && ` to ${short(highest)}`}
        </span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        className="h-11 w-full bg-panel"
        role="img"
        aria-label={`${name}: ${short(values[0] ?? 0)} first, ${short(values.at(-1) ?? 0)} last`}
      >
        <line
          x1={0}
          x2={WIDTH}
          y1={y(0)}
          y2={y(0)}
          stroke="var(--edge)"
          strokeWidth={1}
          strokeDasharray="2 3"
          vectorEffect="non-scaling-stroke"
        />
        <polyline
          points={points.slice(0, valid).join(" ")}
          fill="none"
          stroke="var(--accent)"
          strokeWidth={1.5}
          vectorEffect="non-scaling-stroke"
        />
        {valid < values.length && (
          <polyline
            points={points.slice(Math.max(valid - 1, 0)).join(" ")}
            fill="none"
            stroke="var(--accent)"
            strokeWidth={1}
            strokeDasharray="3 3"
            vectorEffect="non-scaling-stroke"
          />
        )}
        {at !== undefined && (
          <line
            x1={x(at)}
            x2={x(at)}
            y1={0}
            y2={HEIGHT}
            stroke="var(--ink)"
            strokeWidth={1}
            vectorEffect="non-scaling-stroke"
          />
        )}
      </svg>
    </figure>
  );
}
