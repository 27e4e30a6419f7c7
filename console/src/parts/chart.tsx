/** Lines over time: one pixel, no smoothing, gaps are gaps, and the table behind them. Drawn by uPlot. */
import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import type uPlot from "uplot";
import { moment } from "../lib/format.ts";

/** Categories that colour-blind readers tell apart (Okabe and Ito), or a meaning. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"] as const;
const MEANINGS = {
  accent: "var(--accent)",
  good: "var(--good)",
  wait: "var(--wait)",
  bad: "var(--bad)",
  muted: "var(--muted)",
} as const;

/** One line. */
export interface Line {
  readonly name: string;
  readonly values: readonly (number | undefined)[];
  readonly colour?: keyof typeof MEANINGS;
  readonly dashed?: boolean;
  /** Filled down to zero. */
  readonly filled?: boolean;
}

/** What a chart shows. */
export interface ChartProps {
  readonly title: string;
  /** What the numbers are in, such as `ms`. */
  readonly unit: string;
  /** Moments in unix seconds. */
  readonly times: readonly number[];
  readonly lines: readonly Line[];
  readonly height?: number;
  /** A figure as text. */
  readonly show?: (value: number) => string;
  /** Charts of one name show the same moment under the pointer. */
  readonly together?: string;
  /** Amounts per step of time, drawn as stacked bars of one step's width. */
  readonly bars?: boolean;
  /** Each figure is of a whole step of time, drawn from its beginning to its end. */
  readonly stepped?: boolean;
  /** The shown time range in Unix seconds; that of `times` when absent. */
  readonly span?: readonly [from: number, until: number];
  /** Spans drawn as bands along the bottom, and moments as lines. */
  readonly marks?: readonly Mark[];
}

/** A span of time with a meaning, or a moment if it has no end. Unix seconds. */
export interface Mark {
  readonly from: number;
  readonly until?: number;
  readonly colour: keyof typeof MEANINGS;
}

/** The colour that a name has in this theme, as a canvas takes it. */
function resolved(colour: string, inside: HTMLElement): string {
  const probe = document.createElement("span");
  probe.style.color = colour;
  inside.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

const themeNow = (): string =>
  `${document.documentElement.dataset.theme ?? ""} ${matchMedia("(prefers-color-scheme: dark)").matches}`;

function onTheme(changed: () => void): () => void {
  const seen = new MutationObserver(changed);
  seen.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  const query = matchMedia("(prefers-color-scheme: dark)");
  query.addEventListener("change", changed);
  return () => {
    seen.disconnect();
    query.removeEventListener("change", changed);
  };
}

/** A tick of the axis of time: seconds where the chart is of minutes, else the clock, or the day where it is of days. */
function clock(at: number, times: readonly number[]): string {
  const text = moment(new Date(at * 1000), new Date());
  const span = (times.at(-1) ?? at) - (times[0] ?? at);
  return /^\d\d:\d\d:\d\d$/.test(text) && span > 600 ? text.slice(0, 5) : text;
}

/** The shortest span of an axis of time, in seconds: one point has none of its own. */
const LEAST_SPAN_S = 3_600;

/** What the axis of time shows: the points, and with bars the step that begins at the last of them. */
function spanOf(times: ArrayLike<number>, scaled: [number, number], bars: boolean): [number, number] {
  const step = bars && times.length > 1 ? times[1]! - times[0]! : 0;
  if (times.length > 2 || times.length === 0) return [scaled[0], scaled[1] + step];
  // Of a single point uPlot makes 86,400,000 s.
  const [low, high] = [times[0]!, times[times.length - 1]!];
  if (high + step - low >= LEAST_SPAN_S) return [low, high + step];
  const middle = (low + high) / 2;
  return [middle - LEAST_SPAN_S / 2, middle + LEAST_SPAN_S / 2];
}

/** The lines as they are drawn, with their place in the legend. Stacked bars are drawn from the highest sum down, each over previous hash. */
function layersOf(lines: readonly Line[], bars: boolean): readonly (Line & { i: number })[] {
  const numbered = lines.map((line, i) => ({ ...line, i }));
  if (!bars) return numbered;
  const sums: number[] = [];
  return numbered
    .map((line) => ({
      ...line,
      values: line.values.map((value = 0, at) => {
        sums[at] = (sums[at] ?? 0) + value;
        return sums[at] || undefined;
      }),
    }))
    .toReversed();
}

const plainNumber = (value: number): string => Number(value.toPrecision(4)).toString();

const NO_MARKS: readonly Mark[] = [];
/** Height of the bands of marks, in pixels of the page. */
const BAND = 5;

function drawMarks(plot: uPlot, marks: readonly Mark[], colourOf: (colour: Mark["colour"]) => string): void {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const { from, until, colour } of marks) {
    ctx.fillStyle = colourOf(colour);
    const left = plot.valToPos(from, "x", true);
    if (until === undefined) ctx.fillRect(Math.round(left), bbox.top, ratio, bbox.height);
    else {
      const width = Math.max(plot.valToPos(until, "x", true) - left, 2 * ratio);
      ctx.fillRect(left, bbox.top + bbox.height - BAND * ratio, width, BAND * ratio);
    }
  }
  ctx.restore();
}

