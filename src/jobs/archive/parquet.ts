/** Parquet files of flat rows, written and read a group of rows at a time. */
import { type AsyncBuffer, parquetMetadata, parquetReadObjects } from "hyparquet";
import { type BasicType, ByteWriter, ParquetWriter, schemaFromColumnData } from "hyparquet-writer";
import { breathe } from "../../slices.ts";

/** A column. Values are strings, safe integers, numbers or booleans; null only where `nullable`. */
export interface ParquetColumn {
  readonly name: string;
  readonly type: "STRING" | "INT64" | "DOUBLE" | "BOOLEAN";
  readonly nullable?: boolean;
}

/** A row: a value for each column. */
export type ParquetRow = Readonly<Record<string, string | number | boolean | null>>;

/** Rows that are encoded or decoded at once, in a few milliseconds. */
export const GROUP_ROWS = 1_000;

/** Writes a file; `groups` has at most `GROUP_ROWS` rows each. */
export async function writeParquet(
  columns: readonly ParquetColumn[],
  groups: AsyncIterable<readonly ParquetRow[]>,
): Promise<Uint8Array> {
  const bytes = new ByteWriter();
  const source = (rows: readonly ParquetRow[]) =>
    columns.map(({ name, type, nullable = false }) => ({
      name,
      type: type as BasicType,
      nullable,
      data: rows.map((row) => (type === "INT64" && row[name] !== null ? BigInt(row[name] as number) : row[name])),
    }));
  const file = new ParquetWriter({ writer: bytes, schema: schemaFromColumnData({ columnData: source([]) }) });
  for await (const rows of groups) {
    await file.write({ columnData: source(rows), rowGroupSize: GROUP_ROWS });
    await breathe();
  }
  await file.finish();
  return bytes.getBytes();
}

/** Reads a file group by group. Throws if it is not one. */
export async function* readParquet(bytes: Uint8Array): AsyncGenerator<ParquetRow[]> {
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
  const file: AsyncBuffer = { byteLength: buffer.byteLength, slice: (start, end) => buffer.slice(start, end) };
  const metadata = parquetMetadata(buffer);
  const all = Number(metadata.num_rows);
  for (let rowStart = 0; rowStart < all; rowStart += GROUP_ROWS) {
    const rowEnd = Math.min(rowStart + GROUP_ROWS, all);
    const rows = await parquetReadObjects({ file, metadata, rowStart, rowEnd });
    yield rows.map((row) =>
      Object.fromEntries(
        Object.entries(row).map(([name, value]) => [name, typeof value === "bigint" ? Number(value) : (value ?? null)]),
      ),
    );
    await breathe();
  }
}
