/** Stage 3: drops every offering that violates a constraint. One table row per constraint. */

import { DropReason } from "../../../gen/limber/v1/plan_pb.ts";
import { DataCollection } from "../../../gen/limber/v1/preferences_pb.ts";
import { Reach } from "../../call.ts";
import { Contract, EMBODIMENTS, PARAMETERS, wordOfEmbodiment } from "../../contracts/contract.ts";
import type { InputFault } from "../../contracts/inputs.ts";
import { differenceOf } from "../../contracts/inputs.ts";
import { mayServe, narrower } from "../../contracts/trust.ts";
import type { Offering } from "../offering.ts";
import { BODY_SETS, bodyBit, CONTRACT_BITS, type Codes, Flag, parameterBits } from "../snapshot/snapshot.ts";
import { type Ask, meaningAt, meansAlike, type OwnKeys, useOf } from "./intent.ts";
import {
  type BitTest,
  type CodeTest,
  costMicro,
  expectedMs,
  gathered,
  type Measure,
  type MeasuredTest,
  measured,
  type NumberTest,
  type Test,
  type Tests,
} from "./sift.ts";

/** One hard constraint. */
export interface Constraint {
  readonly reason: DropReason;
  /** `expand`: it could not serve at all; `remove`: the request, the key or its own state excludes it. */
  readonly stage: "expand" | "remove";
  /** The field that could be relaxed to admit it; undefined if none could. */
  readonly field: string | undefined;
  /** The test that this request sets for models named exactly, or for those of an alias; undefined if it sets none. */
  readonly test: (ask: Ask, isNamed: boolean) => Test | undefined;
  /** The figures, for people. */
  readonly detail: (ask: Ask, row: number) => string;
  /** The value of `field` that would just admit a row, in the field's unit; absent if the field has to be removed. */
  readonly admitting?: (ask: Ask, row: number) => number;
  /** A change specific to a row that would admit the request there, instead of a change of `field`. */
  readonly changing?: (ask: Ask, row: number) => Relaxation | undefined;
  /** Whether relaxing `field` can admit a row at all; always, if absent. */
  readonly relaxable?: (ask: Ask, row: number) => boolean;
}

/** A suggested change of the request. */
interface Relaxation {
  /** Path of the field. */
  readonly field: string;
  /** The number that the field would need. */
  readonly value?: number | undefined;
  /** The change in words. */
  readonly change: string;
  /** Number of fields that it changes. */
  readonly size: number;
}

const usd = (micro: number): string => `${micro / 1e6} USD`;
const unitUsd = (nano: number): string => `${nano / 1e9} USD`;
const ms = (value: number): string => `${Math.round(value * 10) / 10} ms`;
const basisOf = (advertised: number | undefined): string => (advertised === undefined ? "measured" : "advertised");
const offeringOf = (ask: Ask, row: number) => ask.snapshot.offerings[row]!;

/** Milliseconds between a plan and its first attempt, which a minimal deadline must also cover. */
const ON_THE_WAY_MS = 5;

/** The remaining time that a call needs for a row to be called. */
const withinMs = (ask: Ask, row: number): number => measured(expectedMs, ask, row) + ON_THE_WAY_MS;

