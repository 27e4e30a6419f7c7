/** Films of evaluations, as files of their own. The gateway's ffmpeg crashes, so every film falls back to WebP. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EvaluationService } from "../../../gen/limber/v1/evaluation_service_pb.ts";
import { type Tx, tx } from "../../../src/store/database/tx.ts";
import { failFilms, keepFilm, listFilms, planFilms } from "../../../src/store/jobs/films.ts";
import { MOST_TRIES, pruneJobs } from "../../../src/store/jobs/jobs.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { endedEvaluation } from "../../support/evaluations.ts";
import { eventually } from "../../support/eventually.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

const folder = mkdtempSync(join(tmpdir(), "limber-test-films-"));
const ffmpeg = join(folder, "ffmpeg");
const runs = join(folder, "runs");
writeFileSync(runs, "");
writeFileSync(ffmpeg, `#!/bin/sh\necho run >> '${runs}'\nexit 3\n`, { mode: 0o755 });
afterAll(() => rmSync(folder, { recursive: true }));

let app: App;
let model: Model;
let caller: Caller;
/** An evaluation of one episode, which fails. */
let id: string;
let evaluation: Awaited<ReturnType<typeof endedEvaluation>>;

const begin = (body: object, key = caller.key) =>
  app.call(
    "/v1/evaluate",
    {
      ...{ policy_endpoint: model.endpoint, scenario: "cartpole-balance", episodes: 1 },
      ...{ horizon: 4, replan_steps: 4, media: "film", media_episodes: "failed", ...body },
    },
    { key },
  );

/** Waits until every film of an evaluation is rendered or has failed. */
const filmed = (of: string) =>
  eventually(
    async () => {
      const { body } = await app.call(`/v1/evaluate/${of}`, undefined, { key: caller.key });
      expect(body.films.ready + body.films.failed).toBe(body.films.total);
      return body;
    },
    { timeout: 60_000, interval: 100 },
  );

/** An evaluation that has ended, with its films. */
async function filmedEvaluation(body: object = {}): Promise<typeof evaluation> {
  const taken = await begin(body);
  expect(taken.status, taken.text).toBe(202);
  await endedEvaluation(app, taken.body.id, caller.key);
  return filmed(taken.body.id);
}

/** Plans the film of an evaluation's first episode again, after a change in the same transaction. Returns the id of the job. */
const plannedAgain = (of: string, change: (tx: Tx, filmJob: string) => Promise<unknown>): Promise<string> =>
  tx(app.sql, async (tx) => {
    const [held] = await tx<{ orgId: string; keyId: string; workspaceId: string }[]>`
      select org_id as "orgId", key_id as "keyId", workspace_id as "workspaceId" from job where id = ${of}`;
    await tx`delete from film where job_id = ${of}`;
    await planFilms(tx, { id: of, ...held! }, [0]);
    const [planned] = await tx`select id from job where kind = 'film' and rank < 9`;
    await change(tx, planned!.id);
    return planned!.id;
  });

/** The first episode of an evaluation whose film failed. */
async function failedFilm(of: string) {
  const { films, per_episode } = await filmed(of);
  expect(films).toEqual({ total: 1, ready: 0, failed: 1 });
  return per_episode[0];
}

const get = (path: string, headers: Record<string, string> = {}, method = "GET") =>
  fetch(app.url + path, { method, headers: { authorization: `Bearer ${caller.key}`, ...headers } });

beforeAll(async () => {
  // The cart is pushed to one side, and the pole falls within some steps.
  model = await openModel({
    act: ({ horizon }, answer) => answer(Array.from({ length: horizon }, () => [10])),
  });
  app = await ownGateway({ roles: new Set(["api", "worker"]), ffmpeg });
  caller = await app.caller();
  evaluation = await filmedEvaluation();
  id = evaluation.id;
});

