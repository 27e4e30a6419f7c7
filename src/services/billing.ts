/** The prepaid balance, and the payments that fill it. */
import { create, getOption } from "@bufbuild/protobuf";
import { field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { BalanceSchema } from "../../gen/limber/v1/account_pb.ts";
import {
  type BillingService,
  GetBalanceResponseSchema,
  GetBillingResponseSchema,
  GetInvoiceResponseSchema,
  GetReceiptResponseSchema,
  ListPaymentsResponseSchema,
  ReconcilePaymentResponseSchema,
  TakeProcessorMessageResponseSchema,
  TopUpRequestSchema,
  TopUpResponseSchema,
} from "../../gen/limber/v1/billing_service_pb.ts";
import { type Payment, PaymentKind, PaymentSchema, PaymentStatus } from "../../gen/limber/v1/payment_pb.ts";
import type { Processor } from "../billing/payments.ts";
import { toUsd } from "../billing/price.ts";
import { byCall, type Implementation, keyOf, lineOf } from "../call.ts";
import { now } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import type { Leaser } from "../inference/call-billing.ts";
import { balanceOf, findOrg } from "../store/account/orgs.ts";
import { commitmentOf } from "../store/billing/commitments.ts";
import { invoiceMonth } from "../store/billing/invoices.ts";
import { type EntryRecord, listMovements, type MovementRecord } from "../store/billing/movements.ts";
import { findPayment, type PaymentRecord } from "../store/billing/payments.ts";
import { ownKeySpending } from "../store/billing/usage.ts";
import type { Sql } from "../store/database/tx.ts";
import { commitmentMessage } from "./account/commitment.ts";
import { autoTopUpCalls } from "./billing/auto-topup.ts";
import { pdfOf } from "./billing/papers.ts";
import { believe, openCheckout, reconcile } from "./billing/pay.ts";
import { returnUrls } from "./billing/return-urls.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";

/** What billing depends on. */
export interface BillingDeps {
  sql: Sql;
  leaser: Leaser;
  /** Undefined where no payment processor is set up. */
  processor: Processor | undefined;
  /** The return address of payers without another one. */
  home: string;
  /** Called with a message of the processor that cannot be true. */
  warn(text: string): void;
  /** As of PaymentDeps. */
  alert(text: string): void;
}

const PDF = "application/pdf";
/** Further keys are one line together. */
const MOST_INVOICE_LINES = 200;

/** A day in UTC, as `yyyy-mm-dd`. */
const dayOf = (unixSeconds: number): string => new Date(unixSeconds * 1000).toISOString().slice(0, 10);

/** How much may be paid at once, as the schema has it. */
const LIMITS = limitsOf();

/** The billing RPCs. */
export function billingService(deps: BillingDeps): Implementation<typeof BillingService> {
  const { sql, leaser, processor } = deps;
  const atProcessor = (): BillingDeps & { processor: Processor } => {
    if (processor) return { ...deps, processor };
    throw refuse(Reason.BILLING_UNAVAILABLE, "no payment processor is set up here: the operator adds credit");
  };
  return {
    ...autoTopUpCalls({ sql, home: deps.home, payments: () => atProcessor() }),

    async getBilling() {
      const { minUsd, maxUsd } = LIMITS;
      return create(GetBillingResponseSchema, {
        enabled: processor !== undefined,
        currency: "usd",
        minUsd,
        maxUsd,
        ...(processor && { processor: processor.name }),
      });
    },

    async getBalance(_request, call) {
      const { orgId } = keyOf(call);
      // Idle leases of this replica are promised to no call.
      await leaser.giveBack(orgId);
      const [balance, promised, ownMicro] = await Promise.all([
        balanceOf(sql, orgId),
        commitmentOf(sql, orgId, now()),
        ownKeySpending(sql, orgId),
      ]);
      return create(GetBalanceResponseSchema, {
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
      });
    },

    async getReceipt({ paymentId }, call) {
      const { orgId } = keyOf(call);
      const payment = await findPayment(sql, orgId, paymentId);
      const isPaid = payment?.status === "succeeded" || payment?.status === "refunded";
      if (!payment || !isPaid || payment.completedAt === undefined)
        throw refuse(Reason.NOT_FOUND, "there is no payment of this name that was paid");
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
      return create(GetReceiptResponseSchema, { filename: `receipt-${payment.id}.pdf`, contentType: PDF, content });
    },

    async getInvoice({ month }, call) {
      const { orgId } = keyOf(call);
      const from = `${month}-01`;
      const today = dayOf(now() / 1000);
      if (from > today) throw violation("month", "has not begun", "less_than_equal");
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
          ["Organisation", `${(await findOrg(sql, orgId))?.name ?? ""} (${orgId})`],
          ["Month", isOpen ? `${month}, not over: as of ${today}` : month],
          [
            "Paid in this month",
            `$${toUsd(paidMicro).toFixed(2)}, of which $${toUsd(refundedMicro).toFixed(2)} went back`,
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
      return create(GetInvoiceResponseSchema, {
        filename: `invoice-${month}.pdf`,
        contentType: PDF,
        content,
        totalUsd: toUsd(totalMicro),
        open: isOpen,
      });
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
      return create(TopUpResponseSchema, {
        paymentId: payment.id,
        checkoutUrl: payment.checkoutUrl ?? "",
        amountUsd: toUsd(payment.amountMicro),
        feeUsd: 0,
        status: STATUS[payment.status],
        expiresAt: payment.expiresAt,
      });
    },

    async listPayments({ limit = DEFAULT_PAGE, cursor: before }, call) {
      const { orgId } = keyOf(call);
      const { records, ...page } = await readPage(
        limit,
        (most) => listMovements(sql, orgId, { limit: most, before }),
        ({ id }) => id,
      );
      return create(ListPaymentsResponseSchema, { ...page, data: records.map(movementMessage) });
    },

    async reconcilePayment({ paymentId }, call) {
      const { orgId } = keyOf(call);
      const known = await findPayment(sql, orgId, paymentId);
      if (!known) throw refuse(Reason.NOT_FOUND, "there is no payment of this name");
      await reconcile(atProcessor(), known, byCall(call));
      const payment = await findPayment(sql, orgId, paymentId);
      return create(ReconcilePaymentResponseSchema, { payment: paymentMessage(payment ?? known) });
    },

    async takeProcessorMessage({ payload, signature }, { requestId }) {
      const deps = atProcessor();
      const words = deps.processor.read(payload, signature);
      await believe(deps, words, { actor: "system", requestId });
      return create(TakeProcessorMessageResponseSchema, { received: true });
    },
  };
}

const STATUS: Readonly<Record<PaymentRecord["status"], PaymentStatus>> = {
  pending: PaymentStatus.PENDING,
  succeeded: PaymentStatus.SUCCEEDED,
  failed: PaymentStatus.FAILED,
  expired: PaymentStatus.EXPIRED,
  refunded: PaymentStatus.REFUNDED,
};

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
    status: STATUS[payment.status],
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
    throw new Error("the schema does not say how much may be paid at once");
  return { minUsd: bounds.greaterThan.value, maxUsd: bounds.lessThan.value };
}
