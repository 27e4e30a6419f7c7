/** Films in the console: those of one evaluation, and those of two policies side by side. */
import { AxeBuilder } from "@axe-core/playwright";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { asWebp } from "../../../src/jobs/film-encoder.ts";
import { failFilms, keepFilm } from "../../../src/store/jobs/films.ts";
import { canBrowse } from "../../support/chromium.ts";
import { type ConsoleApp, openConsole } from "../../support/console.ts";

let console: ConsoleApp;
let one: string;
let other: string;

/** A policy's outcomes in three episodes, with seeds from 5 on. */
const OUTCOMES = { one: [true, true, false], other: [true, false, false] };

beforeAll(async () => {
  console = await openConsole();
  [one, other] = [await evaluated(OUTCOMES.one), await evaluated(OUTCOMES.other)];
});

afterAll(async () => {
  await console?.close();
});

/**
 * An evaluation that has ended with these outcomes and a film of each episode, which is an animated WebP unless another file is passed. No worker
 * runs here.
 */
async function evaluated(
  outcomes: readonly boolean[],
  file?: { readonly bytes: Buffer; readonly type: string },
): Promise<string> {
  const { app, caller } = console;
  const asked = {
    ...{ policy_endpoint: "reference/ik-reach", scenario: "arm-reach", action_space: "joint_pos_7", seed: 5 },
    ...{ episodes: outcomes.length, media: "film", media_episodes: "all" },
  };
  const { body, text } = await app.call("/v1/evaluate", asked, { key: caller.key });
  const { id } = body;
  expect(id, text).toBeDefined();
  for (const [index, success] of outcomes.entries()) {
    const facts = {
      ...{
        seed: 5 + index,
        success,
        termination: success ? "success" : "max_steps",
        return: -1,
        progress: success ? 1 : 0.5,
      },
      ...{ steps: 10, simTimeS: 0.4, policyCalls: 1, latenciesMs: [1], metrics: {}, clippedSteps: 0, staleSteps: 0 },
      ...{ meanActionDelta: 0, policyMicro: 0, wallMs: 1, initialStateSha256: "0", trajectorySha256: `${index}` },
    };
    await app.sql`
      update job_item set state = 'completed', rank = 9, response = ${app.sql.json(facts)} where job_id = ${id} and index = ${index}`;
    const [width, height, frames] = [48, 36, 5];
    const rgb = new Uint8Array(3 * width * height * frames).map((_, i) => (i * (index + 2)) % 251);
    const { bytes, type } = file ?? (await asWebp({ width, height, frames, frameMs: 100, rgb }));
    const points = Array.from({ length: frames }, (_, i) => ({ step: i, return: -i / 4, action: [i, -i] }));
    const series = { width, height, frameMs: 100, actionNames: ["shoulder", "elbow"], points };
    await app.sql`insert into film (job_id, index) values (${id}, ${index})`;
    await keepFilm(app.sql, id, index, { bytes, type, sha256: `${index}`, series });
  }
  await app.sql`update job set status = 'completed', rank = 9, finished = now(), result = '{}' where id = ${id}`;
  return id;
}

const axe = async (page: Page, rule?: string): Promise<string[]> => {
  const builder = new AxeBuilder({ page });
  const { violations } = await (rule === undefined ? builder : builder.withRules(rule)).analyze();
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
};

