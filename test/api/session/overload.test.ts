/** Whose share of an overloaded gateway a browser's call takes, before anything is made for it. */

import { afterAll, beforeAll, expect, it } from "vitest";
import type { BrowserHead } from "../../../src/call.ts";
import { createAuthenticator, proxiesOf } from "../../../src/edge/gate/authenticate.ts";
import type { Overload } from "../../../src/edge/gate/gate.ts";
import { RateLimits } from "../../../src/edge/gate/rate-limits.ts";
import { KeyCache, SessionCache } from "../../../src/store/account/caches.ts";
import { Notifications } from "../../../src/store/database/notifications.ts";
import { openForTest } from "../../edge/gateway.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { Browser, OWN_PAGE, signedIn } from "../../support/browser.ts";
import { eventually } from "../../support/eventually.ts";
import { person } from "../../support/members.ts";
import { uniqueNames } from "../../support/names.ts";
import { openWorld } from "../../support/world.ts";

const named = uniqueNames("acme");

let app: App;
let caller: Caller;
let notifications: Notifications;
let keys: KeyCache;
let sessions: SessionCache;
beforeAll(async () => {
  app = await openWorld();
  caller = await app.caller(1);
  notifications = await Notifications.open(app.database.url);
  keys = new KeyCache(app.sql, notifications);
  sessions = new SessionCache(app.sql, notifications);
});
afterAll(async () => {
  keys.close();
  sessions.close();
  await notifications.close();
});

it("counts calls from the gateway's own pages for the user's organization, and others for none", async () => {
  const member = await person(app, caller.org, "developer");
  const browser = await signedIn(app, caller.org, member.userId);
  const limits = new RateLimits(() => expect.unreachable());
  const authenticator = createAuthenticator({
    keys,
    sessions,
    limits,
    adminToken: ADMIN_TOKEN,
    publicSignup: false,
    trustedProxies: proxiesOf([]),
    closing: () => false,
    loaded: () => true,
  });
  const shares: string[] = [];
  // Refuses every call, and notes whose share it takes.
  const overload: Overload = {
    refuses(_method, authorization, adminToken, head?: () => BrowserHead | undefined) {
      shares.push(authenticator.orgOf(authorization, adminToken, head?.()));
      return shares.at(-1);
    },
    pace: (_org, answer) => {
      answer();
      return false;
    },
    advice: () => ({ retryAfter: 1, headers: ["ratelimit", '"gateway";r=0;t=1'] }),
  };
  const { base } = await openForTest({ overload });
  const shareOf = async (headers: Record<string, string>): Promise<string | undefined> => {
    const body = JSON.stringify({ model: `${named.acme}/base` });
    const { status } = await fetch(`${base}/v1/act`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body,
    });
    expect(status).toBe(503);
    return shares.at(-1);
  };
  const cookie = browser.cookie;
  // What is not in memory yet is everyone's.
  expect(await shareOf({ ...OWN_PAGE, cookie })).toBe("");
  const share = { ...OWN_PAGE, cookie };
  // The word of its making may come late, and it is forgotten then.
  await eventually(async () => {
    await sessions.find(cookie.split("=")[1] ?? "", "look");
    expect(await shareOf(share)).toBe(caller.org);
  });
  expect(await shareOf({ "sec-fetch-site": "cross-site", cookie })).toBe("");
  expect(await shareOf({ cookie })).toBe("");
  expect(await shareOf({ ...OWN_PAGE, cookie: `${cookie}x` })).toBe("");
  expect(await shareOf(OWN_PAGE)).toBe("");
  // A key counts as ever, and before a cookie.
  await keys.find(caller.key);
  expect(await shareOf({ ...OWN_PAGE, cookie: new Browser(base).cookie, authorization: `Bearer ${caller.key}` })).toBe(
    caller.org,
  );
  limits.close();
});
