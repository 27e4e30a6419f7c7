/** Prices and charges. Internally, money is whole micro-dollars and a price is whole nano-dollars per unit; the API has numbers of dollars. */

import { create } from "@bufbuild/protobuf";
import { AffordableSchema, CostEstimateSchema } from "../../gen/limber/v1/error_pb.ts";
import { Reason, type Refusal, type RefusalDetails, refuse } from "../errors.ts";
import type { CreditShortage } from "./group-commit.ts";

const NANO_PER_MICRO = 1_000;
const MICRO_PER_USD = 1_000_000;
const NANO_PER_USD = 1_000_000_000;

/** A billion dollars: up to here, every whole number of micro-dollars has a distinct double in dollars. */
export const MOST_MICRO = 1e15;

/**
 * The cost of `units` at `nanoPerUnit` nano-dollars each, in whole micro-dollars, rounded once, half to even. Both must be non-negative
 * integers; throws a RangeError otherwise, or if the charge exceeds `MOST_MICRO`.
 */
export function charge(units: number, nanoPerUnit: number): number {
  if (!isCount(units) || !isCount(nanoPerUnit))
    throw new RangeError(`${units} units at ${nanoPerUnit} nano-dollars is not a valid charge`);
  const nano = units * nanoPerUnit;
  const micro = nano <= Number.MAX_SAFE_INTEGER ? roundHalfEven(nano) : roundLarge(BigInt(units) * BigInt(nanoPerUnit));
  if (micro > MOST_MICRO)
    throw new RangeError(`${units} units at ${nanoPerUnit} nano-dollars exceed the largest charge`);
  return micro;
}

const isCount = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;

function roundHalfEven(nano: number): number {
  const rest = nano % NANO_PER_MICRO;
  const whole = (nano - rest) / NANO_PER_MICRO;
  const half = NANO_PER_MICRO / 2;
  return rest > half || (rest === half && whole % 2 === 1) ? whole + 1 : whole;
}

/** Doubles above 2^53 skip integers, so the remainder is computed exactly before rounding. */
function roundLarge(nano: bigint): number {
  const twoMicro = BigInt(2 * NANO_PER_MICRO);
  return Number((nano / twoMicro) * 2n) + roundHalfEven(Number(nano % twoMicro));
}

/** Micro-dollars as dollars: a number with at most six decimals that `fromUsd` converts back exactly. */
export const toUsd = (micro: number): number => micro / MICRO_PER_USD;

/**
 * Dollars as whole micro-dollars. Refuses with `validation_failed` at `param` a value that is negative, not finite, has more than six
 * decimals or exceeds `MOST_MICRO`.
 */
export const fromUsd = (usd: number, param = "amount_usd"): number =>
  exactly(usd, MICRO_PER_USD, "six decimals", param);

/**
 * A price in dollars for `per` units as whole nano-dollars for one. Refuses with `validation_failed` at `param` a value that is negative, not
 * finite or finer than a nano-dollar per unit.
 */
export function nanoFromUsd(usd: number, per = 1, param = "price_usd"): number {
  return exactly(usd, NANO_PER_USD / per, `a price of whole nano-dollars for each of ${per}`, param);
}

/** A price in nano-dollars per unit as dollars for `per` units; the inverse of `nanoFromUsd`. */
export const usdFromNano = (nano: number, per = 1): number => (nano * per) / NANO_PER_USD;

function exactly(usd: number, deps: number, grain: string, param: string): number {
  const whole = Math.round(usd * deps);
  if (usd >= 0 && whole <= MOST_MICRO && whole / deps === usd) return Object.is(whole, -0) ? 0 : whole;
  const message = `must be an amount in dollars, not negative, at most ${MOST_MICRO / deps}, of no more than ${grain}`;
  const violation = { $typeName: "limber.v1.Violation" as const, path: param, message, type: "money" };
  throw refuse(Reason.VALIDATION_FAILED, `${param} ${message}`, { violations: [violation] }, { param });
}

/** The most tracked keys; the least recently charged one is evicted. */
const MOST_KEYS = 100_000;

/** The rounding remainders of one replica. */
export class Remainders {
  /** In nano-dollars, below a micro-dollar except during concurrent calls; the least recently charged key comes first. */
  readonly #byKey = new Map<string, number>();

