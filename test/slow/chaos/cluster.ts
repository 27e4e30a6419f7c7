/** `npm run chaos cluster KILLS`: the leader of three nats-servers is killed under work, again and again. It ends with 1 where any work was lost. */
import { join } from "node:path";
import { startPostgres } from "../../../src/embedded/postgres.ts";
import { migrate } from "../../../src/store/database/migrate.ts";
import { connect } from "../../../src/store/database/tx.ts";
import { scratchDir } from "../../support/gateway.ts";
import { drill } from "./cluster/drill.ts";
import { tell } from "./findings.ts";

const kills = Number(process.argv[2] ?? 10);
if (!Number.isSafeInteger(kills) || kills < 1) {
  console.error("usage: npm run chaos cluster [KILLS]");
  process.exit(2);
}
const dir = scratchDir();
const postgres = await startPostgres({ dataDir: join(dir.path, "cluster") });
const sql = connect(postgres.url, { max: 20 });
await migrate(sql);
const { wrong, ...figures } = await drill({
  sql,
  databaseUrl: postgres.url,
  kills,
  progress: (line) => console.error(line),
});
await sql.end();
await postgres.stop();
dir.remove();
process.exit(tell("cluster", kills, figures, wrong));
