/** The playground's form follows what the model reads, and predicted frames are held against what came and against another model's. */
import type { Page } from "playwright-core";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { canBrowse } from "../../support/chromium.ts";
import { type ConsoleApp, openConsole } from "../../support/console.ts";
import { eventually } from "../../support/eventually.ts";
import { type Model, startModel } from "../../support/model.ts";

let console: ConsoleApp;
let model: Model;

beforeAll(async () => {
  [console, model] = await Promise.all([openConsole(), startModel()]);
  const { endpoint } = model;
  await console.app.supply({
    provider: "acme",
    model: "acme/base",
    endpoint,
    input: {
      cameras: [{ name: "wrist", width: 64, height: 48, formats: ["jpeg"], required: true }],
      proprio: [{ names: ["x", "yaw"], units: ["m", "rad"] }],
      language: { need: "required", languages: ["en"] },
    },
  });
  await console.app.supply({
    provider: "acme",
    model: "acme/world",
    endpoint,
    contracts: ["predict"],
    action_spaces: [],
    price_per_frame: 0.0001,
  });
  const { app, caller } = console;
  await eventually(async () => {
    const world = { model: "acme/world", observations: [{}] };
    const { body } = await app.call("/v1/routes/preview?contract=predict", world, { key: caller.key });
    expect(body.plan?.length).toBe(1);
  });
});

afterAll(async () => {
  await model?.close();
  await console?.close();
});

/** A file to choose, as the browser hands it to the page. */
const file = (name: string, buffer: Buffer) => ({ name, mimeType: "image/png", buffer });
const colour = (width: number, height: number, r: number) =>
  sharp({ create: { width, height, channels: 3, background: { r, g: 20, b: 20 } } })
    .png()
    .toBuffer();

/** The frames of the newest answer of a page's own predictions of a model. */
function framesOf(page: Page, name: string): () => { data: string; width: number; height: number }[] {
  let frames: { data: string; width: number; height: number }[] = [];
  page.on("response", async (response) => {
    if (!response.url().endsWith("/Predict") || !response.ok()) return;
    const body = (await response.json()) as { model: string; frames: typeof frames };
    if (body.model === name) frames = body.frames;
  });
  return () => frames;
}

/** PSNR over red, green and blue, in decibels. */
function psnr(one: Buffer, other: Buffer): number {
  const mean = one.reduce((sum, value, i) => sum + (value - other[i]!) ** 2, 0) / one.length;
  return mean === 0 ? Number.POSITIVE_INFINITY : 10 * Math.log10(255 ** 2 / mean);
}
const rgb = (picture: Buffer) => sharp(picture).removeAlpha().raw().toBuffer();

