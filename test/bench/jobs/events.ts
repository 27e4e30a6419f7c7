/** Events: from commit to a subscriber, and what one costs on its way into a stream. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as rest } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { startPostgres } from "../../../src/embedded/postgres.ts";
import { NatsLink } from "../../../src/events/nats/link.ts";
import { BATCH, Relay } from "../../../src/events/relay.ts";
import { newId } from "../../../src/ids.ts";
import { migrate } from "../../../src/store/database/migrate.ts";
import { Notifications } from "../../../src/store/database/notifications.ts";
import { connect, tx } from "../../../src/store/database/tx.ts";
import { appendEvents } from "../../../src/store/events/outbox.ts";
import { hear, makeStream, startNats } from "../../support/nats.ts";
import { median } from "../support/processes.ts";
import { cpuMicros } from "./gateway.ts";

const EVENTS = 500;
const STORED = 20_000;
const ROUNDS = 9;
const ALONE = 2_000;

const at = (sorted: readonly number[], share: number): string =>
  (sorted[Math.floor(share * sorted.length)] ?? Number.NaN).toFixed(1);
const eventOf = () => {
  const id = newId("evt");
  const data = { case: "keyCreated" as const, value: { keyId: newId("key") } };
  const payload = toBinary(EventSchema, create(EventSchema, { id, apiVersion: "0.1.0", orgId: "org_bench", data }));
  return { id, name: "key.created", orgId: "org_bench", payload };
};

/** Prints milliseconds from an event's commit to a subscriber of NATS. */
export async function eventLatency(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
  const postgres = await startPostgres({ dataDir: join(folder, "events") });
  const nats = await startNats();
  const sql = connect(postgres.url, { max: 4 });
  await migrate(sql);
  const notifications = await Notifications.open(postgres.url);
  const relay = new Relay({
    sql,
    notifications,
    url: nats.url,
    replica: "replica_bench",
    warn: (text) => console.log(text),
  });
  const subscriber = await hear(nats.url, "limber.v1.>");
  const took: number[] = [];
  for (let i = 0; i < EVENTS; i++) {
    await tx(sql, (tx) => appendEvents(tx, [eventOf()]));
    const committed = performance.now();
    while (subscriber.heard.length <= i) await rest(0);
    took.push(performance.now() - committed);
  }
  took.sort((a, b) => a - b);
  console.log(`event from commit to a NATS subscriber: p50 ${at(took, 0.5)} ms, p99 ${at(took, 0.99)} ms`);
  await subscriber.close();
  await relay.close();
  await notifications.close();
  await sql.end();
  await postgres.stop();
  await nats.close();
  rmSync(folder, { recursive: true, force: true });
}

/** Prints what CPU an event takes on its way into a stream in files (goal N1: 3 us). */
export async function eventCost(): Promise<void> {
  const nats = await startNats();
  await makeStream(nats.url);
  const link = await NatsLink.dial(nats.url);
  // Made ahead, so that what making them leaves behind is not theirs.
  const made = Array.from({ length: (ROUNDS + 1) * STORED + ALONE }, (_, position) => ({
    ...eventOf(),
    position,
  }));
  globalThis.gc?.();
  await rest(1_000);
  const publish = async (count: number, atOnce: number): Promise<number> => {
    const events = made.splice(-count);
    const before = process.cpuUsage();
    for (let from = 0; from < count; from += atOnce) await link.publish(events.slice(from, from + atOnce));
    return cpuMicros(before) / count;
  };
  await publish(STORED, BATCH);
  const rounds: number[] = [];
  while (rounds.length < ROUNDS) rounds.push(await publish(STORED, BATCH));
  const alone = await publish(ALONE, 1);
  const told = rounds.map((each) => each.toFixed(1)).join(" ");
  console.log(
    `N1 an event into a stream: ${median(rounds).toFixed(1)} us of CPU (${told}), ${BATCH} at a time; ${alone.toFixed(0)} us alone`,
  );
  await link.close();
  await nats.close();
}
