/** Reads supply again and again: the versions of all rows each time, and of the rows themselves those that changed. */
import {
  type ModelRecord,
  type ModelRow,
  modelOf,
  type OfferingRecord,
  type OfferingRow,
  offeringOf,
  offerings,
  type ProviderRow,
  providerOf,
  type Supply,
} from "./supply.ts";
import { type Sql, type Tx, tx } from "./tx.ts";

/** Rows that are read between two looks at the event loop. */
const AT_ONCE = 100;

/** What stands for a row's content: the transaction that wrote it, which the database keeps with every row. */
interface Versioned {
  readonly key: string;
  readonly version: string;
}

interface Known<T> {
  readonly version: string;
  readonly record: T;
}

type Batches<Row> = AsyncIterable<readonly Row[]>;

/** The supply of one database. A record that did not change is the same object as the time before, and nobody changes it. */
export class SupplyReader {
  readonly #sql: Sql;
  #models = new Map<string, Known<ModelRecord>>();
  #offerings = new Map<string, Known<OfferingRecord>>();

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** All supply as of one moment, removed offerings left out. One read at a time. */
  read(): Promise<Supply> {
    return tx(this.#sql, async (tx) => {
      await tx`set transaction isolation level repeatable read, read only`;
      const providers = await tx<ProviderRow[]>`select * from provider order by name`;
      const models = await newest(this.#models, modelVersions(tx), async function* (keys) {
        const rows = tx<(ModelRow & Versioned)[]>`
          select *, slug as key, xmin::text as version from model where slug = any(${keys}::text[])`;
        for await (const batch of rows.cursor(AT_ONCE))
          yield batch.map(({ key, version, ...row }) => ({ key, version, record: modelOf(row) }));
      });
      const live = await newest(this.#offerings, offeringVersions(tx), async function* (keys) {
        const rows = tx<(OfferingRow & Versioned)[]>`
          select row.*, row.id as key, ${version(tx)} as version from (${offerings(tx)}) as row
          join offering on offering.id = row.id join provider on provider.id = row.provider_id
          where row.id = any(${keys}::text[])`;
        for await (const batch of rows.cursor(AT_ONCE))
          yield batch.map((row) => ({ key: row.key, version: row.version, record: offeringOf(row) }));
      });
      this.#models = models;
      this.#offerings = live;
      return { providers: providers.map(providerOf), models: recordsOf(models), offerings: recordsOf(live) };
    });
  }
}

const modelVersions = (tx: Tx): Batches<Versioned> =>
  tx<Versioned[]>`select slug as key, xmin::text as version from model order by slug`.cursor(AT_ONCE);

/** An offering's record holds what its provider says of itself, too. */
const version = (tx: Tx) => tx`offering.xmin::text || ' ' || provider.xmin::text`;

const offeringVersions = (tx: Tx): Batches<Versioned> =>
  tx<Versioned[]>`
    select offering.id as key, ${version(tx)} as version
    from offering join provider on provider.id = offering.provider_id
    where status <> 'removed' order by offering.id`.cursor(AT_ONCE);

/** What is known brought up to date, in the order of the versions: what is gone is left out, and what changed is read. */
async function newest<T>(
  known: ReadonlyMap<string, Known<T>>,
  versions: Batches<Versioned>,
  read: (keys: string[]) => Batches<Versioned & { record: T }>,
): Promise<Map<string, Known<T>>> {
  const newest = new Map<string, Known<T> | undefined>();
  const changed: string[] = [];
  for await (const batch of versions) {
    for (const { key, version } of batch) {
      const before = known.get(key);
      const same = before?.version === version ? before : undefined;
      newest.set(key, same);
      if (!same) changed.push(key);
    }
  }
  if (changed.length > 0) {
    for await (const batch of read(changed))
      for (const { key, version, record } of batch) newest.set(key, { version, record });
  }
  return newest as Map<string, Known<T>>; // each that was not known has been read, as of the same moment
}

const recordsOf = <T>(known: ReadonlyMap<string, Known<T>>): T[] => Array.from(known.values(), ({ record }) => record);
