/** What the container image holds, as a folder: `test/nightly/image.test.ts` builds the image itself. */
import { cpSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished, vi } from "vitest";
import { ADMIN_TOKEN, callRest } from "../../support/app.ts";
import { freshDatabase } from "../../support/database.ts";
import { launchGateway, scratchDir } from "../../support/gateway.ts";

const ROOT = join(import.meta.dirname, "../../..");
const CONTAINERFILE = readFileSync(join(ROOT, "deploy/container/Containerfile"), "utf8");

it("the image's files suffice for a gateway that writes nothing beside them", async () => {
  const scratch = scratchDir();
  onTestFinished(() => scratch.remove());
  const app = join(scratch.path, "app");
  // The last word of an instruction is its target, which has the source's name.
  for (const [, names = ""] of CONTAINERFILE.matchAll(/^COPY (?!--)(.*) \S+$/gm))
    for (const name of names.split(" ")) cpSync(join(ROOT, name), join(app, name), { recursive: true });
  // Above the application, so that their files are not compared.
  symlinkSync(join(ROOT, "node_modules"), join(scratch.path, "node_modules"));
  const files = () => readdirSync(app, { recursive: true }).sort();
  const before = files();
  const [, main = ""] = /^CMD \["(.*)"\]$/m.exec(CONTAINERFILE) ?? [];

  const database = await freshDatabase({ empty: true });
  onTestFinished(() => database.close());
  const env = {
    DATABASE_URL: database.url,
    LIMBER_OPERATIONS_PORT: "0",
    LIMBER_IMPORT_CATALOG: "true",
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    LIMBER_MASTER_KEY: Buffer.alloc(32, 1).toString("base64"),
    LOG_LEVEL: "warn",
  };
  const launched = launchGateway(env, [], { main: join(app, main) });
  onTestFinished(() => void launched.child.kill("SIGKILL"));
  const gateway = await launched.ready;
  const port = await vi.waitUntil(() => /^operations at port (\d+)$/m.exec(gateway.stdout())?.[1]);
  const ready = await callRest(`http://127.0.0.1:${port}`, "/ready");
  expect([ready.status, ready.text]).toEqual([200, '{"status":"ready"}']);
  const { body } = await callRest(gateway.url, "/v1/models?limit=1");
  expect(body.total).toBeGreaterThan(1_000);
  expect(gateway.stderr()).toBe("");
  expect((await gateway.end("SIGTERM")).code).toBe(0);
  expect(files()).toEqual(before);
});
