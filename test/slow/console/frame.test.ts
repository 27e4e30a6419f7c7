/** The console's frame: how it is served, and what stands around every page. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { canBrowse } from "../../support/chromium.ts";
import { type ConsoleApp, openConsole } from "../../support/console.ts";

let console: ConsoleApp;

beforeAll(async () => {
  console = await openConsole();
});

afterAll(async () => {
  await console?.close();
});

const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(console.app.url + path, { headers, redirect: "manual" });

describe("the console's files", () => {
  it("redirect browsers from the root to the console, and programs to the documents", async () => {
    const browserAsks = await get("/", { accept: "text/html,application/xhtml+xml" });
    expect([browserAsks.status, browserAsks.headers.get("location")]).toEqual([302, "/console"]);
    expect(browserAsks.headers.get("vary")).toContain("accept");
    expect(await (await get("/", { accept: "*/*" })).json()).toMatchObject({ name: "limber", docs: "/docs" });
  });

  it("forbid external resources, inline scripts and frames", async () => {
    const response = await get("/console");
    const html = await response.text();
    const policy = response.headers.get("content-security-policy");
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self';");
    expect(policy).toContain("style-src 'self';");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toMatch(/https?:|\*|unsafe/);
    expect(response.headers.get("x-content-type-options")).toBe("nosniff");
    expect(html).not.toMatch(/<script>|<style|\son\w+=/);
  });

  it("are cached permanently and compressed if their names are hashes, while the page is revalidated by its tag", async () => {
    const page = await get("/console", { "accept-encoding": "br" });
    const [, script = ""] = /<script type="module"[^>]* src="([^"]+)"/.exec(await page.text()) ?? [];
    for (const coding of ["br", "gzip"]) {
      const response = await get(script, { "accept-encoding": `${coding};q=0.5, identity;q=0.1` });
      expect(response.headers.get("content-encoding")).toBe(coding);
      expect(response.headers.get("cache-control")).toContain("immutable");
      expect(response.headers.get("content-type")).toBe("text/javascript; charset=utf-8");
      expect(await response.text()).toContain("limber");
    }
    expect((await get(script, { "accept-encoding": "br;q=0, gzip;q=0" })).headers.get("content-encoding")).toBeNull();
    const tag = page.headers.get("etag") ?? "";
    expect(page.headers.get("cache-control")).toBe("no-cache");
    const again = await get("/console", { "if-none-match": `"other", W/${tag}`, "accept-encoding": "gzip, br" });
    expect(again.status).toBe(304);
  });

  it("include the page for every address of a page, and 404 for a missing file", async () => {
    for (const path of ["/console/calls", "/console/models/a/b", "/sign-in", "/oauth/authorize?client_id=x"])
      expect((await get(path)).headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect((await get("/console/assets/gone-00000000.js")).status).toBe(404);
  });

  it.each([
    "/console/../../package.json",
    "/console/..%2f..%2fpackage.json",
    "/console/assets/..%2f..%2f..%2fpackage.json",
    "/console/%2e%2e/%2e%2e/package.json",
    "/console//etc/passwd",
    "/console/assets/%00",
  ])("do not expose outside files by %s", async (path) => {
    // The path goes out as it is written: fetch would tidy it up.
    const { request } = await import("node:http");
    const text = await new Promise<string>((resolve, reject) => {
      request(console.app.url, { path }, (response) => {
        let body = "";
        response.on("data", (part) => (body += part)).on("end", () => resolve(body));
      })
        .on("error", reject)
        .end();
    });
    expect(text).not.toContain("devDependencies");
    expect(text).not.toContain("root:");
  });
});

describe.skipIf(!canBrowse)("the console in a browser", () => {
  it("opens on the robots, and reaches pages by keys", async () => {
    const { page, faults } = await console.open("/");
    await page.getByRole("heading", { name: "Robots", level: 1 }).waitFor();
    await page.keyboard.press("g");
    await page.keyboard.press("c");
    await page.getByRole("heading", { name: "Calls", level: 1 }).waitFor();
    expect(new URL(page.url()).pathname).toBe("/console/calls");
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Name or id" }).fill("play");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Playground", level: 1 }).waitFor();
    expect(faults).toEqual([]);
  });

  it("sorts a list by its column heads, ascending, descending and unsorted", async () => {
    const { page } = await console.open("/console/models");
    const table = page.getByRole("table", { name: "models" });
    const first = (): Promise<string | null> => table.locator('[data-row="0"] [data-open]').textContent();
    await table.locator('[data-row="0"]').waitFor();
    const came = await first();
    const head = table.getByRole("button", { name: "model", exact: true });
    const seen: (string | null)[] = [];
    for (const direction of ["ascending", "descending"]) {
      await table.getByRole("columnheader", { name: "model" }).getByRole("button").click();
      await expect.poll(() => table.locator(`[aria-sort="${direction}"]`).count()).toBe(1);
      seen.push(await first());
    }
    expect(seen.toSorted()).toEqual(seen);
    expect(seen[0]).not.toBe(seen[1]);
    await table.getByRole("columnheader", { name: "model" }).getByRole("button").click();
    await expect.poll(() => table.locator("[aria-sort]").count()).toBe(0);
    expect([await first(), await head.count()]).toEqual([came, 1]);
  });
});
