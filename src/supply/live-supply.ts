/** The supply as this replica plans from it: a snapshot in memory, swapped whenever the database says that supply changed. */
import type { SafetyBounds } from "../../gen/limber/v1/action_pb.ts";
import { ContractSource, type InputContract } from "../../gen/limber/v1/input_contract_pb.ts";
import { after, steadyNow } from "../clock.ts";
import { AttemptFailure, UpstreamFailure } from "../contracts/contract.ts";
import { random } from "../random.ts";
import {
  buildingSnapshot,
  buildSnapshot,
  type CatalogModel,
  HealthTracker,
  type Offering,
  SIMULATED_PROVIDER,
  type Snapshot,
} from "../routing/index.ts";
import type { Sliced } from "../slices.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { ModelRecord, OfferingStatus, ProviderRecord, SupplyRecord } from "../store/supply/supply.ts";
import { mayBeInput } from "../upstream/blame.ts";
import type { Upstream } from "../upstream/index.ts";
import type { UpstreamTarget, Wire, WireLayout } from "../upstream/wire.ts";

/** One live offering: what the router knows of it, and how it is reached. */
export interface LiveOffering {
  offering: Offering;
  runtime: string;
  /** What it runs on, as its provider says. */
  hardware: string;
  /** Its last probe failed; another failure suspends it. */
  degraded: boolean;
  target: UpstreamTarget;
  /** What no action of it may exceed. */
  bounds?: SafetyBounds | undefined;
  /** How it was called last: wires know their servers by the target, and must not meet a new one with every call. */
  reached?: Reached;
}

/** Everything that a snapshot is made from, as the store has it. */
export interface SupplyFacts {
  offerings: readonly LiveOffering[];
  catalog: readonly CatalogModel[];
  providers: readonly string[];
}

/** The live offerings of a snapshot, by its rows. */
interface LiveByRow {
  readonly snapshot: Snapshot;
  readonly live: readonly (LiveOffering | undefined)[];
}

const liveIn = (rows: LiveByRow | undefined, id: string): LiveOffering | undefined =>
  rows?.live[rows.snapshot.rowOf(id)];

const NO_PRIVATE_MODELS: PrivateModels = new Map();

/** How one offering is called. */
export interface Reached {
  wire: Wire;
  target: UpstreamTarget;
  /** What no action of it may exceed. */
  bounds?: SafetyBounds | undefined;
}

/** The routable supply of this replica. */
export class LiveSupply {
  readonly #upstream: Upstream;
  readonly health: HealthTracker;
  #current: LiveByRow | undefined;
  /** Those of the snapshot that plans are still made from while the next one is built. */
  #previous: LiveByRow | undefined;

  #own: PrivateModels = NO_PRIVATE_MODELS;

  constructor(upstream: Upstream) {
    this.#upstream = upstream;
    this.health = new HealthTracker(buildSnapshot({ offerings: [], catalog: [], providers: [] }), random);
    this.health.mayBeInput = (id, failure) => {
      const known = this.find(id);
      // What is declared is held against a request before it is sent.
      return known !== undefined && mayBeInput(known.runtime, failure, known.offering.declared?.input !== undefined);
    };
  }

  /** What plans are made from. */
  get snapshot(): Snapshot {
    return this.health.snapshot;
  }

  /** Takes over to what the store has now, in its last slice; calls under way keep the plan that they have. */
  *adopting({ offerings, catalog, providers }: SupplyFacts, own: PrivateModels = NO_PRIVATE_MODELS): Sliced<void> {
    const known: LiveOffering[] = [];
    const routable: Offering[] = [];
    let looked = 0;
    for (const each of offerings) {
      if (looked++ % 64 === 0) yield;
      const wire = this.#upstream.wireOf(each.runtime);
      if (!wire) continue; // a runtime that this version of the gateway does not speak is no supply here
      if (wire.isHere?.(each.target) === false) continue; // nor is a server that has to dial and hasn't
      known.push(each);
      routable.push(each.offering);
    }
    const snapshot = yield* buildingSnapshot({ offerings: routable, catalog, providers }, this.snapshot);
    const live: (LiveOffering | undefined)[] = new Array(snapshot.offerings.length);
    for (const each of known) {
      live[snapshot.rowOf(each.offering.id)] = each;
      if (looked++ % 64 === 0) yield;
    }
    this.#previous = this.#current;
    this.#current = { snapshot, live };
    this.#own = own;
    yield* this.health.adopting(snapshot, steadyNow());
    this.#previous = undefined;
  }

