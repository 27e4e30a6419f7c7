/** Films of episodes: those of one evaluation, and those of several policies in one episode side by side. */
import { Code, ConnectError } from "@connectrpc/connect";
import { useQuery } from "@connectrpc/connect-query";
import { useEffect, useReducer, useState } from "react";
import type { EpisodeRecord, Evaluation } from "#messages/limber/v1/evaluation_pb.ts";
import { EvaluationService } from "#messages/limber/v1/evaluation_service_pb.ts";
import { plain } from "../../lib/format.ts";
import { spaced } from "../../lib/words.ts";
import { Choice, Part, Refused, Status } from "../../parts/basics.tsx";
import { Strip } from "../../parts/strip.tsx";
import { Reel, type ReelTime } from "./reel.ts";
import { isFilming } from "./runs.ts";

/** Whether the film of an episode is a video; otherwise it is an animated image. */
const isVideo = (episode: EpisodeRecord | undefined): boolean => episode?.filmType === "video/mp4";

/** The episode's recording: a film of its own, or a picture inside the record. */
const addressOf = ({ filmUrl, pictureUrl }: EpisodeRecord): string | undefined =>
  filmUrl ?? (pictureUrl?.startsWith("data:image/") ? pictureUrl : undefined);

/** The films of an evaluation, failures first, with the return and the actions of each. */
export function Films({ evaluation, episodes }: { evaluation: Evaluation; episodes: readonly EpisodeRecord[] }) {
  const [only, setOnly] = useState<"failed" | "all">();
  const { films } = evaluation;
  const filmed = episodes.filter((episode) => addressOf(episode) !== undefined);
  const failed = filmed.filter(({ success }) => !success);
  const shown = only ?? (failed.length > 0 ? "failed" : "all");
  if (filmed.length === 0 && films === undefined) return null;
  return (
    <Part title="Films, failures first">
      <div className="mb-2 flex flex-wrap items-center gap-x-3 gap-y-1">
        <div role="group" aria-label="which films">
          {(["failed", "all"] as const).map((each) => (
            <button
              key={each}
              type="button"
              aria-pressed={shown === each}
              onClick={() => setOnly(each)}
              className="button rounded-none first-of-type:rounded-l last-of-type:rounded-r last-of-type:border-l-0 aria-pressed:bg-chosen aria-pressed:font-medium"
            >
              {each} {(each === "failed" ? failed : filmed).length}
            </button>
          ))}
        </div>
        {films !== undefined && (
          <p role="status" className="text-muted">
            {isFilming(evaluation) && `${films.ready} of ${films.total} are rendered. `}
            {films.failed > 0 && `${films.failed} could not be rendered.`}
          </p>
        )}
      </div>
      {episodes.map(
        ({ index, filmError }) =>
          filmError !== undefined && (
            <p key={index} className="mb-2">
              Episode {index + 1} could not be rendered: {filmError}.
            </p>
          ),
      )}
      <div className="grid grid-cols-1 gap-3 sm:grid-cols-2">
        {(shown === "failed" ? failed : filmed).map((episode) => (
          <figure key={episode.index}>
            <Screen episode={episode} name={`episode ${episode.index + 1}`} />
            <figcaption>
              <Outcome episode={episode} name={`${episode.index + 1}`} />
            </figcaption>
            {episode.filmUrl !== undefined && <Course jobId={evaluation.id} index={episode.index} />}
          </figure>
        ))}
      </div>
    </Part>
  );
}

const Outcome = ({ episode: { success, termination }, name }: { episode: EpisodeRecord; name: string }) => (
  <Status tone={success ? "good" : "bad"}>
    {name}: {spaced(termination)}
  </Status>
);

/** One film, with the browser's own controls if it is a video. */
function Screen({ episode, name }: { episode: EpisodeRecord; name: string }) {
  const about = `${name}: ${spaced(episode.termination)}`;
  if (!isVideo(episode))
    return <img src={addressOf(episode)} alt={about} loading="lazy" className="w-full rounded bg-panel" />;
  return (
    <video
      src={episode.filmUrl}
      aria-label={about}
      controls
      muted
      playsInline
      preload="metadata"
      className="w-full rounded bg-panel"
    />
  );
}

