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

/** Organisations whose own share is remembered. */
const MOST_ORGS = 10_000;

/** The replica's budget, and beside it those of the organisations that settled a share of their own: a hedge needs both. */
export class HedgeBudgets {
  readonly #all = new HedgeBudget();
  readonly #own = new Map<string, { share: number; hedges: Hedges; budget: HedgeBudget }>();

  /** The budget of an organisation's calls. */
  of(orgId: string, share: number): Hedges {
    if (share === SHARE) return this.#all;
    const known = this.#own.get(orgId);
    if (known?.share === share) return known.hedges;
    const budget = new HedgeBudget(share);
    const all = this.#all;
    const hedges: Hedges = {
      earn: () => {
        all.earn();
        budget.earn();
      },
      spend: () => budget.has && all.spend() && budget.spend(),
    };
    if (this.#own.size >= MOST_ORGS) this.#own.clear();
    this.#own.set(orgId, { share, hedges, budget });
    return hedges;
  }
}
