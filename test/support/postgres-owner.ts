/** A process that owns an embedded PostgreSQL, for tests to kill: `node postgres-owner.ts DATA_DIR`. */
import { startPostgres } from "../../src/embedded/postgres.ts";

const dataDir = process.argv[2] ?? "";
process.on("SIGINT", () => {});
try {
  const postgres = await startPostgres({ dataDir });
  process.on("SIGTERM", () => void postgres.stop());
  console.log(JSON.stringify({ url: postgres.url, pid: postgres.pid }));
} catch (error) {
  console.log(JSON.stringify({ problem: String(error) }));
}
