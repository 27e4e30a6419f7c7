/** The current chunk over time: a strip for each dimension with its limits, the executed part solid; and where it leads. */
import { useQuery } from "@connectrpc/connect-query";
import type { LoopAction } from "#messages/limber/v1/loop_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { plain } from "../../lib/format.ts";

const WIDTH = 240;
const HEIGHT = 48;
const PAD = 3;

/** How many actions have been executed by a moment, from none to all. */
function executedBy({ action, ageMs }: LoopAction, laterMs: number): number {
  const { dtMs = 0, steps = [] } = action ?? {};
  return dtMs === 0 ? 0 : Math.min(steps.length, Math.floor((ageMs + laterMs) / dtMs));
}

/** The limit of one dimension: there is one for each, or one for all. */
const limitOf = (limits: readonly number[] | undefined, dim: number): number | undefined =>
  limits === undefined || limits.length === 0 ? undefined : limits.length === 1 ? limits[0] : limits[dim];

/** The chunk as it was `laterMs` after it was reported. */
export function ChunkNow({ action: chunk, laterMs }: { action: LoopAction; laterMs: number }) {
  const { data } = useQuery(RegistryService.method.getTaxonomy, {}, { staleTime: Number.POSITIVE_INFINITY });
  const { action, bounds } = chunk;
  if (action === undefined) return null;
  const layout = data?.actionSpaces.find(({ id }) => id === action.space);
  const dims = action.steps[0]?.values.length ?? 0;
  const done = executedBy(chunk, laterMs);
  return (
    <>
      <p className="mb-2 text-sm text-muted">
        Steps {chunk.startStep} to {chunk.validUntilStep - 1} · {done} of {action.steps.length} executed · {action.dtMs}{" "}
        ms each
      </p>
      <div className="grid grid-cols-[repeat(auto-fill,minmax(150px,1fr))] gap-x-4 gap-y-2">
        {Array.from({ length: dims }, (_, dim) => (
          <Strip
            key={dim}
            name={layout?.fields[dim]?.name ?? String(dim)}
            unit={layout?.fields[dim]?.unit ?? ""}
            values={action.steps.map(({ values }) => values[dim] ?? 0)}
            done={done}
            lowest={limitOf(bounds?.lowest, dim)}
            highest={limitOf(bounds?.highest, dim)}
          />
        ))}
      </div>
    </>
  );
}