/** Every hard constraint, in the order in which a drop's reason is determined. */
export const CONSTRAINTS: readonly Constraint[] = [
  {
    reason: DropReason.NOT_SIMULATED_ALLOWED,
    stage: "expand",
    field: undefined,
    test: (ask) => (ask.allowSimulated ? undefined : lacks(Flag.SIMULATED)),
    detail: (ask) =>
      ask.scope.environment === "hardware"
        ? "hardware keys never receive placeholder output"
        : "it returns placeholder output",
  },
  {
    reason: DropReason.CONTRACT,
    stage: "expand",
    field: undefined,
    test: (ask) => has(ask.serves & CONTRACT_BITS),
    detail: (ask, row) => `serves ${offeringOf(ask, row).contracts.map(contractWord).join(", ")}`,
  },
  {
    reason: DropReason.ACTION_SPACE,
    stage: "expand",
    field: undefined,
    test: (ask) => (ask.intent.actionSpace === undefined ? undefined : has(ask.serves & ~CONTRACT_BITS)),
    detail: (ask, row) =>
      `emits ${offeringOf(ask, row).actionSpaces.join(", ") || "nothing"}, not ${ask.intent.actionSpace}`,
  },
  {
    reason: DropReason.EMBODIMENT,
    stage: "expand",
    field: "embodiment",
    test: ({ intent, snapshot }) =>
      intent.embodiment === undefined
        ? undefined
        : { kind: "code", column: snapshot.columns.bodies, marks: MADE_FOR[intent.embodiment]! },
    detail: (ask, row) => {
      const bodies = offeringOf(ask, row).embodiments;
      return bodies.length === 0
        ? "declares no embodiment"
        : `is made for ${bodies.join(", ")}, not for ${wordOfEmbodiment(ask.intent.embodiment!)}`;
    },
  },
  {
    reason: DropReason.KEY_SCOPE,
    stage: "expand",
    field: undefined,
    test: (ask) =>
      ask.scope.models.length === 0 ? undefined : { kind: "model", marks: ask.snapshot.scopeOf(ask.scope.models) },
    detail: () => "not among the key's models",
  },
  {
    reason: DropReason.ZDR,
    stage: "expand",
    field: undefined,
    test: ({ scope }) => (scope.settings?.zdr ? lacks(Flag.RETAINS_FRAMES) : undefined),
    detail: (ask, row) => `${offeringOf(ask, row).provider} retains frames, which the organization does not allow`,
  },
  {
    reason: DropReason.REGION,
    stage: "expand",
    field: undefined,
    test: ({ scope, snapshot }) =>
      scope.settings?.allowedRegions && {
        kind: "code",
        column: snapshot.columns.region,
        marks: marked(snapshot.regions, scope.settings.allowedRegions, 0),
      },
    detail: (ask, row) =>
      `runs in ${offeringOf(ask, row).region || "an unknown region"}, which the organization does not allow`,
  },
  {
    reason: DropReason.NOT_IN_ONLY,
    stage: "remove",
    field: "provider.only",
    test: ({ preferences, snapshot }) => namesIn(snapshot.columns.provider, snapshot.providers, preferences?.only),
    detail: (ask, row) => `${offeringOf(ask, row).provider} is not in \`only\``,
  },
  {
    reason: DropReason.NOT_IN_OFFERINGS,
    stage: "remove",
    field: "provider.offerings",
    test: ({ preferences, snapshot }) =>
      preferences?.offerings.length
        ? { kind: "rows", rows: new Set(preferences.offerings.map((id) => snapshot.rowOf(id))) }
        : undefined,
    detail: (ask, row) => `${offeringOf(ask, row).id} is not in \`offerings\``,
  },
  {
    reason: DropReason.IN_IGNORE,
    stage: "remove",
    field: "provider.ignore",
    test: ({ preferences, snapshot }) => namesNotIn(snapshot.columns.provider, snapshot.providers, preferences?.ignore),
    detail: (ask, row) => `${offeringOf(ask, row).provider} is in \`ignore\``,
  },
  {
    reason: DropReason.NOT_IN_ORDER,
    stage: "remove",
    field: "provider.allow_fallbacks",
    test: ({ preferences, snapshot, strictOrder }) =>
      strictOrder ? namesIn(snapshot.columns.provider, snapshot.providers, preferences?.order) : undefined,
    detail: (ask, row) => `${offeringOf(ask, row).provider} is not in \`order\`, and \`allow_fallbacks\` is false`,
  },
  {
    reason: DropReason.BYOK_ONLY,
    stage: "remove",
    field: undefined,
    test: ({ ownKeys, snapshot }) => ownKeys && notBarred(snapshot.columns.provider, snapshot.providers, ownKeys),
    detail: (ask, row) => `the organization has no usable key of its own for ${offeringOf(ask, row).provider}`,
  },
  {
    reason: DropReason.REGION,
    stage: "remove",
    field: "provider.region",
    test: ({ preferences, snapshot }) => namesIn(snapshot.columns.region, snapshot.regions, preferences?.region),
    detail: (ask, row) => `runs in ${offeringOf(ask, row).region || "an unknown region"}`,
  },
  {
    reason: DropReason.TRUST,
    stage: "remove",
    field: "provider.trust",
    test(ask, isNamed) {
      const { snapshot, scope, reach } = ask;
      const providers = reach === Reach.NAMED ? namedProviders(ask) : undefined;
      const marks = snapshot.trusted({ orgId: scope.orgId, reach, isNamed, providers });
      return marks && { kind: "code", column: snapshot.columns.supplier, marks };
    },
    detail: (ask, row) => untrusted(ask, offeringOf(ask, row)),
    // Community supply has to be requested, and removing a field does not request it.
    relaxable(ask, row) {
      const { scope, reach } = ask;
      const without = narrower(scope.reach, Reach.NAMED);
      return reach < without && mayServe(offeringOf(ask, row).supplier, scope.orgId, without, false);
    },
  },
  {
    reason: DropReason.UNSIGNED,
    stage: "remove",
    field: "provider.require_signed",
    test: ({ scope, preferences }) =>
      scope.requireSigned || preferences?.requireSigned ? has(Flag.SIGNED) : undefined,
    detail: ({ scope }) =>
      `its checkpoint is not signed by its maker${scope.requireSigned ? ", which the key or the settings require" : ""}`,
    relaxable: ({ scope }) => !scope.requireSigned,
  },
  {
    reason: DropReason.DATA_COLLECTION,
    stage: "remove",
    field: "provider.data_collection",
    test: ({ preferences }) =>
      preferences?.dataCollection === DataCollection.DENY ? lacks(Flag.RETAINS_FRAMES) : undefined,
    detail: (ask, row) => `${offeringOf(ask, row).provider} retains frames`,
  },
  {
    reason: DropReason.HORIZON_EXCEEDS_OFFERING,
    stage: "remove",
    field: "horizon",
    // Ground calls request a response, not a number of tokens, and callers that accept what an offering has accept fewer.
    test: (ask) =>
      ask.contract === Contract.GROUND || ask.most ? undefined : atLeast(ask.snapshot.columns.maxHorizon, ask.units),
    detail: (ask, row) => `returns at most ${offeringOf(ask, row).maxHorizon} units per call, got ${ask.units}`,
    admitting: (ask, row) => offeringOf(ask, row).maxHorizon,
  },
  {
    reason: DropReason.REQUIRE_PARAMETERS,
    stage: "remove",
    field: "provider.require_parameters",
    test: (ask) => (ask.parameters === 0 ? undefined : has(ask.parameters)),
    detail: (ask, row) => `ignores ${ignoredBy(ask, row).join(", ")}`,
  },
  {
    reason: DropReason.MAX_LATENCY_MS,
    stage: "remove",
    field: "provider.max_latency_ms",
    test: ({ preferences, health }) => atMost(health.judgedP95Ms, preferences?.maxLatencyMs),
    detail: (ask, row) => {
      const p95 = ask.health.judgedP95Ms[row]!;
      if (!Number.isFinite(p95)) return "p95 is neither advertised nor measured";
      return `${basisOf(offeringOf(ask, row).advertised.p95Ms)} p95 ${ms(p95)} > ${ask.preferences?.maxLatencyMs} ms`;
    },
    admitting: (ask, row) => Math.ceil(ask.health.judgedP95Ms[row]!),
  },
  {
    reason: DropReason.MIN_UPTIME_30D,
    stage: "remove",
    field: "provider.min_uptime_30d",
    test: ({ preferences, health }) => atLeast(health.judgedUptime, preferences?.minUptime30d),
    detail: (ask, row) => {
      const uptime = ask.health.judgedUptime[row]!;
      if (uptime === 0 && offeringOf(ask, row).advertised.uptime30d === undefined)
        return "uptime is neither advertised nor measured";
      const basis = basisOf(uptime === offeringOf(ask, row).advertised.uptime30d ? uptime : undefined);
      return `${basis} uptime ${uptime} < ${ask.preferences?.minUptime30d}`;
    },
    admitting: (ask, row) => ask.health.judgedUptime[row]!,
  },
  {
    reason: DropReason.MAX_PRICE_PER_FRAME,
    stage: "remove",
    field: "provider.max_price_per_frame",
    test: (ask) => unitPrice(ask, Contract.PREDICT, ask.preferences?.maxPricePerFrame),
    detail: (ask, row) => `${unitUsd(ask.priceNano[row]!)} per frame > ${ask.preferences?.maxPricePerFrame} USD`,
    admitting: (ask, row) => ask.priceNano[row]! / 1e9,
  },
  {
    reason: DropReason.MAX_PRICE_PER_ACTION_STEP,
    stage: "remove",
    field: "provider.max_price_per_action_step",
    test: (ask) => unitPrice(ask, Contract.ACT, ask.preferences?.maxPricePerActionStep),
    detail: (ask, row) => `${unitUsd(ask.priceNano[row]!)} per step > ${ask.preferences?.maxPricePerActionStep} USD`,
    admitting: (ask, row) => ask.priceNano[row]! / 1e9,
  },
  {
    reason: DropReason.MAX_COST_USD,
    stage: "remove",
    field: "provider.max_cost_usd",
    test: ({ maxCostMicro }) =>
      maxCostMicro === Number.POSITIVE_INFINITY ? undefined : { kind: "cost", limit: Math.floor(maxCostMicro) },
    detail: (ask, row) => `${usd(measured(costMicro, ask, row))} > ${ask.preferences?.maxCostUsd} USD`,
    admitting: (ask, row) => measured(costMicro, ask, row) / 1e6,
  },
  {
    reason: DropReason.INPUT,
    stage: "remove",
    field: "observations",
    test: ({ inputs, snapshot }) =>
      inputs && { kind: "lazy", column: snapshot.columns.declared, isGood: inputs.isRead },
    detail: (ask, row) =>
      faultsAt(ask, row)
        .map(({ path, message }) => `${path} ${message}`)
        .join("; ")
        .slice(0, MOST_TOLD),
    changing(ask, row) {
      const faults = faultsAt(ask, row);
      const [first] = faults;
      if (!first) return undefined;
      const change = [...new Set(faults.map(({ change }) => change))].join("; ").slice(0, MOST_TOLD);
      return { field: first.path, change, size: faults.length, ...(faults.length === 1 && { value: first.wanted }) };
    },
  },
  {
    reason: DropReason.ACTION_MEANING,
    stage: "remove",
    field: undefined,
    test: (ask) =>
      ask.meaning && {
        kind: "lazy",
        column: ask.snapshot.columns.declared,
        isGood: meansAlike(ask, ask.meaning),
      },
    detail: (ask, row) =>
      `its actions differ in ${differenceOf(ask.meaning, meaningAt(ask, row))} from the actions of the running chunk`,
  },
  {
    reason: DropReason.CIRCUIT_OPEN,
    stage: "remove",
    field: undefined,
    test: (ask) => (ask.strictOrder ? undefined : atMost(ask.health.restsUntil, ask.now)),
    detail: (ask, row) => {
      const wait = ask.health.restsUntil[row]! - ask.now;
      return Number.isFinite(wait)
        ? `breaker open after failures; closes in ${ms(wait)} at the earliest`
        : "disabled by an operator";
    },
  },
  {
    reason: DropReason.DEADLINE_UNREACHABLE,
    stage: "remove",
    field: "provider.deadline_ms",
    test: (ask) => atMostMeasured(knownMs, ask.leftMs),
    detail: (ask, row) => `expected in ${ms(measured(expectedMs, ask, row))}, but only ${ms(ask.leftMs)} remain`,
    admitting: (ask, row) => Math.ceil(ask.now - ask.arrivedAt + withinMs(ask, row)),
    // The caller's own deadline is never relaxed.
    relaxable: (ask, row) => ask.deadline === undefined || withinMs(ask, row) <= ask.deadline - ask.now,
  },
];

