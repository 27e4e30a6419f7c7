/** What somebody does who has read nothing: from the link that the gateway prints to the day's spend. */
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { buildConsole, isStale } from "../../../console/build.ts";
import { canBrowse, openBrowser } from "../../support/chromium.ts";
import { eventually } from "../../support/eventually.ts";
import { type Gateway, scratchDir, startGateway } from "../../support/gateway.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const data = scratchDir();
let gateway: Gateway;
let browser: Browser | undefined;
let robot: ChildProcess | undefined;

beforeAll(async () => {
  if (!canBrowse) return;
  if (isStale()) await buildConsole();
  gateway = await startGateway({ DATA_DIR: data.path, LOG_LEVEL: "error" });
  browser = await openBrowser();
});

afterAll(async () => {
  robot?.kill();
  await browser?.close();
  await gateway?.end("SIGTERM");
  data.remove();
});

describe.skipIf(!canBrowse)("a first visit", () => {
  it("leads from the printed link over a call, its route, a loop, a stop and an evaluation to the day's spend", async () => {
    const link = await eventually(async () => {
      const [found] = /http\S+\/sign-in#token=\S+/.exec(gateway.stdout()) ?? [];
      if (found === undefined) throw new Error("no link was printed");
      return found;
    });
    const page = await browser!.newPage({ viewport: { width: 1280, height: 800 }, locale: "en-US" });
    page.setDefaultTimeout(60_000);
    const faults: string[] = [];
    page.on("pageerror", ({ message }) => faults.push(message));
    await page.goto(link);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { name: "Robots", level: 1 }).waitFor();

    // A first call, and why it went where it went.
    await page.getByRole("link", { name: "Playground", exact: true }).click();
    await page.getByText("in the plan").waitFor();
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByText(/answered$/).waitFor();
    await page.getByRole("link", { name: "the call" }).click();
    const call = page.getByRole("dialog");
    await call.getByRole("heading", { name: "Attempts" }).waitFor();
    await call.getByRole("heading", { name: /^Considered/ }).waitFor();

    // A loop, by the command that the page gives.
    await page.getByRole("link", { name: "Robots" }).click();
    await page.getByRole("button", { name: /^Create a key for it/ }).click();
    await page.getByText(/LIMBER_KEY=lmb_sk_[^…]/).waitFor();
    const command = (await page.getByRole("group", { name: "text to copy" }).textContent()) ?? "";
    const [, key = "", program = "", ...args] =
      /LIMBER_KEY=(\S+) (\S+) (\S+) (\S+) (\S+)/.exec(command)?.slice(0, 6) ?? [];
    expect(program).toBe("node_modules/.bin/node");
    robot = spawn(process.execPath, args, { cwd: ROOT, env: { ...process.env, LIMBER_KEY: key }, stdio: "ignore" });
    const loops = page.getByRole("list", { name: "control loops" });
    await loops.getByText("example-base").waitFor();

    // Stopped, and released.
    await page.getByRole("button", { name: "STOP" }).click();
    await page.locator("[data-hold]").hover();
    await page.mouse.down();
    await page.getByText("Stopped", { exact: true }).waitFor();
    await page.mouse.up();
    await page.getByRole("alertdialog").getByRole("button", { name: "Close" }).click();
    await loops.getByText("example-base").waitFor({ state: "detached" });
    await page.getByRole("table", { name: "stops" }).getByRole("button", { name: "Release" }).click();
    await page.getByRole("alertdialog").getByRole("button", { name: "Release" }).click();
    await page.getByRole("table", { name: "stops" }).waitFor({ state: "detached" });

    // An evaluation, watched to its end.
    await page.getByRole("link", { name: "Evaluations" }).click();
    await page.getByRole("button", { name: "Evaluate a policy" }).click();
    await page.getByLabel("Episodes").fill("3");
    await page.getByRole("button", { name: "Begin" }).click();
    const evaluation = page.getByRole("dialog", { name: "reference/ik-reach" });
    await evaluation.getByText("3 of 3").first().waitFor();
    await evaluation.getByRole("heading", { name: "Scores" }).waitFor();
    await page.keyboard.press("Escape");

    // What the day has cost.
    await eventually(
      async () => {
        await page.goto(`${gateway.url}/console/spend`);
        const said = (await page.getByText(/^\$[\d.]+ today$/).textContent()) ?? "";
        expect(Number(said.slice(1).split(" ")[0])).toBeGreaterThan(0);
      },
      { timeout: 120_000 },
    );
    expect(faults).toEqual([]);
  }, 300_000);
});
