/** Receipts and invoices: that they are PDF, whose they are, and that their sums are the ledger's. */
import { inflateSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { StripeServer } from "../../support/stripe.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let stripe: StripeServer;
let caller: Caller;

beforeAll(async () => {
  stripe = await StripeServer.start();
  app = await ownGateway({ stripe: stripe.settings, publicUrl: "https://api.test" });
  caller = await app.caller(0);
});
afterAll(async () => {
  await stripe.close();
});

/** The text of a PDF that pdfkit wrote: its streams inflated, the hexadecimal strings of each line joined. */
function textOf(base64: string): string {
  const bytes = Buffer.from(base64, "base64");
  expect(bytes.subarray(0, 5).toString()).toBe("%PDF-");
  expect(bytes.toString("latin1").trimEnd().endsWith("%%EOF")).toBe(true);
  let text = "";
  for (const { index } of bytes.toString("latin1").matchAll(/stream\r?\n(?!endstream)/g)) {
    const at = bytes.indexOf("\n", index) + 1;
    const end = bytes.indexOf("\nendstream", at);
    try {
      text += inflateSync(bytes.subarray(at, end)).toString("latin1");
    } catch {
      // Not every stream is deflated.
    }
  }
  return text
    .split("\n")
    .filter((line) => /TJ$/.test(line.trim()))
    .map((line) =>
      [...line.matchAll(/<([0-9a-f]+)>/g)].map(([, hex]) => Buffer.from(hex ?? "", "hex").toString("latin1")).join(""),
    )
    .join("\n");
}

describe("a receipt", () => {
  it("exists only for completed payments", async () => {
    const { body } = await app.call("/v1/billing/topup", { amount_usd: 25 }, caller);
    const path = `/v1/billing/payments/${body.payment_id}/receipt`;
    expect((await app.call(path, undefined, caller)).status).toBe(404);
    await stripe.deliver(app.url, stripe.pay(body.payment_id));
    const { status, body: receipt } = await app.call(path, undefined, caller);
    expect([status, receipt.filename, receipt.content_type]).toEqual([
      200,
      `receipt-${body.payment_id}.pdf`,
      "application/pdf",
    ]);
    const text = textOf(receipt.content);
    for (const part of [body.payment_id, caller.org, "$25.00", "Total paid"]) expect(text).toContain(part);
    const stranger = await app.caller(0);
    expect((await app.call(path, undefined, stranger)).status).toBe(404);
    const viewer = await app.key(caller.org, { role: "viewer" });
    expect((await app.call(path, undefined, { key: viewer })).status).toBe(403);
  });
});

describe("an invoice", () => {
  it("lists the charges of each key and adds up", async () => {
    const { org, key } = await app.caller(10);
    const keys = await Promise.all(
      ["arm in cell 4", "( ) \\ %%EOF \u65e5\u672c <script>"].map((name) =>
        app.admin(`/v1/orgs/${org}/keys`, { name }),
      ),
    );
    const days = [
      { key_id: keys[0].id, day: "2026-02-01", taken_micro: 1_250_000 },
      { key_id: keys[0].id, day: "2026-02-28", taken_micro: 250_000 },
      { key_id: keys[1].id, day: "2026-02-14", taken_micro: 333 },
      { key_id: keys[1].id, day: "2026-03-01", taken_micro: 9_000_000 },
    ];
    for (const day of days) await app.sql`insert into key_day ${app.sql({ ...day, org_id: org })}`;
    const { status, body } = await app.call("/v1/billing/invoice?month=2026-02", undefined, { key });
    expect([status, body.filename, body.total_usd, body.open]).toEqual([200, "invoice-2026-02.pdf", 1.500333, false]);
    const text = textOf(body.content);
    for (const part of ["Invoice 2026-02", "arm in cell 4", "$1.50", "$0.000333", "$1.500333", "nothing is due"])
      expect(text).toContain(part);
    expect(text).not.toContain("$9.00");
    expect(text).toContain("( ) \\ %%EOF ? <script>");
  });

  it("can be requested for a started month and is marked as incomplete until its end", async () => {
    const month = new Date().toISOString().slice(0, 7);
    const { body } = await app.call(`/v1/billing/invoice?month=${month}`, undefined, caller);
    expect([body.open, body.total_usd]).toEqual([true, 0]);
    for (const bad of ["2099-01", "2026-13", "x", "2026-02-01"])
      expect([bad, (await app.call(`/v1/billing/invoice?month=${bad}`, undefined, caller)).status]).toEqual([bad, 422]);
  });
});
