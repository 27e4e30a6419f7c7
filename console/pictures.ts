/**
 * `npm run console pictures`: takes a picture of every page of the console, in both themes and at the width of a phone, into `docs/console/`. It starts
 * a gateway of its own with the embedded database, and makes some calls first. With names of pages as arguments it takes those only.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import sharp from "sharp";
import { ACT, fill } from "../test/slow/console/fill.ts";
import { PLACES } from "../test/slow/console/places.ts";
import { callRest } from "../test/support/app.ts";
import { openBrowser } from "../test/support/chromium.ts";
import { buildConsole, isStale } from "./build.ts";

const ROOT = join(import.meta.dirname, "..");
const OUT = join(ROOT, "docs/console");
const LOOKS = [
  { look: "light", width: 1280, colorScheme: "light" },
  { look: "dark", width: 1280, colorScheme: "dark" },
  { look: "phone", width: 390, colorScheme: "light" },
] as const;
/** How long loops run before they are looked at, so that there is a minute to see, in milliseconds. */
const RUN_MS = 10_000;
/** How long a page has for what it asks for, in milliseconds. */
const SETTLE_MS = 1_500;

/** Pages with something open on them: what is clicked, and the name of the picture. */
const OPENED = [
  { path: "/console", name: "loop", click: "[data-card] [data-open]" },
  { path: "/console/calls", name: "call", click: '[data-row="4"] [data-open]' },
  { path: "/console/playground", name: "playground-answer", click: 'button:text-is("Run")' },
  { path: "/console", name: "stop", click: 'header button:has-text("STOP")' },
  { path: "/console/fleet", name: "robot", click: '[data-row="0"] [data-open]' },
  { path: "/console/fleet", name: "robot-form", click: 'button:text-is("New robot")' },
  { path: "/console/armings", name: "arming", click: '[data-row="0"] [data-open]' },
  { path: "/console/armings?new=arm-1", name: "arm", click: 'h2:text-is("Arm a robot")' },
] as const;

/** Where the application that asks for access takes its answers. */
const CALLBACK = "http://127.0.0.1:4000/callback";

const only = new Set(process.argv.slice(2));
const isWanted = ({ name }: { readonly name: string }): boolean => only.size === 0 || only.has(name);
let made = 0;

if (isStale()) await buildConsole();
const data = mkdtempSync(join(tmpdir(), "limber-pictures-"));
const env = { ...process.env, DATA_DIR: data, PORT: "0", LOG_LEVEL: "error" };
const gateway = spawn(process.execPath, ["src/main.ts"], { cwd: ROOT, env, stdio: ["ignore", "pipe", "inherit"] });
const children: ChildProcess[] = [gateway];
process.on("exit", () => {
  for (const child of children) child.kill();
  rmSync(data, { recursive: true, force: true });
});

async function started(): Promise<{ url: string; key: string; link: string }> {
  let said = "";
  for await (const part of gateway.stdout!) {
    said += String(part);
    const url = /limber ready (\S+)/.exec(said)?.[1];
    const key = /LIMBER_KEY=(\S+)/.exec(said)?.[1];
    const link = /(\/sign-in#token=\S+)/.exec(said)?.[1];
    if (url !== undefined && key !== undefined && link !== undefined && said.includes("Try it"))
      return { url, key, link };
  }
  throw new Error("the gateway did not start");
}

async function keep(page: Page, name: string): Promise<void> {
  await sharp(await page.screenshot())
    .png({ palette: true, colours: 128, effort: 10 })
    .toFile(join(OUT, `${name}.png`));
  made += 1;
}

const { url, key, link } = await started();
gateway.stdout?.resume();
const call = (path: string, body?: unknown, options = {}) => callRest(url, path, body, { key, ...options });
const org: string = (await call("/v1/key")).body.org_id;
while ((await call("/v1/act", ACT)).status !== 200) await new Promise((resolve) => setTimeout(resolve, 200));
await fill({ app: { call }, caller: { org, key } });
for (let i = 0; i < 120; i++) {
  const [model, space] = i % 3 === 0 ? ["service/auto", "waypoint_se2"] : ["reference/potential-nav", "base_twist_2d"];
  const provider = { deadline_ms: i % 11 === 0 ? 5 : 800, ...(i % 17 === 0 && { max_latency_ms: 1 }) };
  const proprio = { x: i / 100, y: 0, yaw: 0, goal_x: 1, goal_y: 1, goal_yaw: 0 };
  const observations = [{ proprio: Object.values(proprio), proprio_names: Object.keys(proprio) }];
  await call("/v1/act", { model, action_space: space, observations, provider, robot_id: `base-${i % 4}` });
}
for (const seed of [1, 2])
  await call("/v1/evaluate", {
    policy_endpoint: "reference/ik-reach",
    scenario: "arm-reach",
    action_space: "joint_pos_7",
    episodes: 8,
    seed,
    media: "gif",
  });
for (let i = 0; i < 2; i++)
  children.push(
    spawn(process.execPath, ["examples/robot-loop.ts", "600", url], {
      cwd: ROOT,
      env: { ...env, LIMBER_KEY: key },
      stdio: "ignore",
    }),
  );
await new Promise((resolve) => setTimeout(resolve, RUN_MS));

const browser = await openBrowser();
mkdirSync(OUT, { recursive: true });

/** The browser of the first person, who came by the printed link. */
async function signedIn() {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(url + link);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Robots", level: 1 }).waitFor();
  const kept = await context.storageState();
  await context.close();
  return kept;
}

/** The address to which an application sends the person whom it asks for access. */
async function consentPath(): Promise<string> {
  const { body } = await callRest(url, "/v1/oauth/register", {
    client_name: "Bench assistant",
    redirect_uris: [CALLBACK],
    token_endpoint_auth_method: "none",
    scope: "act ground usage.read",
  });
  const asked = new URLSearchParams({
    client_id: body.client_id,
    response_type: "code",
    redirect_uri: CALLBACK,
    code_challenge: createHash("sha256").update("a verifier that no application has").digest("base64url"),
    code_challenge_method: "S256",
    scope: "act ground usage.read",
    state: "1",
  });
  return `/oauth/authorize?${asked}`;
}

const storageState = await signedIn();
const consent = await consentPath();
for (const { look, width, colorScheme } of LOOKS) {
  const settings = { viewport: { width, height: 800 }, colorScheme, locale: "en-US", reducedMotion: "reduce" } as const;
  const context = await browser.newContext(settings);
  await context.setExtraHTTPHeaders({ authorization: `Bearer ${key}` });
  const page = await context.newPage();
  for (const { path, heading, name } of PLACES.filter(isWanted)) {
    await page.goto(url + path);
    await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
    await page.waitForTimeout(SETTLE_MS);
    await keep(page, `${name}-${look}`);
  }
  for (const { path, name, click } of OPENED.filter(isWanted)) {
    await page.goto(url + path);
    await page.locator(click).first().click();
    await page.waitForTimeout(name === "loop" ? RUN_MS : SETTLE_MS);
    await keep(page, `${name}-${look}`);
  }
  await context.close();
  if (!isWanted({ name: "consent" })) continue;
  const signed = await browser.newContext({ ...settings, storageState });
  const asked = await signed.newPage();
  await asked.goto(url + consent);
  await asked.getByRole("heading", { name: "Access for an application", level: 1 }).waitFor();
  await asked.waitForTimeout(SETTLE_MS);
  await keep(asked, `consent-${look}`);
  await signed.close();
}
await browser.close();
console.log(`${made} pictures are in docs/console`);
process.exit(0);
