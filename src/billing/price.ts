/** Prices and charges. Inside, money is whole micro-dollars and a price is whole nano-dollars per unit; outside, both are numbers of dollars. */
import { Reason, refuse } from "../errors.ts";

const NANO_PER_MICRO = 1_000;
const MICRO_PER_USD = 1_000_000;
const NANO_PER_USD = 1_000_000_000;

/** A thousand million dollars: up to here every whole number of micro-dollars has a double of its own when it is written in dollars. */
export const MOST_MICRO = 1e15;

/**
 * What `units` cost at `nanoPerUnit` nano-dollars each, in whole micro-dollars, rounded once, half to even.
 * Both are whole and not negative; throws a RangeError otherwise, or when the charge exceeds `MOST_MICRO`.
 */
export function charge(units: number, nanoPerUnit: number): number {
  if (!isCount(units) || !isCount(nanoPerUnit))
    throw new RangeError(`${units} units at ${nanoPerUnit} nano-dollars is no charge`);
  const nano = units * nanoPerUnit;
  const micro = nano <= Number.MAX_SAFE_INTEGER ? roundHalfEven(nano) : roundLarge(BigInt(units) * BigInt(nanoPerUnit));
  if (micro > MOST_MICRO)
    throw new RangeError(`${units} units at ${nanoPerUnit} nano-dollars exceed what can be charged`);
  return micro;
}

const isCount = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;

function roundHalfEven(nano: number): number {
  const rest = nano % NANO_PER_MICRO;
  const whole = (nano - rest) / NANO_PER_MICRO;
  const half = NANO_PER_MICRO / 2;
  return rest > half || (rest === half && whole % 2 === 1) ? whole + 1 : whole;
}

/** Above 2^53 doubles skip whole numbers, so the remainder is taken exactly before it is rounded. */
function roundLarge(nano: bigint): number {
  const twoMicro = BigInt(2 * NANO_PER_MICRO);
  return Number((nano / twoMicro) * 2n) + roundHalfEven(Number(nano % twoMicro));
}

/** Micro-dollars as dollars: a number that prints with at most six decimals and that `fromUsd` turns back into the same amount. */
export const toUsd = (micro: number): number => micro / MICRO_PER_USD;

/**
 * Dollars as whole micro-dollars. Refuses with `validation_failed` at `param` what is negative, not finite, has more than six
 * decimals or exceeds `MOST_MICRO`.
 */
export const fromUsd = (usd: number, param = "amount_usd"): number =>
  exactly(usd, MICRO_PER_USD, "six decimals", param);

/**
 * A price in dollars for `per` units as whole nano-dollars for one. Refuses with `validation_failed` at `param` what is negative,
 * not finite or finer than a nano-dollar per unit.
 */
export function nanoFromUsd(usd: number, per = 1, param = "price_usd"): number {
  return exactly(usd, NANO_PER_USD / per, `a price of whole nano-dollars for each of ${per}`, param);
}

/** A price in nano-dollars per unit as dollars for `per` units: what `nanoFromUsd` was given. */
export const usdFromNano = (nano: number, per = 1): number => (nano * per) / NANO_PER_USD;

function exactly(usd: number, deps: number, grain: string, param: string): number {
  const whole = Math.round(usd * deps);
  if (usd >= 0 && whole <= MOST_MICRO && whole / deps === usd) return Object.is(whole, -0) ? 0 : whole;
  const message = `must be an amount in dollars, not negative, at most ${MOST_MICRO / deps}, of no more than ${grain}`;
  const violation = { $typeName: "limber.v1.Violation" as const, path: param, message, type: "money" };
  throw refuse(Reason.VALIDATION_FAILED, `${param} ${message}`, { violations: [violation] }, { param });
}
