/** The page of consent, in a real browser, with a real OAuth client: from an application that registers itself to a key that calls. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { AxeBuilder } from "@axe-core/playwright";
import * as oauth from "openid-client";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { canBrowse } from "../../support/chromium.ts";
import { type ConsoleApp, openConsole } from "../../support/console.ts";
import { type Person, person } from "../../support/members.ts";
import { ACT } from "./fill.ts";

let console: ConsoleApp;
let developer: Person;
/** The developer's browser: signed in. */
let signed: { readonly key: string; readonly storageState: Awaited<ReturnType<BrowserContext["storageState"]>> };
let application: Server;
/** Where the application takes its answers, and those that came. */
let callback: string;
const answers: URL[] = [];

beforeAll(async () => {
  console = await openConsole();
  developer = await person(console.app, console.caller.org, "developer");
  application = createServer((request, response) => {
    if (request.url?.startsWith("/callback")) answers.push(new URL(request.url, callback));
    response.setHeader("content-type", "text/html").end("<title>application</title><h1>Thank you</h1>");
  });
  await new Promise<void>((resolve) => application.listen(0, "127.0.0.1", resolve));
  callback = `http://127.0.0.1:${(application.address() as AddressInfo).port}/callback`;
  if (!canBrowse) return;
  const { page, context } = await console.open("/sign-in", { key: "" });
  await signInAt(page);
  await page.getByRole("heading", { name: "Robots", level: 1 }).waitFor();
  signed = { key: "", storageState: await context.storageState() };
});

afterAll(async () => {
  application?.closeAllConnections();
  application?.close();
  await console?.close();
});

/** An application that has registered itself, as a client library does it. */
const registered = (name = "An agent"): Promise<oauth.Configuration> =>
  oauth.dynamicClientRegistration(
    new URL(console.app.url),
    {
      client_name: name,
      redirect_uris: [callback],
      token_endpoint_auth_method: "none",
      scope: "act usage.read billing.read",
    },
    oauth.None(),
    { algorithm: "oauth2", execute: [oauth.allowInsecureRequests] },
  );

/** What an application sends its person with, and what it keeps of it. */
async function asking(config: oauth.Configuration, change: Readonly<Record<string, string | undefined>> = {}) {
  const verifier = oauth.randomPKCECodeVerifier();
  const state = oauth.randomState();
  const url = oauth.buildAuthorizationUrl(config, {
    redirect_uri: callback,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
    state,
    resource: `${console.app.url}/mcp`,
  });
  for (const [name, value] of Object.entries(change))
    if (value === undefined) url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  return { verifier, state, url, path: url.pathname + url.search };
}

