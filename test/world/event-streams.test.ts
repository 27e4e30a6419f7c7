/** Event streams as browsers, SDKs and proxies read them, each test by the public project that reported the loss. */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { importCatalog } from "../../src/store/supply/catalog.ts";
import type { App, Caller } from "../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { ownGateway } from "../support/world.ts";

const BENCHMARK = "1x/1x-world-model-challenge";

let database: FreshDatabase;
let app: App;
let caller: Caller;

beforeAll(async () => {
  database = await freshDatabase();
  await importCatalog(database.sql, join(import.meta.dirname, "../../data"));
  app = await ownGateway({ database });
  caller = await app.caller();
});
afterAll(async () => {
  await app.close();
  await database.close();
});

const well = async (path: string, body: object) => {
  const answer = await app.call(path, body, { key: caller.key });
  expect([path, answer.status < 300, answer.text]).toEqual([path, true, answer.text]);
  return answer.body;
};

/** An evaluation of three episodes in the hands of a runner outside, so that its episodes end when a test says so. */
async function evaluation() {
  const asked = { policy_endpoint: "ws://robot.lan:8000", scenario: BENCHMARK, runner: "external", episodes: 3 };
  const { id } = await well("/v1/evaluate", asked);
  const { epoch } = (await well("/v1/evaluate/claims", { harness: "a test" })).claim;
  const ended = { epoch, termination: "success", return: 1, steps: 4, sim_time_s: 2, latencies_ms: [5] };
  return {
    path: `/v1/evaluate/${id}/events`,
    report: (index: number) => well(`/v1/evaluate/${id}/episodes`, { ...ended, index }),
    finish: () => well(`/v1/evaluate/${id}/finish`, { epoch }),
  };
}

interface Reader {
  readonly status: number;
  readonly type: string | null;
  /** The next event as `name id`, or `comment`; undefined at the end. */
  next(): Promise<string | undefined>;
  leave(): Promise<void>;
}

async function read(path: string, lastEventId?: string): Promise<Reader> {
  const headers = {
    authorization: `Bearer ${caller.key}`,
    ...(lastEventId !== undefined && { "last-event-id": lastEventId }),
  };
  const { status, headers: told, body } = await fetch(app.url + path, { headers });
  const reader = body?.pipeThrough(new TextDecoderStream() as never).getReader() as
    | ReadableStreamDefaultReader<string>
    | undefined;
  let text = "";
  return {
    status,
    type: told.get("content-type"),
    async next() {
      for (;;) {
        const end = text.indexOf("\n\n");
        if (end >= 0) {
          const fields = text
            .slice(0, end)
            .split("\n")
            .map((line) => line.split(/: ?(.*)/s));
          text = text.slice(end + 2);
          const field = (name: string) => fields.find(([key]) => key === name)?.[1];
          return field("event") === undefined ? "comment" : `${field("event")} ${field("id")}`;
        }
        const { value, done } = (await reader?.read()) ?? { done: true };
        if (done) return undefined;
        text += value;
      }
    },
    leave: async () => reader?.cancel(),
  };
}

const all = async (reader: Reader): Promise<string[]> => {
  const events = [];
  for (let event = await reader.next(); event !== undefined; event = await reader.next())
    if (event !== "comment") events.push(event);
  return events;
};

describe("the event stream of an evaluation", () => {
  it("starts before the first event (huma, r3labs/sse, fastify-sse-v2)", async () => {
    const { path } = await evaluation();
    const stream = await read(path);
    expect([stream.status, stream.type]).toEqual([200, "text/event-stream; charset=utf-8"]);
    expect(await stream.next()).toBe("comment");
    await stream.leave();
  });

  it("resumes after the last received event, and ends for good (EventSource, httpx-sse)", async () => {
    const { path, report, finish } = await evaluation();
    await report(0);
    await report(1);
    const first = await read(path);
    expect(await first.next()).toBe("episode 0");
    await first.leave();
    const second = await read(path, "0");
    expect(await second.next()).toBe("episode 1");
    await report(2);
    await finish();
    expect(await all(second)).toEqual(["episode 2", "done done"]);
    expect(await all(await read(path, "1"))).toEqual(["episode 2", "done done"]);
    expect(await all(await read(path, "2"))).toEqual(["done done"]);
    const over = await read(path, "done");
    expect([over.status, await over.next()]).toEqual([204, undefined]);
    for (const unknown of [undefined, "", "evc_abc", "-1", "1e3"])
      expect([unknown, (await all(await read(path, unknown))).length]).toEqual([unknown, 4]);
  });

  it("answers HEAD with its head alone (health checks, link previews)", async () => {
    const { path } = await evaluation();
    const headers = { authorization: `Bearer ${caller.key}` };
    for (const at of [path, "/v1/events"]) {
      const { status, headers: told, body } = await fetch(app.url + at, { method: "HEAD", headers });
      expect([at, status, told.get("content-type")]).toEqual([at, 200, "text/event-stream; charset=utf-8"]);
      expect(await new Response(body).text()).toBe("");
    }
  });

  it("is refused before it starts for an unknown evaluation", async () => {
    const stream = await read("/v1/evaluate/job_none/events", "done");
    expect([stream.status, stream.type]).toEqual([404, "application/json"]);
    await stream.leave();
  });
});

describe("the event stream of an organization", () => {
  it("resumes after the last event that a browser received", async () => {
    const stream = await read("/v1/events");
    const [name, cursor] = (await stream.next())!.split(" ");
    expect(name).toBe("checkpoint");
    await stream.leave();
    await app.key(caller.org);
    const again = await read("/v1/events", cursor);
    expect(await again.next()).toMatch(/^checkpoint evc_/);
    expect(await again.next()).toMatch(/^event evc_/);
    await again.leave();
  });

  it("refuses a cursor that is not its own by the header's name, and ignores an empty one", async () => {
    const headers = { authorization: `Bearer ${caller.key}` };
    for (const id of ["0", "rubbish", "evc_zzzz"]) {
      const answer = await fetch(`${app.url}/v1/events`, { headers: { ...headers, "last-event-id": id } });
      const { error } = (await answer.json()) as { error: { message: string; param: string } };
      expect([id, answer.status, error.param]).toEqual([id, 422, "last-event-id"]);
      expect(error.message).not.toContain("required");
    }
    const stream = await read("/v1/events", "");
    expect(await stream.next()).toMatch(/^checkpoint/);
    await stream.leave();
  });
});
