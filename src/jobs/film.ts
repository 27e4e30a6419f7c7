/** Renders films of ended evaluations, one after another, by replaying their episodes. */
import { createHash } from "node:crypto";
import { create, toJson } from "@bufbuild/protobuf";
import { FilmSeriesSchema } from "../../gen/limber/v1/evaluation_pb.ts";
import { nativeOf } from "../cancellation.ts";
import { PolicyFailure, ScenarioError } from "../scenarios/failure.ts";
import { builtIn, digestOf, variantFor } from "../scenarios/index.ts";
import type { Scenario, ScenarioVariant } from "../scenarios/scenario.ts";
import { runTrial, type TrialEnd } from "../scenarios/trial.ts";
import type { EpisodeFacts, EvaluationRequest } from "../services/evaluation-run.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { type FilmItem, type FilmRequest, failFilms, keepFilm } from "../store/jobs/films.ts";
import { advance, dropRest, findJob, type HeldJob, listItems, turn } from "../store/jobs/jobs.ts";
import type { Cores } from "./cores.ts";
import { episodeOf } from "./episodes.ts";
import { asMp4, asWebp, type EncodedFilm, FilmFailure } from "./film-encoder.ts";
import { type JobWork, Resting } from "./worker.ts";

/** The dependencies of film jobs. */
interface FilmDeps {
  readonly sql: Sql;
  readonly scenarios: ReadonlyMap<string, Scenario>;
  /** The CPU cores for physics in this process. */
  readonly cores: Cores;
  /** The path of ffmpeg; if undefined, films are encoded as WebP. */
  readonly ffmpeg: string | undefined;
  warn(text: string, cause: unknown): void;
}

const LOST = "rendering was attempted too often and ended its worker each time";
const NOT_IN_TIME = "the films were not rendered in time";

/** Returns the worker of film jobs. It marks films that cannot be rendered as failed; the evaluation keeps its scores. */
export const filmWork =
  (deps: FilmDeps): JobWork =>
  async (job, { lost, stopped, isAwaited }) => {
    const { sql } = deps;
    const { evaluation } = job.request as FilmRequest; // written by `planFilms`
    const studio = new Studio(deps, job, nativeOf(lost));
    await tx(sql, (tx) => advance(tx, job, "running"));
    while (!stopped.aborted) {
      lost.throwIfAborted();
      const [item] = await turn(sql, job, { take: 1, poison: { error: { code: "internal_error", message: LOST } } });
      if (item === undefined) break;
      const { index } = item.request as FilmItem;
      const error = await studio.render(index);
      if (error !== undefined) await failFilms(sql, evaluation, { index, error });
      const state = error === undefined ? "completed" : "failed";
      await turn(sql, job, { ended: [{ index: item.index, state, costMicro: 0 }] });
      if (await isAwaited()) throw new Resting(0);
    }
    await tx(sql, async (tx) => {
      if (stopped.aborted) await dropRest(tx, job);
      await failFilms(tx, evaluation, { error: stopped.aborted ? NOT_IN_TIME : LOST });
      await advance(tx, job, stopped.aborted ? "expired" : "completed");
    });
  };

/** Renders the films of one evaluation. */
class Studio {
  readonly #deps: FilmDeps;
  readonly #job: HeldJob;
  readonly #signal: AbortSignal;

  constructor(deps: FilmDeps, job: HeldJob, signal: AbortSignal) {
    this.#deps = deps;
    this.#job = job;
    this.#signal = signal;
  }

  /** Renders and stores the film of an episode. Returns the error if the film cannot be rendered or stored, otherwise undefined. */
  async render(index: number): Promise<string | undefined> {
    const { evaluation } = this.#job.request as FilmRequest;
    try {
      const { film, action } = await this.#replay(evaluation, index);
      const { bytes, type } = await this.#encode(film);
      const { width, height, frameMs, points } = film;
      const series = create(FilmSeriesSchema, {
        ...{ width, height, frameMs, actionNames: [...action] },
        points: points.map((point) => ({ ...point, action: [...point.action] })),
      });
      const file = { bytes, type, sha256: createHash("sha256").update(bytes).digest("hex") };
      const isKept = await keepFilm(this.#deps.sql, evaluation, index, {
        ...file,
        series: toJson(FilmSeriesSchema, series) as object,
      });
      return isKept ? undefined : "the films of the evaluation are larger than 64,000,000 bytes, or it was deleted";
    } catch (thrown) {
      if (thrown instanceof ScenarioError || thrown instanceof FilmFailure) {
        this.#deps.warn("a film of an evaluation could not be rendered", thrown);
        return thrown.message;
      }
      throw thrown;
    }
  }

  async #replay(
    evaluation: string,
    index: number,
  ): Promise<{ film: NonNullable<TrialEnd["film"]>; action: readonly string[] }> {
    const { sql, cores } = this.#deps;
    const found = await findJob(sql, this.#job, "evaluation", evaluation);
    const [item] = await listItems(sql, evaluation, index, 1, { actions: true });
    const facts = item?.response as EpisodeFacts | undefined;
    if (!found) throw new FilmFailure("the evaluation was deleted");
    if (facts?.actions === undefined) throw new FilmFailure("the episode is not recorded");
    const request = found.request as EvaluationRequest;
    const { scenario, variant } = this.#worldOf(request);
    const episode = episodeOf(index, facts);
    const { actionSpace, seed, mode } = request;
    const { film, replayVerified } = await runTrial(
      {
        ...{ scenario: request.scenario, actionSpace, seed, rules: { mode, replanSteps: undefined } },
        ...{ pictures: false, media: "film", pack: scenario.pack },
      },
      {
        next: async () => ({ index: undefined, rendered: [episode] }),
        act: () => Promise.reject(new PolicyFailure("policy_error", "a replay calls no policy")),
        finished: async () => {},
        core: (signal) => cores.enter(this.#job.orgId, signal),
      },
      this.#signal,
    );
    if (!film || !replayVerified) throw new FilmFailure("the replay differs from the recorded episode");
    return { film, action: variant.fields };
  }

  /** Returns the scenario of the evaluation. Throws `FilmFailure` if its digest differs from the evaluation's. */
  #worldOf({ scenario: id, actionSpace, world }: EvaluationRequest): { scenario: Scenario; variant: ScenarioVariant } {
    const scenario = this.#deps.scenarios.get(id) ?? builtIn(id);
    const variant = scenario && variantFor(scenario, actionSpace);
    if (!scenario || !variant || digestOf(scenario, variant) !== world?.digest)
      throw new FilmFailure("the scenario has changed since the evaluation");
    return { scenario, variant };
  }

  /** Encodes a film as MP4; if there is no ffmpeg, or if it fails, this film as WebP. */
  async #encode(film: NonNullable<TrialEnd["film"]>): Promise<EncodedFilm> {
    const { ffmpeg, warn } = this.#deps;
    if (ffmpeg === undefined) return asWebp(film);
    try {
      return await asMp4(film, ffmpeg, this.#signal);
    } catch (thrown) {
      if (!(thrown instanceof FilmFailure)) throw thrown;
      warn("ffmpeg could not encode a film; it is encoded as WebP", thrown);
      return asWebp(film);
    }
  }
}
