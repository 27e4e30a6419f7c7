/** Reads supply incrementally: each read loads only what has changed in the database since the previous one. */
import { pause } from "../../slices.ts";
import { type Sql, type Tx, tx } from "../database/tx.ts";
import {
  emptyRows,
  type ModelRecord,
  type ModelRow,
  modelOf,
  type OfferingRecord,
  type OfferingRow,
  offeringOf,
  offerings,
  type ProviderRecord,
  type ProviderRow,
  providerOf,
  reuseIfEqual,
  type SupplyRecord,
} from "./supply.ts";

/** Rows to process before yielding to the event loop. */
const AT_ONCE = 100;

/** The most keys per query: serializing more could take longer than an event loop turn should. */
const KEYS_AT_ONCE = 1_000;

/** The number of hash buckets of rows. For a bucket without changes, only one line is read. */
const BUCKETS = 256;
const BUCKETS_AT_ONCE = 16;

/** The version of a row: the transaction that wrote it, which PostgreSQL stores with every row. */
interface Versioned {
  readonly key: string;
  readonly version: string;
}

interface Known<T> {
  readonly version: string;
  readonly record: T;
}

/** The rows of one bucket, and a digest of their versions. */
interface Bucket<T> {
  readonly digest: string;
  readonly rows: ReadonlyMap<string, Known<T>>;
}

type Buckets<T> = ReadonlyMap<number, Bucket<T>>;
type Batches<Row> = AsyncIterable<Row[]>;

/** The supply of one database. Unchanged records are the same objects and are never mutated. */
export class SupplyReader {
  readonly #sql: Sql;
  #models: Buckets<ModelRecord> = new Map();
  #offerings: Buckets<OfferingRecord> = new Map();
  #providers: ProviderRecord[] = [];

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** All supply as of one moment, unordered, without removed offerings. One read at a time. */
  async read(): Promise<SupplyRecord> {
    const rows = await tx(this.#sql, async (tx) => {
      await tx`set transaction isolation level repeatable read, read only`;
      const providers = await tx<ProviderRow[]>`select * from provider order by name`;
      const models = await newest(tx, this.#models, modelVersions, async function* (keys) {
        const rows = tx<(ModelRow & Versioned)[]>`
          select *, slug as key, xmin::text as version from model where slug = any(${keys}::text[])`;
        for await (const batch of rows.cursor(AT_ONCE))
          yield madeOf(batch, ({ key, version, ...row }) => ({ key, version, record: modelOf(row) }));
      });
      const live = await newest(tx, this.#offerings, offeringVersions, async function* (keys) {
        const rows = tx<(OfferingRow & Versioned)[]>`
          select row.*, row.id as key, ${version(tx)} as version from (${offerings(tx)}) as row
          join offering on offering.id = row.id join provider on provider.id = row.provider_id ${ownership(tx)}
          where row.id = any(${keys}::text[])`;
        for await (const batch of rows.cursor(AT_ONCE))
          yield madeOf(batch, (row) => ({ key: row.key, version: row.version, record: offeringOf(row) }));
      });
      this.#models = models;
      this.#offerings = live;
      return providers;
    });
    this.#providers = rows.map((row, i) => reuseIfEqual(this.#providers[i], providerOf(row)));
    return {
      providers: this.#providers,
      models: await recordsOf(this.#models),
      offerings: await recordsOf(this.#offerings),
    };
  }
}

const modelVersions = (tx: Tx) => tx`select slug as key, xmin::text as version from model`;

/** An offering's version also covers its provider's fields, the ownership of its model's name, and its signing keys. */
const version = (tx: Tx) =>
  tx`offering.xmin::text || ' ' || provider.xmin::text || ' ' || coalesce(model_owner.xmin::text, '')
    || case when offering.checkpoint is null then '' else coalesce((select string_agg(id, ' ' order by id) from maker_key
      where maker_key.owner = split_part(offering.model, '/', 1)), '') end`;

const ownership = (tx: Tx) => tx`
  left join model_owner on model_owner.owner = split_part(offering.model, '/', 1) and model_owner.org_id = offering.org_id`;

const offeringVersions = (tx: Tx) => tx`
  select offering.id as key, ${version(tx)} as version
  from offering join provider on provider.id = offering.provider_id ${ownership(tx)} where status <> 'removed'`;

const bucket = (tx: Tx) => tx`hashtext(key) & ${BUCKETS - 1}::integer`;

/** Updates the known rows: removes deleted ones, and loads changed ones. */
async function newest<T>(
  tx: Tx,
  known: Buckets<T>,
  versionsOf: typeof modelVersions,
  read: (keys: string[]) => Batches<Versioned & { record: T }>,
): Promise<Buckets<T>> {
  const digests = await tx<{ bucket: number; digest: string }[]>`
    select ${bucket(tx)} as bucket, count(*) || ' ' || sum(hashtextextended(key || ' ' || version, 0)) as digest
    from (${versionsOf(tx)}) as row group by 1 order by 1`;
  const changed = digests.filter(({ bucket, digest }) => known.get(bucket)?.digest !== digest);
  const found = new Map(changed.map(({ bucket }) => [bucket, new Map<string, Known<T> | undefined>()]));
  const unread: string[] = [];
  const bucketOf = new Map<string, number>();
  if (changed.length > 0) {
    const versions = tx<(Versioned & { bucket: number })[]>`
      select ${bucket(tx)} as bucket, key, version from (${versionsOf(tx)}) as row
      where ${bucket(tx)} = any(${changed.map(({ bucket }) => bucket)}::integer[]) order by key`;
    for await (const batch of versions.cursor(AT_ONCE)) {
      for (const { bucket, key, version } of batch) {
        const before = known.get(bucket)?.rows.get(key);
        const same = before?.version === version ? before : undefined;
        found.get(bucket)!.set(key, same);
        if (same) continue;
        bucketOf.set(key, bucket);
        unread.push(key);
      }
      emptyRows(batch);
      await pause();
    }
  }
  for (let asked = 0; asked < unread.length; asked += KEYS_AT_ONCE) {
    for await (const batch of read(unread.slice(asked, asked + KEYS_AT_ONCE))) {
      for (const { key, version, record } of batch) {
        const bucket = bucketOf.get(key)!;
        const before = known.get(bucket)?.rows.get(key)?.record;
        // A row that is rewritten with the same content keeps its record.
        found.get(bucket)!.set(key, { version, record: reuseIfEqual(before, record) });
      }
      emptyRows(batch);
      await pause();
    }
  }
  // Every unknown row has been loaded, as of the same moment.
  const rowsOf = (bucket: number) => found.get(bucket) as Map<string, Known<T>> | undefined;
  return new Map(
    digests.map(({ bucket, digest }) => [bucket, { digest, rows: rowsOf(bucket) ?? known.get(bucket)!.rows }] as const),
  );
}

/** Converts each row; the list is emptied. */
function madeOf<Row, T>(rows: Row[], make: (row: Row) => T): T[] {
  const made = rows.map(make);
  emptyRows(rows);
  return made;
}

async function recordsOf<T>(buckets: Buckets<T>): Promise<T[]> {
  const records: T[] = [];
  let gathered = 0;
  for (const { rows } of buckets.values()) {
    for (const { record } of rows.values()) records.push(record);
    if (++gathered % BUCKETS_AT_ONCE === 0) await pause();
  }
  return records;
}
