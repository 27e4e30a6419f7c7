/** Reads supply again and again: what the database says has changed since the last time, and nothing else. */
import { pause } from "../../slices.ts";
import { type Sql, type Tx, tx } from "../database/tx.ts";
import {
  asBefore,
  letGo,
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
  type SupplyRecord,
} from "./supply.ts";

/** Rows that are read between two looks at the event loop. */
const AT_ONCE = 100;

/** Keys that one question names: more of them would take longer to write down than a turn of the event loop may. */
const KEYS_AT_ONCE = 1_000;

/** Rows are divided into so many buckets by the hash of their key: of one in which nothing changed a single line is read. */
const BUCKETS = 256;
const BUCKETS_AT_ONCE = 16;

/** What stands for a row's content: the transaction that wrote it, which the database keeps with every row. */
interface Versioned {
  readonly key: string;
  readonly version: string;
}

interface Known<T> {
  readonly version: string;
  readonly record: T;
}

/** The rows of one bucket, and what stands for the versions of them all. */
interface Bucket<T> {
  readonly digest: string;
  readonly rows: ReadonlyMap<string, Known<T>>;
}

type Buckets<T> = ReadonlyMap<number, Bucket<T>>;
type Batches<Row> = AsyncIterable<Row[]>;

/** The supply of one database. A record that says what it said the time before is the same object, and is never changed. */
export class SupplyReader {
  readonly #sql: Sql;
  #models: Buckets<ModelRecord> = new Map();
  #offerings: Buckets<OfferingRecord> = new Map();
  #providers: ProviderRecord[] = [];

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** All supply as of one moment in no order, removed offerings left out. One read at a time. */
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
    this.#providers = rows.map((row, i) => asBefore(this.#providers[i], providerOf(row)));
    return {
      providers: this.#providers,
      models: await recordsOf(this.#models),
      offerings: await recordsOf(this.#offerings),
    };
  }
}

const modelVersions = (tx: Tx) => tx`select slug as key, xmin::text as version from model`;

/** An offering's record holds what its provider says of itself, whether it owns its model's name, and by which keys its checkpoint may be signed, too. */
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

/** What is known brought up to date: what is gone is left out, and what changed is read. */
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
      letGo(batch);
      await pause();
    }
  }
  for (let asked = 0; asked < unread.length; asked += KEYS_AT_ONCE) {
    for await (const batch of read(unread.slice(asked, asked + KEYS_AT_ONCE))) {
      for (const { key, version, record } of batch) {
        const bucket = bucketOf.get(key)!;
        const before = known.get(bucket)?.rows.get(key)?.record;
        // A row that is written again with the same content keeps its record.
        found.get(bucket)!.set(key, { version, record: asBefore(before, record) });
      }
      letGo(batch);
      await pause();
    }
  }
  // Each that was not known has been read, as of the same moment.
  const rowsOf = (bucket: number) => found.get(bucket) as Map<string, Known<T>> | undefined;
  return new Map(
    digests.map(({ bucket, digest }) => [bucket, { digest, rows: rowsOf(bucket) ?? known.get(bucket)!.rows }] as const),
  );
}

/** What is made of each row; the rows are let go. */
function madeOf<Row, T>(rows: Row[], make: (row: Row) => T): T[] {
  const made = rows.map(make);
  letGo(rows);
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