describe("GET /v1/evaluate/{job_id}/films/{index}", () => {
  it("serves the film of an episode as animated WebP if ffmpeg fails, 480 pixels wide", async () => {
    expect(evaluation).toMatchObject({ status: "completed", films: { total: 1, ready: 1, failed: 0 } });
    const [{ film_url, film_type }] = evaluation.per_episode;
    expect([film_url, film_type]).toEqual([`/v1/evaluate/${id}/films/0`, "image/webp"]);
    const response = await get(film_url);
    const bytes = Buffer.from(await response.arrayBuffer());
    expect(response.status).toBe(200);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "content-type": "image/webp",
      "content-length": String(bytes.length),
      "accept-ranges": "bytes",
      "cache-control": "private, no-cache",
      etag: expect.stringMatching(/^"[0-9a-f]{64}"$/),
    });
    const film = await sharp(bytes, { animated: true }).metadata();
    expect(film).toMatchObject({ format: "webp", width: 480, pageHeight: 360 });
  });

  it("serves ranges, conditions and HEAD", async () => {
    const path = `/v1/evaluate/${id}/films/0`;
    const whole = await get(path);
    const bytes = Buffer.from(await whole.arrayBuffer());
    const etag = whole.headers.get("etag")!;
    const part = await get(path, { range: "bytes=4-11", "if-range": etag });
    expect([part.status, part.headers.get("content-range"), part.headers.get("content-length")]).toEqual([
      ...[206, `bytes 4-11/${bytes.length}`, "8"],
    ]);
    expect(Buffer.from(await part.arrayBuffer())).toEqual(bytes.subarray(4, 12));
    const beyond = await get(path, { range: `bytes=${bytes.length}-` });
    expect([beyond.status, beyond.headers.get("content-range"), await beyond.text()]).toEqual([
      ...[416, `bytes */${bytes.length}`, ""],
    ]);
    expect((await get(path, { "if-none-match": etag })).status).toBe(304);
    const head = await get(path, { range: "bytes=0-1" }, "HEAD");
    expect([head.status, head.headers.get("content-length")]).toEqual([200, String(bytes.length)]);
  });

  it("returns the same bytes over gRPC", async () => {
    const client = createClient(EvaluationService, createGrpcTransport({ baseUrl: app.url }));
    const film = await client.getFilm({ jobId: id, index: 0 }, { headers: { authorization: `Bearer ${caller.key}` } });
    expect(film.type).toBe("image/webp");
    const response = await get(`/v1/evaluate/${id}/films/0`);
    expect(Buffer.from(film.film)).toEqual(Buffer.from(await response.arrayBuffer()));
  });

  it("returns the return and the actions at each frame", async () => {
    const { body, text } = await app.call(`/v1/evaluate/${id}/films/0/series`, undefined, { key: caller.key });
    const { steps, return: sum } = evaluation.per_episode[0];
    expect(body, text).toMatchObject({ width: 480, height: 360, frame_ms: 100, action_names: [expect.any(String)] });
    // A frame each 5 steps of 20 ms, and the last one.
    expect(body.points.map(({ step }: { step: number }) => step)).toEqual(
      Array.from({ length: Math.ceil(steps / 5) + 1 }, (_, i) => Math.min(steps, 5 * i)),
    );
    expect(body.points.at(-1)).toEqual({ step: steps, return: sum, action: [10] });
  });

  it("returns 404 to other organizations, and for episodes without a film", async () => {
    const other = await app.caller();
    for (const path of ["films/0", "films/0/series"]) {
      const { status, body } = await app.call(`/v1/evaluate/${id}/${path}`, undefined, { key: other.key });
      expect([status, body.error?.message]).toEqual([404, "evaluation not found"]);
      const none = await app.call(`/v1/evaluate/${id}/${path.replace("0", "1")}`, undefined, { key: caller.key });
      expect([none.status, none.body.error?.code]).toEqual([404, "not_found"]);
    }
    const beyond = await app.call(`/v1/evaluate/${id}/films/10000`, undefined, { key: caller.key });
    expect(beyond.status, beyond.text).toBe(422);
  });
});

