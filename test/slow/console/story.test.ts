/** What people do at the console: sign in, try a model, read a call, watch a robot, stop it, register a server. */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { AxeBuilder } from "@axe-core/playwright";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { canBrowse } from "../../support/chromium.ts";
import { type ConsoleApp, openConsole } from "../../support/console.ts";
import { eventually } from "../../support/eventually.ts";
import { type Model, startModel } from "../../support/model.ts";

let console: ConsoleApp;

beforeAll(async () => {
  console = await openConsole();
});

afterAll(async () => {
  await console?.close();
});

/** The bodies of calls of act that the page makes, as they are answered. */
function answersOf(page: Page, method: string): object[] {
  const answers: object[] = [];
  page.on("response", async (response) => {
    if (response.url().endsWith(`/${method}`) && response.ok()) answers.push((await response.json()) as object);
  });
  return answers;
}

describe.skipIf(!canBrowse)("signing in to the console", () => {
  const invited = async (role: string): Promise<string> => {
    const { app, caller } = console;
    const member = await app.admin(`/v1/orgs/${caller.org}/members`, { email: `${role}@example.com`, role });
    return new URL(member.sign_in_url).pathname + new URL(member.sign_in_url).hash;
  };

  it("accepts a link once, shows what the role can do, and shows nothing after sign-out", async () => {
    const link = await invited("viewer");
    const { page, faults, context } = await console.open(link, { key: "" });
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { name: "Robots", level: 1 }).waitFor();
    expect(page.url()).not.toContain("token");
    await page.getByText("viewer@example.com").waitFor();
    // A viewer stops no robots and sees no members.
    expect(await page.getByRole("button", { name: "STOP" }).count()).toBe(0);
    expect(await page.getByRole("link", { name: "Members" }).count()).toBe(0);
    const [cookie] = await context.cookies();
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Lax" });
    await page.goto(`${console.app.url}/console/settings`);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in", level: 1 }).waitFor();
    await page.goto(`${console.app.url}/console/calls`);
    await page.getByRole("heading", { name: "Sign in", level: 1 }).waitFor();
    expect(faults.filter((fault) => !/401/.test(fault))).toEqual([]);

    await page.goto(console.app.url + link);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").waitFor();
    expect(await page.getByRole("heading", { name: "Sign in", level: 1 }).count()).toBe(1);
  });

  it.each(["https://evil.example/", "//evil.example/console", "/console.evil.example", "javascript:alert(1)"])(
    "leads to the console after a sign-in that asks to end at %s",
    async (to) => {
      const link = await invited("developer").catch(() => undefined);
      const { app, caller } = console;
      const members = (await app.call(`/v1/orgs/${caller.org}/members`, undefined, { key: caller.key })).body.data;
      const { user_id: id } = members.find(({ email }: { email: string }) => email === "developer@example.com");
      const token =
        link === undefined
          ? (await app.admin(`/v1/orgs/${caller.org}/members/${id}/sign-in-link`, {})).token
          : new URL(link, app.url).hash.slice("#token=".length);
      const { page } = await console.open(`/sign-in?to=${encodeURIComponent(to)}#token=${token}`, { key: "" });
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("heading", { name: "Robots", level: 1 }).waitFor();
      expect(new URL(page.url()).origin + new URL(page.url()).pathname).toBe(`${app.url}/console`);
    },
  );
});

describe.skipIf(!canBrowse)("the playground", () => {
  it("answers one click, and the plot shows the answer's numbers", async () => {
    const { page, faults } = await console.open("/console/playground");
    const answers = answersOf(page, "Act");
    await page.getByText("in the plan").waitFor();
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByRole("heading", { name: "reference/visual-reach" }).waitFor();
    await page.getByRole("region", { name: "Answer" }).getByRole("button", { name: "as a table" }).click();
    const shown = (await page.evaluate(
      "[...document.querySelectorAll('[data-value]')].map(({ dataset }) => Number(dataset.value))",
    )) as number[];
    const [{ action }] = answers as [{ action: { steps: { values: number[] }[] } }];
    expect(shown.length).toBeGreaterThan(16);
    expect(shown).toEqual(action.steps.slice(0, shown.length / 7).flatMap(({ values }) => values));
    expect(faults).toEqual([]);
  });

  it("names what a constraint drops, and removes the constraint by a click", async () => {
    const { page } = await console.open("/console/playground");
    await page.getByText("Constraints").click();
    await page.getByLabel("Longest p95, ms").fill("1");
    await page.getByText("would be refused: no route available").waitFor();
    await page.getByText(/dropped: max latency ms/).waitFor();
    await page.getByRole("button", { name: "leave the longest latency out" }).click();
    await page.getByText("would be refused").waitFor({ state: "detached" });
    expect(await page.getByLabel("Longest p95, ms").inputValue()).toBe("");
  });

  it("draws boxes over the image, and plays predicted frames", async () => {
    const { page, faults } = await console.open("/console/playground");
    await page.getByRole("button", { name: "Find the red square" }).click();
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.locator("[data-box]").waitFor();
    await page.getByRole("button", { name: "See what comes next" }).click();
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByText("frame 1 of 8").waitFor();
    await page.getByRole("slider", { name: "frame" }).fill("7");
    await page.getByText("frame 8 of 8").waitFor();
    // A slow page may ask for the plan of a form that is between two fillings.
    expect(faults.filter((fault) => !fault.endsWith("/PreviewRoutes"))).toEqual([]);
  });
});

