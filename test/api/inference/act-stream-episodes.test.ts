/** ActStream: episodes. What a reset overtook never arrives behind it, on its own stream or on the next one of the session. */
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { tx } from "../../../src/store/database/tx.ts";
import type { App } from "../../support/app.ts";
import { refusalIn } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { type RobotClient, robot } from "../../support/loop-client.ts";
import { honestSteps } from "../../support/model.ts";
import { ownGateway } from "../../support/world.ts";
import { app, begin, caller, dead, endEach, isOver, OPEN, one, pinnedTo, two } from "./act-stream-supply.ts";

let elsewhere: App;

beforeAll(async () => {
  await begin();
  elsewhere = await ownGateway({ database: app.database });
  await eventually(async () =>
    expect((await elsewhere.call("/v1/models/acme/base", undefined, caller)).status).toBe(200),
  );
});
afterEach(endEach);

const LONG = { ...OPEN, horizon: 200 };
const inSession = (sessionId: string, episode?: number) => ({
  ...LONG,
  provider: { sessionId },
  ...(episode !== undefined && { episode }),
});

const opened = async (where: App, open: object): Promise<RobotClient> => {
  const loop = robot(where, caller.key, open);
  await loop.expect("opened");
  return loop;
};

describe("the number of an episode", () => {
  it("starts at one, grows by one per reset or as the reset says, and is in every chunk and hold", async () => {
    const loop = robot(app, caller.key, LONG);
    expect(await loop.expect("opened")).toMatchObject({ episode: 1 });
    loop.observe(9);
    expect(await loop.expect("chunk")).toMatchObject({ episode: 1 });
    loop.say({ case: "reset", value: {} });
    expect(await loop.expect("episode")).toMatchObject({ episode: 2 });
    loop.observe(1);
    expect(await loop.expect("chunk")).toMatchObject({ startStep: 1, episode: 2 });
    loop.say({ case: "reset", value: { episode: 40 } });
    expect(await loop.expect("episode")).toMatchObject({ episode: 40 });
    loop.observe(1, { observations: [{ proprio: [1], frames: [{ data: new Uint8Array([1, 2, 3]) }] }] });
    expect(await loop.expect("hold")).toMatchObject({ reason: HoldReason.INVALID_OBSERVATION, episode: 40 });
    loop.halfClose();
    expect(await loop.rest()).toMatchObject([{ kind: "ended", value: { code: "" } }]);
  });

  it.each([
    ["is the present one", [{ episode: 1 }]],
    ["was before", [{ episode: 9 }, { episode: 8 }]],
    ["leaves no greater one", [{ episode: 2_147_483_647 }, {}]],
    ["is none", [{ episode: 0 }]],
    ["is too great", [{ episode: 2_147_483_648 }]],
  ])("that %s ends the loop with an error, even before it is opened", async (_what, resets) => {
    for (const early of [false, true]) {
      const loop = robot(app, caller.key, LONG);
      if (!early) await loop.expect("opened");
      for (const value of resets) loop.say({ case: "reset", value });
      for (;;) {
        const told = await loop.next().catch((thrown: unknown) => thrown);
        if (told instanceof Error) {
          expect(await refusalIn(Promise.reject(told))).toMatchObject({ reason: "validation_failed" });
          break;
        }
      }
    }
  });

  it("continues with the session on either replica if the robot names none", async () => {
    const first = robot(app, caller.key, inSession("goes on"));
    let { id } = await first.expect("opened");
    first.say({ case: "reset", value: { episode: 5 } });
    await first.expect("episode");
    first.observe(3);
    const charged = await first.expect("chunk");
    first.leave();
    for (const where of [elsewhere, app]) {
      await isOver(id);
      const again = robot(where, caller.key, inSession("goes on"));
      again.observe(3);
      const told = await again.expect("opened");
      expect(told).toMatchObject({ resumed: true, episode: 5 });
      expect(await again.expect("chunk")).toMatchObject({ replayed: true, chunkId: charged.chunkId, episode: 5 });
      again.leave();
      ({ id } = told);
    }
    await isOver(id);
    const last = robot(app, caller.key, inSession("goes on", 5));
    last.observe(3);
    expect(await last.expect("opened")).toMatchObject({ resumed: true, resumedStep: 3, episode: 5 });
    expect(await last.expect("chunk")).toMatchObject({ replayed: true });
    last.leave();
  });

  it.each([
    ["greater", 2],
    ["of a robot that counts anew", 1],
  ])("in `open` to an unknown episode starts that episode: %s", async (_what, asked) => {
    for (const where of [app, elsewhere]) {
      const session = `lost on the way ${asked} ${where === app}`;
      const first = await opened(app, inSession(session, asked === 1 ? 7 : 1));
      first.observe(3);
      await first.expect("chunk");
      first.leave();
      const second = robot(where, caller.key, inSession(session, asked));
      second.observe(3);
      const told = await second.expect("opened");
      expect(told).toMatchObject({ resumed: false, episode: asked });
      expect(told.resumedStep).toBeUndefined();
      expect(await second.expect("chunk")).toMatchObject({ replayed: false, episode: asked });
      second.leave();
    }
  });
});

