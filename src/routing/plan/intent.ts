/** Stages 1 and 2: the request in terms of the snapshot, and the offerings that its models and aliases name. */
import type { ActionMeaning } from "../../../gen/limber/v1/input_contract_pb.ts";
import { type Hedge, Preference, type ProviderPreferences, SortAxis } from "../../../gen/limber/v1/preferences_pb.ts";
import type { Reach } from "../../call.ts";
import { Contract, type Intent, violation } from "../../contracts/contract.ts";
import type { InputFault, ReadPicture } from "../../contracts/inputs.ts";
import { differenceOf, meaningIn } from "../../contracts/inputs.ts";
import { narrower, reachOfTier, trustIn } from "../../contracts/trust.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import type { HealthView } from "../health/health.ts";
import { ALIASES, type Alias, type Axis, aliasOf, parseModelName, VARIANTS } from "../offering.ts";
import { type Candidates, Flag, inScope, parameterBits, type Snapshot, servesBits } from "../snapshot/snapshot.ts";
import type { Pin } from "./pin.ts";

/** When to use the caller's own provider key. `barred`: the provider cannot serve, because that key is missing. */
export type OwnKeyUse = "never" | "last" | "first" | "only" | "barred";

/** The caller's own provider keys. */
export interface OwnKeys {
  readonly byProvider: ReadonlyMap<string, OwnKeyUse>;
  /** For all other providers. */
  readonly otherwise: "never" | "barred";
}

/** When to use the caller's own key at a provider. */
export const useOf = (keys: OwnKeys, provider: string): OwnKeyUse => keys.byProvider.get(provider) ?? keys.otherwise;

/** The limits of the key. */
export interface KeyScope {
  /** Models that the key can use, `owner/*` for all of an owner; all models if empty. Pass the same array for the same key. */
  readonly models: readonly string[];
  /** Hardware keys never receive placeholder output. */
  readonly environment: "hardware" | "simulation";
  readonly orgId: string;
  /** The widest trust tier that key and settings allow. */
  readonly reach: Reach;
  /** Whether key or settings require signed checkpoints; false if absent. */
  readonly requireSigned?: boolean;
  /** The organization's settings for all requests: no providers that retain frames, and only these regions. */
  readonly settings?: { readonly zdr: boolean; readonly allowedRegions: readonly string[] | undefined };
}

/** All input of a plan. */
export interface PlanArgs {
  readonly intent: Intent;
  readonly snapshot: Snapshot;
  /** The health view of the same snapshot. */
  readonly health: HealthView;
  readonly scope: KeyScope;
  /** Unpublished models of the caller's organization, which no offering serves. */
  readonly ownModels?: ReadonlySet<string> | undefined;
  /** The caller's own provider keys; undefined if they have no effect. */
  readonly ownKeys?: OwnKeys | undefined;
  /** The session's pin, if any. */
  readonly pin: Pin | undefined;
  /** Any number; the same seed gives the same plan. */
  readonly seed: number;
  /** The steady clock in milliseconds, as in health reports. */
  readonly now: number;
  /** Arrival of the request on the same clock; `deadline_ms` counts from it. */
  readonly arrivedAt: number;
  /** The caller's own deadline on the same clock, if any. */
  readonly deadline: number | undefined;
  /** Reads the headers of the request's images. */
  readonly readPicture?: ReadPicture | undefined;
  /** The meaning that actions must have if other actions are being executed; otherwise the plan's first step sets it. */
  readonly meaning?: ActionMeaning | undefined;
}

/** The order of the remaining offerings. */
export type Ordering =
  | { readonly kind: "balanced" }
  | { readonly kind: "axis"; readonly axis: Axis; readonly from: string }
  | { readonly kind: "objective"; readonly weights: readonly (readonly [Axis, number])[] };

/** One model or alias of the request; earlier ones come first. */
export interface RoutingTarget {
  readonly name: string;
  readonly alias: Alias | undefined;
  readonly ordering: Ordering;
}