describe.skipIf(!canBrowse)("the calls page", () => {
  it("filters by its address, opens a call by its id, and shows its details", async () => {
    const { app, caller } = console;
    const body = { model: "nobody/nothing", observations: [{ proprio: [0] }], robot_id: "lost-1" };
    const { headers } = await app.call("/v1/act", body, { key: caller.key });
    const id = headers.get("x-request-id") ?? "";
    const { page } = await console.open(`/console/calls?robot=lost-1`);
    const rows = page.getByRole("table", { name: "calls" }).getByRole("row");
    await expect.poll(() => rows.count()).toBe(2);
    await page.goto(`${app.url}/console/calls?call=${id}`);
    const sheet = page.getByRole("dialog");
    await sheet.getByText("model not found").waitFor();
    await sheet.getByText('model or alias "nobody/nothing" not found').first().waitFor();
    await sheet.getByText("Rejected before any provider was called").waitFor();
    await sheet.getByText("Raw JSON").click();
    expect(JSON.parse((await sheet.getByRole("group", { name: "text to copy" }).textContent()) ?? "")).toMatchObject({
      request_id: id,
      kind: "act",
      http_status: 404,
      error_code: "model_not_found",
    });
    await page.keyboard.press("Escape");
    await sheet.waitFor({ state: "detached" });
    expect(new URL(page.url()).searchParams.get("call")).toBeNull();
  });
});

