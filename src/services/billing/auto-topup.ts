/** Credit that is bought without anybody asking: the rule and the payment method by RPC, and the charges on every worker. */
import { create } from "@bufbuild/protobuf";
import {
  type AutoTopUp,
  AutoTopUpSchema,
  DeletePaymentMethodResponseSchema,
  GetAutoTopUpResponseSchema,
  type SetUpPaymentMethodRequest,
  SetUpPaymentMethodResponseSchema,
  type UpdateAutoTopUpRequest,
  UpdateAutoTopUpResponseSchema,
} from "../../../gen/limber/v1/auto_topup_pb.ts";
import type { BillingService } from "../../../gen/limber/v1/billing_service_pb.ts";
import { MICRO_PER_CENT } from "../../billing/payments.ts";
import { fromUsd, toUsd } from "../../billing/price.ts";
import { byCall, type Implementation, keyOf } from "../../call.ts";
import { nowSeconds } from "../../clock.ts";
import { violation } from "../../contracts/contract.ts";
import { Reason, refuse } from "../../errors.ts";
import { emit } from "../../events/emit.ts";
import { Polling } from "../../events/polling.ts";
import { newId } from "../../ids.ts";
import { audit } from "../../store/account/audit.ts";
import {
  type AutoTopUpRecord,
  beginDue,
  dropMethod,
  findAutoTopUp,
  lockAutoTopUp,
  noteForgotten,
  noteSetUp,
  saveAutoTopUp,
  type ToForget,
  takeCharges,
  takeToForget,
} from "../../store/billing/auto-topup.ts";
import { findPayment } from "../../store/billing/payments.ts";
import type { Notifications } from "../../store/database/notifications.ts";
import { type Sql, tx } from "../../store/database/tx.ts";
import { charge, learnStored, type PaymentDeps } from "./pay.ts";
import { returnUrls } from "./return-urls.ts";

/** What the RPCs depend on. */
export interface AutoTopUpDeps {
  sql: Sql;
  /** The return address of payers without another one. */
  home: string;
  /** Refuses with `billing_unavailable` where no payment processor is set up. */
  payments(): PaymentDeps;
}

type AutoTopUpCalls = "getAutoTopUp" | "updateAutoTopUp" | "setUpPaymentMethod" | "deletePaymentMethod";

/** A page of the processor is open for so long. */
const PAGE_S = 23 * 3600;

/** The RPCs about automatic top-up. */
export function autoTopUpCalls({
  sql,
  home,
  payments,
}: AutoTopUpDeps): Pick<Implementation<typeof BillingService>, AutoTopUpCalls> {
  return {
    async getAutoTopUp(_request, call) {
      return create(GetAutoTopUpResponseSchema, { autoTopup: messageOf(await findAutoTopUp(sql, keyOf(call).orgId)) });
    },

    async updateAutoTopUp(request, call) {
      const { orgId, keyId } = keyOf(call);
      const asked = changesOf(request);
      if (request.enabled) {
        const deps = payments();
        const { setupSession } = await findAutoTopUp(sql, orgId);
        // The processor's message about the page may have been lost, or be on its way.
        if (setupSession !== undefined) await learnStored(deps, setupSession, byCall(call));
      }
      const rule = await tx(sql, async (tx) => {
        const before = await lockAutoTopUp(tx, orgId);
        const after = { ...before, ...asked };
        assertSound(after);
        await saveAutoTopUp(tx, orgId, { ...after, keyId, renews: request.enabled === true });
        const { enabled, thresholdMicro = 0, amountMicro = 0, ceilingMicro = 0 } = after;
        const details = {
          enabled,
          threshold_usd: toUsd(thresholdMicro),
          amount_usd: toUsd(amountMicro),
          monthly_ceiling_usd: toUsd(ceilingMicro),
        };
        await audit(tx, { ...byCall(call), orgId, action: "auto_topup.changed", subject: orgId, details });
        return findAutoTopUp(tx, orgId);
      });
      return create(UpdateAutoTopUpResponseSchema, { autoTopup: messageOf(rule) });
    },

    async setUpPaymentMethod(request: SetUpPaymentMethodRequest, call) {
      const { orgId } = keyOf(call);
      const { processor } = payments();
      const urls = returnUrls(request, home);
      const expiresAt = nowSeconds() + PAGE_S;
      const { customerId } = await findAutoTopUp(sql, orgId);
      const page = await processor.charges.setUp({ ...urls, setUpId: newId("pms"), orgId, customerId, expiresAt });
      await tx(sql, async (tx) => {
        await noteSetUp(tx, orgId, { sessionId: page.sessionId, expiresAt });
        await audit(tx, { ...byCall(call), orgId, action: "payment_method.requested", subject: orgId });
      });
      return create(SetUpPaymentMethodResponseSchema, { setupUrl: page.url, expiresAt });
    },

    async deletePaymentMethod(_request, call) {
      const { orgId } = keyOf(call);
      const { method } = await findAutoTopUp(sql, orgId);
      if (method) await payments().processor.charges.forget(method.methodId);
      const rule = await tx(sql, async (tx) => {
        const before = await lockAutoTopUp(tx, orgId);
        await dropMethod(tx, orgId);
        if (before.method || before.setupSession !== undefined)
          await audit(tx, { ...byCall(call), orgId, action: "payment_method.deleted", subject: orgId });
        return findAutoTopUp(tx, orgId);
      });
      return create(DeletePaymentMethodResponseSchema, { autoTopup: messageOf(rule) });
    },
  };
}

