/** Predicted frames as a film: played, or moved through by hand. */
import { useEffect, useMemo, useState } from "react";
import { ImageFormat } from "../../gen/limber/v1/observation_pb.ts";
import type { PredictedFrame } from "../../gen/limber/v1/prediction_pb.ts";

const TYPES: Readonly<Record<number, string>> = {
  [ImageFormat.PNG]: "image/png",
  [ImageFormat.JPEG]: "image/jpeg",
  [ImageFormat.WEBP]: "image/webp",
};

/** The player. */
export function Player({ frames }: { frames: readonly PredictedFrame[] }) {
  const [at, setAt] = useState(0);
  const [playing, setPlaying] = useState(false);
  const urls = useMemo(
    () =>
      frames.map(({ data, format }) =>
        URL.createObjectURL(new Blob([data as BlobPart], { type: TYPES[format] ?? "image/png" })),
      ),
    [frames],
  );
  useEffect(() => () => urls.forEach(URL.revokeObjectURL), [urls]);
  const gap = frames.length > 1 ? ((frames.at(-1)?.tMs ?? 0) - (frames[0]?.tMs ?? 0)) / (frames.length - 1) : 100;
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(() => setAt((now) => (now + 1) % frames.length), Math.max(gap, 40));
    return () => clearInterval(timer);
  }, [playing, frames.length, gap]);
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
        <button type="button" className="button" onClick={() => setPlaying(!playing)}>
          {playing ? "Pause" : "Play"}
        </button>
        <input
          type="range"
          aria-label="frame"
          className="min-w-0 flex-1 accent-accent"
          min={0}
          max={frames.length - 1}
          value={at}
          onChange={(event) => {
            setPlaying(false);
            setAt(Number(event.target.value));
          }}
        />
      </div>
      <figcaption className="text-sm text-muted">
        frame {at + 1} of {frames.length}, {Math.round(frame.tMs)} ms ahead, {frame.width} × {frame.height} pixels,{" "}
        {frame.camera}
      </figcaption>
    </figure>
  );
}
