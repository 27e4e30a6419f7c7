/** A model that somebody declares is its declarer's alone until an offering of it passes its probe, and again when the last one is gone. */
import { beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { openModel, openWorld } from "../../support/world.ts";

let app: App;
let model: Model;
let gone: Model;
let owner: Caller;
let stranger: Caller;

beforeAll(async () => {
  [app, model, gone] = await Promise.all([openWorld(), openModel(), openModel()]);
  await gone.close();
  owner = await app.caller(1);
  stranger = await app.caller(1);
  await register(owner, "first");
  await register(stranger, "second");
});

const register = (caller: Caller, name: string) => app.call("/v1/supply/providers", { name }, { key: caller.key });
const declare = async (caller: Caller, provider: string, slug: string, endpoint: string, more: object = {}) =>
  (
    await app.call(
      `/v1/supply/providers/${provider}/models`,
      {
        model: slug,
        runtime: "limber-policy",
        endpoint,
        hardware: "cpu",
        contracts: ["act"],
        action_spaces: ["base_twist_2d"],
        dt_ms: 50,
        ...more,
      },
      { key: caller.key },
    )
  ).body;
const verify = async (caller: Caller, id: string) =>
  (await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key: caller.key })).body.offering.status;
const act = async (caller: Caller, slug: string, provider: object = {}) => {
  const body = { model: slug, action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0] }], provider };
  const answer = await app.call("/v1/act", body, { key: caller.key });
  return answer.body.error?.code ?? answer.status;
};
const listed = async (slug: string) => {
  const page = (await app.call(`/v1/models/${slug}`)).status;
  const { data } = (await app.call(`/v1/models?q=${slug.split("/")[1]}&limit=1000`)).body;
  return [page, data.some(({ id }: { id: string }) => id === slug)];
};

/** What strangers and the owner see of a model that is private. */
async function expectPrivate(slug: string): Promise<void> {
  expect(await listed(slug)).toEqual([404, false]);
  expect(await act(stranger, slug)).toBe("model_not_found");
  expect(await act(stranger, slug, { allow_simulated: true })).toBe("model_not_found");
  expect(await act(owner, slug)).toBe("no_live_deployment");
  expect(await act(owner, slug, { allow_simulated: true })).toBe("no_live_deployment");
  const { text } = await app.call("/v1/act", { model: `${slug}x`, observations: [{}] }, { key: stranger.key });
  expect(text).not.toContain(`${slug},`);
  expect(JSON.parse(text).error.details?.near ?? []).not.toContain(slug);
}

describe("a registered provider", () => {
  const shown = async (name: string): Promise<boolean> =>
    (await app.call("/v1/providers")).body.data.some((each: { name: string }) => each.name === name);

  it("is private before its first offering has passed the probe and after the last is removed", async () => {
    await register(owner, "unproven-co");
    expect(await shown("unproven-co")).toBe(false);
    const bad = await declare(owner, "unproven-co", "unprovenco/gone", gone.endpoint);
    expect(await verify(owner, bad.id)).toBe("rejected");
    expect(await shown("unproven-co")).toBe(false);
    const mine = await app.call("/v1/supply/providers/unproven-co", undefined, { key: owner.key });
    expect(mine.status).toBe(200);
    const good = await declare(owner, "unproven-co", "unprovenco/good", model.endpoint);
    expect(await verify(owner, good.id)).toBe("live");
    expect(await shown("unproven-co")).toBe(true);
    await app.call(`/v1/supply/offerings/${good.id}?force=true`, undefined, { key: owner.key, method: "DELETE" });
    expect(await shown("unproven-co")).toBe(false);
  });
});

describe("a declared model", () => {
  it("is private before its probe, after a rejection, and after its removal", async () => {
    const slug = "privateco/unproven";
    const { id } = await declare(owner, "first", slug, gone.endpoint);
    await expectPrivate(slug);
    expect(await verify(owner, id)).toBe("rejected");
    await expectPrivate(slug);
    expect((await app.call(`/v1/supply/offerings/${id}`, undefined, { key: owner.key, method: "DELETE" })).status).toBe(
      200,
    );
    await expectPrivate(slug);
  });

  it("is public from its first passed probe until its last offering is removed", async () => {
    const slug = "privateco/proven";
    const { id } = await declare(owner, "first", slug, model.endpoint);
    await expectPrivate(slug);
    expect(await verify(owner, id)).toBe("live");
    expect(await listed(slug)).toEqual([200, true]);
    expect(await act(stranger, slug)).toBe(200);
    const path = `/v1/supply/offerings/${id}?force=true`;
    expect((await app.call(path, undefined, { key: owner.key, method: "DELETE" })).status).toBe(200);
    await expectPrivate(slug);
  });

  it("has the facts of the first offering that passed, not of earlier declarations", async () => {
    const slug = "privateco/squatted";
    await declare(stranger, "second", slug, gone.endpoint, {
      action_spaces: ["joint_pos_7"],
      embodiments: ["humanoid"],
    });
    const { id } = await declare(owner, "first", slug, model.endpoint, { embodiments: ["mobile-base"] });
    expect(await verify(owner, id)).toBe("live");
    const { body } = await app.call(`/v1/models/${slug}`);
    expect(body).toMatchObject({ action_spaces: ["base_twist_2d"], embodiments: ["mobile-base"] });
  });

  it("stays public if it is in the catalog", async () => {
    await app.catalog("catalogco/known");
    const { id } = await declare(owner, "first", "catalogco/known", gone.endpoint);
    expect(await verify(owner, id)).toBe("rejected");
    expect(await listed("catalogco/known")).toEqual([200, true]);
  });
});
