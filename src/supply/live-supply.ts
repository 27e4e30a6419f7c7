/** The supply that this replica plans from: a snapshot in memory, replaced whenever the database reports a change. */
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

/** One live offering: its routing facts, and how to call it. */
export interface LiveOffering {
  offering: Offering;
  runtime: string;
  /** The hardware that its provider declares. */
  hardware: string;
  /** Its last probe failed; another failure suspends it. */
  degraded: boolean;
  target: UpstreamTarget;
  /** Safety bounds of its actions. */
  bounds?: SafetyBounds | undefined;
  /** Its last target: wires identify servers by the target object, which must stay the same between calls. */
  reached?: Reached;
}

/** The stored input of a snapshot. */
export interface SupplyFacts {
  offerings: readonly LiveOffering[];
  catalog: readonly CatalogModel[];
  providers: readonly string[];
}

/** The live offerings of a snapshot, by row. */
interface LiveByRow {
  readonly snapshot: Snapshot;
  readonly live: readonly (LiveOffering | undefined)[];
}

const liveIn = (rows: LiveByRow | undefined, id: string): LiveOffering | undefined =>
  rows?.live[rows.snapshot.rowOf(id)];

const NO_PRIVATE_MODELS: PrivateModels = new Map();

/** How to call one offering. */
export interface Reached {
  wire: Wire;
  target: UpstreamTarget;
  /** Safety bounds of its actions. */
  bounds?: SafetyBounds | undefined;
}

/** The routable supply of this replica. */
export class LiveSupply {
  readonly #upstream: Upstream;
  readonly health: HealthTracker;
  #current: LiveByRow | undefined;
  /** The live offerings of the present snapshot, which plans use while the next one is built. */
  #previous: LiveByRow | undefined;

  #own: PrivateModels = NO_PRIVATE_MODELS;

  constructor(upstream: Upstream) {
    this.#upstream = upstream;
    this.health = new HealthTracker(buildSnapshot({ offerings: [], catalog: [], providers: [] }), random);
    this.health.mayBeInput = (id, failure) => {
      const known = this.find(id);
      // Declared inputs are checked before a request is sent.
      return known !== undefined && mayBeInput(known.runtime, failure, known.offering.declared?.input !== undefined);
    };
  }

  /** The snapshot that plans are made from. */
  get snapshot(): Snapshot {
    return this.health.snapshot;
  }

  /** Switches to the stored supply in the last slice; running calls keep their plans. */
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

  /** Models that an organization declared and that are not public yet; undefined if it has none. */
  ownModels(orgId: string): ReadonlySet<string> | undefined {
    return this.#own.get(orgId);
  }

  /**
   * Returns how to call an offering of a plan; a withdrawn one is a failed attempt. `actionDim` is the number of values per step that its
   * response must have.
   */
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

  /** Live offerings without placeholders. */
  get live(): readonly Offering[] {
    const { offerings, order, registered } = this.snapshot;
    return Array.from(order.subarray(0, registered), (row) => offerings[row]!);
  }

  /** A live offering of the newest snapshot. */
  find(offeringId: string): LiveOffering | undefined {
    return liveIn(this.#current, offeringId);
  }

  /** An offering's declared inputs; if derived from a profile, with the image size that its server last announced. */
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

  /** The observation and action layout of a live offering's server, if its wire maps observations. */
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

/** Loads supply at the start and whenever the database reports a change; failed loads are retried. */
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

  /** `warn` receives the first of several consecutive failures. */
  constructor(load: () => Promise<void>, warn: (text: string, cause: unknown) => void) {
    this.#load = load;
    this.#warn = warn;
  }

  /** Starts to load whenever the database reports a change. */
  follow(notifications: Notifications): void {
    const look = (): void => void this.load();
    this.#off = notifications.on("supply_changed", look, look);
  }

  /** Resolves when the present content of the database is loaded, or could not be. */
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
        if (this.warnings.length === 0) this.#warn("failed to read the supply from the database", cause);
        this.warnings = ["failed to read the supply from the database; the last one read stays in use"];
        this.#forget();
        if (!this.#closed) this.#forget = after(RETRY_MS, () => void this.load());
      }
    }
    // In the same turn as the last check of `#again`, so that no change falls between two runs.
    this.#running = undefined;
  }
}

/** States of an offering that has not passed a probe yet, or is withdrawn. */
const UNPROVEN: ReadonlySet<OfferingStatus> = new Set(["pending", "verifying", "rejected", "removed"]);

/** Private models: slugs by organization. */
type PrivateModels = ReadonlyMap<string, ReadonlySet<string>>;

/** The default kind of a model that serves these contracts. */
export const kindOf = ({ contracts }: { contracts: readonly string[] }): ModelRecord["kind"] =>
  contracts.includes("act") ? "policy" : contracts.includes("predict") ? "world-model" : "reasoning";

/** The public providers. */
export function* provenProviders({ providers, offerings }: SupplyRecord): Sliced<ProviderRecord[]> {
  const proven = new Set<string>();
  for (let i = 0; i < offerings.length; i++) {
    const { provider, status } = offerings[i]!;
    if (!UNPROVEN.has(status)) proven.add(provider);
    if (i % 256 === 0) yield;
  }
  return providers.filter(({ name }) => proven.has(name));
}

/** Splits supply into public models and private ones. */
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
