/** The gateway's own convention. */
import { restAnswer } from "../../../messages/errors.ts";
import { type Expected, parseCounted, readPlain } from "../../../messages/json.ts";
import { type BodyLimits, readBody } from "../body.ts";
import type { HttpRequest } from "../exchange.ts";
import type { Dialect } from "./dialect.ts";

const JSON_TYPE = /^application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i;

/** The JSON value, or a promise of it, of a body of one of the content types that `type` matches; an empty object where there is no body. */
export function readJson(
  request: HttpRequest,
  expected: Expected,
  limits: BodyLimits,
  { type = JSON_TYPE, named = "application/json" } = {},
): unknown {
  const parsed = (bytes: Buffer): unknown => (bytes.length === 0 ? {} : parseCounted(bytes, expected));
  const bytes = readBody(request, type, named, limits);
  return bytes instanceof Promise ? bytes.then(parsed) : parsed(bytes);
}

/** JSON by the schema's names, and refusals by the schema's `ErrorBody`. */
export const native: Dialect = {
  contentType: "application/json",
  readBody: (route, request, limits) => {
    if (route.raw) return readBody(request, JSON_TYPE, "application/json", limits);
    if (route.verb === "GET") return {};
    const desc = route.body === "*" ? route.method.input : route.body?.message;
    return readJson(request, { bounds: route.bounds, desc }, limits);
  },
  readPlain: (route, request, limits) => {
    if (!("body" in request) || route.body !== "*" || route.path.length > 0) return undefined;
    const bytes = readBody(request, JSON_TYPE, "application/json", limits);
    return bytes instanceof Promise ? undefined : readPlain(route.method.input, bytes);
  },
  ignoresUnknown: false,
  plain: true,
  write: (_desc, value) => JSON.stringify(value),
  refuse: restAnswer,
};
