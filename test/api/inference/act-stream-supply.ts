/** Two providers of one model and one of another, and a caller, for the whole of the file that imports this. */
import { expect } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { setClock } from "../../support/clocks.ts";
import { eventually } from "../../support/eventually.ts";
import type { Model } from "../../support/model.ts";
import { SkippingClock } from "../../support/skipping-clock.ts";
import { openModel, ownGateway } from "../../support/world.ts";

export const OPEN = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 5 };
export const ACT = {
  model: "acme/base",
  action_space: "base_twist_2d",
  horizon: 5,
  observations: [{ proprio: [0.5] }],
};

export let app: App;
export let one: Model;
export let two: Model;
export let other: Model;
export let caller: Caller;
/** The time of every gateway in the file. */
export const clock = new SkippingClock();

export async function begin(): Promise<void> {
  setClock(clock);
  [app, one, two, other] = await Promise.all([ownGateway(), openModel(), openModel(), openModel()]);
  await app.supply({ provider: "one", model: "acme/base", endpoint: one.endpoint });
  await app.supply({ provider: "two", model: "acme/base", endpoint: two.endpoint });
  await app.supply({ provider: "other", model: "other/base", endpoint: other.endpoint });
  caller = await app.caller(10);
}

export function endEach(): void {
  clock.go();
  for (const model of [one, two, other]) model.script.act = undefined;
}

export const dead: Model["script"]["act"] = (_call, _answer, { stream }) => stream.close(2);
export const pinnedTo = (provider: string | undefined) => (provider === "one" ? one : two);

/** Resolves when the end of a stream is on record: until then, and not for long, a stream that has its session waits for what it left. */
export const isOver = (id: string): Promise<void> =>
  eventually(async () =>
    expect(await app.sql`select from loop_session where stream = ${id} and ended is not null`).toHaveLength(1),
  );