describe.skipIf(!canBrowse)("the playground's form", () => {
  it("shows the model's numbers with their units, and converts images to the model's format", async () => {
    const { page, faults } = await console.open("/console/playground?contract=act&model=acme/base&space=base_twist_2d");
    await page.getByLabel("x, m").waitFor();
    await page.getByLabel("yaw, rad").waitFor();
    expect(await page.getByLabel("goal_x").count()).toBe(0);
    const range = await page.getByLabel("yaw, slider").getAttribute("max");
    expect(Number(range)).toBeCloseTo(Math.PI, 5);
    await page.getByText("acme/base needs one. Languages: en.").waitFor();
    await page.getByText("wrist is needed: 64 × 48 JPEG").waitFor();

    await page.getByLabel("pictures", { exact: true }).setInputFiles(file("seen.png", await colour(100, 100, 220)));
    expect(await page.getByLabel("name of camera 1").inputValue()).toBe("wrist");
    await page.getByText("PNG, and it reads 64 × 48 JPEG").waitFor();
    await page.getByRole("button", { name: "Make it fit" }).click();
    await page.getByText("read: 64 × 48 JPEG").waitFor();
    await page.getByLabel("x, m").fill("0.5");
    await page.getByLabel("Instruction").fill("go");
    await page.getByText("1 in the plan").waitFor();
    const before = model.acts.length;
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByRole("heading", { name: "acme/base" }).waitFor();
    const [call] = model.acts.slice(before);
    const [seen] = call!.observations;
    expect([seen!.proprio, seen!.proprioNames, seen!.frames[0]!.camera]).toEqual([[0.5, 0], ["x", "yaw"], "wrist"]);
    expect(await sharp(seen!.frames[0]!.data).metadata()).toMatchObject({ format: "jpeg", width: 64, height: 48 });
    const shown = await page.getByRole("region", { name: "What the model saw" }).textContent();
    expect(shown).toMatch(/wristsent as 64 × 48 JPEG.*cropped and scaled from 100 × 100/);
    expect(shown).toMatch(/instruction“go”statex 0.5 m, yaw 0 rad/);
    expect(faults).toEqual([]);
  });

  it("replaces an example's picture with the user's own, upright, and shows the answer on a phone's first screen", async () => {
    const phone = { viewport: { width: 390, height: 844 } };
    const { page, faults } = await console.open("/console/playground", phone);
    const turned = await sharp({ create: { width: 240, height: 120, channels: 3, background: "#808080" } })
      .composite([{ input: await colour(40, 40, 220), left: 60, top: 40 }])
      .withMetadata({ orientation: 6 })
      .jpeg()
      .toBuffer();
    const chosen = page.getByLabel("pictures", { exact: true });
    await chosen.setInputFiles({ name: "clip.gif", mimeType: "image/gif", buffer: Buffer.from("GIF89a") });
    await page.getByText("clip.gif is image/gif; choose a PNG, JPEG or WebP image").waitFor();
    /** Pastes an image, as after a screenshot; `bytes` is an expression of the page. */
    const paste = (name: string, type: string, bytes: string) =>
      page.evaluate(`(() => {
        const data = new DataTransfer();
        data.items.add(new File([${bytes}], "${name}", { type: "${type}" }));
        document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data }));
      })()`);
    await paste("raw.png", "image/png", "new Uint8Array(17 << 20)");
    await page.getByText("raw.png has 17.0 MB; an image can have at most 16 MB").waitFor();
    const text = `atob("${turned.toString("base64")}")`;
    await paste("turned.jpg", "image/jpeg", `Uint8Array.from(${text}, (each) => each.charCodeAt(0))`);
    await expect.poll(() => page.getByRole("img", { name: /^what .* sees$/ }).count()).toBe(1);
    await page.getByRole("button", { name: "Run", exact: true }).click();
    const answer = page.getByRole("region", { name: "Answer", exact: true });
    const seen = answer.getByRole("region", { name: "What the model saw" });
    await seen.getByText(/sent as 120 × 240 JPEG/).waitFor();
    const { y } = (await answer.getByRole("heading").first().boundingBox())!;
    expect(y).toBeGreaterThanOrEqual(0);
    expect(y).toBeLessThan(844 / 2);

    await page.getByRole("combobox", { name: "Model", exact: true }).fill("nobody/nothing");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await answer.getByRole("alert").getByRole("link", { name: "model_not_found" }).waitFor();
    expect(faults.filter((fault) => !/404|409|422/.test(fault))).toEqual([]);
  });

  it("offers every layout that a model reads, and keeps the values that two layouts share", async () => {
    const { page } = await console.open("/console/playground");
    await page.getByRole("button", { name: "Drive to a place" }).click();
    await page.getByLabel("goal_x", { exact: true }).fill("0.75");
    const layouts = page.getByLabel("Layout of the state");
    await expect.poll(() => layouts.locator("option").filter({ hasText: "goal_x" }).count()).toBeGreaterThan(0);
    const names = await layouts.locator("option").allTextContents();
    expect(names.length).toBeGreaterThan(1);
    const other = names.find((each) => /goal_x/.test(each) && /obstacle/.test(each)) ?? names.at(-1)!;
    await layouts.selectOption(other);
    expect(await page.getByLabel("goal_x", { exact: true }).inputValue()).toBe("0.75");
    await page.getByText("in the plan").waitFor();
  });
});

describe.skipIf(!canBrowse)("predicted frames", () => {
  it("are compared with the actual frames pixel by pixel, and with another model's side by side", async () => {
    const { page, faults } = await console.open("/console/playground");
    const frames = framesOf(page, "reference/block-flow");
    await page.getByRole("button", { name: "See what comes next" }).click();
    await page.getByRole("combobox", { name: "Model", exact: true }).fill("reference/block-flow");
    await page.getByLabel("Compare with").fill("acme/world");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    const nearness = page.getByRole("listitem").filter({ hasText: "reference/block-flow against acme/world" });
    await nearness.waitFor();
    expect(Number(await nearness.getAttribute("data-psnr"))).toBeGreaterThan(0);
    // One scrubber moves both.
    await page.getByRole("slider", { name: "frame" }).first().fill("3");
    await expect.poll(() => page.getByText("frame 4 of 8").count()).toBe(2);

    const [first] = frames();
    const truth = await Promise.all(frames().map((_, i) => colour(first!.width, first!.height, 100 + i)));
    const files = truth.map((bytes, i) => file(`frame-${i}.png`, bytes));
    await page.getByLabel("what came", { exact: true }).setInputFiles(files.toReversed());
    const against = page.getByRole("listitem").filter({ hasText: "reference/block-flow against what came" });
    await against.waitFor();
    const values = await Promise.all(
      frames().map(async ({ data }, i) => psnr(await rgb(Buffer.from(data, "base64")), await rgb(truth[i]!))),
    );
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    expect(Number(await against.getAttribute("data-psnr"))).toBeCloseTo(mean, 2);
    expect(faults).toEqual([]);
  });
});
