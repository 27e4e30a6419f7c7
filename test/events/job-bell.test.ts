/** Workers are woken over NATS where there is one: by a work queue with JetStream, by a plain subject without. */
import { connect } from "nats";
import { afterEach, describe, expect, it } from "vitest";
import { JobNotifier } from "../../src/events/job-notifier.ts";
import { openApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { startModel } from "../support/model.ts";
import { type Nats, startNats } from "../support/nats.ts";

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function nats(config?: string): Promise<Nats> {
  const started = await startNats(config);
  closers.push(() => started.close());
  return started;
}
function jobNotifier(url: string, wake?: () => void): JobNotifier {
  const made = new JobNotifier({ url, wake });
  closers.push(() => made.close());
  return made;
}
/** A bell that was heard to be there: each wakes its worker when it has come. */
async function listening(url: string): Promise<() => number> {
  let woken = 0;
  jobNotifier(url, () => woken++);
  await eventually(() => expect(woken).toBe(1));
  return () => woken - 1;
}

describe("with JetStream", () => {
  it("a job wakes one of the workers, once however often it's told, and the queue is empty afterwards", async () => {
    const { url } = await nats();
    const heard = [await listening(url), await listening(url)];
    const total = () => heard.reduce((sum, count) => sum + count(), 0);
    const teller = jobNotifier(url);
    await eventually(() => {
      teller.ring("job_1");
      expect(total()).toBeGreaterThan(0);
    });
    teller.ring("job_1");
    teller.ring("job_2");
    await eventually(() => expect(total()).toBe(2));
    const connection = await connect({ servers: url });
    closers.push(() => connection.close());
    await eventually(async () => {
      const answer = await connection.request("$JS.API.STREAM.INFO.LIMBER_JOBS");
      expect(answer.json<{ state: { messages: number } }>().state.messages).toBe(0);
    });
  });

  it("is heard again after NATS died and lost its store", async () => {
    const server = await nats();
    const heard = await listening(server.url);
    const teller = jobNotifier(server.url);
    await server.wipe();
    await server.start();
    const before = heard();
    let n = 0;
    await eventually(() => {
      teller.ring(`job_${n++}`);
      // Once for having come back, and once for a job.
      expect(heard() - before).toBeGreaterThan(1);
    });
  });
});

it("without JetStream for its account, every worker hears of it", async () => {
  const { url } = await nats(`accounts { A { users = [ { user: free, password: secret } ] } }`);
  const own = url.replace("//", "//free:secret@");
  const heard = [await listening(own), await listening(own)];
  const teller = jobNotifier(own);
  await eventually(() => {
    teller.ring("job_1");
    for (const count of heard) expect(count()).toBeGreaterThan(0);
  });
});

it("a batch is worked off when the database tells nobody of it", async () => {
  const { url } = await nats();
  const model = await startModel();
  closers.push(() => model.close());
  const app = await openApp({ natsUrl: url, roles: new Set(["api", "worker"]) });
  closers.push(() => app.close());
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  const { key } = await app.caller();
  await app.sql`drop trigger job_inserted on job`;
  const request = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
  const { body } = await app.call("/v1/batch", { contract: "act", requests: [request] }, { key });
  await eventually(async () => {
    const shown = await app.call(`/v1/batch/${body.id}`, undefined, { key });
    expect(shown.body.status).toBe("completed");
  });
});