/** Return and actions over time, read when they are opened; `at` is the position in the film, from 0 to 1. */
function Course({ jobId, index, at }: { jobId: string; index: number; at?: number | undefined }) {
  const [open, setOpen] = useState(false);
  const { data, error } = useQuery(
    EvaluationService.method.getFilmSeries,
    { jobId, index },
    { enabled: open, staleTime: Number.POSITIVE_INFINITY },
  );
  const { points = [], actionNames = [] } = data?.series ?? {};
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>Return and actions</summary>
      <Refused error={error} />
      {points.length > 0 && (
        <div className="grid grid-cols-[repeat(auto-fill,minmax(140px,1fr))] gap-x-3 gap-y-2">
          <Strip name="return" values={points.map((point) => point.return)} at={at} />
          {actionNames.map((name, i) => (
            <Strip key={name} name={name} values={points.map(({ action }) => action[i] ?? 0)} at={at} />
          ))}
        </div>
      )}
    </details>
  );
}

/** A policy whose films are compared. */
export interface Contestant {
  /** Its letter. */
  readonly label: string;
  readonly name: string;
  readonly evaluation: Evaluation;
}

/** One seed, and the episode of each policy that has played it. */
interface Scene {
  readonly seed: number;
  readonly episodes: readonly (EpisodeRecord | undefined)[];
}

/** The seeds that at least one policy was filmed in: first those in which the policies differ, then those in which all failed. */
function scenesOf(contestants: readonly Contestant[]): Scene[] {
  const bySeed = contestants.map(
    ({ evaluation }) => new Map(evaluation.perEpisode.map((episode) => [episode.seed, episode])),
  );
  const seeds = new Set(bySeed.flatMap((episodes) => [...episodes.keys()]));
  const scenes = [...seeds].map((seed) => ({ seed, episodes: bySeed.map((episodes) => episodes.get(seed)) }));
  const filmed = scenes.filter(({ episodes }) => episodes.some((episode) => episode?.filmUrl !== undefined));
  return filmed.sort((a, b) => rankOf(a) - rankOf(b) || a.seed - b.seed);
}

function rankOf({ episodes }: Scene): number {
  const outcomes = new Set(episodes.flatMap((episode) => (episode === undefined ? [] : [episode.success])));
  return outcomes.size > 1 ? 0 : outcomes.has(false) ? 1 : 2;
}

/** Films of several policies in one episode, played together. */
export function SideBySide({
  contestants,
  seed,
  onSeed,
}: {
  contestants: readonly Contestant[];
  seed: string | undefined;
  onSeed: (seed: string) => void;
}) {
  const scenes = scenesOf(contestants);
  const at = Math.max(
    0,
    scenes.findIndex((scene) => String(scene.seed) === seed),
  );
  const scene = scenes[at];
  if (scene === undefined) return null;
  const step = (by: number): void => onSeed(String(scenes[at + by]!.seed));
  const outcomeOf = ({ episodes }: Scene): string =>
    contestants
      .flatMap(({ label }, i) => (episodes[i] ? [`${label} ${episodes[i].success ? "succeeded" : "failed"}`] : []))
      .join(", ");
  return (
    <Part title="Films side by side, differences first">
      <div className="mb-2 flex flex-wrap items-end gap-2">
        <div className="min-w-0 max-w-md grow">
          <Choice
            label="Seed"
            value={String(scene.seed)}
            onChange={onSeed}
            options={scenes.map((each) => [String(each.seed), `${each.seed}: ${outcomeOf(each)}`] as const)}
          />
        </div>
        <button type="button" className="button" disabled={at === 0} onClick={() => step(-1)}>
          Previous
        </button>
        <button type="button" className="button" disabled={at === scenes.length - 1} onClick={() => step(1)}>
          Next
        </button>
      </div>
      <Stage key={scene.seed} contestants={contestants} scene={scene} />
    </Part>
  );
}

/** Why there is no film of an episode. */
function unfilmed(episode: EpisodeRecord | undefined): string {
  if (episode === undefined) return "This policy has not played this seed.";
  if (episode.filmError !== undefined) return `The film could not be rendered: ${episode.filmError}.`;
  return "This episode is not filmed.";
}

