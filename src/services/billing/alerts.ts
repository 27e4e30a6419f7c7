/** Tells an organisation that its balance or a budget is low, or was not enough: each once, until there is more. */

import { toUsd } from "../../billing/price.ts";
import type { KeyPrincipal } from "../../call.ts";
import { now } from "../../clock.ts";
import { Reason } from "../../errors.ts";
import { type EventData, emit } from "../../events/emit.ts";
import { tellExhausted, tellLow } from "../../store/account/orgs.ts";
import { type ReachedShare, reachedShares } from "../../store/billing/alerts.ts";
import type { Notifications } from "../../store/database/notifications.ts";
import { type Sql, type Tx, tx } from "../../store/database/tx.ts";

/** What alerts depend on. */
export interface AlertDeps {
  sql: Sql;
  notifications: Pick<Notifications, "on">;
  warn(text: string): void;
}

/** The most organisations, keys and workspaces that this process remembers as alerted. */
const REMEMBERED = 10_000;
/** How long a budget that was not enough is remembered: it may be renewed. */
const BUDGET_MS = 60_000;

type Found = readonly { orgId: string; workspaceId?: string | undefined; happening: EventData }[];

/** Watches balances and budgets, as every replica does: the database records the alerts. */
export class BalanceAlerts {
  readonly #deps: AlertDeps;
  readonly #off: (() => void)[];
  /** Those that were alerted of a shortage: until when further refusals need no query. */
  readonly #told = new Map<string, number>();
  readonly #pending = new Set<Promise<void>>();

  constructor(deps: AlertDeps) {
    this.#deps = deps;
    this.#off = [
      deps.notifications.on("balance_low", (orgId) => this.#tell(orgId, low)),
      deps.notifications.on("budget_used", (holder) => {
        this.#told.delete(holder);
        this.#tell(holder, (tx) => shares(tx, holder, false));
      }),
      deps.notifications.on(
        "lease_returned",
        (orgId) => this.#told.delete(orgId),
        () => this.#told.clear(),
      ),
    ];
  }

  /** Takes a call that was refused; it alerts of those that the balance or a budget did not cover. */
  unpaid(reason: Reason, { orgId, keyId, workspaceId, ancestors = [] }: KeyPrincipal): void {
    if (reason === Reason.INSUFFICIENT_CREDITS) this.#lacks(orgId, Number.POSITIVE_INFINITY, exhausted);
    const holder =
      reason === Reason.KEY_BUDGET_EXHAUSTED
        ? keyId
        : reason === Reason.WORKSPACE_BUDGET_EXHAUSTED
          ? workspaceId
          : undefined;
    if (holder !== undefined) this.#lacks(holder, now() + BUDGET_MS, (tx) => shares(tx, holder, true));
    // Which of the budgets above was short is not known here; each alerts by its own use.
    if (reason === Reason.KEY_BUDGET_EXHAUSTED)
      for (const above of ancestors) this.#lacks(above, now() + BUDGET_MS, (tx) => shares(tx, above, false));
  }

  /** Takes nothing more; resolves when the pending alerts are written. */
  async close(): Promise<void> {
    for (const off of this.#off) off();
    await Promise.all(this.#pending);
  }

  #lacks(name: string, untilMs: number, what: (tx: Tx, name: string) => Promise<Found>): void {
    if ((this.#told.get(name) ?? 0) > now()) return;
    if (this.#told.size >= REMEMBERED) this.#told.clear();
    this.#told.set(name, untilMs);
    this.#tell(name, what);
  }

  #tell(name: string, what: (tx: Tx, name: string) => Promise<Found>): void {
    const telling = tx(this.#deps.sql, async (tx) => {
      for (const { orgId, workspaceId, happening } of await what(tx, name))
        await emit(tx, orgId, happening, workspaceId);
    }).catch((error: unknown) => {
      this.#told.delete(name);
      this.#deps.warn(`an alert was not told: ${error instanceof Error ? error.message : error}`);
    });
    this.#pending.add(telling);
    void telling.finally(() => this.#pending.delete(telling));
  }
}

async function low(tx: Tx, orgId: string): Promise<Found> {
  const found = await tellLow(tx, orgId);
  if (!found) return [];
  const value = { balanceUsd: toUsd(found.balanceMicro), thresholdUsd: toUsd(found.lowMicro) };
  return [{ orgId, happening: { case: "balanceLow", value } }];
}

async function exhausted(tx: Tx, orgId: string): Promise<Found> {
  const found = await tellExhausted(tx, orgId);
  if (!found) return [];
  // What is exhausted was low before, however fast it went.
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