/** The request in the form that later stages use. */
export interface Ask extends PlanArgs {
  readonly contract: Contract;
  /** The requested units, limited by a row's `most` if set. */
  readonly units: number;
  /** By row: the maximum units of its response, if the request accepts fewer than `units`. */
  readonly most: Float64Array | undefined;
  readonly preferences: ProviderPreferences | undefined;
  readonly targets: readonly RoutingTarget[];
  /** The alias whose offerings are being ranked; undefined for those of a model. */
  readonly alias?: Alias | undefined;
  /** Required bits of the column `serves`. */
  readonly serves: number;
  /** Required bits of the column `parameters`. */
  readonly parameters: number;
  readonly allowSimulated: boolean;
  readonly allowFallbacks: boolean;
  /** `order` with `allow_fallbacks: false`: only these offerings, even if their breakers are open. */
  readonly strictOrder: boolean;
  /** List price per unit in nano-dollars, by row. */
  readonly priceNano: Float64Array;
  /** Maximum charge in micro-dollars; Infinity if there is none. */
  readonly maxCostMicro: number;
  /** Milliseconds left for the request; Infinity without a deadline. */
  readonly leftMs: number;
  readonly hedge: Hedge | undefined;
  /** The allowed trust tier. */
  readonly reach: Reach;
  /** Input checks of the offerings' declarations; undefined if none declares anything, or nothing is known of the input. */
  readonly inputs: InputVerdicts | undefined;
}

/** How the request's input matches declarations, by code of `columns.declared`. Each is checked once. */
interface InputVerdicts {
  readonly isRead: (code: number) => boolean;
  readonly faultsOf: (code: number) => readonly InputFault[];
}

/**
 * Resolves the request against the snapshot. Refuses unknown models and aliases (404, with similar names), models outside the key's scope
 * (403), and misspelled providers in `ignore`, which would otherwise constrain nothing (422).
 */
export function declare(args: PlanArgs): Ask {
  const { intent, snapshot, scope } = args;
  const { provider: preferences, contract } = intent;
  refuseUnknownIgnored(snapshot, preferences);
  const allowFallbacks = preferences?.allowFallbacks ?? true;
  return {
    ...args,
    contract,
    units: intent.units,
    most: intent.extent && MOST[intent.extent](snapshot),
    preferences,
    targets: targetsOf(args),
    serves: servesBits(contract, intent.actionSpace),
    parameters: preferences?.requireParameters ? parameterBits(intent.parameters) : 0,
    allowSimulated: preferences?.allowSimulated === true && scope.environment !== "hardware",
    allowFallbacks,
    strictOrder: !allowFallbacks && (preferences?.order.length ?? 0) > 0,
    priceNano: snapshot.columns.priceNano[contract]!,
    // Costs are whole micro-dollars: a thousandth of one admits nothing and absorbs the error of a decimal fraction.
    maxCostMicro:
      preferences?.maxCostUsd === undefined ? Number.POSITIVE_INFINITY : preferences.maxCostUsd * 1e6 + 1e-3,
    leftMs: leftMs(args),
    hedge: preferences?.hedge,
    reach: narrower(scope.reach, reachOfTier(trustIn(preferences?.trust) ?? "named")),
    inputs: inputsOf(args),
  };
}

/** A declaration is checked when its first row is met. */
function inputsOf({ intent: { given }, snapshot, readPicture }: PlanArgs): InputVerdicts | undefined {
  const { declared } = snapshot.ground;
  if (given === undefined || declared.length === 1) return undefined;
  const read: (boolean | undefined)[] = [true];
  const faults: (readonly InputFault[] | undefined)[] = [];
  return {
    isRead: (code) => (read[code] ??= declared[code]?.meets(given, readPicture) ?? true),
    faultsOf: (code) => (faults[code] ??= declared[code]?.faults(given, readPicture) ?? []),
  };
}