  /** Models that an organization declared and that nobody else sees yet; undefined where it has none. */
  ownModels(orgId: string): ReadonlySet<string> | undefined {
    return this.#own.get(orgId);
  }

  /** How an offering of a plan is called; one that is gone is a failed attempt. `actionDim` is the numbers per step that its answer will be checked for. */
  reach(offering: Offering, actionDim: number | undefined): Reached {
    const known = liveIn(this.#current, offering.id) ?? liveIn(this.#previous, offering.id);
    const before = known?.reached;
    if (before && before.target.actionDim === actionDim) return before;
    const wire = known && this.#upstream.wireOf(known.runtime);
    if (wire) {
      const reached = { wire, target: { ...known.target, actionDim }, bounds: known.bounds };
      known.reached = reached;
      return reached;
    }
    if (!offering.simulated) throw new UpstreamFailure(AttemptFailure.UNREACHABLE, "it was withdrawn meanwhile");
    return { wire: this.#placeholders(), target: placeholderTarget(offering, actionDim) };
  }

  /** Offerings that are live, placeholders apart. */
  get live(): readonly Offering[] {
    const { offerings, order, registered } = this.snapshot;
    return Array.from(order.subarray(0, registered), (row) => offerings[row]!);
  }

  /** A live offering, as the newest snapshot has it. */
  find(offeringId: string): LiveOffering | undefined {
    return liveIn(this.#current, offeringId);
  }

  /** What an offering says that it reads; where that follows from a profile, with pictures of the size that its server announced last. */
  inputOf({ id, declared }: Offering): InputContract | undefined {
    const input = declared?.input;
    if (input?.cameras === undefined || declared?.inputSource !== ContractSource.PROFILE) return input;
    const known = this.find(id);
    const size = known && this.#upstream.wireOf(known.runtime)?.pictureSize?.(known.target);
    if (size === undefined) return input;
    const { width, height } = size;
    return {
      ...input,
      cameras: { ...input.cameras, cameras: input.cameras.cameras.map((each) => ({ ...each, width, height })) },
    };
  }

  /** What the server of a live offering sees and does, where its wire maps observations. */
  layoutOf(offeringId: string): WireLayout | undefined {
    const known = this.find(offeringId);
    return known && this.#upstream.wireOf(known.runtime)?.layout?.(known.target);
  }

  /** Addresses of the live offerings, for the operator. */
  endpoints(): string[] {
    return [...new Set((this.#current?.live ?? []).flatMap((each) => each?.target.endpoint ?? []))].sort();
  }

  #placeholders(): Wire {
    const wire = this.#upstream.wireOf(SIMULATED_PROVIDER);
    if (!wire) throw new Error("the wire of placeholders is always there");
    return wire;
  }
}

function placeholderTarget({ id, model, dtMs }: Offering, actionDim: number | undefined): UpstreamTarget {
  const auth = { type: "none" as const, secret: "" };
  return { offeringId: id, model, endpoint: "", auth, profile: undefined, actionDim, dtMs };
}

const RETRY_MS = 2_000;

/** Loads supply at the start and whenever the database says that it changed; what cannot be loaded is tried again. */
export class SupplyLoader {
  readonly #load: () => Promise<void>;
  readonly #warn: (text: string, cause: unknown) => void;
  #off = (): void => {};
  #running: Promise<void> | undefined;
  #again = false;
  #closed = false;
  #forget = (): void => {};
  loaded = false;
  warnings: string[] = [];

  /** `warn` gets the first of several failures in a row. */
  constructor(load: () => Promise<void>, warn: (text: string, cause: unknown) => void) {
    this.#load = load;
    this.#warn = warn;
  }

  /** From now on loads whenever the database says that supply changed. */
  follow(notifications: Notifications): void {
    const look = (): void => void this.load();
    this.#off = notifications.on("supply_changed", look, look);
  }

  /** Resolves when what the database had at the call is loaded, or could not be. */
  async load(): Promise<void> {
    this.#again = true;
    this.#running ??= this.#run();
    return this.#running;
  }

  close(): void {
    this.#closed = true;
    this.#off();
    this.#forget();
  }

  async #run(): Promise<void> {
    while (this.#again && !this.#closed) {
      this.#again = false;
      try {
        await this.#load();
        this.loaded = true;
        this.warnings = [];
      } catch (cause) {
        if (this.warnings.length === 0) this.#warn("the supply can't be read from the database", cause);
        this.warnings = ["the supply could not be read from the database; the last one that could is in use"];
        this.#forget();
        if (!this.#closed) this.#forget = after(RETRY_MS, () => void this.load());
      }
    }
    // In the same turn as the last look at `#again`, so that no change falls between two runs.
    this.#running = undefined;
  }
}

/** States of an offering that has not passed a probe yet, or is gone. */
const UNPROVEN: ReadonlySet<OfferingStatus> = new Set(["pending", "verifying", "rejected", "removed"]);

/** Models that are their declarers' alone: slugs by organization. */
type PrivateModels = ReadonlyMap<string, ReadonlySet<string>>;

/** What a model is that serves these contracts, where nobody says more of it. */
export const kindOf = ({ contracts }: { contracts: readonly string[] }): ModelRecord["kind"] =>
  contracts.includes("act") ? "policy" : contracts.includes("predict") ? "world-model" : "reasoning";

/** The providers that everybody sees. */
export function* provenProviders({ providers, offerings }: SupplyRecord): Sliced<ProviderRecord[]> {
  const proven = new Set<string>();
  for (let i = 0; i < offerings.length; i++) {
    const { provider, status } = offerings[i]!;
    if (!UNPROVEN.has(status)) proven.add(provider);
    if (i % 256 === 0) yield;
  }
  return providers.filter(({ name }) => proven.has(name));
}

/** Supply without the models that nobody but their declarers may see, and those. */
export function* dividing(known: SupplyRecord): Sliced<{ open: SupplyRecord; own: PrivateModels }> {
  const declared = new Set<string>();
  const models: ModelRecord[] = [];
  for (let i = 0; i < known.models.length; i++) {
    const { declaredBy, slug } = known.models[i]!;
    if (declaredBy !== undefined) declared.add(slug);
    if (i % 256 === 0) yield;
  }
  const own = new Map<string, Set<string>>();
  if (declared.size === 0) return { open: known, own };
  for (let i = 0; i < known.offerings.length; i++) {
    const { model, status } = known.offerings[i]!;
    if (!UNPROVEN.has(status)) declared.delete(model);
    if (i % 256 === 0) yield;
  }
  const belongs = (slug: string, orgId: string): void => {
    own.set(orgId, (own.get(orgId) ?? new Set()).add(slug));
  };
  for (let i = 0; i < known.models.length; i++) {
    const model = known.models[i]!;
    if (!declared.has(model.slug)) models.push(model);
    else if (model.declaredBy !== undefined) belongs(model.slug, model.declaredBy);
    if (i % 256 === 0) yield;
  }
  for (let i = 0; i < known.offerings.length; i++) {
    const { model, orgId } = known.offerings[i]!;
    if (declared.has(model)) belongs(model, orgId);
    if (i % 256 === 0) yield;
  }
  return { open: { ...known, models }, own };
}
