/** What a snapshot has in common with those that were patched from it: rows, names, kinds. It is added to, and nothing in it ever changes. */
import type { DeclaredInput } from "../../contracts/declared-input.ts";
import { Names } from "./names.ts";
import { BODY_SETS, inScope } from "./snapshot.ts";

/** For every eighth row there is a spare one, and some for a supply that is small. */
const roomFor = (rows: number): number => rows + (rows >> 3) + 64;

/** Rows and codes. A row that was taken is never given to another offering, so that a snapshot in use stays what it is. */
export class Ground {
  /** How many rows there are, taken or not: the length of every column. */
  readonly room: number;
  /** Every model and every provider there may be. */
  readonly models: Names;
  readonly providers: Names;
  readonly regions: Names;
  /** Of offerings. */
  readonly ids: Names;
  /** What offerings say that they read, by code; the first says nothing. */
  readonly declared: (DeclaredInput | undefined)[] = [undefined];
  readonly #declared = new Map<string, number>();
  readonly #kinds = new Map<number, Map<number, number>>();
  #kindCount = 0;
  #taken: number;
  readonly #scopes = new WeakMap<readonly string[], Uint8Array>();

  /** The ground of a snapshot with so many rows. */
  constructor(rows: number, models: Names, providers: Names) {
    this.room = roomFor(rows);
    this.models = models;
    this.providers = providers;
    this.regions = new Names(this.room);
    this.ids = new Names(this.room);
    this.#taken = rows;
  }

  /** How many rows are left to take. */
  get spare(): number {
    return this.room - this.#taken;
  }

  /** A row that was never used. Throws a RangeError when none is left. */
  take(): number {
    if (this.spare === 0) throw new RangeError("no row is left");
    return this.#taken++;
  }

  /** The code of what an offering says that it reads; 0 where it says nothing. */
  declaredOf(declared: DeclaredInput | undefined): number {
    if (declared === undefined) return 0;
    const known = this.#declared.get(declared.key);
    if (known !== undefined) return known;
    const code = this.declared.push(declared) - 1;
    this.#declared.set(declared.key, code);
    return code;
  }

  /** The kind of a provider and a region, by their codes, with these bodies and traits. */
  kindOf(provider: number, region: number, bodies: number, traits: number): number {
    let known = this.#kinds.get(traits);
    if (!known) {
      known = new Map();
      this.#kinds.set(traits, known);
    }
    const place = (provider * this.room + region) * BODY_SETS + bodies;
    let kind = known.get(place);
    if (kind === undefined) {
      kind = this.#kindCount++;
      known.set(place, kind);
    }
    return kind;
  }

  /** By model code: 1 where a key with these globs may use the model. */
  scopeOf(globs: readonly string[]): Uint8Array {
    let allowed = this.#scopes.get(globs);
    if (!allowed) {
      allowed = Uint8Array.from(this.models.names, (slug) => (inScope(globs, slug) ? 1 : 0));
      this.#scopes.set(globs, allowed);
    }
    return allowed;
  }
}
