/** Amounts that are none: over every transport, for credit and for payments. */
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { AccountService } from "../../../gen/limber/v1/account_service_pb.ts";
import { BillingService } from "../../../gen/limber/v1/billing_service_pb.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { bearer, refusalIn } from "../../support/clients.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { StripeServer } from "../../support/stripe.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let stripe: StripeServer;
let caller: Caller;
beforeAll(async () => {
  stripe = await StripeServer.start();
  app = await ownGateway({ stripe: stripe.settings });
  caller = await app.caller(1);
});
afterAll(async () => {
  expect((await app.call("/v1/billing/balance", undefined, { key: caller.key })).body.granted_usd).toBe(1);
  expect(stripe.sessions.size).toBe(0);
  expect(await brokenInvariants(app.sql)).toEqual([]);
  await stripe.close();
});

/** Numbers as JSON writes them, and numbers that it can't write. */
const WRITTEN = [
  "-1",
  "-0.000001",
  "0",
  "-0",
  "1e-7",
  "0.0000001",
  "1.0000001",
  "100000000.01",
  "1e16",
  "1e300",
  "1e999",
  "NaN",
  "Infinity",
  '"5"',
  '"NaN"',
  "null",
  "true",
  "[5]",
  "{}",
  "0x10",
  "1_000",
  ".5",
  "+5",
];
const BINARY = [-1, 0, -0, Number.NaN, Infinity, -Infinity, 5e-324, 1e-7, 1.0000001, 1e9, Number.MAX_VALUE, 2 ** 53];

describe("4xx and no credit over REST", () => {
  it.each(WRITTEN)("for %s", async (amount) => {
    const body = `{"amount_usd":${amount}}`;
    const credits = await app.call(`/v1/orgs/${caller.org}/credits`, body, { admin: ADMIN_TOKEN });
    const topup = await app.call("/v1/billing/topup", body, { key: caller.key });
    for (const { status, body: answer } of [credits, topup]) {
      expect([400, 422]).toContain(status);
      expect(["malformed_body", "validation_failed"]).toContain(answer.error.code);
    }
  });
});

describe("invalid_argument and no credit over gRPC", () => {
  it.each(BINARY)("for %d", async (amountUsd) => {
    const transport = createGrpcTransport({ baseUrl: app.url });
    const admin = { headers: { "x-service-admin-token": ADMIN_TOKEN } };
    const refused = { code: "InvalidArgument", reason: "validation_failed" };
    const credits = createClient(AccountService, transport).addCredits({ orgId: caller.org, amountUsd }, admin);
    expect(await refusalIn(credits)).toMatchObject(refused);
    const topup = createClient(BillingService, transport).topUp({ amountUsd }, bearer(caller.key));
    expect(await refusalIn(topup)).toMatchObject(refused);
  });
});

describe("credit", () => {
  it("adds the smallest and the largest amount exactly to the micro-dollar", async () => {
    const { org, key } = await app.caller(0);
    await app.admin(`/v1/orgs/${org}/credits`, { amount_usd: 0.000001 });
    await app.admin(`/v1/orgs/${org}/credits`, { amount_usd: 99_999_999.999999 });
    const { body } = await app.call("/v1/billing/balance", undefined, { key });
    expect(body.balance_usd).toBe(100_000_000);
  });

  it("adds credit once per idempotency key in the header; the field wins", async () => {
    const { org, key } = await app.caller(0);
    const add = (body: object, header: string) =>
      app.call(`/v1/orgs/${org}/credits`, body, { admin: ADMIN_TOKEN, headers: { "idempotency-key": header } });
    const first = await add({ amount_usd: 2 }, "a");
    expect((await add({ amount_usd: 2 }, "a")).body.entry_id).toBe(first.body.entry_id);
    expect((await add({ amount_usd: 2, idempotency_key: "b" }, "a")).body.entry_id).not.toBe(first.body.entry_id);
    expect((await add({ amount_usd: 3 }, "a")).body.error.code).toBe("idempotency_conflict");
    expect((await add({ amount_usd: 3 }, "not printable: \u00e4")).status).toBe(422);
    expect((await add({ amount_usd: 3 }, "x".repeat(256))).status).toBe(422);
    expect((await app.call("/v1/billing/balance", undefined, { key })).body.balance_usd).toBe(4);
  });
});
