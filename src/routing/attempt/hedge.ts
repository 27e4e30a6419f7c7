/** How many hedges may be sent: when everything is slow, asking twice makes it slower. */

/** A hedge is earned by twenty calls. Source: performance, "Tail". */
const SHARE = 0.05;
const BURST = 20;

/** A token bucket that calls fill and hedges empty; `share` is how many hedges a call earns. */
export class HedgeBudget {
  readonly #share: number;
  readonly #burst: number;
  #tokens: number;

  constructor(share = SHARE) {
    this.#share = share;
    // What may come at once shrinks with the share; a share of nothing earns nothing.
    this.#burst = share === 0 ? 0 : Math.max(1, Math.round(BURST * Math.min(1, share / SHARE)));
    this.#tokens = this.#burst;
  }

  /** Notes a call. */
  earn(): void {
    this.#tokens = Math.min(this.#burst, this.#tokens + this.#share);
  }

  /** Whether one hedge is paid for. */
  get has(): boolean {
    return this.#tokens >= 1;
  }

  /** Takes what one hedge costs; false when there is not enough. */
  spend(): boolean {
    if (!this.has) return false;
    this.#tokens -= 1;
    return true;
  }
}

/** What attempts ask of a budget. */
export type Hedges = Pick<HedgeBudget, "earn" | "spend">;

/** Organizations whose budgets are kept; the one that was made first is dropped for another. */
const MAX_ORGS = 10_000;

/** The budget of each organization, by its own share: no organization's hedges use up another's. */
export class HedgeBudgets {
  readonly #budgets = new Map<string, { readonly share: number; readonly budget: HedgeBudget }>();

  /** The budget of an organization's calls. */
  of(orgId: string, share: number): Hedges {
    const known = this.#budgets.get(orgId);
    if (known?.share === share) return known.budget;
    const budget = new HedgeBudget(share);
    if (known === undefined && this.#budgets.size >= MAX_ORGS) this.#budgets.delete(this.#budgets.keys().next().value!);
    this.#budgets.set(orgId, { share, budget });
    return budget;
  }
}