/** The declared meaning of a row's actions, if actions are requested. */
export function meaningAt({ snapshot, contract, intent }: Ask, row: number): ActionMeaning | undefined {
  if (contract !== Contract.ACT && contract !== Contract.EVALUATE) return undefined;
  const declared = snapshot.ground.declared[snapshot.columns.declared[row]!];
  return declared && meaningIn(declared.actions, intent.actionSpace);
}

/** By code of `columns.declared`: whether the actions have the same meaning, as far as declared. */
export function meansAlike({ snapshot, intent }: Ask, meaning: ActionMeaning): (code: number) => boolean {
  const { declared } = snapshot.ground;
  const known: (boolean | undefined)[] = [true];
  return (code) =>
    (known[code] ??= differenceOf(meaning, meaningIn(declared[code]?.actions ?? [], intent.actionSpace)) === undefined);
}

const MOST: Readonly<Record<NonNullable<Intent["extent"]>, (snapshot: Snapshot) => Float64Array>> = {
  wish: ({ columns }) => columns.maxHorizon,
  chunk: ({ columns }) => columns.chunk,
};

/** The number of units requested from a row. */
export const unitsAt = ({ units, most }: Pick<Ask, "units" | "most">, row: number): number =>
  most === undefined ? units : Math.min(units, most[row]!);

function leftMs({ intent, now, arrivedAt, deadline }: PlanArgs): number {
  const own = intent.provider?.deadlineMs;
  const ends = Math.min(
    own === undefined ? Number.POSITIVE_INFINITY : arrivedAt + own,
    deadline ?? Number.POSITIVE_INFINITY,
  );
  return ends - now;
}

function targetsOf(args: PlanArgs): RoutingTarget[] {
  const { intent } = args;
  const first = targetOf(intent.model, "model", args, undefined);
  const targets = [first];
  for (let i = 0; i < intent.models.length; i++) {
    // A suffix on the model also orders its fallbacks, unless they have their own.
    targets.push(targetOf(intent.models[i]!, `models.${i}`, args, parseModelName(intent.model).variant?.suffix));
  }
  return targets;
}

function targetOf(name: string, path: string, args: PlanArgs, inherited: string | undefined): RoutingTarget {
  const { base, variant } = parseModelName(name);
  const alias = aliasOf(base);
  if (!alias) refuseUnusable(name, base, path, args);
  const suffix = variant ?? VARIANTS.find((known) => known.suffix === inherited);
  const ordering: Ordering = suffix
    ? { kind: "axis", axis: suffix.axis, from: suffix.suffix }
    : orderingOf(args.intent, alias);
  return { name: base, alias, ordering };
}

function refuseUnusable(name: string, slug: string, param: string, { snapshot, scope, ownModels }: PlanArgs): void {
  if (ownModels?.has(slug)) {
    const text = `no live offering serves ${slug}: none has passed its probe, or the last one was withdrawn`;
    throw refuse(Reason.NO_LIVE_DEPLOYMENT, text, {}, { param });
  }
  if (!snapshot.catalogModel(slug) && !snapshot.rowsOfModel(slug)) {
    const near = nearNames(name, knownNames(snapshot, name));
    const hint = near.length > 0 ? `; similar names: ${near.join(", ")}` : "";
    throw refuse(
      Reason.MODEL_NOT_FOUND,
      `model or alias ${JSON.stringify(name)} not found${hint}`,
      { near },
      { param },
    );
  }
  if (!inScope(scope.models, slug)) {
    throw refuse(Reason.MODEL_NOT_IN_SCOPE, `the key cannot use ${slug}`, { needed: [slug] }, { param });
  }
}

function* knownNames(snapshot: Snapshot, name: string): Iterable<string> {
  const { variant } = parseModelName(name);
  // Keep the suffix: the misspelling is in front of it.
  for (const model of snapshot.models.names) yield variant ? model + variant.suffix : model;
  for (const alias of ALIASES) yield variant ? alias.id + variant.suffix : alias.id;
  const colon = name.lastIndexOf(":");
  // A second suffix is an error.
  const { base } = parseModelName(name.slice(0, colon));
  if (colon > 0 && (snapshot.models.of(base) >= 0 || aliasOf(base))) {
    for (const variant of VARIANTS) yield base + variant.suffix;
  }
}

