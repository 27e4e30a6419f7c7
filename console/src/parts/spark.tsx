/** A line in a row of a table: the last minute of one figure, from zero. */

/** The line. What it shows stands in the row as figures; it is for the eye alone. */
export function Spark({ values, most }: { values: readonly number[]; most: number }) {
  const WIDTH = 120;
  const HEIGHT = 18;
  const step = WIDTH / 60;
  const left = WIDTH - values.length * step;
  const points = values.map(
    (value, i) => `${(left + i * step).toFixed(1)},${(HEIGHT - 1 - (value / (most || 1)) * (HEIGHT - 2)).toFixed(1)}`,
  );
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} className="h-[18px] w-[120px]" aria-hidden="true">
      <polyline points={points.join(" ")} fill="none" stroke="var(--accent)" strokeWidth={1} />
    </svg>
  );
}
