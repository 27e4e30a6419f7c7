/** The nearest of a few names to a misspelt one. */

/** A name that was cut short, from so many letters on, is as good as one letter wrong. */
const LEAST_CUT = 4;
/** Longer names are not worth a guess. */
const MAX_LENGTH = 64;

/** The name that is fewest edits away from `name`, where that is near enough to be meant. */
export function nearest(name: string, among: Iterable<string>): string | undefined {
  if (name.length > MAX_LENGTH) return undefined;
  let best: string | undefined;
  let least = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const each of among) {
    const isCut = name.length >= LEAST_CUT && each.toLowerCase().startsWith(name.toLowerCase());
    if (!isCut && Math.abs(each.length - name.length) >= least) continue;
    const edits = isCut ? 1 : editsBetween(name.toLowerCase(), each.toLowerCase());
    if (edits < least) [best, least] = [each, edits];
  }
  return best;
}

/** The sentence about a name that nothing bears. */
export function unknown(what: "field" | "parameter", name: string, known: Iterable<string>): string {
  const meant = nearest(name, known);
  return meant === undefined ? `there is no such ${what}` : `there is no such ${what}; the nearest is ${meant}`;
}

/** Levenshtein's distance, one row of its table at a time. */
function editsBetween(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(swap, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}
