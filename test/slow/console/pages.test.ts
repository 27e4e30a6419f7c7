/** Every page of the console: axe finds nothing, and no low contrast in the dark theme, nothing breaks, nothing stands out of a phone's window, and it is small. */
import { readFileSync } from "node:fs";
import { AxeBuilder } from "@axe-core/playwright";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { canBrowse } from "../../support/chromium.ts";
import { type ConsoleApp, openConsole } from "../../support/console.ts";
import { eventually } from "../../support/eventually.ts";
import { ACT, fill } from "./fill.ts";
import { PLACES } from "./places.ts";

let console: ConsoleApp;

beforeAll(async () => {
  console = await openConsole();
  await fill(console);
  // Four digits, the most that a duration is shown with.
  const { count } = await console.app.sql`update request_outcome set latency_ms = 8888 where latency_ms is not null`;
  expect(count).toBeGreaterThan(0);
});

afterAll(async () => {
  await console?.close();
});

const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/** What axe says is wrong on a page, in a line each. */
async function faultsOf(page: Page, rule?: string): Promise<string[]> {
  const axe = new AxeBuilder({ page });
  const { violations } = await (rule === undefined ? axe.withTags(RULES) : axe.withRules(rule)).analyze();
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
  );
}

/** The heading is there, and nothing is asked for any more. */
async function settled(page: Page, heading: string): Promise<void> {
  await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
  await expect.poll(() => page.getByText("Loading…").count()).toBe(0);
}

