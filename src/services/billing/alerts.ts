/** Tells an organisation that its balance is low, or was not enough: each once, until credit is added again. */
import { toUsd } from "../../money/price.ts";
import type { Notices } from "../../store/notices.ts";
import { tellExhausted, tellLow } from "../../store/orgs.ts";
import { type Sql, type Tx, tx } from "../../store/tx.ts";
import { emit, type Happening } from "../emit.ts";

/** What alerts need of the house. */
export interface AlertParts {
  sql: Sql;
  notices: Pick<Notices, "on">;
  warn(text: string): void;
}

/** The most organisations of which this process remembers that they were told. */
const REMEMBERED = 10_000;

/** Watches balances, beside every other replica: the database knows who was told. */
export class BalanceAlerts {
  readonly #parts: AlertParts;
  readonly #off: (() => void)[];
  /** Told of an empty balance, and no credit has come since: their next refusals ask nobody. */
  readonly #told = new Set<string>();
  readonly #pending = new Set<Promise<void>>();

  constructor(parts: AlertParts) {
    this.#parts = parts;
    this.#off = [
      parts.notices.on("balance_low", (orgId) => this.#tell(orgId, low)),
      parts.notices.on(
        "lease_returned",
        (orgId) => this.#told.delete(orgId),
        () => this.#told.clear(),
      ),
    ];
  }

  /** Hears of a call that the balance did not cover. */
  unpaid(orgId: string): void {
    if (this.#told.has(orgId)) return;
    if (this.#told.size >= REMEMBERED) this.#told.clear();
    this.#told.add(orgId);
    this.#tell(orgId, exhausted);
  }

  /** Hears of nothing more; resolves when what it heard of is told. */
  async close(): Promise<void> {
    for (const off of this.#off) off();
    await Promise.all(this.#pending);
  }

  #tell(orgId: string, what: (tx: Tx, orgId: string) => Promise<Happening | undefined>): void {
    const telling = tx(this.#parts.sql, async (tx) => {
      const happening = await what(tx, orgId);
      if (happening) await emit(tx, orgId, happening);
    }).catch((error: unknown) => {
      this.#told.delete(orgId);
      this.#parts.warn(`an alert of a balance was not told: ${error instanceof Error ? error.message : error}`);
    });
    this.#pending.add(telling);
    void telling.finally(() => this.#pending.delete(telling));
  }
}

async function low(tx: Tx, orgId: string): Promise<Happening | undefined> {
  const found = await tellLow(tx, orgId);
  if (!found) return undefined;
  const { balanceMicro, lowMicro } = found;
  return { case: "balanceLow", value: { balanceUsd: toUsd(balanceMicro), thresholdUsd: toUsd(lowMicro) } };
}

async function exhausted(tx: Tx, orgId: string): Promise<Happening | undefined> {
  const found = await tellExhausted(tx, orgId);
  return found && { case: "balanceExhausted", value: { balanceUsd: toUsd(found.balanceMicro) } };
}
