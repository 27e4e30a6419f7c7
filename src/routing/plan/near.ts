/** Which known names a misspelt one may have meant. */

const MOST = 5;
const LONGEST = 128;

/**
 * Up to five of `known`, nearest first, that are at most a third of the name's letters away from it. Costs time in
 * proportion to `known`, so it is for refusals alone.
 */
export function nearNames(name: string, known: Iterable<string>): string[] {
  if (name.length > LONGEST) return [];
  const reach = Math.max(2, Math.floor(name.length / 3));
  const found: { candidate: string; distance: number }[] = [];
  for (const candidate of known) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase(), reach);
    if (distance <= reach) found.push({ candidate, distance });
  }
  found.sort((a, b) => a.distance - b.distance || (a.candidate < b.candidate ? -1 : 1));
  return found.slice(0, MOST).map((hit) => hit.candidate);
}

/** Levenshtein's distance, given up (as `reach + 1`) once it must exceed `reach`. */
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