describe("what a provider keeps by its name of an episode", () => {
  /** The name that its server is told with an observation of a loop. */
  const named = async (loop: RobotClient, step: number): Promise<string> => {
    const before = [one, two].map(({ acts }) => acts.length);
    loop.observe(step);
    await loop.expect("chunk");
    const asked = [one, two].flatMap(({ acts }, i) => acts.slice(before[i]));
    expect(asked).toHaveLength(1);
    return asked[0]!.sessionId;
  };

  it("is dropped by a reset, on this stream and on later streams of the session on any replica", async () => {
    const first = await opened(app, inSession("kept apart"));
    const names = [await named(first, 1), await named(first, 2)];
    for (const value of [{}, { episode: 9 }]) {
      first.say({ case: "reset", value });
      await first.expect("episode");
      names.push(await named(first, 1), await named(first, 2));
    }
    first.leave();
    for (const [i, where] of [elsewhere, app].entries()) {
      const again = await opened(where, inSession("kept apart"));
      names.push(await named(again, 3 + i));
      again.leave();
    }
    const [a, , b, , c] = names;
    expect(names).toEqual([a, a, b, b, c, c, c, c]);
    expect(new Set([a, b, c]).size).toBe(3);
  });

  it("is per loop without a session, and dropped by its resets", async () => {
    const names: string[] = [];
    for (let i = 0; i < 2; i++) {
      const loop = await opened(app, LONG);
      names.push(await named(loop, 1));
      expect(await named(loop, 2)).toBe(names.at(-1));
      loop.say({ case: "reset", value: {} });
      await loop.expect("episode");
      names.push(await named(loop, 1));
      loop.leave();
    }
    expect(new Set(names).size).toBe(4);
    expect(names).not.toContain("");
  });
});

