/** Published evaluations and comparisons. */
import { allRecords, firstRecord, type Queryable, type Tx } from "../database/tx.ts";

/** A publication without its document. */
export interface PublicationRecord {
  readonly id: string;
  readonly kind: "evaluation" | "comparison";
  /** The published job, or the comparison. */
  readonly subject: string;
  readonly title: string;
  /** Unix seconds. */
  readonly created: number;
  readonly withdrawn: number | undefined;
}

/** What leaderboards and routing read of a publication. */
export interface PublishedResult {
  readonly label: string;
  readonly digest: string;
  readonly model: string;
  readonly offeringId: string;
  readonly revision: string | undefined;
  readonly outcomes: string;
  /** The success rate, from 0 to 1; on a suite, the weighted mean of its tasks. */
  readonly rate: number;
  readonly progress: number;
  readonly attempts: number;
}

/** Stores a publication. Returns false if its subject is published already. */
export async function addPublication(
  tx: Tx,
  orgId: string,
  { id, kind, subject, title }: Pick<PublicationRecord, "id" | "kind" | "subject" | "title">,
  document: string,
  results: readonly PublishedResult[],
): Promise<boolean> {
  const { count } = await tx`
    insert into publication (id, org_id, subject, kind, title, document)
    values (${id}, ${orgId}, ${subject}, ${kind}, ${title}, ${document}) on conflict do nothing`;
  if (count === 0) return false;
  for (const { label, digest, model, offeringId, revision, outcomes, rate, progress, attempts } of results)
    await tx`
      insert into publication_result (publication_id, label, digest, model, offering_id, revision, outcomes, rate, progress, attempts)
      values (${id}, ${label}, ${digest}, ${model}, ${offeringId}, ${revision ?? null}, ${outcomes}, ${rate}, ${progress}, ${attempts})`;
  return true;
}

const columns = (sql: Queryable) => sql`select id, kind, subject, title, created, withdrawn from publication`;

/** The public publication of a subject. */
export const publicationOf = (sql: Queryable, orgId: string, subject: string): Promise<PublicationRecord | undefined> =>
  firstRecord<PublicationRecord>(sql`
    ${columns(sql)} where org_id = ${orgId} and subject = ${subject} and withdrawn is null`);

/** A publication of an organization. */
export const findPublication = (sql: Queryable, orgId: string, id: string): Promise<PublicationRecord | undefined> =>
  firstRecord<PublicationRecord>(sql`${columns(sql)} where org_id = ${orgId} and id = ${id}`);

/** The publications of an organization, newest first, after the one with the id `cursor`. */
export const listPublications = (
  sql: Queryable,
  orgId: string,
  { limit, cursor }: { limit: number; cursor: string | undefined },
): Promise<PublicationRecord[]> =>
  allRecords<PublicationRecord>(sql`
    ${columns(sql)} where org_id = ${orgId}
      ${cursor === undefined ? sql`` : sql`and (created, id) < (select created, id from publication where id = ${cursor} and org_id = ${orgId})`}
    order by created desc, id desc limit ${limit}`);

/** What is public of a publication: its document, or the notice of its withdrawal. */
export async function publicText(sql: Queryable, id: string): Promise<string | undefined> {
  const [row] = await sql<
    { text: string }[]
  >`select coalesce(notice, document) as text from publication where id = ${id}`;
  return row?.text;
}

/** Withdraws a publication with a signed notice. Returns false if it was withdrawn already. */
export async function withdrawPublication(tx: Tx, orgId: string, id: string, notice: string): Promise<boolean> {
  const { count } = await tx`
    update publication set withdrawn = now(), notice = ${notice}
    where org_id = ${orgId} and id = ${id} and withdrawn is null`;
  return count > 0;
}

/** A result with its publication and the publisher's name. */
export interface RankedResult extends Omit<PublishedResult, "digest" | "offeringId"> {
  readonly publicationId: string;
  readonly publisher: string;
}

/** For each publisher, model and revision, the public result of the most episodes with the digest of a scenario or suite; the earliest of equal ones. Highest rates first. */
export const resultsOf = (sql: Queryable, digest: string, limit: number): Promise<RankedResult[]> =>
  allRecords<RankedResult>(sql`
    select * from (
      select distinct on (org_id, model, revision) publication_id, label, model, revision, outcomes, rate, progress, attempts, org.name as publisher
      from publication_result
        join publication on publication.id = publication_id and withdrawn is null
        join org on org.id = org_id and org.status = 'active'
      where digest = ${digest}
      order by org_id, model, revision, length(outcomes) desc, publication.created, publication_id
    ) as best
    order by rate desc, publication_id limit ${limit}`);

/** A published result of an offering, as routing reads it. */
export interface MeasuredResult {
  readonly offeringId: string;
  readonly digest: string;
  readonly publicationId: string;
  readonly successes: number;
  readonly episodes: number;
  readonly attempts: number;
}

/**
 * For each offering, scenario digest and publisher, the public result of the most episodes; the earliest of equal ones. Leaves out results
 * from the organization of the offering or of its model's name, and results with another checkpoint than the offering's.
 */
export const measuredResults = (sql: Queryable, digests: readonly string[]): Promise<MeasuredResult[]> =>
  allRecords<MeasuredResult>(sql`
    select distinct on (offering_id, digest, publication.org_id) offering_id, digest, publication_id, attempts,
      length(outcomes) as episodes, length(replace(outcomes, '0', '')) as successes
    from publication_result as result
      join publication on publication.id = publication_id and withdrawn is null
      join org on org.id = publication.org_id and org.status = 'active'
      join offering on offering.id = offering_id and offering.org_id <> publication.org_id
        and offering.checkpoint ->> 'digest' is not distinct from revision
    where digest = any(${[...digests]}::text[]) and not exists (
      select from model_owner where owner = split_part(result.model, '/', 1) and org_id = publication.org_id)
    order by offering_id, digest, publication.org_id, length(outcomes) desc, publication.created, publication_id`);

/** A scenario or a suite, by its digest. */
export type Attempted = { readonly scenario: string } | { readonly suite: string };

/**
 * How many evaluations of a model an organization has started in a scenario, or runs of a suite, successful or not. Those with zero data retention
 * count, because their model is not known.
 */
export async function attemptsOf(sql: Queryable, orgId: string, what: Attempted, model: string): Promise<number> {
  const place = sql`request -> 'comparison'`;
  const [count, which] =
    "suite" in what
      ? [
          sql`count(distinct (comparison, ${place} ->> 'label'))`,
          sql`${place} #>> '{inSuite,suite,digest}' = ${what.suite}`,
        ]
      : [sql`count(*)`, sql`request -> 'world' ->> 'digest' = ${what.scenario}`];
  const [row] = await sql<{ count: number }[]>`
    select ${count}::int as count from job
    where org_id = ${orgId} and kind = 'evaluation' and started is not null and ${which}
      and (sealed or request -> 'offering' ->> 'id' in (select id from offering where offering.model = ${model}))`;
  return row?.count ?? 0;
}
