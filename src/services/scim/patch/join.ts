/** Which values of an attribute are one and the same. */
import { isObject } from "./tidy.ts";

/** Whether two values are one: by their value and type where they have any, else by all that they hold. */
export function same(one: unknown, other: unknown): boolean {
  if (!isObject(one) || !isObject(other)) return one === other;
  if (one.value === undefined && other.value === undefined) return JSON.stringify(one) === JSON.stringify(other);
  const sameType = one.type === undefined || other.type === undefined || one.type === other.type;
  return one.value === other.value && sameType;
}

/** What values are looked up by: the same ones have the same. */
const keyOf = (each: unknown): string =>
  isObject(each) ? (each.value === undefined ? JSON.stringify(each) : `=${each.value}`) : `:${each}`;

/** Tells whether a value is one of `some`, in a time that does not grow with their number. */
export function oneOf(some: readonly unknown[]): (each: unknown) => boolean {
  const byKey = Map.groupBy(some, keyOf);
  return (each) => byKey.get(keyOf(each))?.some((one) => same(each, one)) ?? false;
}

/**
 * Values that are there, each with what more is said of it, and those of the others that are new, each once. Its time grows with the
 * number of values: groups have many.
 */
export function joining(before: readonly unknown[], more: readonly unknown[]): { kept: unknown[]; fresh: unknown[] } {
  const all = [...before];
  const places = new Map<string, number[]>();
  const remember = (each: unknown, at: number): void => {
    const key = keyOf(each);
    const known = places.get(key);
    if (known) known.push(at);
    else places.set(key, [at]);
  };
  for (const [at, each] of before.entries()) remember(each, at);
  for (const each of more) {
    const at = places.get(keyOf(each))?.find((known) => same(all[known], each));
    const known = at === undefined ? undefined : all[at];
    if (at === undefined) remember(each, all.push(each) - 1);
    else if (isObject(each) && isObject(known)) all[at] = { ...known, ...each };
  }
  return { kept: all.slice(0, before.length), fresh: all.slice(before.length) };
}
