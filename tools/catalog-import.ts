/**
 * Imports the catalog: `node tools/catalog-import.ts [directory]`, into the database of DATABASE_URL, from `data/` unless
 * another directory is given. The same files again change nothing; a bad row is named by file and line, and then nothing is
 * written.
 */
import { join } from "node:path";
import { migrate } from "../src/store/database/migrate.ts";
import { connect } from "../src/store/database/tx.ts";
import { CatalogFault, importCatalog } from "../src/store/supply/catalog.ts";

const DATA = join(import.meta.dirname, "..", "data");

async function main(url: string, directory: string): Promise<void> {
  const sql = connect(url, { max: 1 });
  try {
    await migrate(sql);
    const { version, changed } = await importCatalog(sql, directory, (table, done, of) =>
      console.log(`${table} ${done} of ${of}`),
    );
    console.log(changed ? `catalog ${version} is imported` : `catalog ${version} is there already`);
  } finally {
    await sql.end();
  }
}

// A pooler's transactions are too short for migrations.
const url = process.env.LIMBER_DATABASE_DIRECT_URL || process.env.DATABASE_URL;
if (url === undefined || url === "") {
  console.error(
    "DATABASE_URL names the database to import into; a gateway with a database of its own imports by itself",
  );
  process.exit(2);
}
main(url, process.argv[2] ?? DATA).catch((thrown: unknown) => {
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  console.error(thrown instanceof CatalogFault ? `nothing was imported:\n${text}` : text);
  process.exit(1);
});