/** Maximum length of a text about one offering, which contains the provider's words. */
const MOST_TOLD = 400;

/** The mismatch between a request and a row's declared inputs. */
export const faultsAt = ({ inputs, snapshot }: Ask, row: number): readonly InputFault[] =>
  inputs?.faultsOf(snapshot.columns.declared[row]!) ?? [];

function namedProviders({ preferences }: Ask): readonly string[] | undefined {
  const { only = [], order = [] } = preferences ?? {};
  return only.length + order.length === 0 ? undefined : [...only, ...order];
}

/** Why a supplier cannot serve, and what would allow it. */
function untrusted({ scope, reach }: Ask, { provider, supplier, model }: Offering): string {
  if (supplier.standing === "rejected") return `the operator rejected ${provider}`;
  if (reach === Reach.OWN) return `${provider} does not belong to the organization`;
  const unverified = `${provider} is not verified`;
  if (scope.reach === Reach.COMMUNITY)
    return `${unverified}; provider.trust "community" admits it${reach === Reach.NAMED ? ", and so does its name in provider.only" : ""}`;
  if (reach === Reach.VERIFIED) {
    if (scope.reach > Reach.VERIFIED) return unverified;
    return `${unverified}, and the key or the settings do not allow community supply`;
  }
  return `${unverified}; its name in provider.only admits it${supplier.ownsName ? `, and so does ${model} as the model` : ""}`;
}

