/**
 * What happens later, and how fast. `npm run bench jobs [PART ...]`, of `batch` (MODEL_MS=20 says how long its model takes), `webhooks`,
 * `delivery` (W1), `work` (a hundred workers with NATS and without), `events`, `stream` (N1), `logs` and `physics`; all of them without a name.
 */
import { batches } from "./jobs/batch.ts";
import { eventCost, eventLatency } from "./jobs/events.ts";
import { exportLogs } from "./jobs/logs.ts";
import { physics } from "./jobs/physics.ts";
import { deliveryCost, webhooks } from "./jobs/webhooks.ts";
import { work } from "./jobs/work.ts";

const PARTS: Readonly<Record<string, () => Promise<void>>> = {
  batch: batches,
  webhooks,
  delivery: deliveryCost,
  work,
  events: eventLatency,
  stream: eventCost,
  logs: exportLogs,
  physics,
};

const asked = process.argv.slice(2);
for (const name of asked.length > 0 ? asked : Object.keys(PARTS)) {
  const part = PARTS[name];
  if (!part) throw new Error(`there is no part ${name}; there are ${Object.keys(PARTS).join(", ")}`);
  await part();
}