  /**
   * The charge for so many units at a price, in whole micro-dollars: rounded down or up, whichever leaves the smaller remainder, and never up
   * beyond `mostMicro`. `restNano` is the new remainder: call `keep` with it when the charge is made.
   */
  charge(
    keyId: string,
    units: number,
    nanoPerUnit: number,
    mostMicro = Number.POSITIVE_INFINITY,
  ): { micro: number; restNano: number } {
    const rounded = charge(units, nanoPerUnit);
    const nano = units * nanoPerUnit;
    const below = nano % NANO_PER_MICRO;
    // A price in whole micro-dollars leaves no remainder; above 2^53 nano-dollars the remainder is insignificant.
    if (below === 0 || nano > Number.MAX_SAFE_INTEGER) return { micro: rounded, restNano: 0 };
    const least = (nano - below) / NANO_PER_MICRO;
    const owed = (this.#byKey.get(keyId) ?? 0) + below;
    // Half a micro-dollar is rounded as in `charge` if there is no remainder.
    const isUp = (owed === below ? rounded > least : owed > NANO_PER_MICRO / 2) && least < Math.floor(mostMicro);
    return { micro: isUp ? least + 1 : least, restNano: isUp ? below - NANO_PER_MICRO : below };
  }

  /** Adds the remainder of a charge that was made. */
  keep(keyId: string, restNano = 0): void {
    if (restNano === 0) return;
    const rest = (this.#byKey.get(keyId) ?? 0) + restNano;
    this.#byKey.delete(keyId);
    if (rest === 0) return;
    if (this.#byKey.size >= MOST_KEYS)
      for (const oldest of this.#byKey.keys()) {
        this.#byKey.delete(oldest);
        break;
      }
    this.#byKey.set(keyId, rest);
  }
}

/** An accelerator. */
interface Hardware {
  readonly name: string;
  /** Its cost per second, in nano-dollars. */
  readonly nanoPerSecond: number;
}

/** US dollars per hour, on demand: this project's estimates, for offerings whose provider declares no cost. */
const USD_PER_HOUR: readonly (readonly [name: string, usd: number])[] = [
  ["CPU", 0.05],
  ["Jetson-Orin-Nano", 0.05],
  ["Jetson-AGX-Orin", 0.1],
  ["Jetson-AGX-Thor", 0.2],
  ["T4", 0.6],
  ["RTX-3090", 0.45],
  ["RTX-4090", 0.7],
  ["RTX-5090", 0.9],
  ["RTX-A6000", 0.8],
  ["RTX-6000-Ada", 1],
  ["RTX-PRO-6000", 1.9],
  ["L4", 0.8],
  ["A10", 1.1],
  ["A10G", 1.1],
  ["L40", 1.5],
  ["L40S", 1.95],
  ["V100", 1.2],
  ["A100-40GB", 2.1],
  ["A100-80GB", 2.5],
  ["H100", 3.95],
  ["GH200", 3.5],
  ["H200", 4.55],
  ["B200", 6.25],
  ["B300", 7.5],
  ["GB200", 8],
  ["MI250X", 2.2],
  ["MI300X", 3.5],
  ["MI325X", 4],
  ["TPU-v4", 3.2],
  ["TPU-v5e", 1.2],
  ["TPU-v5p", 4.2],
  ["TPU-v6e", 2.7],
];

/** Every known accelerator, cheapest first. */
export const HARDWARE: readonly Hardware[] = USD_PER_HOUR.map(([name, usd]) => ({
  name,
  nanoPerSecond: Math.round((usd * 1e9) / 3600),
})).sort((a, b) => a.nanoPerSecond - b.nanoPerSecond);

/** Case and separators are ignored. */
const plain = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, "");

const BY_NAME = new Map(HARDWARE.map((hardware) => [plain(hardware.name), hardware]));
const DEAREST = HARDWARE.at(-1)?.nanoPerSecond ?? 0;

/** The accelerator with this name in any spelling; undefined if unknown. */
export const hardwareOf = (name: string): Hardware | undefined => BY_NAME.get(plain(name));

/** The cost of an accelerator per second, in nano-dollars; an unknown one costs as much as the most expensive one. */
export const secondOf = (name: string): number => hardwareOf(name)?.nanoPerSecond ?? DEAREST;

/** The parts of a call's ceiling. */
export interface Estimate {
  /** `action_step`, `frame`, `token` or `episode`. */
  unit: string;
  units: number;
  /** The highest price per unit of all candidates, in nano-dollars. */
  priceNano: number;
  /** The part of the ceiling for cold starts, in micro-dollars. */
  wakeUpMicro: number;
}

/** Refuses a call with the ceiling `ceilingMicro` for lack of credit or budget. */
export function shortage(short: CreditShortage, ceilingMicro: number, estimate: Estimate): Refusal {
  const availableMicro = short.roomMicro;
  const details: RefusalDetails = {
    limitSource: short.short,
    requiredUsd: toUsd(ceilingMicro),
    availableUsd: toUsd(availableMicro),
    shortfallUsd: toUsd(ceilingMicro - availableMicro),
    estimated: create(CostEstimateSchema, {
      unit: estimate.unit,
      units: estimate.units,
      unitPriceUsd: usdFromNano(estimate.priceNano),
      wakeUpUsd: toUsd(estimate.wakeUpMicro),
    }),
  };
  if (short.resetsAt !== null) details.resetsAt = short.resetsAt;
  const horizon = affordableUnits(ceilingMicro, availableMicro, estimate);
  const isEpisodes = estimate.unit === "episode";
  if (horizon > 0)
    details.maxAffordable = create(AffordableSchema, isEpisodes ? { horizon, episodes: horizon } : { horizon });
  const { reason, text } = SHORTAGES[short.short];
  return refuse(reason, isEpisodes ? `${text}; it covers ${horizon} of ${estimate.units} episodes` : text, details);
}

const SHORTAGES = {
  org_credits: {
    reason: Reason.INSUFFICIENT_CREDITS,
    text: "the balance does not cover this call; top up with POST /v1/billing/topup, or ask the operator to add credit (POST /v1/orgs/{org_id}/credits)",
  },
  workspace_budget: {
    reason: Reason.WORKSPACE_BUDGET_EXHAUSTED,
    text: "the workspace budget does not cover this call",
  },
  key_budget: {
    reason: Reason.KEY_BUDGET_EXHAUSTED,
    text: "the budget of this key, or of one of its ancestors, does not cover this call",
  },
} as const;

/** The ceiling, except for cold starts, is proportional to the units: the number of units that the available amount covers. */
function affordableUnits(ceilingMicro: number, availableMicro: number, { units, wakeUpMicro }: Estimate): number {
  const forUnits = ceilingMicro - wakeUpMicro;
  if (forUnits <= 0) return 0;
  return Math.max(0, Math.floor((units * (availableMicro - wakeUpMicro)) / forUnits));
}
