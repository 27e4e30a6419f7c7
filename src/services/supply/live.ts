/** The supply as this replica plans from it: a snapshot in memory, swapped whenever the database says that supply changed. */
import { random, steadyNow } from "../../ambient.ts";
import type { CatalogModel, Offering } from "../../routing/index.ts";
import { buildSnapshot, HealthBoard, SIMULATED_PROVIDER, type Snapshot } from "../../routing/index.ts";
import type { Upstream } from "../../upstream/index.ts";
import type { Target, Wire } from "../../upstream/wire.ts";

/** One live offering: what the router knows of it, and how it is reached. */
export interface LiveOffering {
  offering: Offering;
  runtime: string;
  target: Target;
}

/** Everything that a snapshot is made from, as the store has it. */
export interface SupplyFacts {
  offerings: readonly LiveOffering[];
  catalog: readonly CatalogModel[];
  providers: readonly string[];
}

/** How one offering is called. */
export interface Reached {
  wire: Wire;
  target: Target;
}

/** The routable supply of this replica. */
export class LiveSupply {
  readonly #upstream: Upstream;
  readonly health: HealthBoard;
  #snapshot: Snapshot;
  #reached = new Map<string, Reached>();

  constructor(upstream: Upstream) {
    this.#upstream = upstream;
    this.#snapshot = buildSnapshot({ offerings: [], catalog: [], providers: [] });
    this.health = new HealthBoard(this.#snapshot, random);
  }

  /** What plans are made from. */
  get snapshot(): Snapshot {
    return this.#snapshot;
  }

  /** Takes over to what the store has now; calls under way keep the plan that they have. */
  adopt({ offerings, catalog, providers }: SupplyFacts): void {
    const reached = new Map<string, Reached>();
    const routable: Offering[] = [];
    for (const { offering, runtime, target } of offerings) {
      const wire = this.#upstream.wireOf(runtime);
      if (!wire) continue; // a runtime that this version of the gateway does not speak is no supply here
      reached.set(offering.id, { wire, target });
      routable.push(offering);
    }
    this.#reached = reached;
    this.#snapshot = buildSnapshot({ offerings: routable, catalog, providers });
    this.health.adopt(this.#snapshot, steadyNow());
  }

  /** How an offering of a plan is called. `actionDim` is the numbers per step that its answer will be checked for. */
  reach(offering: Offering, actionDim: number | undefined): Reached {
    const known = this.#reached.get(offering.id);
    if (known) return { wire: known.wire, target: { ...known.target, actionDim } };
    return { wire: this.#placeholders(), target: placeholderTarget(offering, actionDim) };
  }

  /** Offerings that are live, placeholders apart. */
  get live(): readonly Offering[] {
    return this.#snapshot.offerings.slice(0, this.#snapshot.registered);
  }

  /** Addresses of the live offerings, for the operator. */
  endpoints(): string[] {
    return [...new Set([...this.#reached.values()].map(({ target }) => target.endpoint))].sort();
  }

  #placeholders(): Wire {
    const wire = this.#upstream.wireOf(SIMULATED_PROVIDER);
    if (!wire) throw new Error("the wire of placeholders is always there");
    return wire;
  }
}

function placeholderTarget({ id, model, dtMs }: Offering, actionDim: number | undefined): Target {
  const auth = { type: "none" as const, secret: "" };
  return { offeringId: id, model, endpoint: "", auth, profile: undefined, actionDim, dtMs };
}
