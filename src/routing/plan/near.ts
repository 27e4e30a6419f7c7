/** Which known names a misspelt one may have meant. */

const MOST = 5;
const LONGEST = 128;

/** A name that was cut short, from so many letters on, is as good as one letter wrong. */
const LEAST_CUT = 4;

/**
 * Up to five of `known`, nearest first, that are at most a third of the name's letters away from it. Case, separators and letters in another form
 * (`π₀.₅`) make no distance; a name without an owner is compared with what stands behind the owner too. Costs time in proportion to `known`, so
 * it is for refusals alone.
 */
export function nearNames(name: string, known: Iterable<string>): string[] {
  if (name.length > LONGEST) return [];
  const asked = plain(name);
  const reach = Math.max(2, Math.floor(name.length / 3));
  const found: { candidate: string; distance: number; letters: number }[] = [];
  for (const candidate of known) {
    const forms = name.includes("/") ? [candidate] : [candidate, candidate.slice(candidate.indexOf("/") + 1)];
    const distance = Math.min(...forms.map((form) => distanceBetween(name.toLowerCase(), asked, form, reach)));
    // Of names that differ in case and separators alone the one with fewer of these differences goes first.
    if (distance <= reach) found.push({ candidate, distance, letters: editDistance(name, candidate, 2 * LONGEST) });
  }
  found.sort((a, b) => a.distance - b.distance || a.letters - b.letters || (a.candidate < b.candidate ? -1 : 1));
  return found.slice(0, MOST).map((hit) => hit.candidate);
}

/** A name as its letters and digits alone, with its owner and its suffix. */
const plain = (name: string): string =>
  name
    .normalize("NFKC")
    .toLowerCase()
    .replaceAll("π", "pi")
    .replace(/^(https?:\/\/[^/]+\/|models\/|hf:(\/\/)?)/, "")
    .replaceAll(/[\s._-]/g, "");

/** The number of mistakes between two names: 0 if their plain forms are equal; otherwise the lesser of their edit distance and that of their plain forms plus one. */
function distanceBetween(name: string, asked: string, form: string, reach: number): number {
  const whole = plain(form);
  if (asked === whole && asked !== "") return 0;
  if (asked.length >= LEAST_CUT && whole.startsWith(asked)) return 1;
  return Math.min(editDistance(name, form.toLowerCase(), reach), editDistance(asked, whole, reach) + 1);
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
