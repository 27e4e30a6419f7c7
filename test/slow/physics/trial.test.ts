import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { readImageHeader } from "../../../src/codecs/pictures/image.ts";
import { PolicyFailure } from "../../../src/scenarios/failure.ts";
import {
  type FinishedEpisode,
  filmedOf,
  firstAndWorst,
  runTrial,
  type Shown,
  type TrialPlan,
} from "../../../src/scenarios/trial.ts";

const PLAN: TrialPlan & Episodes = {
  scenario: "cartpole-balance",
  actionSpace: "continuous_nd",
  seed: 3,
  episodes: 3,
  rules: { mode: "sync", replanSteps: 1 },
  pictures: false,
  media: "none",
  pack: undefined,
  start: 0,
};

/** Episodes from `start` up to `episodes`. */
interface Episodes {
  readonly start: number;
  readonly episodes: number;
}

const core = async () => () => {};

/** Runs a trial and keeps what it tells. */
async function trial(
  given: Partial<TrialPlan & Episodes>,
  act: (shown: Shown) => number[][],
  signal = new AbortController().signal,
) {
  const episodes: FinishedEpisode[] = [];
  const { start, episodes: count, ...plan } = { ...PLAN, ...given };
  let index = start;
  const end = await runTrial(
    plan,
    {
      core,
      next: async () => (index < count ? { index: index++ } : { index: undefined, rendered: firstAndWorst(episodes) }),
      act: async (shown) => ({ rows: act(shown), latencyMs: 1 }),
      finished: async (episode) => void episodes.push(episode),
    },
    signal,
  );
  return { episodes, end };
}

const balance = ({ proprio: [x, v, angle, omega] }: Shown): number[][] => [[x! + 2 * v! + 30 * angle! + 4 * omega!]];

