/** GET /v1/billing, POST /v1/billing/topup and GET /v1/billing/payments. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { app, audited, balance, begin, end, endEach, open, payments, poor, stripe, topUp } from "./paying.ts";

beforeAll(begin);
afterEach(endEach);
afterAll(end);

describe("GET /v1/billing", () => {
  it("shows without a key whether self-serve billing is on, and its limits", async () => {
    const { status, body } = await app.call("/v1/billing");
    expect([status, body]).toEqual([
      200,
      { enabled: true, currency: "usd", min_usd: 5, max_usd: 10000, processor: "stripe" },
    ]);
    expect((await poor.call("/v1/billing")).body).toMatchObject({ enabled: false, processor: null });
  });
});

describe("POST /v1/billing/topup", () => {
  it("returns 201 with a checkout opened at the processor, in cents and with our ids", async () => {
    const { org, key } = await app.caller(0);
    const { status, body } = await topUp(key, {
      amount_usd: 12.34,
      success_url: "https://robots.test/paid?s={CHECKOUT_SESSION_ID}",
    });
    expect(status).toBe(201);
    const session = stripe.sessionOf(body.payment_id);
    const expires_at = session.expires_at;
    expect(body).toEqual({
      payment_id: expect.stringMatching(/^pay_/),
      checkout_url: session.url,
      amount_usd: 12.34,
      fee_usd: 0,
      status: "pending",
      expires_at,
    });
    const request = stripe.requests.at(-1);
    expect(request).toMatchObject({ method: "POST", path: "/v1/checkout/sessions", idempotencyKey: body.payment_id });
    expect(request?.version).toMatch(/^\d{4}-\d{2}-\d{2}/);
    expect(request?.params).toMatchObject({
      mode: "payment",
      client_reference_id: body.payment_id,
      "line_items[0][price_data][currency]": "usd",
      "line_items[0][price_data][unit_amount]": "1234",
      "line_items[0][quantity]": "1",
      "metadata[org_id]": org,
      "payment_intent_data[metadata][payment_id]": body.payment_id,
      success_url: "https://robots.test/paid?s={CHECKOUT_SESSION_ID}",
      cancel_url: "https://robots.test/paid?s={CHECKOUT_SESSION_ID}",
    });
    expect(await payments(key)).toMatchObject([
      { id: body.payment_id, status: "pending", checkout_url: session.url, completed_at: null },
    ]);
    expect(await audited(org)).toEqual(["payment.requested"]);
    expect((await balance(key)).balance_usd).toBe(0);
  });

  it("redirects payers without a return address to the gateway", async () => {
    const { key } = await app.caller(0);
    const id = await open(key);
    expect(stripe.sessionOf(id)).toMatchObject({
      success_url: "https://api.test/v1/billing",
      cancel_url: "https://api.test/v1/billing",
    });
  });

  it("opens one checkout per idempotency key in body or header, even for concurrent calls", async () => {
    const { key } = await app.caller(0);
    const before = stripe.sessions.size;
    const body = { amount_usd: 7, idempotency_key: "once" };
    const answers = await Promise.all([
      ...Array.from({ length: 8 }, () => topUp(key, body)),
      topUp(key, { amount_usd: 7 }, { "idempotency-key": "once" }),
    ]);
    expect(answers.map(({ status }) => status)).toEqual(Array(9).fill(201));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect(stripe.sessions.size - before).toBe(1);
    const other = await topUp(key, { ...body, amount_usd: 8 });
    expect([other.status, other.body.error.code]).toEqual([409, "idempotency_conflict"]);
    expect(await payments(key)).toHaveLength(1);
  });

  it("returns 503 while the processor fails; the same key finds the checkout later, even after a lost response", async () => {
    const { key } = await app.caller(0);
    const body = { amount_usd: 9, idempotency_key: "lost" };
    const before = stripe.sessions.size;
    stripe.trouble = "hang up";
    const lost = await topUp(key, body);
    expect([lost.status, lost.body.error.code, lost.headers.get("retry-after")]).toEqual([
      503,
      "processor_unavailable",
      "5",
    ]);
    stripe.trouble = "401";
    const refused = await topUp(key, body);
    expect([refused.status, refused.text.includes("sk_test")]).toEqual([503, false]);
    stripe.trouble = "none";
    const { status, body: answer } = await topUp(key, body);
    expect([status, stripe.sessions.size - before]).toEqual([201, 1]);
    expect(answer.checkout_url).toBe(stripe.sessionOf(answer.payment_id).url);
  });

  it("returns 501 without a processor, for every call that needs one", async () => {
    const { key } = await poor.caller(0);
    for (const path of ["/v1/billing/topup", "/v1/billing/webhook"]) {
      const { status, body } = await poor.call(path, { amount_usd: 20 }, { key });
      expect([path, status, body.error.code]).toEqual([path, 501, "billing_unavailable"]);
    }
    expect((await poor.call("/v1/billing/payments", undefined, { key })).body.data).toEqual([]);
  });

  it.each([
    ["negative", { amount_usd: -5 }],
    ["zero", { amount_usd: 0 }],
    ["too small", { amount_usd: 4.99 }],
    ["too large", { amount_usd: 10000.01 }],
    ["huge", { amount_usd: 1e300 }],
    ["finer than a cent", { amount_usd: 5.001 }],
    ["finer than a micro-dollar", { amount_usd: 5.0000001 }],
    ["NaN", '{"amount_usd":NaN}'],
    ["infinite", { amount_usd: "Infinity" }],
    ["text", { amount_usd: "20" }],
    ["null", { amount_usd: null }],
    ["absent", {}],
    ["misspelt", { amount_usd: 20, sucess_url: "https://a.test" }],
  ])("4xx for an amount that is %s, and no payment", async (_, body) => {
    const { key } = await app.caller(0);
    const { status } = await app.call("/v1/billing/topup", body, { key });
    expect([400, 422]).toContain(status);
    expect(await payments(key)).toEqual([]);
  });

  it.each([
    "http://robots.test/paid",
    "javascript:alert(1)",
    "data:text/html,hi",
    "//robots.test",
    "/paid",
    "https:robots.test",
    "https://",
    "https://user:secret@robots.test/",
    "https://robots.test/a b",
    "https://robots.test/\u0000",
    "https://robots.test/\nx",
    "http://localhost.evil.test/",
    `https://robots.test/${"a".repeat(2048)}`,
    "",
  ])("422 for the address %j", async (url) => {
    const { key } = await app.caller(0);
    for (const field of ["success_url", "cancel_url"]) {
      const { status, body } = await topUp(key, { amount_usd: 20, [field]: url });
      expect([status, body.error.param ?? field]).toEqual([url.includes("\u0000") ? status : 422, field]);
      expect([400, 422]).toContain(status);
    }
  });

  it("accepts a loopback address for development", async () => {
    const { key } = await app.caller(0);
    expect((await topUp(key, { amount_usd: 20, success_url: "http://localhost:3000/paid" })).status).toBe(201);
  });

  it("requires billing permissions to pay and to read", async () => {
    const { org } = await app.caller(0);
    for (const [role, write, read] of [
      ["owner", 201, 200],
      ["billing", 201, 200],
      ["admin", 403, 200],
      ["developer", 403, 403],
      ["viewer", 403, 403],
    ] as const) {
      const key = await app.key(org, { role });
      expect([role, (await topUp(key)).status]).toEqual([role, write]);
      expect([role, (await app.call("/v1/billing/payments", undefined, { key })).status]).toEqual([role, read]);
    }
  });
});

describe("GET /v1/billing/payments", () => {
  it("lists an organization's own payments, newest first, by page", async () => {
    const { key } = await app.caller(0);
    await open((await app.caller(0)).key);
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) ids.unshift(await open(key, 5 + i));
    const seen: string[] = [];
    for (let cursor = ""; ; ) {
      const { body } = await app.call(`/v1/billing/payments?limit=2${cursor && `&cursor=${cursor}`}`, undefined, {
        key,
      });
      seen.push(...body.data.map(({ id }: { id: string }) => id));
      if (!body.has_more) break;
      cursor = body.next_cursor;
    }
    expect(seen).toEqual(ids);
  });

  it.each(["limit=0", "limit=501", "limit=x", "nonsense=1"])("422 for ?%s", async (query) => {
    const { key } = await app.caller(0);
    expect((await app.call(`/v1/billing/payments?${query}`, undefined, { key })).status).toBe(422);
  });
});
