/**
 * Finds an operation's path on a server, given the base address that a user pasted: with or without a version, with or without the operation.
 * Sources: the OpenAI-compatible bases that Google, Z.ai, Volcano, Groq, Azure, DeepSeek and others document; OTLP's exporter specification.
 */

/** An API version as a path segment: `v1`, `v1beta`, `v4`, `v1alpha2`. */
const VERSION = /^v\d{1,3}(?:\.\d{1,3})?(?:(?:alpha|beta|preview)\d{0,3})?$/i;

const segmentsOf = (path: string): string[] => path.split("/").filter((segment) => segment !== "");
const join = (...parts: readonly (readonly string[])[]): string => `/${parts.flat().join("/")}`;

/** Whether the path ends in `tail`, in which `*` matches any segment. */
function endsIn(path: readonly string[], tail: readonly string[]): boolean {
  const from = path.length - tail.length;
  return from >= 0 && tail.every((segment, i) => segment === "*" || segment === path[from + i]);
}

/** An operation without its leading version. Only `v1` can be replaced by another version: other versions are part of the protocol's name. */
const unversioned = (segments: readonly string[]): readonly string[] =>
  segments[0] === "v1" ? segments.slice(1) : segments;

/** The number of segments of the operation in `tails` at the path's end; 0 if there is none. */
function tailIn(path: readonly string[], tails: readonly string[]): number {
  const known = tails.map(segmentsOf).map((tail) => (VERSION.test(tail[0] ?? "") ? tail.slice(1) : tail));
  return Math.max(0, ...known.filter((tail) => tail.length > 0 && endsIn(path, tail)).map(({ length }) => length));
}

/**
 * Returns the possible paths of an operation such as `/v1/chat/completions` under a base path, the likeliest first. `tails` are the operations
 * in which the base itself may end; `*` matches any segment. A later path is for a server that answers 404 or 405 at the earlier ones.
 */
export function pathsUnder(base: string, operation: string, tails: readonly string[] = [operation]): string[] {
  const pasted = segmentsOf(base);
  const whole = segmentsOf(operation);
  const bare = unversioned(whole);
  const tail = tailIn(pasted, tails);
  const root = pasted.slice(0, pasted.length - tail);
  const isOfVersions = bare.length < whole.length;
  // The base itself contains the operations' location.
  if (tail > 0 && isOfVersions) return [join(root, bare)];
  const shared = overlap(root, whole);
  if (shared > 0) return [join(root, whole.slice(shared))];
  if (isOfVersions) {
    const paths = [join(root, whole), join(root, bare)];
    // Azure's deployments have a version only in the query.
    const isVersioned = root.some((segment) => VERSION.test(segment)) || root.at(-2) === "deployments";
    return isVersioned ? paths.reverse() : paths;
  }
  // An operation without a version, such as a health check, can be beside the base's version.
  const beside = VERSION.test(root.at(-1) ?? "") && !VERSION.test(whole[0] ?? "");
  return beside ? [join(root, whole), join(root.slice(0, -1), whole)] : [join(root, whole)];
}

/** The number of segments at the base's end with which the operation begins. */
function overlap(base: readonly string[], operation: readonly string[]): number {
  for (let count = Math.min(base.length, operation.length); count > 0; count--)
    if (base.slice(-count).every((segment, i) => segment === operation[i])) return count;
  return 0;
}

/** Returns the address of a gateway path such as `/v1/act` under a client's base address, which may end in `/v1`. */
export function addressUnder(base: string, path: string): URL {
  const url = new URL(base);
  const [at = "", search = ""] = path.split("?", 2);
  const [root, whole] = [segmentsOf(url.pathname), segmentsOf(at)];
  url.pathname = join(root, whole.slice(overlap(root, whole)));
  if (search !== "") url.search = search;
  return url;
}