const SORTS: Readonly<Partial<Record<SortAxis, Axis>>> = {
  [SortAxis.PRICE]: "price",
  [SortAxis.LATENCY]: "latency",
  [SortAxis.THROUGHPUT]: "throughput",
  [SortAxis.QUALITY]: "quality",
};

const PREFERENCES: Readonly<Partial<Record<Preference, { axis: Axis; from: string }>>> = {
  [Preference.FASTEST]: { axis: "latency", from: "preference:fastest" },
  [Preference.CHEAPEST]: { axis: "price", from: "preference:cheapest" },
  [Preference.RELIABLE]: { axis: "reliability", from: "preference:reliable" },
};

const BALANCED: Ordering = { kind: "balanced" };

/** Most specific first: `provider.sort` or `provider.objective`, the alias's own sort, `preference`. Suffixes were handled before. */
function orderingOf({ provider, preference }: Intent, alias: Alias | undefined): Ordering {
  const sort = provider?.sort === undefined ? undefined : SORTS[provider.sort];
  if (sort) return { kind: "axis", axis: sort, from: `sort:${sort}` };
  if (provider) {
    const weights: [Axis, number][] = [];
    // The schema allows only the five axes.
    for (const axis in provider.objective) {
      const weight = provider.objective[axis]!;
      if (weight > 0) weights.push([axis as Axis, weight]);
    }
    if (weights.length > 0) return { kind: "objective", weights };
  }
  if (alias?.sort) return { kind: "axis", axis: alias.sort, from: `alias:${alias.sort}` };
  const preferred = preference === undefined ? undefined : PREFERENCES[preference];
  return preferred ? { kind: "axis", ...preferred } : BALANCED;
}

function refuseUnknownIgnored(snapshot: Snapshot, preferences: ProviderPreferences | undefined): void {
  const unknown = preferences?.ignore.findIndex((name) => snapshot.providers.of(name) < 0) ?? -1;
  if (unknown < 0) return;
  const name = preferences!.ignore[unknown]!;
  const near = nearNames(name, snapshot.providers.names);
  throw violation(`provider.ignore.${unknown}`, `provider ${JSON.stringify(name)} not found`, "enum", near);
}

/** The contract of a preview without one: the first of act, predict and evaluate that the model can serve. */
export function contractOf(model: string, snapshot: Snapshot): Contract {
  const { base } = parseModelName(model);
  const alias = aliasOf(base);
  const rows = alias ? snapshot.rowsOfAlias(alias) : (snapshot.rowsOfModel(base) ?? new Uint32Array());
  const order = [Contract.ACT, Contract.PREDICT, Contract.EVALUATE];
  return (
    order.find((contract) => rows.some((row) => snapshot.offerings[row]!.contracts.includes(contract))) ?? Contract.ACT
  );
}

const NONE = new Uint32Array(0);

/** The one action space in which these models act; undefined for aliases and unknown models, and where there is a choice. */
export function onlyActionSpace(snapshot: Snapshot, names: readonly string[]): string | undefined {
  const spaces = new Set<string>();
  for (const name of names) {
    const { base } = parseModelName(name);
    if (aliasOf(base)) return undefined;
    const live = Array.from(snapshot.rowsOfModel(base) ?? NONE, (row) => snapshot.offerings[row]!).filter(
      ({ simulated, contracts }) => !simulated && contracts.includes(Contract.ACT),
    );
    const served = live.flatMap(({ actionSpaces }) => actionSpaces);
    for (const space of served.length > 0 ? served : (snapshot.catalogModel(base)?.actionSpaces ?? []))
      spaces.add(space);
  }
  return spaces.size === 1 ? [...spaces][0] : undefined;
}