describe.skipIf(!canBrowse)("robots in the console", () => {
  it("are shown while they move, also after a lost connection, stopped by holding a button, and released", async () => {
    const { app, caller } = console;
    const robot = spawn(
      process.execPath,
      [fileURLToPath(new URL("../../../examples/robot-loop.ts", import.meta.url)), "60", app.url],
      {
        env: { ...process.env, LIMBER_KEY: caller.key },
        stdio: "ignore",
      },
    );
    try {
      const { page } = await console.open("/console");
      const table = page.getByRole("list", { name: "control loops" });
      await table.getByText("example-base").waitFor();
      const figure = (): Promise<string | null> => table.getByRole("listitem").first().textContent();
      // What a minute costs is unknown at first, and not zero.
      expect(await figure()).not.toContain("$0.00");
      expect(await page.getByRole("banner").getByRole("button", { name: "STOP" }).getAttribute("title")).toContain(
        "Stop",
      );
      const before = await figure();
      await eventually(async () => expect(await figure()).not.toBe(before));

      // The search finds parts of names, in cards and in rows, where no cost is cut.
      await page.getByRole("textbox", { name: "Search robots" }).fill("XAMPLE-b");
      await page.getByRole("button", { name: "Rows" }).click();
      const row = page.getByRole("table", { name: "control loops" }).getByRole("row").nth(1);
      await row.getByText("example-base").waitFor();
      await row.getByText(/^\$[0-9.]+\/min$/).waitFor();
      const cells =
        "[...document.querySelectorAll('[role=cell].text-right')].filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent)";
      expect(await page.evaluate(cells)).toEqual([]);
      await page.getByRole("textbox", { name: "Search robots" }).fill("nobody");
      await page.getByText("No running robot matches.").waitFor();
      await page.getByRole("textbox", { name: "Search robots" }).fill("");
      await page.getByRole("button", { name: "Cards" }).click();
      await table.getByText("example-base").waitFor();

      // The robot's own page: its chunk with a strip for each number, seen from above, paused and live again; axe finds nothing.
      await table.getByRole("button", { name: "example-base" }).click();
      await page.getByRole("heading", { name: "example-base", level: 1 }).waitFor();
      await page.getByRole("img", { name: /^From above: the chunk leads/ }).waitFor();
      const chunk = page.locator("section", { has: page.getByRole("heading", { name: "Current chunk" }) });
      expect(await chunk.getByRole("img", { name: /first, .* last/ }).count()).toBe(2);
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        const { violations } = await new AxeBuilder({ page })
          .withTags(["wcag2a", "wcag2aa", "wcag22aa", "best-practice"])
          .analyze();
        expect(violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`))).toEqual([]);
      }
      await page.getByRole("button", { name: "Pause" }).click();
      const frozen = await chunk.textContent();
      await page.getByRole("slider", { name: "Moment" }).press("ArrowLeft");
      await page.getByRole("button", { name: "Go live" }).click();
      await eventually(async () => expect(await chunk.textContent()).not.toBe(frozen));
      // Pictures come only after a click; this robot has none.
      await page.getByRole("button", { name: "Show" }).click();
      await page.getByText("No picture yet.").waitFor();
      expect(await page.getByRole("link", { name: "Calls", exact: true }).last().getAttribute("href")).toContain(
        "robot=example-base",
      );
      await page.getByRole("button", { name: "STOP example-base" }).waitFor();
      await page.setViewportSize({ width: 360, height: 740 });
      const wide = "document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth";
      await expect.poll(() => page.evaluate(wide)).toBe(0);
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.goBack();
      await table.getByText("example-base").waitFor();

      // The stream is cut, and opened again by the page.
      let cut = 0;
      await page.route("**/limber.v1.LoopService/WatchLoops", (route) =>
        cut++ === 0 ? route.abort() : route.continue(),
      );
      await page.reload();
      await table.getByText("example-base").waitFor();
      expect(cut).toBeGreaterThan(1);

      // Nobody looks at a hidden tab: it watches nothing, and goes on once it is seen.
      const toBe = (state: string): Promise<unknown> =>
        page.evaluate(
          `Object.defineProperty(document, "visibilityState", { value: "${state}", configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`,
        );
      const ofWatch = (request: { url(): string }): boolean => request.url().endsWith("/WatchLoops");
      const [ended] = await Promise.all([page.waitForEvent("requestfailed", ofWatch), toBe("hidden")]);
      expect(ended.failure()?.errorText).toContain("ABORTED");
      await Promise.all([page.waitForRequest(ofWatch), toBe("visible")]);
      const then = await figure();
      await eventually(async () => expect(await figure()).not.toBe(then));

      await page.getByRole("button", { name: "STOP" }).click();
      const hold = page.locator("[data-hold]");
      await hold.click();
      expect(await page.getByText("Stopped", { exact: true }).count()).toBe(0);
      await hold.hover();
      await page.mouse.down();
      await page.getByText("Stopped", { exact: true }).waitFor();
      await page.mouse.up();
      await page.getByRole("alertdialog").getByRole("button", { name: "Close" }).click();
      const stops = page.getByRole("table", { name: "stops" });
      await stops.waitFor();
      await table.getByText("example-base").waitFor({ state: "detached" });
      const act = {
        model: "service/auto",
        action_space: "base_twist_2d",
        observations: [{ proprio: [0, 0, 0, 1, 1, 0] }],
      };
      expect((await app.call("/v1/act", act, { key: caller.key })).body.error.code).toBe("robot_stopped");

      await stops.getByRole("button", { name: "Release" }).click();
      await page.getByRole("alertdialog").getByRole("button", { name: "Release" }).click();
      await stops.waitFor({ state: "detached" });
      expect((await app.call("/v1/act", act, { key: caller.key })).body.error?.code).not.toBe("robot_stopped");
    } finally {
      robot.kill();
    }
  });
});

describe.skipIf(!canBrowse)("the supply wizard", () => {
  let model: Model;
  beforeAll(async () => {
    model = await startModel();
  });
  afterAll(() => model.close());

  it("registers a server in steps, shows the probe check by check, and ends with a first call that works", async () => {
    const { page, faults } = await console.open("/console/supply");
    await page.getByRole("button", { name: "Register a server" }).click();
    const sheet = page.getByRole("dialog", { name: "Register a server" });
    await sheet.getByLabel("Address").fill(model.endpoint);
    expect(await sheet.getByLabel("Protocol").inputValue()).toBe("limber-policy");
    await sheet.getByRole("button", { name: "Next: model" }).click();
    await sheet.getByLabel("Provider").fill("acme");
    await sheet.getByLabel("Model").fill("acme/base");
    await sheet.getByLabel("Action space").selectOption("base_twist_2d");
    await sheet.getByLabel("Step duration, ms").fill("50");
    await sheet.getByRole("button", { name: "Next: cameras" }).click();
    await sheet.getByRole("button", { name: "Next: price" }).click();
    await sheet.getByLabel("Price of a step, $").fill("0.0001");
    await sheet.getByRole("button", { name: "Register and probe" }).click();
    await sheet.getByText("Live: the router can now send calls to it").waitFor();
    // The last checks come with the complete report.
    await sheet.getByRole("listitem").nth(10).waitFor();
    const [curl = ""] = await sheet.getByRole("group", { name: "text to copy" }).allTextContents();
    const [, path = "", body = "{}"] = /'http[^']*(\/v1\/\w+)'[^{]*-d '(.*)'$/s.exec(curl) ?? [];
    await eventually(async () => {
      const { status, text } = await console.app.call(path, JSON.parse(body), { key: console.caller.key });
      expect(status, text).toBe(200);
    });
    await sheet.getByRole("button", { name: "Done" }).click();
    await page.getByRole("table", { name: "offerings" }).getByText("acme/base").first().waitFor();
    // There is no report before the probe's first check has ended, which is no fault of the page.
    expect(faults.filter((fault) => !/404 .*GetReport$/.test(fault))).toEqual([]);
  });
});