function changesOf(request: UpdateAutoTopUpRequest): Partial<AutoTopUpRecord> {
  const { enabled, thresholdUsd, amountUsd, monthlyCeilingUsd } = request;
  return {
    ...(enabled !== undefined && { enabled }),
    ...(thresholdUsd !== undefined && { thresholdMicro: centsOf(thresholdUsd, "threshold_usd") }),
    ...(amountUsd !== undefined && { amountMicro: centsOf(amountUsd, "amount_usd") }),
    ...(monthlyCeilingUsd !== undefined && { ceilingMicro: centsOf(monthlyCeilingUsd, "monthly_ceiling_usd") }),
  };
}

function centsOf(usd: number, field: string): number {
  const micro = fromUsd(usd, field);
  if (micro % MICRO_PER_CENT !== 0) throw violation(field, "must be of whole cents", "multiple_of");
  return micro;
}

/** Refuses a rule that is on and lacks something. */
function assertSound({ enabled, thresholdMicro, amountMicro, ceilingMicro, method }: AutoTopUpRecord): void {
  if (amountMicro !== undefined && ceilingMicro !== undefined && ceilingMicro < amountMicro)
    throw violation("monthly_ceiling_usd", "must be at least amount_usd", "greater_than_equal");
  if (!enabled) return;
  const needed = { threshold_usd: thresholdMicro, amount_usd: amountMicro, monthly_ceiling_usd: ceilingMicro };
  for (const [field, value] of Object.entries(needed))
    if (value === undefined) throw violation(field, "is required to turn it on", "missing");
  if (!method)
    throw refuse(
      Reason.PAYMENT_METHOD_MISSING,
      "store a payment method first: POST /v1/billing/payment-method opens a page",
    );
}

function messageOf(rule: AutoTopUpRecord): AutoTopUp {
  const { enabled, thresholdMicro = 0, amountMicro = 0, ceilingMicro = 0, method, declines, nextTry } = rule;
  return create(AutoTopUpSchema, {
    enabled,
    thresholdUsd: toUsd(thresholdMicro),
    amountUsd: toUsd(amountMicro),
    monthlyCeilingUsd: toUsd(ceilingMicro),
    chargedThisMonthUsd: toUsd(rule.chargedMicro),
    declines,
    ...(method && {
      paymentMethod: {
        kind: method.kind,
        since: method.since,
        ...(method.brand !== undefined && { brand: method.brand }),
        ...(method.last4 !== undefined && { last4: method.last4 }),
      },
    }),
    ...(rule.pendingPayment !== undefined && { pendingPaymentId: rule.pendingPayment }),
    ...(nextTry > nowSeconds() && { notBefore: nextTry }),
  });
}

/** What charging depends on. */
export interface AutoTopUpWork extends PaymentDeps {
  notifications: Notifications;
}

/** Charges at one time, on one worker. */
const AT_ONCE = 8;

/** Buys credit where a balance is below its threshold; any number of workers share the organisations of one database. */
export class AutoTopUps {
  readonly #deps: AutoTopUpWork;
  readonly #rounds: Polling;

  /** Begins at once. */
  constructor(deps: AutoTopUpWork) {
    this.#deps = deps;
    this.#rounds = new Polling({
      notifications: deps.notifications,
      channel: "topup_due",
      look: () => this.#look(),
      failed: (cause) => deps.warn(`automatic top-ups wait: ${textOf(cause)}`),
    });
  }

  /** Begins no more, and waits for what is being charged. */
  close(): Promise<void> {
    return this.#rounds.close();
  }

  async #look(): Promise<undefined> {
    while (!this.#rounds.over && (await this.#begin()));
    while (!this.#rounds.over) {
      const { sql } = this.#deps;
      const [charges, leftOver] = [await takeCharges(sql, AT_ONCE), await takeToForget(sql, AT_ONCE)];
      if (charges.length + leftOver.length === 0) return;
      await Promise.all([...charges.map((each) => this.#charge(each)), ...leftOver.map((each) => this.#forget(each))]);
    }
  }

  /** What the processor did not answer stays, and is asked again. */
  async #forget({ id, methodId, setupSession, isOver }: ToForget): Promise<void> {
    const { sql, processor, warn } = this.#deps;
    try {
      const given = setupSession === null ? undefined : await processor.charges.askSetUp(setupSession);
      const method = methodId ?? given?.methodId;
      if (method !== undefined) await processor.charges.forget(method);
      if (method !== undefined || isOver) await noteForgotten(sql, id);
    } catch (thrown) {
      warn(
        `a payment method of an organisation that was deleted is still stored, and is asked about again: ${textOf(thrown)}`,
      );
    }
  }

  /** Answers whether there was something to begin. */
  #begin(): Promise<boolean> {
    return tx(this.#deps.sql, async (tx) => {
      const begun = await beginDue(tx);
      if (!begun) return false;
      const { orgId, paymentId, keyId, isNews } = begun;
      const amountUsd = toUsd(begun.amountMicro);
      if (paymentId !== undefined) {
        const details = { amount_usd: amountUsd, automatic: true, turned_on_by: keyId };
        await audit(tx, { actor: "system", orgId, action: "payment.requested", subject: paymentId, details });
      } else if (isNews)
        await emit(tx, orgId, { case: "topupFailed", value: { reason: "ceiling_reached", amountUsd } });
      return true;
    });
  }

  /** What is in doubt stays pending, and is asked about again. */
  async #charge({ orgId, id }: { orgId: string; id: string }): Promise<void> {
    const { sql, warn } = this.#deps;
    try {
      const payment = await findPayment(sql, orgId, id);
      if (payment?.status === "pending") await charge(this.#deps, payment, { actor: "system" });
    } catch (thrown) {
      warn(`the automatic payment ${id} is in doubt, and is asked about again: ${textOf(thrown)}`);
    }
  }
}

const textOf = (thrown: unknown): string => {
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.cause instanceof Error ? `${thrown.message} (${thrown.cause.message})` : thrown.message;
};
