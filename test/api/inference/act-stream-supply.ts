/** Two providers of one model and one of another, and a caller, for the whole of the file that imports this. */
import { type App, type Caller, openApp } from "../../support/app.ts";
import { type Model, startModel } from "../../support/model.ts";

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

export async function begin(): Promise<void> {
  [app, one, two, other] = await Promise.all([openApp(), startModel(), startModel(), startModel()]);
  await app.supply({ provider: "one", model: "acme/base", endpoint: one.endpoint });
  await app.supply({ provider: "two", model: "acme/base", endpoint: two.endpoint });
  await app.supply({ provider: "other", model: "other/base", endpoint: other.endpoint });
  caller = await app.caller(10);
}

export function endEach(): void {
  for (const model of [one, two, other]) model.script.act = undefined;
}

export async function end(): Promise<void> {
  await app.close();
  for (const model of [one, two, other]) await model.close();
}

export const dead: Model["script"]["act"] = (_call, _answer, { stream }) => stream.close(2);
export const pinnedTo = (provider: string | undefined) => (provider === "one" ? one : two);
