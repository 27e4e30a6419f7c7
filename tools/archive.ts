/** Recomputes closing entries and balances from the archive of the request history: `limber archive verify --month 2025-10`. */
import { parseArgs } from "node:util";
import { ConfigError, readConfig } from "../src/config.ts";
import { openArchive, verifyArchive } from "../src/jobs/archive.ts";
import { connect } from "../src/store/database/tx.ts";

const HELP = `Recomputes every closing entry from the archive, and every balance from the entries.

  limber archive verify [--month 2025-10]

Reads DATABASE_URL and LIMBER_ARCHIVE_URL. Ends with 0 if everything matches, 1 if something does not, 2 when the command is wrong.`;

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { month: { type: "string" }, help: { type: "boolean" } },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const { month } = values;
  if (positionals.join(" ") !== "verify" || (month !== undefined && !/^\d{4}-(0[1-9]|1[0-2])$/.test(month))) {
    console.error(HELP);
    return 2;
  }
  const { databaseUrl, databaseDirectUrl, archive } = readConfig();
  const url = databaseDirectUrl ?? databaseUrl;
  if (url === undefined || archive === undefined)
    throw new ConfigError(["DATABASE_URL and LIMBER_ARCHIVE_URL must be set: they say what is verified"]);
  const sql = connect(url, { max: 2, unbounded: true });
  try {
    const { files, closings, faults } = await verifyArchive({ sql, folder: openArchive(archive.place) }, month);
    for (const fault of faults) console.error(fault);
    console.log(`${files} files, ${closings} closing entries, ${faults.length} faults`);
    return faults.length === 0 ? 0 : 1;
  } finally {
    await sql.end();
  }
}

main().then(
  (code) => process.exit(code),
  (thrown: unknown) => {
    console.error(thrown instanceof Error ? thrown.message : String(thrown));
    process.exit(2);
  },
);
