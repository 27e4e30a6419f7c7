/** Two gateways under load whose database fails over again and again. */
import { setTimeout as rest } from "node:timers/promises";
import { connect } from "../../../../src/store/database/tx.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, callRest as call } from "../../../support/app.ts";
import { closing } from "../../../support/closing.ts";
import { launchGateway, scratchDir } from "../../../support/gateway.ts";
import { brokenInvariants } from "../../../support/invariants.ts";
import { startModel } from "../../../support/model.ts";
import { BOUNDLESS } from "../../../support/pair.ts";
import { until } from "../jobs/until.ts";
import { Replicated } from "./replicated.ts";

/** What came of it. */
export interface FailedOver {
  readonly failovers: number;
  readonly answered: number;
  /** Calls that were refused because the database was away. */
  readonly refused: number;
  /** From the kill to the first answer that needs the new primary, in milliseconds. */
  readonly awayMs: readonly number[];
  /** Everything that should not have been, in words. */
  readonly wrong: string[];
}

const CALLERS = 8;

/** Fails over `failovers` times. */
export async function failOver(failovers: number, progress?: (line: string) => void): Promise<FailedOver> {
  const { closers, closeAll } = closing();
  try {
    const dir = scratchDir();
    closers.push(() => dir.remove());
    const model = await startModel();
    closers.push(() => model.close());
    const database = await Replicated.open(dir.path);
    closers.push(() => database.close());
    const env = {
      LOG_LEVEL: "error",
      DATABASE_URL: database.url,
      SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
      LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
      LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
      LIMBER_REFERENCE_SUPPLY: "false",
    };
    const gateways = [];
    for (let i = 0; i < 2; i++) {
      const launched = launchGateway(env);
      closers.push(async () => {
        launched.child.kill("SIGKILL");
        await launched.ended;
      });
      gateways.push(await launched.ready);
    }
    const [url = "", other = ""] = gateways.map((gateway) => gateway.url);
    const well = async (path: string, body: unknown, as: object) => {
      const { status, text, body: answer } = await call(url, path, body, as);
      if (status >= 300) throw new Error(`${path} answered ${status}: ${text}`);
      return answer;
    };
    const admin = { admin: ADMIN_TOKEN };
    const { id: org } = await well("/v1/orgs", { name: "failover" }, admin);
    await well(`/v1/orgs/${org}/credits`, { amount_usd: 10_000 }, admin);
    const { key } = await well(`/v1/orgs/${org}/keys`, { role: "owner", rate_limit: BOUNDLESS }, admin);
    await well("/v1/supply/providers", { name: "acme" }, { key });
    const declared = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
    const { id } = await well("/v1/supply/providers/acme/models", declared, { key });
    await well(`/v1/supply/offerings/${id}/verify`, {}, { key });

    const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 4, observations: [{ proprio: [1] }] };
    const answered = new Set<string>();
    const wrong: string[] = [];
    let refused = 0;
    const over = new AbortController();
    closers.push(() => over.abort());
    const callers = Array.from({ length: CALLERS }, async (_, i) => {
      while (!over.signal.aborted) {
        try {
          const { status, text, headers } = await call(i % 2 ? url : other, "/v1/act", body, { key });
          if (status === 200) answered.add(headers.get("x-request-id") ?? "");
          else if (status === 503 || status === 404) refused += 1;
          else wrong.push(`a call was answered ${status}: ${text}`);
        } catch (thrown) {
          wrong.push(`a call was not answered: ${thrown}`);
        }
        await rest(5);
      }
    });
    const awayMs: number[] = [];
    for (let i = 0; i < failovers; i++) {
      const before = answered.size;
      await until("callers to be served", async () => answered.size > before + 100);
      const killedAt = performance.now();
      await database.failOver();
      // Both write: credit is given on each, which no lease and no cache can answer.
      for (const at of [url, other])
        await until(
          "a gateway to find the new primary",
          async () => (await call(at, `/v1/orgs/${org}/credits`, { amount_usd: 1 }, admin)).status < 300,
        );
      awayMs.push(Math.round(performance.now() - killedAt));
      await database.follow();
      progress?.(`${i + 1} of ${failovers} failovers, away ${awayMs.at(-1)} ms, ${answered.size} answered`);
    }
    over.abort();
    await Promise.all(callers);
    for (const gateway of gateways) {
      const { code, stderr } = await gateway.end("SIGTERM");
      if (code !== 0) wrong.push(`a gateway ended with ${code}: ${stderr.slice(-500)}`);
    }
    const sql = connect(database.primaryUrl, { max: 1 });
    closers.push(() => sql.end());
    const kept = new Set((await sql<{ id: string }[]>`select request_id as id from request`).map((row) => row.id));
    const lost = [...answered].filter((id) => !kept.has(id));
    if (lost.length > 0) wrong.push(`${lost.length} answered calls are on no record, such as ${lost[0]}`);
    wrong.push(...(await brokenInvariants(sql)));
    return { failovers, answered: answered.size, refused, awayMs, wrong };
  } finally {
    await closeAll();
  }
}