function Strip({
  name,
  unit,
  values,
  done,
  lowest,
  highest,
}: {
  name: string;
  unit: string;
  values: readonly number[];
  done: number;
  lowest: number | undefined;
  highest: number | undefined;
}) {
  const low = Math.min(0, ...values, lowest ?? 0);
  const high = Math.max(0, ...values, highest ?? 0);
  const x = (i: number): number => PAD + (i / Math.max(values.length - 1, 1)) * (WIDTH - 2 * PAD);
  const y = (value: number): number => PAD + (1 - (value - low) / (high - low || 1)) * (HEIGHT - 2 * PAD);
  const points = values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`);
  const now = values[Math.min(done, values.length - 1)] ?? 0;
  const line = { fill: "none", vectorEffect: "non-scaling-stroke" } as const;
  return (
    <figure>
      <figcaption className="flex justify-between gap-2 text-sm">
        <span className="truncate text-muted">{name}</span>
        <span className="whitespace-nowrap">
          {plain(now, 3)} <span className="text-muted">{unit}</span>
        </span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        className="h-12 w-full rounded-sm bg-panel"
        role="img"
        aria-label={`${name}: ${plain(values[0] ?? 0, 3)} first, ${plain(values.at(-1) ?? 0, 3)} last${lowest === undefined ? "" : `, at least ${plain(lowest, 3)}`}${highest === undefined ? "" : `, at most ${plain(highest, 3)}`}`}
      >
        <path d={`M0,${y(0)}H${WIDTH}`} stroke="var(--line)" {...line} />
        {[lowest, highest].map(
          (limit, i) =>
            limit !== undefined && (
              <path key={i} d={`M0,${y(limit)}H${WIDTH}`} stroke="var(--bad)" strokeDasharray="3 3" {...line} />
            ),
        )}
        <polyline points={points.join(" ")} stroke="var(--accent)" strokeDasharray="3 3" strokeWidth={1} {...line} />
        <polyline points={points.slice(0, done + 1).join(" ")} stroke="var(--accent)" strokeWidth={2} {...line} />
      </svg>
    </figure>
  );
}

/** A point in a plane. */
type Point = readonly [x: number, y: number];

/** A view of the way that a chunk leads, from the robot's place when it was made. */
interface View {
  readonly title: string;
  readonly axes: readonly [right: string, up: string];
  readonly points: readonly Point[];
}

/** The way of a base with speeds forward and around, by steps of `seconds`. x is ahead and drawn up, y is left. */
function drive(values: readonly (readonly number[])[], seconds: number): Point[] {
  let [x, y, yaw] = [0, 0, 0];
  const points: Point[] = [[0, 0]];
  for (const [speed = 0, turn = 0] of values) {
    x += speed * Math.cos(yaw) * seconds;
    y += speed * Math.sin(yaw) * seconds;
    yaw += turn * seconds;
    points.push([-y, x]);
  }
  return points;
}

/** The sums of shifts along two axes. */
function shifts(values: readonly (readonly number[])[], right: number, up: number): Point[] {
  let [x, y] = [0, 0];
  const points: Point[] = [[0, 0]];
  for (const step of values) {
    x += step[right] ?? 0;
    y += step[up] ?? 0;
    points.push([x, y]);
  }
  return points;
}

/** The views of a chunk; none for action spaces without a place. */
function viewsOf({ action }: LoopAction): readonly View[] {
  if (action === undefined) return [];
  const values = action.steps.map(({ values: each }) => each);
  if (action.space === "base_twist_2d")
    return [{ title: "From above", axes: ["left ↔ right", "ahead"], points: drive(values, action.dtMs / 1000) }];
  if (action.space === "waypoint_se2")
    return [
      {
        title: "From above",
        axes: ["left ↔ right", "ahead"],
        points: [[0, 0], ...values.map(([x = 0, y = 0]): Point => [-y, x])],
      },
    ];
  if (action.space.startsWith("ee_delta"))
    return [
      { title: "From above", axes: ["x", "y"], points: shifts(values, 0, 1) },
      { title: "From the side", axes: ["x", "z"], points: shifts(values, 0, 2) },
    ];
  return [];
}

const SIDE = 160;
const MARGIN = 14;

/** The way of a chunk, one scale for both axes: executed solid, the rest dashed. */
export function Way({ action, laterMs }: { action: LoopAction; laterMs: number }) {
  const views = viewsOf(action);
  if (views.length === 0) return null;
  const done = executedBy(action, laterMs);
  return (
    <div className="flex flex-wrap gap-4">
      {views.map((view) => (
        <Plane key={view.title} {...view} done={done} />
      ))}
    </div>
  );
}

function Plane({ title, axes, points, done }: View & { done: number }) {
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const size = Math.max(right - left, high - low, 1e-3);
  const scale = (SIDE - 2 * MARGIN) / size;
  const x = (value: number): number => SIDE / 2 + (value - (left + right) / 2) * scale;
  const y = (value: number): number => SIDE / 2 - (value - (low + high) / 2) * scale;
  const drawn = points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`);
  const at = points[Math.min(done, points.length - 1)] ?? [0, 0];
  return (
    <figure className="min-w-0">
      <figcaption className="flex justify-between text-sm text-muted">
        <span>{title}</span>
        <span>{plain(size, 2)} m wide</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${SIDE} ${SIDE}`}
        className="size-40 rounded-sm bg-panel"
        role="img"
        aria-label={`${title}: the chunk leads ${plain(points.at(-1)?.[0] ?? 0, 3)} m along ${axes[0]} and ${plain(points.at(-1)?.[1] ?? 0, 3)} m along ${axes[1]}`}
      >
        <path d={`M${x(0)},0V${SIDE}M0,${y(0)}H${SIDE}`} stroke="var(--line)" strokeWidth={1} />
        <polyline points={drawn.join(" ")} fill="none" stroke="var(--accent)" strokeDasharray="3 3" />
        <polyline points={drawn.slice(0, done + 1).join(" ")} fill="none" stroke="var(--accent)" strokeWidth={2} />
        <circle cx={x(at[0])} cy={y(at[1])} r={4} fill="var(--accent)" />
        <text x={4} y={SIDE - 4} fill="var(--muted)" fontSize={10}>
          → {axes[0]}
        </text>
        <text x={4} y={11} fill="var(--muted)" fontSize={10}>
          ↑ {axes[1]}
        </text>
      </svg>
    </figure>
  );
}