/** The films of one seed under one set of controls. */
function Stage({ contestants, scene }: { contestants: readonly Contestant[]; scene: Scene }) {
  const filmed = scene.episodes.filter((episode) => episode?.filmUrl !== undefined);
  const videos = filmed.filter(isVideo);
  const lengthS = Math.max(0, ...videos.map((episode) => episode?.simTimeS ?? 0));
  const reel = useReel(lengthS);
  const pictures = usePictures(scene);
  return (
    <div>
      <div className="grid grid-cols-[repeat(auto-fit,minmax(min(100%,240px),480px))] gap-3">
        {contestants.map(({ label, name: policy, evaluation }, i) => {
          const episode = scene.episodes[i];
          const name = `${label} ${policy}, seed ${scene.seed}`;
          return (
            <figure key={evaluation.id}>
              <figcaption className="truncate font-medium">
                {label} <code>{policy}</code>
              </figcaption>
              {episode?.filmUrl === undefined ? (
                <p className="grid aspect-4/3 place-items-center rounded bg-panel text-muted">{unfilmed(episode)}</p>
              ) : isVideo(episode) ? (
                <video
                  ref={reel.add}
                  src={episode.filmUrl}
                  aria-label={`${name}: ${spaced(episode.termination)}`}
                  muted
                  playsInline
                  preload="auto"
                  className="w-full rounded bg-panel"
                />
              ) : pictures.urls[i] === undefined ? (
                <p className="grid aspect-4/3 place-items-center rounded bg-panel text-muted">Not started.</p>
              ) : (
                <img
                  src={pictures.urls[i]}
                  alt={`${name}: ${spaced(episode.termination)}`}
                  className="w-full rounded bg-panel"
                />
              )}
              {episode !== undefined && <Outcome episode={episode} name={`${plain(episode.simTimeS, 1)} s`} />}
              {episode?.filmUrl !== undefined && (
                <Course
                  jobId={evaluation.id}
                  index={episode.index}
                  at={isVideo(episode) ? Math.min(1, reel.timeS / (episode.simTimeS || 1)) : undefined}
                />
              )}
            </figure>
          );
        })}
      </div>
      {videos.length > 0 && (
        <div className="mt-2 flex items-center gap-2">
          <button type="button" className="button" onClick={() => (reel.playing ? reel.pause() : reel.play())}>
            {reel.playing ? "Pause" : "Play"}
          </button>
          <input
            type="range"
            aria-label="time of all videos, in seconds"
            className="min-w-0 flex-1 accent-accent"
            min={0}
            max={lengthS}
            step={0.1}
            value={reel.timeS}
            onChange={({ target }) => reel.show(Number(target.value))}
          />
          <span className="whitespace-nowrap text-muted">
            {plain(reel.timeS, 1)} of {plain(lengthS, 1)} s
          </span>
        </div>
      )}
      {videos.length < filmed.length && (
        <div className="mt-2 flex flex-wrap items-center gap-2">
          <button type="button" className="button" onClick={() => pictures.start(reel.restart)}>
            {pictures.urls.length === 0 ? "Play together" : "Play again from the start"}
          </button>
          <p className="text-muted">
            {videos.length > 0 ? "Some of these films" : "These films"} are animated images, which start together
            {videos.length > 0 && " with the videos"}, but cannot be paused. With ffmpeg, the gateway makes videos.
          </p>
          <Refused error={pictures.error} />
        </div>
      )}
    </div>
  );
}

const FRAMES: ReelTime = {
  nowMs: () => performance.now(),
  nextFrame(run) {
    const frame = requestAnimationFrame(run);
    return () => cancelAnimationFrame(frame);
  },
};

/** One clock for the videos of a seed. */
function useReel(lengthS: number): Reel {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const [reel] = useState(() => new Reel(FRAMES, redraw));
  reel.lengthS = lengthS;
  useEffect(() => reel.pause, [reel]);
  return reel;
}

/** Animated images that begin at the same time: each start makes new addresses, because an image plays from when it is first shown. */
function usePictures({ episodes }: Scene) {
  const [urls, setUrls] = useState<readonly (string | undefined)[]>([]);
  const [error, setError] = useState<Error>();
  useEffect(
    () => () => {
      for (const url of urls) if (url !== undefined) URL.revokeObjectURL(url);
    },
    [urls],
  );
  /** Loads the images and shows them; `shown` is called then. */
  const start = async (shown: () => void): Promise<void> => {
    setError(undefined);
    const loaded = await Promise.all(episodes.map((each) => (isVideo(each) ? undefined : blobOf(each?.filmUrl))));
    setUrls(loaded.map((blob) => blob && URL.createObjectURL(blob)));
    shown();
  };
  return { urls, error, start: (shown: () => void) => void start(shown).catch(setError) };
}

async function blobOf(url: string | undefined): Promise<Blob | undefined> {
  if (url === undefined) return undefined;
  const response = await fetch(url);
  if (!response.ok) throw new ConnectError("a film could not be loaded; try again", Code.Unavailable);
  return response.blob();
}