describe("the requested films", () => {
  it("are refused in another form than as films, if they are not the first and the worst episode", async () => {
    const { status, body, text } = await begin({ media: "gif" });
    expect([status, body.error?.param], text).toEqual([422, "media_episodes"]);
  });

  it("are refused with zero data retention, because they are stored", async () => {
    const { org, key } = await app.caller();
    await app.call(`/v1/orgs/${org}/settings`, { zdr: true }, { key, method: "PATCH" });
    const { status, body, text } = await begin({}, key);
    expect([status, body.error?.param], text).toEqual([422, "media"]);
  });
});

describe("a film", () => {
  it("is encoded as WebP if ffmpeg fails, which is called again for the next film", async () => {
    const before = readFileSync(runs, "utf8").length;
    const { per_episode } = await filmedEvaluation({ episodes: 2 });
    expect(per_episode.map(({ film_type }: { film_type: string }) => film_type)).toEqual(["image/webp", "image/webp"]);
    expect(readFileSync(runs, "utf8").slice(before)).toBe("run\nrun\n");
  });

  it("fails if the scenario has changed since the evaluation, and its episode says so", async () => {
    const { id: of } = await filmedEvaluation();
    await plannedAgain(of, async (tx) => {
      // A trigger keeps ended jobs from changing.
      await tx`set local session_replication_role = replica`;
      await tx`update job set request = jsonb_set(request, '{world,digest}', '"0"') where id = ${of}`;
    });
    const episode = await failedFilm(of);
    expect(episode).toMatchObject({ film_error: "the scenario has changed since the evaluation" });
    expect(episode).not.toHaveProperty("film_url");
  });

  it("fails if its rendering ended the worker at every attempt", async () => {
    const { id: of } = await filmedEvaluation();
    await plannedAgain(
      of,
      (tx, job) => tx`update job_item set state = 'running', rank = 3, tries = ${MOST_TRIES} where job_id = ${job}`,
    );
    expect(await failedFilm(of)).toMatchObject({
      film_error: "rendering was attempted too often and ended its worker each time",
    });
  });

  it("is not rendered once its evaluation is deleted", async () => {
    const { id: of } = await filmedEvaluation();
    const job = await plannedAgain(of, (tx) => tx`delete from job where id = ${of}`);
    await eventually(async () => {
      const [row] = await app.sql`
        select job.status, job_item.state from job join job_item on job_id = id where id = ${job}`;
      expect(row).toEqual({ status: "completed", state: "failed" });
    });
    const file = { bytes: Buffer.alloc(1), type: "image/webp", sha256: "", series: {} };
    expect(await keepFilm(app.sql, of, 0, file)).toBe(false);
    expect(await listFilms(app.sql, of)).toEqual([]);
  });
});

describe("stored films", () => {
  it("are bounded per evaluation: a film that does not fit beside the others fails", async () => {
    const before = await listFilms(app.sql, id);
    const [first] = await app.sql`select octet_length(bytes) as size from film where job_id = ${id}`;
    await app.sql`insert into film (job_id, index) values (${id}, 1)`;
    const file = { bytes: Buffer.alloc(100), type: "image/webp", sha256: "", series: {} };
    expect(await keepFilm(app.sql, id, 1, file, { most: first!.size + 99 })).toBe(false);
    await failFilms(app.sql, id, { error: "too large" });
    const failed = { index: 1, type: undefined, error: "too large" };
    expect(await listFilms(app.sql, id)).toEqual([...before, failed]);
    expect(await keepFilm(app.sql, id, 1, file, { most: first!.size + 100 })).toBe(true);
    expect(await listFilms(app.sql, id)).toEqual([...before, { ...failed, type: "image/webp", error: undefined }]);
  });

  it("are named with their encoder in the operator's health details", async () => {
    const { body } = await app.call("/health", undefined, { admin: ADMIN_TOKEN });
    expect(body.detail.film_encoder).toBe(ffmpeg);
  });

  it("are deleted with their evaluation", async () => {
    expect(await pruneJobs(app.sql, -1)).toBeGreaterThan(0);
    expect((await get(`/v1/evaluate/${id}/films/0`)).status).toBe(404);
    const [row] = await app.sql`select count(*)::int as count from film`;
    expect(row?.count).toBe(0);
  });
});