describe("an evaluation run", () => {
  it("runs one episode per seed, in order, reproducibly", async () => {
    const [once, again] = [await trial({}, balance), await trial({}, balance)];
    expect(once.episodes.map(({ index, seed, success }) => [index, seed, success])).toEqual([
      [0, 3, true],
      [1, 4, true],
      [2, 5, true],
    ]);
    expect(again.episodes.map((episode) => episode.trajectorySha256)).toEqual(
      once.episodes.map((episode) => episode.trajectorySha256),
    );
  });

  it("resumes after completed episodes", async () => {
    const whole = await trial({}, balance);
    const rest = await trial({ start: 2 }, balance);
    expect(rest.episodes.map(({ index, trajectorySha256 }) => [index, trajectorySha256])).toEqual([
      [2, whole.episodes[2]!.trajectorySha256],
    ]);
  });

  it("continues after an episode in which the policy failed", async () => {
    const { episodes } = await trial({}, (shown) => {
      if (shown.episode === 1 && !shown.first) throw new PolicyFailure("policy_error", "the policy refused");
      return balance(shown);
    });
    expect(episodes.map(({ termination }) => termination)).toEqual(["success", "policy_error", "success"]);
  });

  it("ends at once when canceled during an act", async () => {
    const controller = new AbortController();
    const waits = runTrial(
      PLAN,
      {
        core,
        next: async () => ({ index: 0 }),
        act: () => {
          controller.abort(new Error("called off"));
          return new Promise(() => {});
        },
        finished: async () => {},
      },
      controller.signal,
    );
    await expect(waits).rejects.toThrow("called off");
  });

  it("rejects for an unknown scenario", async () => {
    await expect(trial({ scenario: "no-such" }, balance)).rejects.toThrow("scenario not found");
  });

  it("sends images as PNG of the declared size, and marks replayed episodes correctly", async () => {
    let seen: Shown["pictures"] = [];
    const { end } = await trial({ episodes: 1, pictures: true, media: "strip" }, (shown) => {
      seen = shown.pictures;
      return [[10]];
    });
    expect(seen.map(({ camera }) => camera)).toEqual(["front"]);
    expect(readImageHeader(Buffer.from(seen[0]!.png))).toMatchObject({ format: "png", width: 160, height: 120 });
    expect(end.replayVerified).toBe(true);
    expect(end.media.map(({ episode, format }) => [episode, format])).toEqual([[0, "png"]]);
    expect(readImageHeader(Buffer.from(end.media[0]!.bytes))).toMatchObject({ width: 6 * 320, height: 240 });
  });

  it("renders an animated picture of the first and the worst episode", async () => {
    const { end } = await trial({ media: "gif" }, (shown) => (shown.episode === 2 ? [[10]] : balance(shown)));
    expect(end.media.map(({ episode, format }) => [episode, format])).toEqual([
      [0, "gif"],
      [2, "gif"],
    ]);
    // 500 steps of 20 ms: the first, and ten a second.
    const film = await sharp(Buffer.from(end.media[0]!.bytes), { animated: true }).metadata();
    expect(film).toMatchObject({ format: "gif", width: 320, pageHeight: 240 });
    // Pictures that are the same are one that is shown longer.
    expect(Math.min(...film.delay!)).toBe(100);
    expect(film.delay!.reduce((sum, each) => sum + each, 0)).toBe(10_100);
  });

  it("films an episode at 480 pixels, with a point for each frame, and ends the film with the episode", async () => {
    const { end, episodes } = await trial({ episodes: 1, media: "film" }, () => [[10]]);
    const [{ steps, return: sum }] = episodes as [FinishedEpisode];
    const { width, height, frames, frameMs, rgb, points } = end.film!;
    expect([width, height, frames, frameMs]).toEqual([480, 360, Math.ceil(steps / 5) + 1, 100]);
    expect(rgb.length).toBe(3 * width * height * frames);
    expect(points.map(({ step }) => step)).toEqual([0, 5, 10].slice(0, frames - 1).concat(steps));
    expect(points.at(-1)).toEqual({ step: steps, return: sum, action: [10] });
    expect(end.replayVerified).toBe(true);
  });

  it("films at most 32 episodes, failed ones if wanted", async () => {
    const { episodes } = await trial({ episodes: 2 }, (shown) => (shown.episode === 1 ? [[10]] : balance(shown)));
    const many = Array.from({ length: 80 }, (_, index) => ({ ...episodes[index % 2]!, index }));
    const indexes = (which: "failed" | "all") => filmedOf(many, which).map(({ index }) => index);
    expect(indexes("all")).toEqual(Array.from({ length: 32 }, (_, i) => i));
    expect(indexes("failed")).toEqual(Array.from({ length: 32 }, (_, i) => 2 * i + 1));
    expect(filmedOf(many, "first_and_worst").map(({ index }) => index)).toEqual([0, 1]);
  });
});

/** Cores without an end, counted. */
function counted() {
  let held = 0;
  const core = async () => {
    held++;
    let isMine = true;
    return () => {
      if (isMine) held--;
      isMine = false;
    };
  };
  return { held: () => held, core };
}

describe("a core", () => {
  it("is held while the physics computes, and free while the policy runs", async () => {
    const { held, core } = counted();
    const episodes = [0, 1];
    await runTrial(
      PLAN,
      {
        core,
        next: async () => {
          expect(held()).toBe(0);
          const index = episodes.shift();
          return index === undefined ? { index, rendered: [] } : { index };
        },
        act: async (shown) => {
          expect(held()).toBe(0);
          return { rows: balance(shown), latencyMs: 1 };
        },
        finished: async ({ wallMs }) => {
          expect(held()).toBe(0);
          expect(wallMs).toBeGreaterThan(0);
        },
      },
      new AbortController().signal,
    );
    expect(held()).toBe(0);
  });

  it("is released by an evaluation run that ends early", async () => {
    const { held, core } = counted();
    const broken = { core, next: async () => ({ index: 0 }), finished: async () => {} };
    const act = async (): Promise<never> => {
      throw new Error("a bug");
    };
    await expect(runTrial(PLAN, { ...broken, act }, new AbortController().signal)).rejects.toThrow("a bug");
    expect(held()).toBe(0);
  });
});
