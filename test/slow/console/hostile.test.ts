/** Texts that callers, providers and models put anywhere: shown as they are, on every page, and run nowhere. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { canBrowse } from "../../support/chromium.ts";
import { type ConsoleApp, openConsole } from "../../support/console.ts";
import { fill } from "./fill.ts";
import { PLACES } from "./places.ts";

/** Each would set `window.harmed` where it was taken for more than a text. */
const CORPUS = [
  "<img src=x onerror=window.harmed=1>",
  "\"'><script>window.harmed=1</script>",
  "</textarea></title><svg/onload=window.harmed=1>",
  "javascript:window.harmed=1",
  "{{constructor.constructor('window.harmed=1')()}}#{window.harmed=1}",
  "\u202e<iframe srcdoc='<script>parent.harmed=1</script>'>",
];

let console: ConsoleApp;

beforeAll(async () => {
  console = await openConsole();
  // A robot's name is no longer than 128 characters.
  for (const text of CORPUS) await fill(console, text);
});

afterAll(async () => {
  await console?.close();
});

describe.skipIf(!canBrowse)("hostile texts in the console", () => {
  it.each(PLACES)("do nothing on $name, nor in the views that it opens", async ({ path, heading }) => {
    const { page, faults } = await console.open(path);
    await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
    await expect.poll(() => page.getByText("Loading…").count()).toBe(0);
    const rows = await page.locator("[data-row] [data-open]").count();
    for (let i = 0; i < Math.min(rows, 3) && heading !== "Models"; i++) {
      await page.locator("[data-row] [data-open]").nth(i).click();
      await page.getByRole("dialog").waitFor();
      const raw = page.getByRole("dialog").getByText("Raw JSON");
      if ((await raw.count()) > 0) await raw.click();
      await page.keyboard.press("Escape");
    }
    const found = await page.evaluate(
      "[window.harmed, document.querySelectorAll('img[src=x], iframe, #root script, #root svg[onload], a[href^=\"javascript:\"]').length]",
    );
    expect(found).toEqual([undefined, 0]);
    expect(faults).toEqual([]);
    await page.context().close();
  });

  it("are shown as plain text", async () => {
    const { page } = await console.open("/console/keys");
    for (const text of CORPUS) await page.getByText(`arm-07${text}`).first().waitFor();
  });
});
