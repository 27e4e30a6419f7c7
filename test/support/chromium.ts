/**
 * A real browser for tests of the console: the Chromium that comes from npm, or else the system's. Where neither starts, because the machine
 * lacks its libraries, the tests say that they are left out; `.ci/run` installs the libraries, and lets nothing be left out.
 */
import { existsSync } from "node:fs";
import packaged from "@sparticuz/chromium";
import { type Browser, chromium } from "playwright-core";

const SYSTEM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
/** Root needs no sandbox, and small machines have little shared memory. */
const ARGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"];

/** Starts a browser; undefined where none starts. */
async function launch(): Promise<Browser | undefined> {
  packaged.setGraphicsMode = false;
  const found = [await packaged.executablePath().catch(() => undefined), ...SYSTEM.filter((path) => existsSync(path))];
  for (const executablePath of found) {
    if (executablePath === undefined) continue;
    const browser = await chromium.launch({ executablePath, args: ARGS }).catch(() => undefined);
    if (browser !== undefined) return browser;
  }
  if (process.env.CI_NO_OMISSION !== undefined) throw new Error("no Chromium starts here, and nothing may be left out");
  console.warn(
    "left out: tests of the console need the libraries of Chromium (libnss3, libatk-bridge2.0-0 and others)",
  );
  return undefined;
}

let running = await launch();

/** Whether a browser starts here. */
export const canBrowse = running !== undefined;

/** The browser, started anew where the file of tests before this one, in the same process, has closed it. */
export async function openBrowser(): Promise<Browser> {
  if (!running?.isConnected()) running = await launch();
  if (running === undefined) throw new Error("no Chromium starts here");
  return running;
}
