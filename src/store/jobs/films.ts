/** Films of evaluations. They are deleted with their evaluation. */
import { allRecords, firstRecord, type Queryable, type Tx } from "../database/tx.ts";
import { createJob, type HeldJob } from "./jobs.ts";

/** The most bytes of the films of one evaluation. */
const MOST_BYTES = 64_000_000;

/** Seconds after which films that were not rendered count as failed. */
const LIFE_S = 24 * 3600;

/** The request of a job that renders films. */
export interface FilmRequest {
  readonly evaluation: string;
}

/** The request of one of its items. */
export interface FilmItem {
  readonly index: number;
}

/** The state of a film. */
export interface FilmRecord {
  readonly index: number;
  /** The media type; undefined until it is rendered. */
  readonly type: string | undefined;
  /** Why it could not be rendered. */
  readonly error: string | undefined;
}

/** A rendered film. */
export interface FilmFile {
  readonly bytes: Buffer;
  readonly type: string;
  /** The SHA-256 of the bytes, in hexadecimal. */
  readonly sha256: string;
}

/** Plans films of these episodes of an evaluation, and queues the job that renders them. */
export async function planFilms(
  tx: Tx,
  { id, orgId, keyId, workspaceId }: Pick<HeldJob, "id" | "orgId" | "keyId" | "workspaceId">,
  episodes: readonly number[],
): Promise<void> {
  await tx`insert into film (job_id, index) select ${id}, unnest(${[...episodes]}::int[])`;
  const request: FilmRequest = { evaluation: id };
  const items = episodes.map((index) => ({ customId: undefined, request: { index } satisfies FilmItem }));
  await createJob(tx, { kind: "film", orgId, keyId, workspaceId, request, items, lifeS: LIFE_S });
}

/** The films of an evaluation, by episode. */
export async function listFilms(sql: Queryable, evaluation: string): Promise<FilmRecord[]> {
  return allRecords<FilmRecord>(sql`
    select index, type, error from film where job_id = ${evaluation} order by index`);
}

/** The film of an episode; undefined if it does not exist or is not rendered yet. */
export async function findFilm(sql: Queryable, evaluation: string, index: number): Promise<FilmFile | undefined> {
  return firstRecord<FilmFile>(sql`
    select bytes, type, sha256 from film where job_id = ${evaluation} and index = ${index} and bytes is not null`);
}

/** What happens in the film of an episode, as JSON of `FilmSeries`. */
export async function findSeries(sql: Queryable, evaluation: string, index: number): Promise<object | undefined> {
  const row = await firstRecord<{ series: object }>(sql`
    select series from film where job_id = ${evaluation} and index = ${index} and bytes is not null`);
  return row?.series;
}

/**
 * Stores a rendered film. Returns false, and stores nothing, if the films of its evaluation would become too large together, or if the
 * evaluation was deleted.
 */
export async function keepFilm(
  sql: Queryable,
  evaluation: string,
  index: number,
  { bytes, type, sha256, series }: FilmFile & { readonly series: object },
  { most = MOST_BYTES } = {},
): Promise<boolean> {
  const { count } = await sql`
    update film set bytes = ${bytes}, type = ${type}, sha256 = ${sha256}, series = ${sql.json(series as never)}, error = null
    where job_id = ${evaluation} and index = ${index} and
      (select coalesce(sum(octet_length(bytes)), 0) from film where job_id = ${evaluation} and index <> ${index}) + ${bytes.length} <= ${most}`;
  return count > 0;
}

/** Marks films as failed: that of an episode, or all that are not rendered. */
export async function failFilms(
  sql: Queryable,
  evaluation: string,
  { index, error }: { readonly index?: number; readonly error: string },
): Promise<void> {
  await sql`
    update film set error = ${error}
    where job_id = ${evaluation} and bytes is null and error is null ${index === undefined ? sql`` : sql`and index = ${index}`}`;
}
