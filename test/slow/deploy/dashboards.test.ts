/** The dashboards, asked of a real Prometheus that scrapes a running gateway. */
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App, openApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { robot } from "../../support/loop-client.ts";
import { type Model, startModel } from "../../support/model.ts";
import { freePort } from "../../support/owners.ts";

const FOLDER = join(import.meta.dirname, "../../../deploy/grafana");
const TOKEN = "a-scrapers-token-for-tests";
const hasPrometheus = spawnSync("prometheus", ["--version"]).status === 0;

/** Every query of a dashboard. */
interface Dashboard {
  panels: { title: string; targets?: { expr: string }[]; panels?: Dashboard["panels"] }[];
}

const queriesOf = (file: string): string[] => {
  const { panels } = JSON.parse(readFileSync(join(FOLDER, file), "utf8")) as Dashboard;
  return panels.flatMap(({ targets = [], panels: inner = [] }) =>
    [...targets, ...inner.flatMap((each) => each.targets ?? [])].map(({ expr }) => expr),
  );
};

it("dashboards equal the generator's output", () => {
  const fresh = mkdtempSync(join(tmpdir(), "limber-dashboards-"));
  execFileSync(process.execPath, [join(import.meta.dirname, "dashboards.ts"), fresh]);
  expect(readdirSync(fresh)).toEqual(readdirSync(FOLDER));
  for (const name of readdirSync(fresh))
    expect(readFileSync(join(fresh, name), "utf8")).toBe(readFileSync(join(FOLDER, name), "utf8"));
  rmSync(fresh, { recursive: true });
});

describe.runIf(hasPrometheus)("on a running gateway", () => {
  let app: App;
  let model: Model;
  const closers: (() => unknown)[] = [];

  beforeAll(async () => {
    app = await openApp({ metricsToken: TOKEN });
    model = await startModel();
    await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
    const { key } = await app.caller();
    const observations = [{ proprio: [1] }];
    for (let i = 0; i < 20; i++)
      await app.call(
        "/v1/act",
        { model: "acme/base", action_space: "base_twist_2d", horizon: 1, observations },
        { key },
      );
    const stream = robot(app, key, { model: "acme/base", actionSpace: "base_twist_2d", horizon: 2 } as never);
    await stream.expect("opened");
    for (let step = 1; step <= 5; step++) {
      stream.observe(step);
      await stream.next();
    }
    closers.push(() => stream.leave());
  });
  afterAll(async () => {
    for (const close of closers.splice(0).reverse()) await close();
    await model?.close();
    await app?.close();
  });

  it("exposes metrics without promtool warnings", async () => {
    const { text } = await app.call("/metrics", undefined, { admin: ADMIN_TOKEN });
    const { stdout, stderr, status } = spawnSync("promtool", ["check", "metrics"], { input: text, encoding: "utf8" });
    expect([stdout, stderr, status]).toEqual(["", "", 0]);
  });

  it("answers every query with data", async () => {
    const folder = mkdtempSync(join(tmpdir(), "limber-prometheus-"));
    const port = await freePort();
    const config = join(folder, "prometheus.yml");
    writeFileSync(
      config,
      `global: { scrape_interval: 500ms }
scrape_configs:
  - job_name: limber
    authorization: { credentials: ${TOKEN} }
    static_configs: [{ targets: ["${new URL(app.url).host}"] }]
`,
    );
    const child = spawn(
      "prometheus",
      [`--config.file=${config}`, `--storage.tsdb.path=${folder}/data`, `--web.listen-address=127.0.0.1:${port}`],
      { stdio: "ignore" },
    );
    const gone = new Promise((resolve) => child.once("exit", resolve));
    closers.push(async () => {
      child.kill("SIGKILL");
      await gone;
      rmSync(folder, { recursive: true, force: true });
    });
    const ask = async (expr: string): Promise<number> => {
      const query = encodeURIComponent(expr.replaceAll("$__rate_interval", "1m"));
      const answer = await fetch(`http://127.0.0.1:${port}/api/v1/query?query=${query}`);
      return ((await answer.json()) as { data: { result: unknown[] } }).data.result.length;
    };
    const queries = readdirSync(FOLDER).flatMap(queriesOf);
    expect(queries.length).toBeGreaterThan(30);
    await eventually(
      async () => {
        const counts = await Promise.all(queries.map(async (expr) => [expr, await ask(expr)] as const));
        expect(counts.filter(([, count]) => count === 0)).toEqual([]);
      },
      { timeout: 25_000 },
    );
  });
});
