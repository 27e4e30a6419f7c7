/** The supply as this replica plans from it: a snapshot in memory, swapped whenever the database says that supply changed. */

import type { SafetyBounds } from "../../gen/limber/v1/action_pb.ts";
import { ContractSource, type InputContract } from "../../gen/limber/v1/input_contract_pb.ts";
import { steadyNow } from "../clock.ts";
import { AttemptFailure, UpstreamFailure } from "../contracts/failure.ts";
import { random } from "../random.ts";
import type { CatalogModel, Offering } from "../routing/index.ts";
import { buildingSnapshot, buildSnapshot, HealthBoard, SIMULATED_PROVIDER, type Snapshot } from "../routing/index.ts";
import type { Sliced } from "../slices.ts";
import { mayBeInput } from "../upstream/blame.ts";
import type { Upstream } from "../upstream/index.ts";
import type { UpstreamTarget, Wire, WireLayout } from "../upstream/wire.ts";
import type { PrivateModels } from "./public-models.ts";

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
  readonly health: HealthBoard;
  #current: LiveByRow | undefined;
  /** Those of the snapshot that plans are still made from while the next one is built. */
  #previous: LiveByRow | undefined;

  #own: PrivateModels = NO_PRIVATE_MODELS;

  constructor(upstream: Upstream) {
    this.#upstream = upstream;
    this.health = new HealthBoard(buildSnapshot({ offerings: [], catalog: [], providers: [] }), random);
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

  /** Models that an organisation declared and that nobody else sees yet; undefined where it has none. */
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
