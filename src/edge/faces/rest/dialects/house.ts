/** The gateway's own convention. */
import { restAnswer } from "../../../messages/errors.ts";
import { parseBody, readPlain } from "../../../messages/json.ts";
import { MAX_BODY_BYTES, readBody } from "../body.ts";
import type { Request } from "../exchange.ts";
import type { Dialect } from "./dialect.ts";

const JSON_TYPE = /^application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i;

/** The JSON value, or a promise of it, of a body of one of the content types that `type` matches; an empty object where there is no body. */
export function readJson(
  request: Request,
  { type = JSON_TYPE, named = "application/json", most = MAX_BODY_BYTES } = {},
): unknown {
  const bytes = readBody(request, type, named, most);
  return bytes instanceof Promise ? bytes.then(parsed) : parsed(bytes);
}

const parsed = (bytes: Buffer): unknown => (bytes.length === 0 ? {} : parseBody(bytes));

/** JSON by the schema's names, and refusals by the schema's `ErrorBody`. */
export const house: Dialect = {
  contentType: "application/json",
  readBody: (route, request) => {
    const most = route.maxBodyBytes;
    if (route.raw) return readBody(request, JSON_TYPE, "application/json", most);
    return route.verb === "GET" ? {} : readJson(request, { most });
  },
  readPlain: (route, request) => {
    if (!("body" in request) || route.body !== "*" || route.path.length > 0) return undefined;
    const bytes = readBody(request, JSON_TYPE, "application/json", route.maxBodyBytes);
    return bytes instanceof Promise ? undefined : readPlain(route.method.input, bytes);
  },
  ignoresUnknown: false,
  plain: true,
  write: (_desc, value) => JSON.stringify(value),
  refuse: restAnswer,
};