/** All rows of a target, whatever they can serve: the rows that a refusal lists. */
export function universeOf(ask: Ask, target: RoutingTarget): Uint32Array {
  const { snapshot } = ask;
  const rows = target.alias ? snapshot.rowsOfAlias(target.alias) : (snapshot.rowsOfModel(target.name) ?? NONE);
  if (ask.allowSimulated) return rows;
  // The catalog's placeholders are not supply: only requests that allow them get them. They come last.
  let end = rows.length;
  while (end > 0 && !snapshot.isRegistered(rows[end - 1]!)) end--;
  return rows.subarray(0, end);
}

/** The rows that the constraints start from. An alias's are listed beforehand; a model has few, and each counts as its own kind. */
export function expand(ask: Ask, target: RoutingTarget): Candidates {
  if (target.alias) return ask.snapshot.serving(target.alias, ask.serves, ask.allowSimulated);
  const rows = universeOf(ask, target);
  return { rows, kinds: ownKinds.of(rows.length), samples: rows };
}

/** An array that plans reuse. It grows and never shrinks; its content is valid until the next call of `of`. */
export class Reused<A extends { readonly length: number }> {
  readonly #make: (length: number) => A;
  #array: A;

  constructor(make: (length: number) => A) {
    this.#make = make;
    this.#array = make(1024);
  }

