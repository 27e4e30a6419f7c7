/** A line in a card or a row: one figure over time, from zero. Gaps are gaps. */

/** What a line shows. The figures stand beside it as text; it is for the eye alone. */
interface SparkProps {
  /** Moments in the unit of `from` and `until`, with their values; earliest first. */
  readonly points: readonly { readonly at: number; readonly value: number; readonly marked?: boolean }[];
  readonly from: number;
  readonly until: number;
  /** Moments further apart than this are not connected. */
  readonly step: number;
  /** A value that the line should reach, drawn dashed. */
  readonly target?: number | undefined;
  readonly className?: string;
}

const WIDTH = 240;
const HEIGHT = 32;
/** Height of the marks under the line. */
const MARK = 3;

/** The line, and a mark under each moment that is `marked`. */
export function Spark({ points, from, until, step, target, className = "h-[18px] w-[120px]" }: SparkProps) {
  const most = Math.max(target ?? 0, ...points.map(({ value }) => value)) * 1.1 || 1;
  const x = (at: number): number => ((at - from) / (until - from || 1)) * WIDTH;
  const y = (value: number): number => HEIGHT - MARK - 2 - (value / most) * (HEIGHT - MARK - 4);
  const steps = points.map(({ at, value }, i) => {
    const before = points[i - 1];
    const isNew = before === undefined || at - before.at > step * 1.5;
    const end = Math.min(at + step, until);
    // A step is a level from its beginning to its end, so a single one is visible too.
    return `${isNew ? "M" : "L"}${x(at).toFixed(1)},${y(value).toFixed(1)}H${x(end).toFixed(1)}`;
  });
  // Each run of moments down to zero, as an area.
  const areas = points.flatMap(({ at, value }) => {
    const [left, right] = [x(at).toFixed(1), x(Math.min(at + step, until)).toFixed(1)];
    return `M${left},${y(0).toFixed(1)}V${y(value).toFixed(1)}H${right}V${y(0).toFixed(1)}Z`;
  });
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" className={className} aria-hidden="true">
      {target !== undefined && (
        <path
          d={`M0,${y(target).toFixed(1)}H${WIDTH}`}
          stroke="var(--edge)"
          strokeDasharray="2 4"
          vectorEffect="non-scaling-stroke"
        />
      )}
      <path d={areas.join("")} fill="var(--accent)" fillOpacity={0.12} />
      <path d={steps.join("")} fill="none" stroke="var(--accent)" vectorEffect="non-scaling-stroke" />
      {points.map(
        ({ at, marked }) =>
          marked && (
            <rect
              key={at}
              x={x(at)}
              y={HEIGHT - MARK}
              width={Math.max(2, x(at + step) - x(at))}
              height={MARK}
              fill="var(--wait)"
            />
          ),
      )}
    </svg>
  );
}
