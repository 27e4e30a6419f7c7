/** The console in a real browser, over a real gateway with the reference provider. */

import type { BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import { buildConsole, isStale } from "../../console/build.ts";
import { ACT } from "../slow/console/fill.ts";
import { type App, type Caller, openApp } from "./app.ts";
import { canBrowse, openBrowser } from "./chromium.ts";
import { eventually } from "./eventually.ts";

/** A gateway that serves the console, and one organisation with an owner's key. */
export interface ConsoleApp {
  readonly app: App;
  readonly caller: Caller;
  /** Opens a page of the console, signed in as the owner of the organisation, with the key that is given, or as nobody with an empty one. */
  open(path: string, options?: BrowserContextOptions & { readonly key?: string }): Promise<OpenedPage>;
  close(): Promise<void>;
}

/** A page, and everything that went wrong on it. */
export interface OpenedPage {
  readonly page: Page;
  readonly context: BrowserContext;
  /** Errors of scripts, and what the policy of contents held back. */
  readonly faults: string[];
}

/** How long what a page shows may take to come about, in milliseconds. */
const PATIENCE_MS = 60_000;

/** Builds the console where it is not built, and opens a gateway. */
export async function openConsole(): Promise<ConsoleApp> {
  if (isStale()) await buildConsole();
  const app = await openApp({ referenceSupply: true, importCatalog: true });
  const caller = await app.caller(50);
  // Supply is read once in a while, and what was declared is served from then on.
  await eventually(async () => {
    const { status, text } = await app.call("/v1/act", ACT, { key: caller.key });
    if (status !== 200) throw new Error(text);
  });
  const browser = canBrowse ? await openBrowser() : undefined;
  const contexts: BrowserContext[] = [];
  return {
    app,
    caller,
    async open(path, { key = caller.key, ...options } = {}) {
      const context = await browser!.newContext({
        viewport: { width: 1280, height: 800 },
        locale: "en-US",
        ...options,
      });
      contexts.push(context);
      // Without a key there is the session's cookie, or nobody.
      if (key !== "") await context.setExtraHTTPHeaders({ authorization: `Bearer ${key}` });
      const page = await context.newPage();
      page.setDefaultTimeout(PATIENCE_MS);
      const faults: string[] = [];
      page.on("pageerror", (error) => faults.push(error.message));
      page.on("console", (message) => {
        if (message.type() === "error") faults.push(`${message.text()} ${message.location().url}`);
      });
      await page.goto(app.url + path);
      return { page, context, faults };
    },
    async close() {
      for (const context of contexts) await context.close();
      await browser?.close();
      await app.close();
    },
  };
}