/** The chart. */
export function Chart({
  title,
  unit,
  times,
  lines,
  height = 140,
  show = plainNumber,
  together,
  bars = false,
  stepped = false,
  span,
  marks = NO_MARKS,
}: ChartProps) {
  const latest = useRef({ span, marks });
  latest.current = { span, marks };
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [at, setAt] = useState<number | undefined>();
  const [table, setTable] = useState(false);
  const [ready, setReady] = useState(0);
  const theme = useSyncExternalStore(onTheme, themeNow);
  const shape = lines.map(({ name, colour, dashed, filled }) => `${name} ${colour} ${dashed} ${filled}`).join("|");
  // biome-ignore lint/correctness/useExhaustiveDependencies: the shape stands for the lines, whose numbers change each second.
  useEffect(() => {
    const box = place.current;
    if (box === null) return;
    let gone = false;
    let drawn: uPlot | undefined;
    const resize = new ResizeObserver(() => drawn?.setSize({ width: box.clientWidth, height }));
    void draw().then((plotted) => {
      if (gone) plotted.destroy();
      else {
        drawn = plotted;
        plot.current = plotted;
        setReady((n) => n + 1);
        resize.observe(box);
      }
    });
    return () => {
      gone = true;
      resize.disconnect();
      drawn?.destroy();
      plot.current = undefined;
    };
    async function draw(): Promise<uPlot> {
      const { default: UPlot } = await import("uplot");
      return make(UPlot, box!);
    }
  }, [shape, theme, height, together]);
  function make(UPlot: typeof uPlot, box: HTMLElement): uPlot {
    const axis = {
      stroke: resolved("var(--muted)", box),
      grid: { stroke: resolved("var(--line)", box), width: 1 },
      ticks: { stroke: resolved("var(--line)", box), width: 1 },
      font: "11px system-ui",
    };
    const figures = document.createElement("canvas").getContext("2d")!;
    figures.font = axis.font;
    return new UPlot(
      {
        width: box.clientWidth,
        height,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, ...(together !== undefined && { sync: { key: together } }) },
        scales: {
          x: {
            range: (plotted, low, high) =>
              [...(latest.current.span ?? spanOf(plotted.data[0], [low, high], bars))] as [number, number],
          },
          y: { range: (_, low, high) => [Math.min(0, low ?? 0), high === 0 || high === null ? 1 : high * 1.08] },
        },
        axes: [
          { ...axis, size: 30, space: 90, values: (_, ticks) => ticks.map((at) => clock(at, times)) },
          {
            ...axis,
            // As wide as its widest figure, which for small amounts of money has eight letters.
            size: (_, texts) => 16 + Math.max(24, ...(texts ?? []).map((text) => figures.measureText(text).width)),
            values: (_, ticks) => ticks.map(show),
          },
        ],
        series: [
          {},
          ...layersOf(lines, bars).map(({ name, colour, dashed, filled, i }) => {
            const stroke = resolved(colour === undefined ? COLOURS[i % COLOURS.length]! : MEANINGS[colour], box);
            return {
              label: name,
              stroke,
              width: 1,
              // A line of less than three points may be too short to see; later ones need no circles.
              points: { show: ({ data }: uPlot) => (data[0]?.length ?? 0) < 3 },
              spanGaps: false,
              ...(stepped && UPlot.paths.stepped && { paths: UPlot.paths.stepped({ align: 1 }) }),
              ...(dashed && { dash: [4, 4] }),
              ...(filled && { fill: stroke.replace("rgb(", "rgba(").replace(")", ", 0.15)") }),
              ...(bars && {
                paths: UPlot.paths.bars?.({ size: [0.7, 64], align: 1 }),
                fill: stroke,
                points: { show: false },
              }),
            };
          }),
        ],
        hooks: {
          draw: [(plotted) => drawMarks(plotted, latest.current.marks, (colour) => resolved(MEANINGS[colour], box))],
          setCursor: [({ cursor }) => setAt(cursor.idx ?? undefined)],
        },
      },
      [[], ...lines.map(() => [])],
      box,
    );
  }
  // biome-ignore lint/correctness/useExhaustiveDependencies: a chart that was drawn anew has no numbers yet.
  useEffect(() => {
    plot.current?.setData([
      [...times],
      ...layersOf(lines, bars).map(({ values }) => values.map((value) => value ?? null)),
    ]);
  }, [times, lines, ready, bars, marks]);
  const now = new Date();
  const index = at ?? times.length - 1;
  const time = times[index];
  return (
    <figure className="mb-4">
      <figcaption className="mb-1 flex flex-wrap items-baseline gap-x-4 text-sm">
        <span className="font-medium">
          {title} <span className="font-normal text-muted">{unit}</span>
        </span>
        {lines.map(({ name, values, colour, dashed }, i) => {
          const value = values[index];
          return (
            <span key={name} className="inline-flex items-center gap-1.5 whitespace-nowrap text-muted">
              <span
                aria-hidden="true"
                className={`w-3 border-t-2 ${dashed ? "border-dashed" : ""}`}
                style={{ borderColor: colour === undefined ? COLOURS[i % COLOURS.length] : MEANINGS[colour] }}
              />
              {name} <span className="text-ink">{value === undefined ? "–" : show(value)}</span>
            </span>
          );
        })}
        <span className="text-muted">{time !== undefined && moment(new Date(time * 1000), now)}</span>
        <button type="button" className="ml-auto min-h-6 text-muted underline" onClick={() => setTable(!table)}>
          {table ? "hide the table" : "as a table"}
        </button>
      </figcaption>
      <div ref={place} role="img" aria-label={`${title}, ${unit}; the table has its values`} style={{ height }} />
      {table && (
        <div className="max-h-64 overflow-auto" tabIndex={0} role="region" aria-label={`${title}, table`}>
          <table className="w-full text-sm">
            <thead>
              <tr className="text-muted">
                <th scope="col" className="text-left font-normal">
                  time
                </th>
                {lines.map(({ name }) => (
                  <th key={name} scope="col" className="text-right font-normal">
                    {name}, {unit}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {times.map((seconds, i) => (
                <tr key={seconds}>
                  <th scope="row" className="text-left font-normal">
                    {moment(new Date(seconds * 1000), now)}
                  </th>
                  {lines.map(({ name, values }) => (
                    <td key={name} className="text-right">
                      {values[i] === undefined ? "–" : show(values[i])}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </figure>
  );
}