describe.skipIf(!canBrowse)("every page of the console", () => {
  it.each(PLACES)(
    "$name has no axe violation, no low contrast in the dark theme, and logs no error",
    async ({ path, heading }) => {
      const { page, faults } = await console.open(path, { colorScheme: "light", reducedMotion: "reduce" });
      await settled(page, heading);
      expect(await faultsOf(page)).toEqual([]);
      // A theme changes colors only.
      await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
      expect(await faultsOf(page, "color-contrast")).toEqual([]);
      expect(faults).toEqual([]);
      await page.context().close();
    },
  );

  it.each(PLACES)("$name fits the width of a phone", async ({ path, heading }) => {
    const { page } = await console.open(path, { viewport: { width: 360, height: 740 } });
    await settled(page, heading);
    const [wide, stop] = (await page.evaluate(
      "[document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth, document.documentElement.scrollWidth - innerWidth]",
    )) as [number, number];
    expect([wide, stop]).toEqual([0, 0]);
    // Words may be cut, and are whole where the row is opened; half a figure is another figure.
    const cut = await page.evaluate(
      "[...document.querySelectorAll('[role=cell].text-right .whitespace-nowrap')].filter((figure) => figure.getBoundingClientRect().right > figure.closest('[role=cell]').getBoundingClientRect().right).map((figure) => figure.textContent)",
    );
    expect(cut).toEqual([]);
    expect(await page.getByRole("button", { name: "STOP" }).isVisible()).toBe(true);
    await page.context().close();
  });

  it("has no axe violation on sheets, dialogs and the sign-in", async () => {
    const { page, faults } = await console.open("/console/calls", { reducedMotion: "reduce" });
    await settled(page, "Calls");
    await page.getByRole("table", { name: "calls" }).getByRole("row").nth(1).waitFor();
    const tries = page.getByRole("dialog").getByRole("heading", { name: "Attempts" });
    // A page that is still being made hears no keys.
    await eventually(async () => {
      await page.keyboard.press("j");
      await page.keyboard.press("Enter");
      await tries.waitFor({ timeout: 5_000 });
    });
    expect(await faultsOf(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await page.keyboard.press(".");
    await page.keyboard.press(".");
    await page.getByRole("alertdialog", { name: "Stop all robots" }).waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Name or id" }).waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await page.goto(`${console.app.url}/sign-in`);
    await page.getByRole("heading", { name: "Sign in", level: 1 }).waitFor();
    expect(await faultsOf(page)).toEqual([]);
    expect(faults).toEqual([]);
  });
});

/** A box on the page, in pixels. */
interface Box {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

const boxOf = (page: Page, selector: string): Promise<Box> =>
  page.evaluate(
    `(({ left, right, top, bottom }) => ({ left, right, top, bottom }))(document.querySelector(${JSON.stringify(selector)}).getBoundingClientRect())`,
  );

describe.skipIf(!canBrowse)("what a page shows", () => {
  let page: Page;
  beforeAll(async () => {
    ({ page } = await console.open("/console/calls", { viewport: { width: 1440, height: 900 } }));
  });
  const go = async (path: string, heading: string): Promise<void> => {
    await page.goto(console.app.url + path);
    await settled(page, heading);
  };

  it("opens the menu of further pages under its button", async () => {
    await page.getByRole("button", { name: "More" }).click();
    const [button, menu] = [await boxOf(page, '[popovertarget="more"]'), await boxOf(page, "#more")];
    expect(Math.abs(menu.left - button.left)).toBeLessThan(2);
    expect(menu.top - button.bottom).toBeLessThan(16);
    await page.keyboard.press("Escape");
  });

  it("names the scenario of an evaluation as a scenario, never as a model", async () => {
    // No worker runs here, so a call of another contract stands in for an episode.
    await page.route("**/limber.v1.LogService/ListLogs", async (route) => {
      const response = await route.fetch();
      const { data, ...list } = (await response.json()) as { data: object[] };
      const [record] = data;
      await route.fulfill({
        response,
        json: { ...list, data: [{ ...record, contract: "evaluate", model: "arm-reach" }] },
      });
    });
    await go("/console/calls", "Calls");
    await page.getByRole("table", { name: "calls" }).getByText("scenario arm-reach").waitFor();
    await page.unroute("**/limber.v1.LogService/ListLogs");
  });

  it("counts all calls of the chosen time in the header, and marks them live on request", async () => {
    const { body } = await console.app.call("/v1/series", undefined, { key: console.caller.key });
    await go("/console/calls", "Calls");
    await page.getByText(`${body.total.calls} calls`, { exact: true }).waitFor();
    await page.getByRole("button", { name: "Live" }).click();
    expect(await page.getByRole("button", { name: "Live" }).getAttribute("aria-pressed")).toBe("true");
  });

  it("saves the filters of the calls as a view, and opens it again", async () => {
    await go("/console/calls?robot=base-1&since=all", "Calls");
    await page.getByRole("button", { name: "Save view" }).click();
    await page.getByLabel("Name", { exact: true }).fill("base 1");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await go("/console/calls", "Calls");
    await page.getByRole("combobox", { name: "View", exact: true }).selectOption("base 1");
    await expect.poll(() => new URL(page.url()).search).toBe("?robot=base-1&since=all");
    await page.getByRole("button", { name: "Delete view" }).click();
  });

  it("shows a segment of a control loop as one row with its chunks and ages", async () => {
    const log = JSON.stringify({ stream_id: "loop_1", ages: { 25: 26, 30: 26 }, attempts: [] });
    const { count } = await console.app.sql`
      update request_log set log = ${log}, attempt_ms = null
      where request_id = (select max(request_id) from request_outcome join request_kind on request_kind.id = kind where status = 'settled')`;
    expect(count).toBe(1);
    await go("/console/calls", "Calls");
    const row = page.getByRole("table", { name: "calls" }).getByRole("row").filter({ hasText: "52 chunks" });
    await row.getByText("loop", { exact: true }).waitFor();
    expect(await row.textContent()).toMatch(/age\s+[\d.]+\s*ms\s*\/\s*[\d.]+\s*ms/);
    await row.getByRole("button").click();
    await page.getByRole("dialog").getByText("control loop").waitFor();
    expect(await page.getByRole("dialog").getByText("took", { exact: true }).count()).toBe(0);
  });

  it("shows whole buttons in the rows of a webhook's deliveries", async () => {
    await go("/console/webhooks", "Webhooks");
    await page.locator('[data-row="0"] [data-open]').click();
    const again = page.getByRole("button", { name: "Send again" }).first();
    await again.waitFor();
    const [button, cell] = await again.evaluate((element) =>
      [element, element.closest("[role=cell]")!]
        .map((each) => each.getBoundingClientRect())
        .map(({ left, right }) => [left, right]),
    );
    expect(button![0]).toBeGreaterThanOrEqual(cell![0]!);
    expect(button![1]).toBeLessThanOrEqual(cell![1]!);
  });

  it("draws the cost of a week as a bar per day", async () => {
    await go("/console/spend?days=7", "Spend");
    await page.getByText("US dollars per day").waitFor();
    await page.getByRole("button", { name: "as a table" }).click();
    const days = page.getByRole("region", { name: "Cost by model, table" }).getByRole("row");
    await expect.poll(() => days.count()).toBe(1 + 8);
  });

  it("makes the axis of a chart as wide as its longest amount", async () => {
    const axis = await boxOf(page, ".u-axis + .u-axis");
    const wide = axis.right - axis.left;
    const most = (await page.evaluate(
      "(() => { const text = document.createElement('canvas').getContext('2d'); text.font = '11px system-ui'; return text.measureText('$0.000123').width; })()",
    )) as number;
    // The reference provider's prices make amounts of a tenth of a cent, with up to six decimals.
    expect(wide).toBeGreaterThanOrEqual(Math.min(40, most));
  });

  it("shows what drives a model, no advertised figure as a measured one, and another model beside it", async () => {
    await go("/console/models/reference/potential-nav?with=reference/ik-reach", "reference/potential-nav");
    await page.getByRole("heading", { name: "What drives it" }).waitFor();
    await page.getByText("It reads no image.").waitFor();
    const beside = page.getByRole("region", { name: "comparison" });
    await beside.getByRole("row", { name: /^action spaces .*base_twist_2d.*joint_pos_7/ }).waitFor();
    await beside.getByRole("row", { name: /^uptime not measured yet not measured yet/ }).waitFor();
    expect(await page.getByText("99 %").count()).toBe(0);
  });

  it("tells offerings of one model and provider apart by the ends of their ids", async () => {
    await go("/console/models/reference/potential-nav", "reference/potential-nav");
    const rows = page.getByRole("table", { name: "offerings" }).getByRole("row");
    await rows.nth(1).waitFor();
    const texts = (await rows.allInnerTexts()).slice(1);
    expect(new Set(texts).size).toBe(texts.length);
  });

  it("tests the connection to an identity provider, and shows the step that fails with its remedy", async () => {
    await go("/console/sign-on", "Single sign-on");
    await page.getByRole("button", { name: "Add a provider" }).click();
    await page.getByLabel("Issuer", { exact: true }).fill("http://169.254.169.254");
    await page.getByLabel("Client id").fill("limber");
    await page.getByRole("button", { name: "Test connection" }).click();
    const steps = page.getByRole("list", { name: "connection test" }).getByRole("listitem");
    await steps.getByText(/^the issuer's address must not be/).waitFor();
    expect((await steps.allTextContents()).map((text) => text.includes("not tested"))).toEqual([
      false,
      ...Array.from({ length: 5 }, () => true),
    ]);
    expect(await faultsOf(page)).toEqual([]);
  });

  it("shows members and keys by name, and ids as tooltips", async () => {
    await go("/console/audit", "Audit");
    await page.getByRole("table", { name: "audit records" }).getByRole("row").nth(1).waitFor();
    expect(await page.locator("[role=cell]").getByText(/^usr_/).count()).toBe(0);
    expect(await page.locator('[role=cell] [title^="key_"]').count()).toBeGreaterThan(0);
  });

  it("shows the amount that a key has spent, in the list and in its sheet", async () => {
    await go("/console/keys", "Keys");
    const spent = page.getByRole("table", { name: "keys" }).getByText(/^\$\d+\.\d*[1-9]/);
    await spent.first().waitFor();
    const amount = await spent.first().textContent();
    await page
      .getByRole("table", { name: "keys" })
      .getByRole("row")
      .filter({ hasText: amount! })
      .getByRole("button")
      .click();
    await page.getByRole("dialog").getByText(amount!).first().waitFor();
  });

  it("lists an active stop as an alert with its reason and remedy, and settles the alert once it is released", async () => {
    const { key } = console.caller;
    const { body: stop } = await console.app.call(
      "/v1/robots/stop",
      { robot_id: "arm-5", reason: "a loose cable" },
      { key },
    );
    await go("/console/alerts", "Alerts");
    const now = page.getByRole("list", { name: "alerts now" }).getByRole("listitem").filter({ hasText: "arm-5" });
    await now.getByText(/a loose cable/).waitFor();
    await now.getByRole("link", { name: "Open Robots" }).waitFor();
    await console.app.call("/v1/robots/release", { stop_id: stop.id }, { key });
    await go("/console/alerts", "Alerts");
    const week = page.getByRole("list", { name: "alerts of the last week" }).getByRole("listitem");
    await week.filter({ hasText: "arm-5" }).getByText("settled").waitFor();
    expect(await now.count()).toBe(0);
  });

  it("finds sections of the documentation in the palette, and opens them in the console", async () => {
    await go("/console/status", "Status");
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Name or id" }).fill("messages from the robot");
    await page.getByRole("option", { name: /Messages from the robot/ }).click();
    await page.getByRole("heading", { name: "Close a loop", level: 1 }).waitFor();
    await page.getByRole("heading", { name: "Messages from the robot" }).waitFor();
    expect(new URL(page.url()).pathname).toBe("/console/docs/guides/close-a-loop");
  });

  it("shows a new organization its first steps, ticks those that are done, and leaves when dismissed", async () => {
    const { key } = await console.app.caller(1);
    const visit = await console.open("/console", { key });
    const steps = visit.page.getByRole("region", { name: /^First steps/ });
    await steps.getByText("0 of 5 done").waitFor();
    const { status, text } = await console.app.call("/v1/act", ACT, { key });
    expect(status, text).toBe(200);
    await visit.page.reload();
    await steps.getByText("Make a first call, done").waitFor();
    await steps.getByRole("button", { name: "Dismiss" }).click();
    await visit.page.reload();
    await visit.page.getByText("No robot is running.").waitFor();
    expect(await steps.count()).toBe(0);
    await visit.context.close();
  });

  it("keeps every filter of the calls within a phone's width", async () => {
    const phone = await console.open("/console/calls", { viewport: { width: 390, height: 844 } });
    await settled(phone.page, "Calls");
    await phone.page.getByRole("button", { name: "Filters" }).click();
    const rights = (await phone.page.evaluate(
      "[...document.querySelectorAll('[data-filter] input, [data-filter] select')].map((each) => each.getBoundingClientRect()).map(({ width, right }) => width === 0 ? 0 : right)",
    )) as number[];
    expect(rights.length).toBeGreaterThan(5);
    expect(Math.min(...rights)).toBeGreaterThan(0);
    expect(Math.max(...rights)).toBeLessThanOrEqual(390);
    await phone.context.close();
  });
});

describe("the size of the console", () => {
  const dist = new URL("../../../console/dist/", import.meta.url);
  const packed = (name: string): number => readFileSync(new URL(`${name}.gz`, dist)).byteLength;

  it("stays below 260 kB of gzip for the first page's scripts, and other pages load when opened", async () => {
    const html = readFileSync(new URL("index.html", dist), "utf8");
    const first = [...html.matchAll(/(?:src|href)="\/console\/([^"]+\.js)"/g)].map(([, name]) => name!);
    // The landing page is Robots: its own scripts are of the first page too.
    const { page } = canBrowse ? await console.open("/console") : { page: undefined };
    await page?.getByRole("heading", { name: "Robots", level: 1 }).waitFor();
    const loaded =
      page === undefined
        ? first
        : (
            (await page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")) as string[]
          ).flatMap((name) => /\/console\/(.+\.js)$/.exec(name)?.[1] ?? []);
    const all = [...new Set([...first, ...loaded])];
    expect(all.some((name) => /robots-/.test(name))).toBe(page !== undefined);
    expect(all.filter((name) => /playground-|supply-|calls-/.test(name))).toEqual([]);
    const bytes = all.reduce((sum, name) => sum + packed(name), 0);
    expect(bytes).toBeGreaterThan(50_000);
    expect(bytes).toBeLessThanOrEqual(260_000);
  });
});
