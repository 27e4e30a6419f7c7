/** What it costs to let a known caller in: key, rate limit and budget together, in CPU time of one core, against an empty loop. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import { CreditLeaser } from "../../src/billing/credit-leaser.ts";
import { LoadShedder } from "../../src/edge/gate/admission.ts";
import { proxiesOf } from "../../src/edge/gate/authenticate.ts";
import { createGate } from "../../src/edge/gate/gate.ts";
import { RateLimits } from "../../src/edge/gate/rate-limits.ts";
import { startPostgres } from "../../src/embedded/postgres.ts";
import { KeyCache } from "../../src/store/account/caches.ts";
import { createKey } from "../../src/store/account/keys.ts";
import { createWorkspace } from "../../src/store/account/members.ts";
import { addCredits, createOrg } from "../../src/store/account/orgs.ts";
import { takeRates } from "../../src/store/account/rates.ts";
import { type IntentRecord, Ledger, type RequestRecord } from "../../src/store/billing/ledger.ts";
import { migrate } from "../../src/store/database/migrate.ts";
import { Notifications } from "../../src/store/database/notifications.ts";
import { connect, tx } from "../../src/store/database/tx.ts";

const ROUNDS = 5;
const CALLS = 100_000;
const GOAL_US = 20;

const dataDir = mkdtempSync(join(tmpdir(), "limber-bench-"));
const postgres = await startPostgres({ dataDir });
const sql = connect(postgres.url, { max: 4 });
await migrate(sql);
const notifications = await Notifications.open(postgres.url);

const org = await createOrg(sql, { name: "bench" });
await addCredits(sql, { orgId: org.id, amountMicro: 1e12 });
const budget = { limitMicro: 1e11, interval: "daily" } as const;
const workspaceId = await tx(sql, (tx) =>
  createWorkspace(tx, { orgId: org.id, name: "bench", slug: "bench", budget, settings: {} }),
);
const boundless = { requests: 10_000_000, windowS: 1, burst: 10_000_000, concurrency: 1000 };
const { secret } = await createKey(sql, { orgId: org.id, budget, workspaceId, rateLimit: boundless });

const keys = new KeyCache(sql, notifications);
let asked = 0;
const limits = new RateLimits((asks) => {
  asked++;
  return takeRates(sql, "bench", asks);
});
const leaser = await CreditLeaser.open<IntentRecord, RequestRecord>(
  new Ledger({ sql, line: sql, notifications, replica: "bench" }),
);
const nothing = (): never => {
  throw new Error("no call is served here");
};
const { act } = InferenceService.method;
const gate = createGate({
  services: [
    [InferenceService, Object.fromEntries(InferenceService.methods.map((method) => [method.localName, nothing]))],
  ],
  keys,
  sessions: { find: async () => undefined, peek: () => undefined },
  idempotency: { claim: nothing, release: nothing, seal: nothing, hashes: nothing, open: nothing },
  limits,
  load: new LoadShedder(),
  adminToken: "bench",
  publicSignup: false,
  trustedProxies: proxiesOf([]),
  closing: () => false,
  loaded: () => true,
});
const head = {
  authorization: `Bearer ${secret}`,
  adminToken: undefined,
  remoteAddress: "127.0.0.1",
  requestId: "req_1",
};
const estimate = { unit: "action_step", units: 16, priceNano: 100_000, wakeUpMicro: 0 };

/** One caller let in, his money held and given back. */
async function enter(): Promise<void> {
  const admission = await gate.admit(act, head);
  const { principal } = admission;
  if (principal.kind !== "key") throw new Error("a key was sent");
  const hold = await leaser.hold(principal, 1600, estimate);
  void hold.release();
  admission.leave();
}

async function cpuUs(run: () => void | Promise<void>): Promise<number> {
  const before = process.cpuUsage();
  for (let i = 0; i < CALLS; i++) {
    const done = run();
    if (done) await done;
    // The event loop turns now and then, as it does between calls.
    if (i % 64 === 0) await new Promise(setImmediate);
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / CALLS;
}

await cpuUs(enter);
const before = { misses: keys.figures.misses, asked };
let best = Number.POSITIVE_INFINITY;
for (let round = 0; round < ROUNDS; round++) {
  const empty = await cpuUs(async () => {});
  const whole = await cpuUs(enter);
  best = Math.min(best, whole - empty);
  console.log(
    `round ${round + 1}: key + rate limit + budget ${(whole - empty).toFixed(2)} us of CPU a call (empty loop ${empty.toFixed(2)} us)`,
  );
}
const { misses } = keys.figures;
console.log(
  `of ${ROUNDS * CALLS} calls ${misses - before.misses} waited for their key; ${asked - before.asked} questions about rates`,
);
console.log(`best ${best.toFixed(2)} us; goal ${GOAL_US} us: ratio ${(best / GOAL_US).toFixed(3)}`);

await leaser.close();
await limits.close();
keys.close();
await notifications.close();
await sql.end();
await postgres.stop();
rmSync(dataDir, { recursive: true, force: true });
