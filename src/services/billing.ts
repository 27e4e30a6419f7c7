/** The prepaid balance and the payments that add to it. */

import { buffer } from "node:stream/consumers";
import { create, getOption } from "@bufbuild/protobuf";
import { field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import PDFDocument from "pdfkit";
import { BalanceSchema } from "../../gen/limber/v1/account_pb.ts";
import { type BillingService, TopUpRequestSchema } from "../../gen/limber/v1/billing_service_pb.ts";
import { type Payment, PaymentKind, PaymentSchema, PaymentStatus } from "../../gen/limber/v1/payment_pb.ts";
import type { Processor } from "../billing/payments.ts";
import { toUsd } from "../billing/price.ts";
import { BRAND } from "../brand.ts";
import { byCall, type Implementation, type KeyPrincipal, keyOf, lineOf } from "../call.ts";
import { now } from "../clock.ts";
import { enumOf, violation } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import { type EventData, emit } from "../events/emit.ts";
import type { Leaser } from "../inference/call-billing.ts";
import { balanceOf, claimExhaustedNotice, claimLowBalanceNotice, findOrg } from "../store/account/orgs.ts";
import { type ReachedShare, reachedShares } from "../store/billing/alerts.ts";
import { findPayment, type PaymentRecord } from "../store/billing/payments.ts";
import {
  commitmentOf,
  type EntryRecord,
  invoiceMonth,
  listMovements,
  type MovementRecord,
} from "../store/billing/statements.ts";
import type { Notifications } from "../store/database/notifications.ts";
import { type Sql, type Tx, tx } from "../store/database/tx.ts";
import { ownKeySpending } from "../store/history/usage.ts";
import { commitmentMessage } from "./account.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";
import { autoTopUpCalls, believe, openCheckout, reconcile, returnUrls } from "./payments.ts";

/** Dependencies of billing. */
interface BillingDeps {
  sql: Sql;
  leaser: Leaser;
  /** Undefined if no payment processor is configured. */
  processor: Processor | undefined;
  /** The return address for payers whose request has none. */
  home: string;
  /** Reports an implausible message of the processor. */
  warn(text: string): void;
  /** See PaymentDeps. */
  alert(text: string): void;
}

const PDF = "application/pdf";
/** Calls of all further keys share one line of the invoice. */
const MOST_INVOICE_LINES = 200;

/** A day in UTC, as `yyyy-mm-dd`. */
const dayOf = (unixSeconds: number): string => new Date(unixSeconds * 1000).toISOString().slice(0, 10);

/** Limits of a single payment, from the schema. */
const LIMITS = limitsOf();

/** The billing RPCs. */
export function billingService(deps: BillingDeps): Implementation<typeof BillingService> {
  const { sql, leaser, processor } = deps;
  const atProcessor = (): BillingDeps & { processor: Processor } => {
    if (processor) return { ...deps, processor };
    throw refuse(Reason.BILLING_UNAVAILABLE, "this gateway has no payment processor; ask its operator to add credit");
  };
  return {
    ...autoTopUpCalls({ sql, home: deps.home, payments: () => atProcessor() }),

    async getBilling() {
      const { minUsd, maxUsd } = LIMITS;
      return {
        enabled: processor !== undefined,
        currency: "usd",
        minUsd,
        maxUsd,
        ...(processor && { processor: processor.name }),
      };
    },

    async getBalance(_request, call) {
      const { orgId } = keyOf(call);
      // Idle leases of this replica are reserved for no call.
      await leaser.giveBack(orgId);
      const [balance, promised, ownMicro] = await Promise.all([
        balanceOf(sql, orgId),
        commitmentOf(sql, orgId, now()),
        ownKeySpending(sql, orgId),
      ]);
      return {
        balance: create(BalanceSchema, {
          orgId,
          currency: "usd",
          grantedUsd: toUsd(balance.grantedMicro),
          spentUsd: toUsd(balance.spentMicro),
          balanceUsd: toUsd(balance.balanceMicro),
          heldUsd: toUsd(balance.heldMicro),
          availableUsd: toUsd(balance.availableMicro),
          owedUsd: toUsd(balance.owedMicro),
          byokUsd: toUsd(ownMicro),
          ...(promised && { commitment: commitmentMessage(promised) }),
        }),
      };
    },

    async getReceipt({ paymentId }, call) {
      const { orgId } = keyOf(call);
      const payment = await findPayment(sql, orgId, paymentId);
      const isPaid = payment?.status === "succeeded" || payment?.status === "refunded";
      if (!payment || !isPaid || payment.completedAt === undefined)
        throw refuse(Reason.NOT_FOUND, "no completed payment with this id");
      const { amountMicro, refundedMicro, completedAt } = payment;
      const content = await pdfOf({
        title: "Receipt",
        facts: [
          ["Payment", payment.id],
          ["Paid on", dayOf(completedAt)],
          ["Paid by", `${(await findOrg(sql, orgId))?.name ?? ""} (${orgId})`],
        ],
        lines: [
          ["Prepaid credit", amountMicro],
          ...(refundedMicro > 0 ? [["Refunded", -refundedMicro] as const] : []),
          ["Total paid", amountMicro - refundedMicro],
        ],
        note: "Amounts are US dollars.",
        at: completedAt * 1000,
      });
      return { filename: `receipt-${payment.id}.pdf`, contentType: PDF, content };
    },

    async getInvoice({ month }, call) {
      const { orgId } = keyOf(call);
      const from = `${month}-01`;
      const today = dayOf(now() / 1000);
      if (from > today) throw violation("month", "must not be in the future", "less_than_equal");
      const isOpen = today.startsWith(month);
      await leaser.giveBack(orgId);
      const { lines, othersMicro, feeMicro, paidMicro, refundedMicro } = await invoiceMonth(
        sql,
        orgId,
        from,
        MOST_INVOICE_LINES,
      );
      const totalMicro = lines.reduce((sum, { micro }) => sum + micro, othersMicro + feeMicro);
      const content = await pdfOf({
        title: `Invoice ${month}`,
        facts: [
          ["Organization", `${(await findOrg(sql, orgId))?.name ?? ""} (${orgId})`],
          ["Month", isOpen ? `${month}, open; as of ${today}` : month],
          [
            "Paid in this month",
            `$${toUsd(paidMicro).toFixed(2)}, of which $${toUsd(refundedMicro).toFixed(2)} were refunded`,
          ],
        ],
        lines: [
          ...lines.map(
            ({ keyId, name, micro }) => [`Calls by ${name === "" ? keyId : `${name} (${keyId})`}`, micro] as const,
          ),
          ...(othersMicro > 0 ? [["Calls by other keys", othersMicro] as const] : []),
          ...(feeMicro > 0 ? [["Fee for unused commitment", feeMicro] as const] : []),
          ["Total", totalMicro],
        ],
        note: "Amounts are US dollars and were charged to prepaid credit: nothing is due.",
        at: now(),
      });
      return {
        filename: `invoice-${month}.pdf`,
        contentType: PDF,
        content,
        totalUsd: toUsd(totalMicro),
        open: isOpen,
      };
    },

    async topUp(request, call) {
      const deps = atProcessor();
      const payment = await openCheckout(deps, {
        ...returnUrls(request, deps.home),
        named: { successUrl: request.successUrl, cancelUrl: request.cancelUrl ?? request.successUrl },
        ...byCall(call),
        orgId: keyOf(call).orgId,
        keyId: keyOf(call).keyId,
        line: lineOf(keyOf(call)),
        amountUsd: request.amountUsd,
        idempotencyKey: request.idempotencyKey,
        known: () => call.replayed?.(),
      });
      return {
        paymentId: payment.id,
        checkoutUrl: payment.checkoutUrl ?? "",
        amountUsd: toUsd(payment.amountMicro),
        feeUsd: 0,
        status: enumOf(PaymentStatus, payment.status),
        expiresAt: payment.expiresAt,
      };
    },

    async listPayments({ limit = DEFAULT_PAGE, cursor: before }, call) {
      const { orgId } = keyOf(call);
      const { records, ...page } = await readPage(
        limit,
        (most) => listMovements(sql, orgId, { limit: most, before }),
        ({ id }) => id,
      );
      return { ...page, data: records.map(movementMessage) };
    },

    async reconcilePayment({ paymentId }, call) {
      const { orgId } = keyOf(call);
      const known = await findPayment(sql, orgId, paymentId);
      if (!known) throw refuse(Reason.NOT_FOUND, "payment not found");
      await reconcile(atProcessor(), known, byCall(call));
      const payment = await findPayment(sql, orgId, paymentId);
      return { payment: paymentMessage(payment ?? known) };
    },

    async takeProcessorMessage({ payload, signature }, { requestId }) {
      const deps = atProcessor();
      const words = deps.processor.read(payload, signature);
      await believe(deps, words, { actor: "system", requestId });
      return { received: true };
    },
  };
}

const movementMessage = (movement: MovementRecord): Payment =>
  movement.kind === "payment" ? paymentMessage(movement) : entryMessage(movement);

const entryMessage = ({ id, kind, amountMicro, note, created }: EntryRecord): Payment =>
  create(PaymentSchema, {
    id,
    kind: kind === "credit" ? PaymentKind.CREDIT : PaymentKind.AVAILABILITY_FEE,
    amountUsd: toUsd(amountMicro),
    status: PaymentStatus.SUCCEEDED,
    processor: "operator",
    created,
    expiresAt: created,
    completedAt: created,
    ...(note !== undefined && { note }),
  });

const paymentMessage = (payment: PaymentRecord): Payment =>
  create(PaymentSchema, {
    id: payment.id,
    amountUsd: toUsd(payment.amountMicro),
    feeUsd: 0,
    status: enumOf(PaymentStatus, payment.status),
    refundedUsd: toUsd(payment.refundedMicro),
    owedUsd: toUsd(payment.owedMicro),
    processor: "stripe",
    kind: PaymentKind.PAYMENT,
    ...(payment.status === "pending" && payment.checkoutUrl !== undefined && { checkoutUrl: payment.checkoutUrl }),
    created: payment.created,
    expiresAt: payment.expiresAt,
    ...(payment.completedAt !== undefined && { completedAt: payment.completedAt }),
    automatic: payment.automatic,
  });

function limitsOf(): { minUsd: number; maxUsd: number } {
  const { type } = getOption(TopUpRequestSchema.field.amountUsd, fieldRules);
  const bounds = type.case === "double" ? type.value : undefined;
  if (bounds?.greaterThan.case !== "gte" || bounds.lessThan.case !== "lte")
    throw new Error("the schema has no limits for `amount_usd`");
  return { minUsd: bounds.greaterThan.value, maxUsd: bounds.lessThan.value };
}

// Receipts and invoices as PDF, by pdfkit.

/** A receipt or invoice. */
interface Paper {
  readonly title: string;
  /** Names and values in the header. */
  readonly facts: readonly (readonly [name: string, value: string])[];
  /** Charges or payments in micro-dollars; the last one is emphasized. */
  readonly lines: readonly (readonly [text: string, micro: number])[];
  readonly note: string;
  /** Creation time, in Unix milliseconds. */
  readonly at: number;
}

const MARGIN = 56;
const WIDTH = 483;
const ROW = 18;
/** A4, in points. */
const BOTTOM = 842 - MARGIN;
const LONGEST = 70;

/** Renders the document as PDF. Characters that the standard fonts lack become question marks. */
function pdfOf({ title, facts, lines, note, at }: Paper): Promise<Buffer> {
  const pdf = new PDFDocument({
    size: "A4",
    margin: MARGIN,
    lang: "en",
    displayTitle: true,
    info: { Title: plain(title), Author: BRAND, CreationDate: new Date(at) },
  });
  const whole = buffer(pdf);
  pdf.font("Helvetica-Bold").fontSize(20).text(plain(title)).moveDown();
  pdf.fontSize(10);
  for (const [name, value] of facts) {
    pdf.font("Helvetica").fillColor("#5b616e").text(`${name}: `, { continued: true });
    pdf.fillColor("#16181d").text(plain(value));
  }
  pdf.moveDown();
  let y = pdf.y;
  for (const [i, [text, micro]] of lines.entries()) {
    if (y + ROW > BOTTOM) {
      pdf.addPage();
      y = MARGIN;
    }
    const isLast = i === lines.length - 1;
    if (isLast)
      pdf
        .moveTo(MARGIN, y - 4)
        .lineTo(MARGIN + WIDTH, y - 4)
        .strokeColor("#e3e5e8")
        .stroke();
    pdf.font(isLast ? "Helvetica-Bold" : "Helvetica").fillColor("#16181d");
    pdf.text(plain(text), MARGIN, y, { width: WIDTH - 110, lineBreak: false });
    pdf.text(usd(micro), MARGIN + WIDTH - 100, y, { width: 100, align: "right", lineBreak: false });
    y += ROW;
  }
  pdf
    .font("Helvetica")
    .fontSize(9)
    .fillColor("#5b616e")
    .text(note, MARGIN, y + ROW, { width: WIDTH });
  pdf.end();
  return whole;
}

/** An amount in dollars, to the cent, or with more digits if the ledger has them. */
function usd(micro: number): string {
  const digits = micro % 10_000 === 0 ? 2 : 6;
  return `${micro < 0 ? "-" : ""}$${toUsd(Math.abs(micro)).toFixed(digits)}`;
}

/** A single line in characters of the standard fonts (Latin-1). */
const plain = (text: string): string => {
  const line = text.replaceAll(/[^\x20-\x7e\xa0-\xff]+/g, "?");
  return line.length > LONGEST ? `${line.slice(0, LONGEST - 3)}...` : line;
};

// Alerts an organization once when its balance or a budget is low or exhausted, until credit is added.

/** Dependencies of alerts. */
interface AlertDeps {
  sql: Sql;
  notifications: Pick<Notifications, "on">;
  warn(text: string): void;
}

/** The most organizations, keys and workspaces that this process remembers as alerted. */
const REMEMBERED = 10_000;
/** How long an exhausted budget is remembered: it may be renewed. */
const BUDGET_MS = 60_000;

type Found = readonly { orgId: string; workspaceId?: string | undefined; happening: EventData }[];

/** Watches balances and budgets. Every replica does; the database records the alerts. */
export class BalanceAlerts {
  readonly #deps: AlertDeps;
  readonly #unsubscribe: (() => void)[];
  /** Subjects that received a shortage alert, and until when further refusals need no query. */
  readonly #alertedUntil = new Map<string, number>();
  readonly #pending = new Set<Promise<void>>();

  constructor(deps: AlertDeps) {
    this.#deps = deps;
    this.#unsubscribe = [
      deps.notifications.on("balance_low", (orgId) => this.#alert(orgId, low)),
      deps.notifications.on("budget_used", (holder) => {
        this.#alertedUntil.delete(holder);
        this.#alert(holder, (tx) => shares(tx, holder, false));
      }),
      deps.notifications.on(
        "lease_returned",
        (orgId) => this.#alertedUntil.delete(orgId),
        () => this.#alertedUntil.clear(),
      ),
    ];
  }

  /** Handles a refused call; alerts if the balance or a budget did not cover it. */
  unpaid(reason: Reason, { orgId, keyId, workspaceId, ancestors = [] }: KeyPrincipal): void {
    if (reason === Reason.INSUFFICIENT_CREDITS) this.#alertShortage(orgId, Number.POSITIVE_INFINITY, exhausted);
    const holder =
      reason === Reason.KEY_BUDGET_EXHAUSTED
        ? keyId
        : reason === Reason.WORKSPACE_BUDGET_EXHAUSTED
          ? workspaceId
          : undefined;
    if (holder !== undefined) this.#alertShortage(holder, now() + BUDGET_MS, (tx) => shares(tx, holder, true));
    // The short budget is unknown here; each one above alerts by its own use.
    if (reason === Reason.KEY_BUDGET_EXHAUSTED)
      for (const above of ancestors) this.#alertShortage(above, now() + BUDGET_MS, (tx) => shares(tx, above, false));
  }

  /** Stops accepting alerts; resolves when the pending ones are written. */
  async close(): Promise<void> {
    for (const off of this.#unsubscribe) off();
    await Promise.all(this.#pending);
  }

  #alertShortage(name: string, untilMs: number, what: (tx: Tx, name: string) => Promise<Found>): void {
    if ((this.#alertedUntil.get(name) ?? 0) > now()) return;
    if (this.#alertedUntil.size >= REMEMBERED) this.#alertedUntil.clear();
    this.#alertedUntil.set(name, untilMs);
    this.#alert(name, what);
  }

  #alert(name: string, what: (tx: Tx, name: string) => Promise<Found>): void {
    const telling = tx(this.#deps.sql, async (tx) => {
      for (const { orgId, workspaceId, happening } of await what(tx, name))
        await emit(tx, orgId, happening, workspaceId);
    }).catch((error: unknown) => {
      this.#alertedUntil.delete(name);
      this.#deps.warn(`could not write an alert: ${error instanceof Error ? error.message : error}`);
    });
    this.#pending.add(telling);
    void telling.finally(() => this.#pending.delete(telling));
  }
}

async function low(tx: Tx, orgId: string): Promise<Found> {
  const found = await claimLowBalanceNotice(tx, orgId);
  if (!found) return [];
  const value = { balanceUsd: toUsd(found.balanceMicro), thresholdUsd: toUsd(found.lowMicro) };
  return [{ orgId, happening: { case: "balanceLow", value } }];
}

async function exhausted(tx: Tx, orgId: string): Promise<Found> {
  const found = await claimExhaustedNotice(tx, orgId);
  if (!found) return [];
  // An exhausted budget or balance was also low before, even if no check saw it.
  return [
    ...(await low(tx, orgId)),
    { orgId, happening: { case: "balanceExhausted", value: { balanceUsd: toUsd(found.balanceMicro) } } },
  ];
}

async function shares(tx: Tx, holder: string, isShort: boolean): Promise<Found> {
  const reached = await reachedShares(tx, holder, now(), isShort);
  return reached.map((share) => ({
    orgId: share.orgId,
    workspaceId: share.workspaceId ?? undefined,
    happening: thresholdOf(holder, share),
  }));
}

const thresholdOf = (subject: string, share: ReachedShare): EventData => ({
  case: "budgetThreshold",
  value: {
    scope: share.scope,
    subject,
    percent: share.percent,
    limitUsd: toUsd(share.budgetMicro),
    usedUsd: toUsd(share.usedMicro),
    ...(share.resetsAt !== null && { resetsAt: share.resetsAt }),
  },
});
