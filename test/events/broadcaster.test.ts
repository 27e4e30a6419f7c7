/** Spans that wait for a target: so many and no more, the others counted, and nothing of the target's silence reaches who calls. */
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { Broadcaster, MOST_WAITING } from "../../src/events/broadcaster.ts";
import type { EndedCall } from "../../src/events/spans.ts";
import { newId } from "../../src/ids.ts";
import { Notifications } from "../../src/store/database/notifications.ts";
import { tx } from "../../src/store/database/tx.ts";
import { createTarget, findTargetById } from "../../src/store/events/broadcast.ts";
import { openOtlp } from "../../src/upstream/post.ts";
import { guardedAgent, guardedLookup } from "../../src/upstream/transport/guard.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { type OtlpReceiver, startOtlpReceiver } from "../support/otlp-receiver.ts";

const ORG = "org_1";
const TARGET = "bct_1";
/** Root, attempt and upstream. */
const SPANS = 3;

let db: FreshDatabase;
let notifications: Notifications;
let to: OtlpReceiver;
let broadcaster: Broadcaster;
const agent = guardedAgent({ allowPrivate: true });
const reach = { agent, lookup: guardedLookup({ allowPrivate: true }), allowPrivate: true };

beforeAll(async () => {
  [db, to] = await Promise.all([freshDatabase(), startOtlpReceiver()]);
  notifications = await Notifications.open(db.url);
  const filter = { contracts: [], models: [], keyIds: [], workspaceId: undefined };
  const plain = { name: "", headers: undefined, headerNames: [], samplingRate: 1, privacyMode: false, events: false };
  await tx(db.sql, (tx) =>
    createTarget(tx, {
      ...plain,
      id: TARGET,
      orgId: ORG,
      endpoint: to.url,
      protocol: "http/protobuf" as const,
      filter,
      resourceAttributes: {},
      enabled: true,
    }),
  );
  broadcaster = new Broadcaster({
    sql: db.sql,
    notifications,
    open: (target) => openOtlp(reach, { ...target, headers: {} }),
    warn: () => {},
  });
  await broadcaster.load();
});
afterEach(() => to.answer(200));
afterAll(async () => {
  await broadcaster.close();
  await notifications.close();
  await agent.destroy();
  await to.close();
  await db.close();
});

const ended = (): EndedCall => ({
  orgId: ORG,
  requestId: newId("req"),
  keyId: "key_1",
  userId: undefined,
  workspaceId: undefined,
  sessionId: undefined,
  traceparent: undefined,
  contract: "act",
  modelRequested: "acme/base",
  model: "acme/base",
  provider: "acme",
  offeringId: "off_1",
  region: undefined,
  httpStatus: 200,
  errorCode: undefined,
  latencyMs: 5,
  attempts: [
    { offeringId: "off_1", model: "acme/base", provider: "acme", status: "ok", reason: undefined, latencyMs: 4 },
  ],
  fallbackUsed: false,
  hedged: false,
  simulated: false,
  units: 1,
  costMicro: 1,
  deadlineMs: undefined,
  actionSpace: undefined,
  dtMs: undefined,
  streamId: undefined,
  metadata: undefined,
});

it("a silent trace target has a bounded queue: further spans are counted as dropped, and the queued ones arrive later", async () => {
  to.answer(503);
  const kept = Math.floor(MOST_WAITING / SPANS);
  const beyond = 500;
  for (let i = 0; i < kept + beyond; i++) broadcaster.of(ORG)!.ended(ended());
  await eventually(async () =>
    expect(await findTargetById(db.sql, TARGET)).toMatchObject({ droppedSpans: beyond * SPANS }),
  );
  to.answer(200);
  await eventually(() => expect(to.spans).toHaveLength(kept * SPANS));
  await eventually(async () =>
    expect(await findTargetById(db.sql, TARGET)).toMatchObject({
      droppedSpans: beyond * SPANS,
      lastError: undefined,
    }),
  );
});