/** By body: the sets of bodies that contain it. */
const MADE_FOR: readonly Uint8Array[] = Object.values(EMBODIMENTS).reduce<Uint8Array[]>((marks, body) => {
  marks[body] = Uint8Array.from({ length: BODY_SETS }, (_, set) => (set & bodyBit(body) ? 1 : 0));
  return marks;
}, []);

const WORDS: Readonly<Partial<Record<Contract, string>>> = {
  [Contract.ACT]: "act",
  [Contract.PREDICT]: "predict",
  [Contract.GROUND]: "ground",
  [Contract.EVALUATE]: "evaluate",
};

const contractWord = (contract: Contract): string => WORDS[contract] ?? "another contract";

/** An offering without measurements counts as in time. */
const knownMs: Measure = (ask, rows, count, into) => {
  expectedMs(ask, rows, count, into);
  for (let i = 0; i < count; i++) if (into[i] === Number.POSITIVE_INFINITY) into[i] = 0;
};

function ignoredBy(ask: Ask, row: number): string[] {
  const honored = ask.snapshot.columns.traits[row]!;
  return PARAMETERS.filter((name) => ask.parameters & parameterBits([name]) & ~honored);
}

const has = (bits: number): BitTest => ({ kind: "bits", mask: bits, wanted: bits });
const lacks = (bits: number): BitTest => ({ kind: "bits", mask: bits, wanted: 0 });

