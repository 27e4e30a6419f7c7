/** DELETE /v1/batch/{id} after the last item was begun: nothing is left to cancel. */
import { afterAll, beforeAll, expect, it } from "vitest";
import type { App } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps, type Model, startModel } from "../../support/model.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
const held: (() => void)[] = [];

beforeAll(async () => {
  model = await startModel();
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
});
afterAll(async () => {
  await app.close();
  await model.close();
});

it("completes a batch canceled while its last items run, and charges all of them", async () => {
  const { key } = await app.caller();
  model.script.act = (call, answer) => void held.push(() => answer(honestSteps(call, 2)));
  const request = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
  const made = await app.call("/v1/batch", { contract: "act", requests: [request, request, request] }, { key });
  expect(made.status, made.text).toBe(202);
  const path = `/v1/batch/${made.body.id}`;
  await eventually(() => expect(held.length).toBe(3));
  const cancelled = await app.call(path, undefined, { key, method: "DELETE" });
  expect([cancelled.status, cancelled.body.status], cancelled.text).toEqual([200, "cancelling"]);
  for (const answer of held) answer();
  await eventually(async () => {
    const { body, text } = await app.call(path, undefined, { key });
    expect(body.status, text).toBe("completed");
    expect(body.request_counts).toMatchObject({ total: 3, completed: 3, cancelled: 0 });
    expect(body.cost_usd).toBeGreaterThan(0);
  });
});