/** Signs the developer in at the page that asks for it. */
async function signInAt(page: Page): Promise<void> {
  const { app, caller } = console;
  const { url, token } = await app.admin(`/v1/orgs/${caller.org}/members/${developer.userId}/sign-in-link`, {});
  await page.getByRole("heading", { name: "Sign in", level: 1 }).waitFor();
  await page.getByLabel("Link").fill(url ?? token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

const asked = (page: Page) => page.getByRole("heading", { name: "Access for an application", level: 1 }).waitFor();

describe.skipIf(!canBrowse)("the consent page", () => {
  it("asks the user to sign in, shows which application asks for what, and issues a key with the chosen limits", async () => {
    const { app } = console;
    const config = await registered();
    const question = await asking(config);
    const { page } = await console.open(question.path, { key: "" });
    await signInAt(page);
    await asked(page);
    await page.getByText("An agent asks to act for you").waitFor();
    await page.getByText(new URL(callback).host, { exact: true }).first().waitFor();
    await page.getByText("Call models by act.").waitFor();
    // A developer sees no balance, and gives no sight of it.
    await page.getByText(/does not get it: billing\.read/).waitFor();
    await page.getByLabel("Money in all, US dollars").fill("2");
    await page.getByLabel("Robot").fill("arm-7");
    await page.getByLabel("usage.read").uncheck();
    await page.getByRole("button", { name: "Allow" }).click();
    await page.getByRole("heading", { name: "Thank you" }).waitFor();

    const token = await oauth.authorizationCodeGrant(config, answers.at(-1)!, {
      pkceCodeVerifier: question.verifier,
      expectedState: question.state,
    });
    expect(answers.at(-1)!.searchParams.get("iss")).toBe(app.url);
    const key = token.access_token;
    expect((await app.call("/v1/key", undefined, { key })).body).toMatchObject({
      scopes: ["act"],
      robot_id: "arm-7",
      budget: { limit_usd: 2 },
    });
    expect((await app.call("/v1/act", { ...ACT, robot_id: "arm-7" }, { key })).status).toBe(200);
    // A code that comes again is refused.
    await expect(
      oauth.authorizationCodeGrant(config, answers.at(-1)!, {
        pkceCodeVerifier: question.verifier,
        expectedState: question.state,
      }),
    ).rejects.toMatchObject({ error: "invalid_grant" });
  });

  it("tells the application that the user declined, and issues nothing", async () => {
    const config = await registered();
    const { path, state, verifier } = await asking(config);
    const { page } = await console.open(path, signed);
    await asked(page);
    await page.getByRole("button", { name: "Deny" }).click();
    await page.getByRole("heading", { name: "Thank you" }).waitFor();
    const answer = answers.at(-1)!;
    expect(Object.fromEntries(answer.searchParams)).toMatchObject({
      error: "access_denied",
      state,
      iss: console.app.url,
    });
    expect(answer.searchParams.has("code")).toBe(false);
    await expect(
      oauth.authorizationCodeGrant(config, answer, { pkceCodeVerifier: verifier, expectedState: state }),
    ).rejects.toMatchObject({ error: "access_denied" });
  });

  it.each([
    ["an application that is not known", { client_id: "oac_01M80526TGMQ1E57VD2PJ4MK4Q" }, "OAuth client not found"],
    ["an address that is not the application's", { redirect_uri: "https://evil.example/cb" }, "redirect_uri"],
    ["an address beneath the application's", { redirect_uri: "CALLBACK/../evil" }, "redirect_uri"],
    ["no proof", { code_challenge: undefined }, "no code without PKCE"],
    ["a plain proof", { code_challenge_method: "plain" }, "has to be S256"],
    ["another response", { response_type: "token" }, "has to be code"],
    ["a scope that it does not have", { scope: "act keys.write" }, "cannot request the scope keys.write"],
    ["another server's key", { resource: "https://other.example/mcp" }, "does not identify this gateway"],
  ] as const)("shows what is wrong with %s, and redirects nowhere", async (_, change, sentence) => {
    const config = await registered();
    const bent = Object.fromEntries(
      Object.entries(change).map(([name, value]) => [name, value?.replace("CALLBACK", callback)]),
    );
    const { path } = await asking(config, bent);
    const came = answers.length;
    const { page } = await console.open(path, signed);
    await page.getByRole("heading", { name: "This request cannot be answered", level: 1 }).waitFor();
    await page.getByRole("alert").getByText(sentence).waitFor();
    expect(await page.getByRole("button", { name: "Allow" }).count()).toBe(0);
    expect([new URL(page.url()).origin, answers.length]).toEqual([console.app.url, came]);
  });

  it("refuses duplicate parameters", async () => {
    const { path } = await asking(await registered());
    const { page } = await console.open(`${path}&redirect_uri=https%3A%2F%2Fevil.example%2F`, signed);
    await page.getByText("redirect_uri stands twice in the address.").waitFor();
  });

  it("shows an application's own name as text", async () => {
    const { path } = await asking(await registered("<img src=x onerror=window.harmed=1>"));
    const { page, faults } = await console.open(path, signed);
    await page.getByText("<img src=x onerror=window.harmed=1>").waitFor();
    await page.getByText("It registered itself").waitFor();
    expect(await page.evaluate("[window.harmed, document.querySelectorAll('img').length]")).toEqual([undefined, 0]);
    expect(faults).toEqual([]);
  });

  it("cannot be framed by another site", async () => {
    const { path } = await asking(await registered());
    const headers = (await fetch(console.app.url + path)).headers;
    expect(headers.get("x-frame-options")).toBe("DENY");
    expect(headers.get("content-security-policy")).toContain("frame-ancestors 'none'");
    expect(headers.get("referrer-policy")).toBe("no-referrer");
  });

  it("has no axe violation, light, dark and on a phone", async () => {
    const { path } = await asking(await registered());
    const options = { ...signed, reducedMotion: "reduce", viewport: { width: 360, height: 740 } } as const;
    const { page, faults } = await console.open(path, options);
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await asked(page);
      await page.locator("button:text-is('Allow'):enabled").waitFor();
      const { violations } = await new AxeBuilder({ page })
        .withTags(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"])
        .analyze();
      expect(violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`))).toEqual([]);
    }
    expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBe(0);
    expect(faults).toEqual([]);
  });
});
