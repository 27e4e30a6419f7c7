/** Films of evaluations, as files of their own. The gateway's ffmpeg crashes, so every film falls back to WebP. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EvaluationService } from "../../../gen/limber/v1/evaluation_service_pb.ts";
import { failFilms, keepFilm, listFilms } from "../../../src/store/jobs/films.ts";
import { pruneJobs } from "../../../src/store/jobs/jobs.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { endedEvaluation } from "../../support/evaluations.ts";
import { eventually } from "../../support/eventually.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

const folder = mkdtempSync(join(tmpdir(), "limber-test-films-"));
const ffmpeg = join(folder, "ffmpeg");
writeFileSync(ffmpeg, "#!/bin/sh\nexit 3\n", { mode: 0o755 });
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

const get = (path: string, headers: Record<string, string> = {}, method = "GET") =>
  fetch(app.url + path, { method, headers: { authorization: `Bearer ${caller.key}`, ...headers } });

beforeAll(async () => {
  // The cart is pushed to one side, and the pole falls within some steps.
  model = await openModel({
    act: ({ horizon }, answer) => answer(Array.from({ length: horizon }, () => [10])),
  });
  app = await ownGateway({ roles: new Set(["api", "worker"]), ffmpeg });
  caller = await app.caller();
  const taken = await begin({});
  expect(taken.status, taken.text).toBe(202);
  id = taken.body.id;
  await endedEvaluation(app, id, caller.key);
  evaluation = await filmed(id);
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

describe("stored films", () => {
  it("are bounded per evaluation: a film that does not fit fails", async () => {
    const before = await listFilms(app.sql, id);
    const file = { bytes: Buffer.alloc(100), type: "image/webp", sha256: "", series: {} };
    expect(await keepFilm(app.sql, id, 0, file, { most: 99 })).toBe(false);
    expect(await listFilms(app.sql, id)).toEqual(before);
    await failFilms(app.sql, id, { error: "only films that are not rendered can fail" });
    expect(await listFilms(app.sql, id)).toEqual(before);
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
