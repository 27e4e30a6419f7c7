/** Offerings that rest after failures: the gateway itself finds out that they serve again, and no caller waits out the rest. */
import { beforeAll, expect, it } from "vitest";
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { App, Caller } from "../../support/app.ts";
import { setClock } from "../../support/clocks.ts";
import { eventually } from "../../support/eventually.ts";
import { robot } from "../../support/loop-client.ts";
import type { Model } from "../../support/model.ts";
import { SkippingClock } from "../../support/skipping-clock.ts";
import { openModel, ownGateway } from "../../support/world.ts";
import { ACT, dead, OPEN } from "./act-stream-supply.ts";

const clock = new SkippingClock();

let app: App;
let caller: Caller;

beforeAll(async () => {
  setClock(clock);
  app = await ownGateway();
  caller = await app.caller(10);
});

type Standing = { state: string; retry_at?: number };

/** Two providers of a model of this name, or fewer. */
async function supplied(name: string, count = 2) {
  const names = Array.from({ length: count }, (_, i) => `${name}-${i}`);
  const servers = await Promise.all(names.map(() => openModel()));
  for (const [i, provider] of names.entries())
    await app.supply({ provider, model: `acme/${name}`, endpoint: servers[i]!.endpoint });
  const script = (act: Model["script"]["act"]): void => {
    for (const server of servers) server.script.act = act;
  };
  const act = () => app.call("/v1/act", { ...ACT, model: `acme/${name}` }, caller);
  const standings = async (): Promise<Standing[]> => {
    const { body } = await app.call("/v1/status", undefined, caller);
    return body.providers
      .filter(({ provider }: { provider: string }) => names.includes(provider))
      .flatMap(({ offerings }: { offerings: Standing[] }) => offerings);
  };
  const all = async (state: string): Promise<void> =>
    expect((await standings()).map((each) => each.state)).toEqual(Array(count).fill(state));
  return {
    script,
    act,
    all,
    /** Calls until all rest. */
    wearOut: () => eventually(() => act().then(() => all("open"))),
    /** Waits out one rest after the other, until one lasts for longer than any test does. */
    async restLong(): Promise<void> {
      for (const ms of [13_000, 25_000, 49_000]) {
        const before = await standings();
        clock.skip(ms);
        await eventually(async () => {
          await all("open");
          for (const [i, { retry_at }] of (await standings()).entries())
            expect(retry_at).toBeGreaterThan(before[i]!.retry_at! + 10);
        });
      }
    },
  };
}

it("eight concurrent calls after an outage succeed, because the gateway has checked the server", async () => {
  const { script, act, all, wearOut } = await supplied("outage");
  script(dead);
  await wearOut();
  script(undefined);
  clock.skip(13_000);
  await eventually(() => all("closed"));
  const answers = await Promise.all(Array.from({ length: 8 }, act));
  expect(answers.map(({ status, body }) => [status, body.route.attempts.length])).toEqual(Array(8).fill([200, 1]));
});

it("the offering's owner gets events when its breaker opens and closes", async () => {
  const { script, all, wearOut } = await supplied("told", 1);
  const heard = async (): Promise<string[]> => {
    const rows = await app.sql`
      select name from outbox where name like 'offering.circuit%' and "position"(payload, convert_to('acme/told', 'UTF8')) > 0
      order by outbox.position`;
    return rows.map(({ name }) => name);
  };
  script(dead);
  await wearOut();
  await eventually(async () => expect(await heard()).toEqual(["offering.circuit_opened"]));
  script(undefined);
  clock.skip(13_000);
  await eventually(() => all("closed"));
  await eventually(async () => expect(await heard()).toEqual(["offering.circuit_opened", "offering.circuit_closed"]));
});

it("a loop continues with the next observations when its only offering recovers, however long the wait", async () => {
  const { script, act, restLong } = await supplied("loop");
  const loop = robot(app, caller.key, { ...OPEN, model: "acme/loop", horizon: 200 });
  await loop.expect("opened");
  let step = 1;
  loop.observe(step);
  await loop.expect("chunk");
  script(dead);
  for (let reason: HoldReason | undefined; reason !== HoldReason.NO_PROVIDER; ) {
    loop.observe(++step);
    reason = (await loop.expect("hold")).reason;
  }
  await restLong();
  script(undefined);
  await eventually(async () => {
    loop.observe(++step);
    expect((await loop.next())?.kind).toBe("chunk");
  });
  loop.leave();
  expect((await act()).status).toBe(200);
});

it("a caller that retries is served when its only offering recovers", async () => {
  const { script, act, wearOut, restLong } = await supplied("again");
  script(dead);
  await wearOut();
  await restLong();
  expect((await act()).status).toBe(503);
  script(undefined);
  await eventually(async () => expect((await act()).status).toBe(200));
});

it("an offering that recovers but answers wrongly gets calls when the wait ends", async () => {
  const { script, act, wearOut } = await supplied("wrong", 1);
  script(dead);
  await wearOut();
  script((_call, answer) => answer([[Number.NaN, 0]]));
  expect((await act()).status).toBe(503);
  clock.skip(13_000);
  // A caller's own question may be answered better than the gateway's.
  await eventually(async () => expect((await act()).status).toBe(502));
});

it("the first failed call after a successful check opens the breaker again", async () => {
  const { script, act, all, wearOut } = await supplied("trial", 1);
  script(dead);
  await wearOut();
  script(undefined);
  clock.skip(13_000);
  await eventually(() => all("closed"));
  script(dead);
  expect((await act()).status).toBe(502);
  await all("open");
});

it("an offering that hangs is checked again after the wait, and delays no other check", async () => {
  const [hanging, other] = [await supplied("hanging", 1), await supplied("other", 1)];
  for (const each of [hanging, other]) {
    each.script(dead);
    await each.wearOut();
  }
  const asked = Promise.withResolvers<void>();
  hanging.script(() => asked.resolve());
  other.script(undefined);
  clock.skip(13_000);
  await asked.promise;
  await eventually(() => other.all("closed"));
  hanging.script(undefined);
  await eventually(async () => {
    clock.skip(10_000);
    expect((await hanging.act()).status).toBe(200);
  });
});
