/** Cold starts are claimed in the database; one word that it never answers holds up none after it. */
import { beforeAll, expect, it } from "vitest";
import type { Queryable } from "../../../src/store/database/tx.ts";
import { Wakes } from "../../../src/supply/shared-health.ts";
import type { App } from "../../support/app.ts";
import { gateway } from "../../support/attempts.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { offering } from "../../support/supply.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme");

let app: App;
let model: Model;

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
});

it("a cold start after an unanswered claim is claimed and charged", async () => {
  const id = await app.supply({ provider: named.acme, model: `${named.acme}/base`, endpoint: model.endpoint });
  let isDeaf = true;
  const sql = new Proxy(app.sql, {
    apply: (target, self, words) => (isDeaf ? new Promise(() => {}) : Reflect.apply(target, self, words)),
  }) as Queryable;
  // A cent to wake, and asleep after a second.
  const sleepy = { scaledownS: 1, coldTimeoutMs: 10_000, costNanoPerSecond: 1_000_000, timeoutMs: 10_000 };
  const { clock, health, plan } = gateway([offering(id, sleepy)]);
  const wakes = new Wakes(sql, health);
  const [step] = plan().steps;
  const begin = () => {
    const at = clock.steady();
    health.admit(id, at, 10_000, false);
    return wakes.begin(step!, at)!;
  };
  const unanswered = begin();
  // Its statement is on its way in the next turn.
  await new Promise(setImmediate);
  isDeaf = false;
  expect(await unanswered.pays).toBe(false);
  unanswered.failed();
  const next = begin();
  expect(await next.pays).toBe(true);
  next.answered();
  await expect
    .poll(() => app.sql`select from awake_offering where offering_id = ${id} and until < now() + interval '2 seconds'`)
    .toHaveLength(1);
});
