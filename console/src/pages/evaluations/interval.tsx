/** A rate as a dot with its interval as a bar, on an axis from 0 to 1 that all rows share. */
import type { SuccessRate } from "#messages/limber/v1/evaluation_pb.ts";
import { percent } from "../../lib/format.ts";
import { None } from "../../parts/basics.tsx";

/** The interval; what it shows is its name too. */
export function Interval({ of }: { of: SuccessRate | undefined }) {
  if (of?.ci95 === undefined) return <None />;
  const { low, high } = of.ci95;
  return (
    <div
      className="relative h-5"
      role="img"
      aria-label={`${percent(of.value)}, between ${percent(low)} and ${percent(high)}`}
      title={`${percent(low)} to ${percent(high)}, of ${of.n} episodes`}
    >
      <div className="absolute top-1/2 h-px w-full bg-line" />
      <div
        className="absolute top-1/2 h-1.5 -translate-y-1/2 rounded bg-accent/40"
        style={{ left: `${low * 100}%`, width: `max(2px, ${(high - low) * 100}%)` }}
      />
      <div
        className="absolute top-1/2 size-2 -translate-x-1/2 -translate-y-1/2 rounded-full bg-accent"
        style={{ left: `${of.value * 100}%` }}
      />
    </div>
  );
}