function namesIn(column: Uint32Array, codes: Codes, names: readonly string[] | undefined): CodeTest | undefined {
  return names?.length ? { kind: "code", column, marks: marked(codes, names, 0) } : undefined;
}

function notBarred(column: Uint32Array, codes: Codes, keys: OwnKeys): CodeTest | undefined {
  const uses = [...keys.byProvider];
  if (keys.otherwise === "never" && uses.every(([, use]) => use !== "barred")) return undefined;
  const marks = new Uint8Array(codes.names.length);
  codes.names.forEach((name, code) => {
    if (useOf(keys, name) !== "barred") marks[code] = 1;
  });
  return { kind: "code", column, marks };
}

function namesNotIn(column: Uint32Array, codes: Codes, names: readonly string[] | undefined): CodeTest | undefined {
  return names?.length ? { kind: "code", column, marks: marked(codes, names, 1) } : undefined;
}

function marked(codes: Codes, names: readonly string[], others: 0 | 1): Uint8Array {
  const marks = new Uint8Array(codes.names.length);
  if (others === 1) marks.fill(1);
  for (const name of names) {
    const code = codes.of(name);
    if (code >= 0) marks[code] = 1 - others;
  }
  return marks;
}

function atMost(column: Float64Array, limit: number | undefined): NumberTest | undefined {
  return limit === undefined ? undefined : { kind: "number", column, sign: 1, limit };
}

function atLeast(column: Float64Array, limit: number | undefined): NumberTest | undefined {
  return limit === undefined ? undefined : { kind: "number", column, sign: -1, limit: -limit };
}

function atMostMeasured(measure: Measure, limit: number): MeasuredTest | undefined {
  return limit === Number.POSITIVE_INFINITY ? undefined : { kind: "measured", measure, limit };
}

/** Prices are whole nano-dollars: a thousandth of one admits nothing and absorbs the error of a decimal fraction. */
function unitPrice(ask: Ask, contract: Contract, limitUsd: number | undefined): NumberTest | undefined {
  return ask.contract === contract && limitUsd !== undefined ? atMost(ask.priceNano, limitUsd * 1e9 + 1e-3) : undefined;
}

/** The constraints that alias lists were built with, which need no second check there. */
export const LISTED: ReadonlySet<DropReason> = new Set([
  DropReason.NOT_SIMULATED_ALLOWED,
  DropReason.CONTRACT,
  DropReason.ACTION_SPACE,
]);

/** All others. */
export const REMOVING = CONSTRAINTS.filter((constraint) => !LISTED.has(constraint.reason));

/** The tests that a request sets by these constraints, by kind. */
export function testsOf(ask: Ask, constraints: readonly Constraint[], isNamed: boolean): Tests {
  const tests: Test[] = [];
  for (const constraint of constraints) {
    const test = constraint.test(ask, isNamed);
    if (test) tests.push(test);
  }
  return gathered(tests);
}
