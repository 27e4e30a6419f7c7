/** Credit: the leases of this replica on the ledger, the payment processor, idempotent calls, and warnings of low balances. */
import { CreditLeaser } from "../billing/credit-leaser.ts";
import { type Processor, stripeProcessor } from "../billing/payments.ts";
import type { Leaser } from "../inference/call-billing.ts";
import { BalanceAlerts } from "../services/billing/alerts.ts";
import { askForgotten } from "../services/billing/pay.ts";
import { Claims } from "../store/billing/idempotency.ts";
import { Ledger } from "../store/billing/ledger.ts";
import type { AppContext } from "./context.ts";
import { patiently, type Storage } from "./storage.ts";

/** Billing, opened. */
export interface Billing {
  readonly leaser: Leaser;
  /** Undefined where no payment processor is configured. */
  readonly processor: Processor | undefined;
  readonly alerts: BalanceAlerts;
  /** Claims of idempotency keys. */
  readonly claims: Claims;
  /** Hears of what an operator should know. */
  warn(text: string): void;
  /** Logs at level error, and counts for `/metrics`, what an operator has to decide. */
  alert(text: string): void;
  /** How often that happened in this process. */
  undecidedPayments(): number;
  /** Asks the payment processor about payments that nothing was heard of; undefined without one. */
  readonly askForgotten: (() => Promise<unknown>) | undefined;
}

/** Opens billing: recovers what earlier processes of this replica left, then leases anew. A database that is away is waited for. */
export async function openBilling(
  { config, log, replica, closers }: AppContext,
  { sql, line, notifications }: Storage,
): Promise<Billing> {
  // The embedded database has one process at a time, which is the same replica at each start.
  const ledger = new Ledger({ sql, line, notifications, replica: config.databaseUrl ? replica : "embedded" });
  const leaser: Leaser = await patiently(log, () => CreditLeaser.open(ledger));
  closers.add(() => leaser.close());
  const warn = (text: string): void => log.warn(text);
  let undecided = 0;
  const alert = (text: string): void => {
    undecided += 1;
    log.error(text);
  };
  const alerts = new BalanceAlerts({ sql, notifications, warn });
  closers.add(() => alerts.close());
  const claims = new Claims(sql);
  closers.add(async () => claims.close());
  const { secretKey, webhookSecret, apiBase } = config.stripe;
  const processor = secretKey === undefined ? undefined : stripeProcessor({ secretKey, webhookSecret, apiBase });
  return {
    leaser,
    processor,
    alerts,
    claims,
    warn,
    alert,
    undecidedPayments: () => undecided,
    askForgotten: processor && (() => askForgotten({ sql, leaser, warn, alert, processor })),
  };
}
