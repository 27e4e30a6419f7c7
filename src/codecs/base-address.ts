/**
 * Where an operation of a server is, given the base address that a user pasted: with or without a version, with or without the operation
 * itself. Sources: the OpenAI-compatible bases that Google, Z.ai, Volcano, Groq, Azure, DeepSeek and others document; OTLP's exporter
 * specification.
 */

/** A version of an API as a segment of a path: `v1`, `v1beta`, `v4`, `v1alpha2`. */
const VERSION = /^v\d{1,3}(?:\.\d{1,3})?(?:(?:alpha|beta|preview)\d{0,3})?$/i;

const segmentsOf = (path: string): string[] => path.split("/").filter((segment) => segment !== "");
const join = (...parts: readonly (readonly string[])[]): string => `/${parts.flat().join("/")}`;

/** Whether the path ends in the tail, of whose segments `*` is any. */
function endsIn(path: readonly string[], tail: readonly string[]): boolean {
  const from = path.length - tail.length;
  return from >= 0 && tail.every((segment, i) => segment === "*" || segment === path[from + i]);
}

/** An operation without the version that it begins with. Only `v1` gives way to another version: others are the protocol's own name. */
const unversioned = (segments: readonly string[]): readonly string[] =>
  segments[0] === "v1" ? segments.slice(1) : segments;

/** The operation of `tails` that the path ends in, as a number of segments; 0 where it ends in none. */
function tailIn(path: readonly string[], tails: readonly string[]): number {
  const known = tails.map(segmentsOf).map((tail) => (VERSION.test(tail[0] ?? "") ? tail.slice(1) : tail));
  return Math.max(0, ...known.filter((tail) => tail.length > 0 && endsIn(path, tail)).map(({ length }) => length));
}

/**
 * The paths at which an operation such as `/v1/chat/completions` may be under a base path, the likeliest first. `tails` are the operations
 * that the base may itself end in; `*` stands for any segment. A path after the first is for a server that answers 404 or 405 at those before.
 */
export function pathsUnder(base: string, operation: string, tails: readonly string[] = [operation]): string[] {
  const pasted = segmentsOf(base);
  const whole = segmentsOf(operation);
  const bare = unversioned(whole);
  const tail = tailIn(pasted, tails);
  const root = pasted.slice(0, pasted.length - tail);
  const isOfVersions = bare.length < whole.length;
  // The base said where operations are.
  if (tail > 0 && isOfVersions) return [join(root, bare)];
  const shared = overlap(root, whole);
  if (shared > 0) return [join(root, whole.slice(shared))];
  if (isOfVersions) {
    const paths = [join(root, whole), join(root, bare)];
    // Azure's deployments have no version but in the query.
    const isVersioned = root.some((segment) => VERSION.test(segment)) || root.at(-2) === "deployments";
    return isVersioned ? paths.reverse() : paths;
  }
  // What has no version, such as a health check, may stand beside it.
  const beside = VERSION.test(root.at(-1) ?? "") && !VERSION.test(whole[0] ?? "");
  return beside ? [join(root, whole), join(root.slice(0, -1), whole)] : [join(root, whole)];
}

/** How many segments at the end of the base begin the operation. */
function overlap(base: readonly string[], operation: readonly string[]): number {
  for (let count = Math.min(base.length, operation.length); count > 0; count--)
    if (base.slice(-count).every((segment, i) => segment === operation[i])) return count;
  return 0;
}

/** The address of a path of a gateway, such as `/v1/act`, under the base that its client was given, which may end in `/v1`. */
export function addressUnder(base: string, path: string): URL {
  const url = new URL(base);
  const [at = "", search = ""] = path.split("?", 2);
  const [root, whole] = [segmentsOf(url.pathname), segmentsOf(at)];
  url.pathname = join(root, whole.slice(overlap(root, whole)));
  if (search !== "") url.search = search;
  return url;
}
