/** Predicted frames as films: played or moved through by hand, all of them at once, and held against what came and against each other. */
import { useEffect, useMemo, useState } from "react";
import { ImageFormat } from "#messages/limber/v1/observation_pb.ts";
import type { PredictedFrame } from "#messages/limber/v1/prediction_pb.ts";
import { plain } from "../../lib/format.ts";
import { Part } from "../../parts/basics.tsx";
import { Table } from "../../parts/table.tsx";
import { pixelsOf, psnr } from "./likeness.ts";

const TYPES: Readonly<Record<number, string>> = {
  [ImageFormat.PNG]: "image/png",
  [ImageFormat.JPEG]: "image/jpeg",
  [ImageFormat.WEBP]: "image/webp",
};

const blobOf = ({ data, format }: PredictedFrame): Blob =>
  new Blob([data as BlobPart], { type: TYPES[format] ?? "image/png" });

/** Frames that a model predicted. */
export interface Film {
  readonly name: string;
  readonly frames: readonly PredictedFrame[];
}

/** Where films stand that are played together. */
export interface Projector {
  readonly at: number;
  readonly playing: boolean;
  readonly show: (at: number) => void;
  readonly play: (playing: boolean) => void;
}

/** One projector for all films: the longest says how far it goes, and the first how fast. */
export function useProjector(films: readonly Film[]): Projector {
  const [at, setAt] = useState(0);
  const [playing, setPlaying] = useState(false);
  const frames = films[0]?.frames ?? [];
  const count = Math.max(0, ...films.map((film) => film.frames.length));
  const gap = frames.length > 1 ? ((frames.at(-1)?.tMs ?? 0) - (frames[0]?.tMs ?? 0)) / (frames.length - 1) : 100;
  useEffect(() => {
    if (!playing || count === 0) return;
    const timer = setInterval(() => setAt((now) => (now + 1) % count), Math.max(gap, 40));
    return () => clearInterval(timer);
  }, [playing, count, gap]);
  return {
    at: Math.min(at, Math.max(count - 1, 0)),
    playing,
    show: (next) => {
      setPlaying(false);
      setAt(next);
    },
    play: setPlaying,
  };
}

/** One film. */
export function Player({ frames, projector }: { frames: readonly PredictedFrame[]; projector: Projector }) {
  const urls = useMemo(() => frames.map((frame) => URL.createObjectURL(blobOf(frame))), [frames]);
  useEffect(() => () => urls.forEach(URL.revokeObjectURL), [urls]);
  const at = Math.min(projector.at, frames.length - 1);
  const frame = frames[at];
  if (frame === undefined) return <p className="text-muted">The answer has no frames.</p>;
  return (
    <figure>
      <img
        src={urls[at]}
        alt={`predicted frame ${at + 1} of ${frames.length}`}
        className="block w-full max-w-md rounded bg-panel"
      />
      <div className="mt-2 flex items-center gap-2">
        <button type="button" className="button" onClick={() => projector.play(!projector.playing)}>
          {projector.playing ? "Pause" : "Play"}
        </button>
        <input
          type="range"
          aria-label="frame"
          className="min-w-0 flex-1 accent-accent"
          min={0}
          max={frames.length - 1}
          value={at}
          onChange={(event) => projector.show(Number(event.target.value))}
        />
      </div>
      <figcaption className="text-sm text-muted">
        frame {at + 1} of {frames.length}, {Math.round(frame.tMs)} ms ahead, {frame.width} × {frame.height} pixels,{" "}
        {frame.camera}
      </figcaption>
    </figure>
  );
}

/** Two series of pictures that are held against each other: the PSNR of each pair, in decibels. */
interface Compared {
  readonly name: string;
  readonly values: readonly number[];
}

/** Each film against what came, and two films against each other. Frames of other sizes are scaled to the first's. */
async function compared(films: readonly Film[], truth: readonly string[]): Promise<Compared[]> {
  const against = async (film: Film, other: (i: number) => Blob | string | undefined): Promise<number[]> => {
    const values: number[] = [];
    for (const [i, frame] of film.frames.entries()) {
      const picture = other(i);
      if (picture === undefined) break;
      const own = await pixelsOf(blobOf(frame));
      values.push(psnr(own, await pixelsOf(picture, own)));
    }
    return values;
  };
  const [one, other] = films;
  return [
    ...(truth.length === 0
      ? []
      : await Promise.all(
          films.map(async (film) => ({
            name: `${film.name} against what came`,
            values: await against(film, (i) => truth[i]),
          })),
        )),
    ...(one === undefined || other === undefined
      ? []
      : [
          {
            name: `${one.name} against ${other.name}`,
            values: await against(one, (i) => other.frames[i] && blobOf(other.frames[i])),
          },
        ]),
  ];
}

const decibels = (value: number | undefined): string =>
  value === undefined ? "–" : value === Number.POSITIVE_INFINITY ? "equal" : plain(value, 1);

/** The mean of decibels; equal frames are left out, and all of them equal is equal. */
function meanOf(values: readonly number[]): number | undefined {
  const finite = values.filter(Number.isFinite);
  if (finite.length === 0) return values[0];
  return finite.reduce((sum, value) => sum + value, 0) / finite.length;
}

/** How near films are to what came, and to each other, frame by frame. */
export function Likeness({
  films,
  truth,
  projector,
}: {
  films: readonly Film[];
  truth: readonly string[];
  projector: Projector;
}) {
  const [rows, setRows] = useState<readonly Compared[]>([]);
  const [fault, setFault] = useState("");
  useEffect(() => {
    let gone = false;
    setFault("");
    compared(films, truth).then(
      (found) => !gone && setRows(found),
      () => !gone && setFault("One of the images cannot be read."),
    );
    return () => {
      gone = true;
    };
  }, [films, truth]);
  if (fault !== "") return <p role="alert">{fault}</p>;
  if (rows.length === 0) return null;
  const count = Math.max(...rows.map(({ values }) => values.length));
  return (
    <Part title="How near the frames are">
      <p className="mb-2 text-muted">
        Peak signal-to-noise ratio in dB, over red, green and blue; more is nearer, and from some 40 dB on the eye sees
        no difference.
      </p>
      <ul className="mb-2">
        {rows.map(({ name, values }) => (
          <li key={name} data-psnr={meanOf(values)}>
            {name}: <strong>{decibels(meanOf(values))}</strong> <span className="text-muted">dB on average</span>, frame{" "}
            {projector.at + 1}: {decibels(values[projector.at])} <span className="text-muted">dB</span>
          </li>
        ))}
      </ul>
      <Table
        label="PSNR by frame"
        rows={Array.from({ length: count }, (_, frame) => ({ frame }))}
        keyOf={({ frame }) => String(frame)}
        columns={[
          { id: "frame", title: "frame", width: 64, cell: ({ frame }) => frame + 1 },
          ...rows.map(({ name, values }, i) => ({
            id: String(i),
            title: `${name}, dB`,
            width: "1fr" as const,
            right: true,
            cell: ({ frame }: { frame: number }) => decibels(values[frame]),
          })),
        ]}
      />
    </Part>
  );
}
