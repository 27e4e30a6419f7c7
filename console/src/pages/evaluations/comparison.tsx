/** Two evaluations of one scenario beside each other: the difference, its interval, and what that says. */
import type { Evaluation, SuccessRate } from "#messages/limber/v1/evaluation_pb.ts";
import { moment } from "../../lib/format.ts";
import { Choice, Part, Status } from "../../parts/basics.tsx";
import { SideBySide } from "./films.tsx";

/** Newcombe's interval of the difference of two rates (1998, method 10), from their Wilson intervals at 95 %. */
function difference(
  a: SuccessRate,
  b: SuccessRate,
): { readonly value: number; readonly low: number; readonly high: number } {
  const [p, q] = [wilson(a), wilson(b)];
  const value = a.value - b.value;
  return {
    value,
    low: value - Math.hypot(a.value - p.low, q.high - b.value),
    high: value + Math.hypot(p.high - a.value, b.value - q.low),
  };
}

const Z = 1.959964;

function wilson({ value, n }: SuccessRate): { readonly low: number; readonly high: number } {
  if (n === 0) return { low: 0, high: 1 };
  const middle = (value + (Z * Z) / (2 * n)) / (1 + (Z * Z) / n);
  const half = (Z / (1 + (Z * Z) / n)) * Math.sqrt((value * (1 - value)) / n + (Z * Z) / (4 * n * n));
  return { low: middle - half, high: middle + half };
}

const points = (share: number): string => `${Math.round(Math.abs(share) * 100)}`;

/** Episodes of each that would distinguish the two, at the difference that was seen. */
function wanted(a: SuccessRate, b: SuccessRate): number | undefined {
  const gap = Math.abs(a.value - b.value);
  if (gap < 0.01) return undefined;
  return Math.ceil((Z * Z * (a.value * (1 - a.value) + b.value * (1 - b.value) + 0.05)) / (gap * gap));
}

/** The comparison of the run that is open with one of the same scenario. */
export function Comparison({
  runs,
  one,
  other,
  onChoose,
  seed,
  onSeed,
}: {
  runs: readonly Evaluation[];
  one: string | undefined;
  other: string | undefined;
  onChoose: (other: string | undefined) => void;
  seed: string | undefined;
  onSeed: (seed: string) => void;
}) {
  const done = runs.filter(({ scores }) => scores?.successRate !== undefined);
  const first = done.find(({ id }) => id === one) ?? done[0];
  const others = done.filter(({ id, scenario }) => id !== first?.id && scenario?.id === first?.scenario?.id);
  if (first === undefined || others.length === 0) return null;
  const second = others.find(({ id }) => id === other) ?? others[0]!;
  const [a, b] = [first.scores!.successRate!, second.scores!.successRate!];
  const { value, low, high } = difference(a, b);
  const settled = low > 0 || high < 0;
  const more = wanted(a, b);
  return (
    <Part title="Two runs compared">
      <div className="grid max-w-3xl grid-cols-[minmax(0,1fr)] gap-3">
        <p>
          <code>{first.policy?.endpoint}</code> in {first.scenario?.id}, {a.successes} of {a.n}, against:
        </p>
        <Choice
          label="The other run"
          value={second.id}
          onChange={(id) => onChoose(id || undefined)}
          options={others.map(
            ({ id, policy, scores, createdAt }) =>
              [
                id,
                `${policy?.endpoint}, ${scores?.successRate?.successes} of ${scores?.successRate?.n}, ${moment(new Date(createdAt * 1000), new Date())}`,
              ] as const,
          )}
        />
        <p className="[&>span]:whitespace-normal">
          {settled ? (
            <Status tone={value > 0 ? "good" : "bad"}>
              {value > 0 ? "better" : "worse"} by {points(Math.abs(low) < Math.abs(high) ? low : high)} to{" "}
              {points(Math.abs(low) < Math.abs(high) ? high : low)} points
            </Status>
          ) : (
            <Status tone="wait">
              No significant difference ({signed(low)} to {signed(high)} points)
              {more !== undefined &&
                more > Math.max(a.n, b.n) &&
                `; about ${more - Math.min(a.n, b.n)} more episodes of each would decide it`}
            </Status>
          )}
        </p>
        <div
          className="relative h-6"
          role="img"
          aria-label={`difference ${Math.round(value * 100)} points, between ${Math.round(low * 100)} and ${Math.round(high * 100)}`}
        >
          <div className="absolute top-1/2 h-px w-full bg-line" />
          <div className="absolute inset-y-0 left-1/2 border-l border-dashed border-edge" />
          <div
            className="absolute top-1/2 h-2 -translate-y-1/2 rounded bg-accent/40"
            style={{ left: `${(low + 1) * 50}%`, width: `${Math.max(high - low, 0.005) * 50}%` }}
          />
          <div
            className="absolute top-1/2 size-2.5 -translate-x-1/2 -translate-y-1/2 rounded-full bg-accent"
            style={{ left: `${(value + 1) * 50}%` }}
          />
        </div>
        <div className="flex justify-between text-xs text-muted" aria-hidden="true">
          <span>100 points worse</span>
          <span>equal</span>
          <span>100 points better</span>
        </div>
      </div>
      <SideBySide
        contestants={[first, second].map((evaluation, i) => ({
          label: "AB"[i]!,
          name: evaluation.policy?.endpoint ?? "",
          evaluation,
        }))}
        seed={seed}
        onSeed={onSeed}
      />
    </Part>
  );
}

/** A difference in points with its sign: `+30`, `−56`. */
const signed = (share: number): string => `${share < 0 ? "−" : "+"}${Math.abs(Math.round(share * 100))}`;