  /** The array, with at least `length` elements. */
  of(length: number): A {
    if (this.#array.length < length) this.#array = this.#make(2 * length);
    return this.#array;
  }
}

const ownKinds = new Reused((length) => Uint32Array.from({ length }, (_, place) => place));

/** Every row that the request selects, once. */
export function consideredRows(ask: Ask): Iterable<number> {
  if (ask.targets.length === 1) return universeOf(ask, ask.targets[0]!);
  return new Set(ask.targets.flatMap((target) => [...universeOf(ask, target)]));
}

/** Whether a target has anything that could serve it: live supply, or placeholders that the request allows. */
function hasSupply(ask: Ask, target: RoutingTarget): boolean {
  const unwanted = ask.allowSimulated ? 0 : Flag.SIMULATED;
  return universeOf(ask, target).some((row) => (ask.snapshot.columns.traits[row]! & unwanted) === 0);
}

/** The refusal of a request without live supply, whatever its constraints; undefined if there is some. */
export function withoutSupply(ask: Ask): Refusal | undefined {
  if (ask.targets.some((target) => hasSupply(ask, target))) return undefined;
  const names = ask.targets.map((target) => target.name).join(", ");
  const hint =
    ask.scope.environment === "hardware" ? "" : "; set `provider.allow_simulated` to allow placeholder output";
  return refuse(Reason.NO_LIVE_DEPLOYMENT, `no live offering serves ${names}${hint}`, {}, { param: "model" });
}

/** The refusal of a named model that does not emit the requested action space; undefined if every named model does. */
export function wrongActionSpace(ask: Ask): Refusal | undefined {
  const space = ask.intent.actionSpace;
  if (space === undefined) return undefined;
  for (const target of ask.targets) {
    if (target.alias) continue;
    const rows = universeOf(ask, target);
    if (!servesAny(ask, rows, servesBits(ask.contract, undefined)) || servesAny(ask, rows, ask.serves)) continue;
    const emitted = spacesOf(ask, target, rows);
    if (emitted.includes(space)) continue;
    return refuse(
      Reason.ACTION_SPACE_MISMATCH,
      `${target.name} does not emit ${space}; it emits ${emitted.join(", ")}`,
      { needed: emitted },
      { param: "action_space" },
    );
  }
  return undefined;
}

/** A clause that names the action spaces which aliases can serve, and these; undefined if the requested one is among them. */
export function unservedSpace(ask: Ask): { readonly text: string; readonly served: readonly string[] } | undefined {
  const space = ask.intent.actionSpace;
  if (space === undefined || !ask.targets.some(({ alias }) => alias)) return undefined;
  const { columns, offerings } = ask.snapshot;
  const able = servesBits(ask.contract, undefined);
  const served = new Set<string>();
  for (const row of consideredRows(ask)) {
    const traits = columns.traits[row]!;
    if ((traits & able) !== able || (!ask.allowSimulated && (traits & Flag.SIMULATED) !== 0)) continue;
    for (const each of offerings[row]!.actionSpaces) served.add(each);
  }
  if (served.size === 0 || served.has(space)) return undefined;
  const sorted = [...served].sort();
  return { text: `; none emits ${space}, set \`action_space\` to ${sorted.join(", ")}`, served: sorted };
}

function servesAny({ snapshot }: Ask, rows: Uint32Array, bits: number): boolean {
  return rows.some((row) => (snapshot.columns.traits[row]! & bits) === bits);
}

function spacesOf({ snapshot }: Ask, target: RoutingTarget, rows: Uint32Array): string[] {
  const spaces = new Set(snapshot.catalogModel(target.name)?.actionSpaces);
  for (const row of rows) for (const space of snapshot.offerings[row]!.actionSpaces) spaces.add(space);
  return [...spaces].sort();
}

/** The known names that a misspelled one may have meant. */

const MOST_NEAR = 5;
const LONGEST = 128;

/** From this length on, a truncated name counts as one wrong letter. */
const LEAST_CUT = 4;

/**
 * Up to five of `known`, nearest first, within an edit distance of a third of the name's letters. Case, separators and variants of letters
 * (`π₀.₅`) do not count; a name without an owner is also compared with the part after the owner. Takes time in proportion to `known`, so it
 * is only for refusals.
 */
export function nearNames(name: string, known: Iterable<string>): string[] {
  if (name.length > LONGEST) return [];
  const asked = plain(name);
  const reach = Math.max(2, Math.floor(name.length / 3));
  const found: { candidate: string; distance: number; letters: number }[] = [];
  for (const candidate of known) {
    const forms = name.includes("/") ? [candidate] : [candidate, candidate.slice(candidate.indexOf("/") + 1)];
    const distance = Math.min(...forms.map((form) => distanceBetween(name.toLowerCase(), asked, form, reach)));
    // Of names that differ only in case and separators, the one with fewer differences comes first.
    if (distance <= reach) found.push({ candidate, distance, letters: editDistance(name, candidate, 2 * LONGEST) });
  }
  found.sort((a, b) => a.distance - b.distance || a.letters - b.letters || (a.candidate < b.candidate ? -1 : 1));
  return found.slice(0, MOST_NEAR).map((hit) => hit.candidate);
}

/** A name reduced to letters and digits, with its owner and suffix. */
const plain = (name: string): string =>
  name
    .normalize("NFKC")
    .toLowerCase()
    .replaceAll("π", "pi")
    .replace(/^(https?:\/\/[^/]+\/|models\/|hf:(\/\/)?)/, "")
    .replaceAll(/[\s._-]/g, "");

/**
 * The distance of two names: 0 if their plain forms are equal, else the lesser of their edit distance and that of their plain forms plus
 * one.
 */
function distanceBetween(name: string, asked: string, form: string, reach: number): number {
  const whole = plain(form);
  if (asked === whole && asked !== "") return 0;
  if (asked.length >= LEAST_CUT && whole.startsWith(asked)) return 1;
  return Math.min(editDistance(name, form.toLowerCase(), reach), editDistance(asked, whole, reach) + 1);
}

/** Levenshtein distance; returns `reach + 1` once it must exceed `reach`. */
function editDistance(a: string, b: string, reach: number): number {
  if (Math.abs(a.length - b.length) > reach) return reach + 1;
  let above = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    let least = i;
    for (let j = 1; j <= b.length; j++) {
      const swap = above[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      const cost = Math.min(swap, above[j]! + 1, row[j - 1]! + 1);
      row.push(cost);
      least = Math.min(least, cost);
    }
    if (least > reach) return reach + 1;
    above = row;
  }
  return above[b.length]!;
}