describe("a reset", () => {
  it("drops a chunk that waits for its record, without a charge", async () => {
    const mine = await app.caller(1);
    const loop = robot(app, mine.key, LONG);
    await loop.expect("opened");
    loop.observe(7);
    const { route } = await loop.expect("chunk");
    pinnedTo(route?.provider).script.act = dead;
    await tx(app.sql, async (tx) => {
      // No promise is put on record while this lasts.
      await tx`lock table intent in exclusive mode`;
      loop.observe(8);
      const waiting = () => app.sql`select 1 from pg_locks where not granted and relation = 'intent'::regclass`;
      await expect.poll(async () => (await waiting()).length).toBeGreaterThan(0);
      loop.say({ case: "reset", value: {} });
      expect(await loop.expect("episode")).toMatchObject({ episode: 2 });
    });
    loop.observe(1);
    const chunk = await loop.expect("chunk");
    expect(chunk).toMatchObject({ startStep: 1, episode: 2, droppedObservations: 1 });
    // The one that did not arrive would have said that another provider serves.
    expect(chunk.route?.provider).toBe(route?.provider === "one" ? "two" : "one");
    loop.halfClose();
    expect(await loop.rest()).toMatchObject([{ kind: "ended", value: { chunks: 2 } }]);
    await expect
      .poll(async () => (await app.call("/v1/billing/balance", undefined, mine)).body)
      .toMatchObject({ spent_usd: 0.04, held_usd: 0 });
    expect(await brokenInvariants(app.sql)).toEqual([]);
  });

  it("that cannot be recorded is not acknowledged, and nothing of the new episode is sent before", async () => {
    const loop = robot(app, caller.key, inSession("unrecorded"));
    await loop.expect("opened");
    loop.observe(3);
    await loop.expect("chunk");
    await tx(app.sql, async (tx) => {
      await tx`lock table loop_session in exclusive mode`;
      loop.say({ case: "reset", value: {} });
      loop.observe(1);
      const waiting = () => app.sql`select 1 from pg_locks where not granted and relation = 'loop_session'::regclass`;
      await expect.poll(async () => (await waiting()).length).toBeGreaterThan(0);
    });
    expect(await loop.expect("episode")).toMatchObject({ episode: 2 });
    expect(await loop.expect("chunk")).toMatchObject({ startStep: 1, episode: 2, replayed: false });
    loop.leave();
  });

  it("followed at once by another is not acknowledged itself, however many there are", async () => {
    const loop = await opened(app, inSession("one after the other"));
    for (let i = 0; i < 2_000; i++) loop.say({ case: "reset", value: {} });
    loop.observe(1);
    let acknowledged = 0;
    for (;;) {
      const told = await loop.next();
      if (told?.kind === "episode") acknowledged += 1;
      if (told?.kind === "chunk") {
        expect(told.value).toMatchObject({ episode: 2_001, startStep: 1 });
        break;
      }
    }
    expect(acknowledged).toBeLessThan(100);
    loop.leave();
  });

  it.each([
    ["the same replica", () => app],
    ["another replica", () => elsewhere],
  ])(
    "leaves nothing that a stream on %s could repeat, before or after a chunk of the new episode",
    async (_where, at) => {
      for (const more of [false, true]) {
        const session = `forgotten ${_where} ${more}`;
        const first = await opened(app, inSession(session));
        first.observe(7);
        await first.expect("chunk");
        first.say({ case: "reset", value: {} });
        await first.expect("episode");
        if (more) {
          first.observe(2);
          await first.expect("chunk");
        }
        first.leave();
        const second = robot(at(), caller.key, inSession(session));
        const told = await second.expect("opened");
        expect(told).toMatchObject({ episode: 2 });
        if (!more) expect(told.resumedStep).toBeUndefined();
        second.observe(7);
        expect(await second.expect("chunk")).toMatchObject({ startStep: 7, replayed: false, episode: 2 });
        second.leave();
      }
    },
  );

  it("on a stream that another replica took over leaves nothing to the new stream", async () => {
    const session = "crossed";
    const first = await opened(app, inSession(session));
    first.observe(7);
    await first.expect("chunk");
    first.say({ case: "reset", value: {} });
    const second = robot(elsewhere, caller.key, inSession(session, 2));
    second.observe(7);
    expect(await second.expect("opened")).toMatchObject({ episode: 2 });
    expect(await second.expect("chunk")).toMatchObject({ replayed: false, episode: 2 });
    second.leave();
    first.leave();
  });

  it("is not undone by a chunk of the previous stream that is repeated late", async () => {
    const first = await opened(app, inSession("older"));
    first.observe(7);
    await first.expect("chunk");
    first.leave();
    one.script.act = two.script.act = (call, answer) => answer(honestSteps(call, 2));
    const second = await opened(app, inSession("older"));
    second.observe(8);
    expect(await second.expect("chunk")).toMatchObject({ replayed: false, startStep: 8 });
    second.observe(7);
    second.observe(9);
    // The seventh step is past: it is dropped, as everywhere.
    expect(await second.expect("chunk")).toMatchObject({ replayed: false, startStep: 9, droppedObservations: 1 });
    second.leave();
  });
});
