/** Whose offerings may serve whom, as marks by code, so that a plan looks once at each supplier and not at each row. */
import { mayServe, type Reach, type Standing, type Supplier } from "../../contracts/trust.ts";
import type { Offering } from "../offering.ts";
import type { SnapshotParts } from "./snapshot.ts";

/** Who asks, and how far it reaches. */
export interface Caller {
  /** Its organisation. */
  readonly orgId: string;
  readonly reach: Reach;
  /** It names the model in full, and no alias. */
  readonly isNamed: boolean;
  /** Providers that it names, whose community supply may serve it therefore; absent where it may not or names none. */
  readonly providers?: readonly string[] | undefined;
}

/** Codes of one provider. */
const CODES = 8;
const STANDINGS: readonly Standing[] = ["community", "verified", "rejected"];

/** The code of a supplier, by the code of its provider. */
export const supplierCode = (provider: number, { standing, ownsName }: Supplier): number =>
  provider * CODES + STANDINGS.indexOf(standing) * 2 + (ownsName ? 1 : 0);

/** Marks of one snapshot, made when they are first asked for. */
export class TrustedSuppliers {
  readonly #parts: Pick<SnapshotParts, "ground" | "offerings" | "order" | "columns">;
  /** By code, an offering of that supplier; made once. */
  #samples: Map<number, Offering> | undefined;
  /** By organisation: codes of its own suppliers. */
  readonly #own = new Map<string, number[]>();
  /** By reach, and whether models are named: what an organisation without supply of its own may have; undefined: everything. */
  readonly #strangers = new Map<number, Uint8Array | undefined>();

  constructor(parts: Pick<SnapshotParts, "ground" | "offerings" | "order" | "columns">) {
    this.#parts = parts;
  }

  trusted({ orgId, reach, isNamed, providers }: Caller): Uint8Array | undefined {
    const shared = this.#ofStrangers(reach, isNamed);
    if (shared === undefined) return undefined;
    const own = this.#own.get(orgId);
    if (own === undefined && !providers?.length) return shared;
    const marks = shared.slice();
    for (const code of own ?? []) marks[code] = 1;
    for (const name of providers ?? []) {
      const provider = this.#parts.ground.providers.of(name);
      if (provider < 0) continue;
      for (const ownsName of [false, true])
        marks[supplierCode(provider, { orgId: "", standing: "community", ownsName })] = 1;
    }
    return marks;
  }

  #ofStrangers(reach: Reach, isNamed: boolean): Uint8Array | undefined {
    const name = reach * 2 + Number(isNamed);
    if (this.#strangers.has(name)) return this.#strangers.get(name);
    const samples = this.#sampled();
    const marks = new Uint8Array(this.#parts.ground.providers.names.length * CODES);
    let isWhole = true;
    for (const [code, { supplier }] of samples) {
      if (mayServe(supplier, NOBODY, reach, isNamed)) marks[code] = 1;
      else isWhole = false;
    }
    const made = isWhole ? undefined : marks;
    this.#strangers.set(name, made);
    return made;
  }

  #sampled(): ReadonlyMap<number, Offering> {
    if (this.#samples) return this.#samples;
    const { order, columns, offerings } = this.#parts;
    const samples = new Map<number, Offering>();
    for (const row of order) {
      const code = columns.supplier[row]!;
      if (samples.has(code)) continue;
      const offering = offerings[row]!;
      samples.set(code, offering);
      const { orgId } = offering.supplier;
      const own = this.#own.get(orgId);
      if (own) own.push(code);
      else this.#own.set(orgId, [code]);
    }
    this.#samples = samples;
    return samples;
  }
}

/** An organisation that has no supply. */
const NOBODY = "-";