describe.skipIf(!canBrowse)("films in the console", () => {
  it("show failed episodes first, all on request, and the return and actions of each", async () => {
    const { page, faults } = await console.open(`/console/evaluations?run=${other}`, { reducedMotion: "reduce" });
    const sheet = page.getByRole("dialog", { name: "reference/ik-reach" });
    await sheet.getByRole("img", { name: "episode 2: max steps" }).waitFor();
    expect(await sheet.getByRole("img", { name: /^episode/ }).count()).toBe(2);
    await sheet.getByRole("button", { name: "all 3" }).click();
    const names = await sheet
      .getByRole("img", { name: /^episode/ })
      .evaluateAll((all) => all.map((each) => each.getAttribute("alt")));
    expect(names).toEqual(["episode 2: max steps", "episode 3: max steps", "episode 1: success"]);
    await sheet.getByText("Return and actions").first().press("Enter");
    await sheet.getByRole("img", { name: "return: 0 first, -1 last" }).waitFor();
    await sheet.getByRole("img", { name: "shoulder: 0 first, 4 last" }).waitFor();
    expect(await axe(page)).toEqual([]);
    await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
    expect(await axe(page, "color-contrast")).toEqual([]);
    expect(faults).toEqual([]);
    await page.context().close();
  });

  it("show two policies in one seed side by side, first where they differ, and start together by keyboard", async () => {
    const path = `/console/evaluations?with=${one}`;
    const { page, faults } = await console.open(path, { viewport: { width: 360, height: 740 } });
    const seeds = page.getByLabel("Seed", { exact: true });
    await seeds.waitFor();
    expect(await seeds.locator("option").evaluateAll((all) => all.map((each) => each.textContent))).toEqual([
      "6: A failed, B succeeded",
      "7: A failed, B failed",
      "5: A succeeded, B succeeded",
    ]);
    await page.getByRole("button", { name: "Play together" }).press("Enter");
    await page.getByRole("img", { name: "A reference/ik-reach, seed 6: max steps" }).waitFor();
    await page.getByRole("img", { name: "B reference/ik-reach, seed 6: success" }).waitFor();
    await page.getByRole("button", { name: "Next" }).press("Enter");
    await expect.poll(() => page.url()).toContain("seed=7");
    const wide = await page.evaluate(
      "document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth",
    );
    expect(wide).toBe(0);
    expect(await axe(page)).toEqual([]);
    expect(faults).toEqual([]);
    await page.context().close();
  });

  it("show a video and an animated image of one seed each by its own type, and start both together", async () => {
    await evaluated([true], { bytes: Buffer.from("no browser plays this"), type: "video/mp4" });
    const { page, faults } = await console.open(`/console/evaluations?with=${other}&seed=5`);
    await page.locator("video[aria-label='A reference/ik-reach, seed 5: success']").waitFor();
    await page.getByRole("slider", { name: "time of all videos, in seconds" }).waitFor();
    // The first attempt fails, and its error disappears at the next one.
    const failing = `**/v1/evaluate/${other}/films/0`;
    await page.route(failing, (route) => route.fulfill({ status: 404 }));
    const start = page.getByRole("button", { name: "Play together" });
    await start.press("Enter");
    const error = page.getByText("a film could not be loaded; try again");
    await error.waitFor();
    expect(await page.getByRole("button", { name: "Pause" }).count()).toBe(0);
    await page.unroute(failing);
    await start.press("Enter");
    await page.getByRole("img", { name: "B reference/ik-reach, seed 5: success" }).waitFor();
    expect(await error.count()).toBe(0);
    expect(await axe(page)).toEqual([]);
    // A film is loaded again at each start, because it may have been rendered since.
    const again = page.waitForRequest((request) => request.url().endsWith(`/v1/evaluate/${other}/films/0`));
    await page.getByRole("button", { name: "Play again from the start" }).press("Enter");
    await again;
    expect(faults.filter((fault) => !fault.includes("404"))).toEqual([]);
    await page.context().close();
  });

  it("show why a film could not be rendered", async () => {
    const { app } = console;
    const id = await evaluated([true, false]);
    await app.sql`update film set bytes = null, type = null where job_id = ${id} and index = 1`;
    await failFilms(app.sql, id, { error: "the scenario has changed since the evaluation" });
    const { page, faults } = await console.open(`/console/evaluations?with=${other}&seed=6`);
    await page.getByText("The film could not be rendered: the scenario has changed since the evaluation.").waitFor();
    await page.goto(`${app.url}/console/evaluations?run=${id}`);
    const sheet = page.getByRole("dialog", { name: "reference/ik-reach" });
    await sheet.getByText("1 could not be rendered.").waitFor();
    await sheet.getByText("Episode 2 could not be rendered: the scenario has changed since the evaluation.").waitFor();
    expect(await axe(page)).toEqual([]);
    expect(faults).toEqual([]);
    await page.context().close();
  });

  it("are hidden with the policies of a blind comparison until all have ended", async () => {
    const { app, caller } = console;
    const { body, text } = await app.call(
      "/v1/evaluate/compare",
      {
        policies: [{ policy_endpoint: "reference/ik-reach" }, { policy_endpoint: "reference/ik-reach", horizon: 4 }],
        ...{ scenario: "arm-reach", action_space: "joint_pos_7", episodes: 1, media: "film", blind: true },
      },
      { key: caller.key },
    );
    expect(body.id, text).toBeDefined();
    const { page, faults } = await console.open(`/console/evaluations?comparison=${body.id}`);
    await page.getByText("The policies and their films are hidden until all evaluations have ended.").waitFor();
    expect(faults).toEqual([]);
    await page.context().close();
  });
});
