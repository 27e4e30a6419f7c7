/** The gateway's own convention. */

import { InferenceService } from "../../../../../gen/limber/v1/inference_service_pb.ts";
import { restAnswer } from "../../../messages/errors.ts";
import { type Expected, parseCounted } from "../../../messages/json.ts";
import { type BodyLimits, readBody } from "../body.ts";
import type { HttpRequest } from "../exchange.ts";
import type { Dialect } from "./dialect.ts";

const JSON_TYPE = /^application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i;

/** What a body may be called, and what stands for one that is not there. */
interface ReadOptions {
  readonly type?: RegExp;
  readonly named?: string;
  readonly none?: object | null;
}

/** The JSON value of a body of one of the content types that `type` matches; `none` where there is no body. */
export async function readJson(
  request: HttpRequest,
  expected: Expected,
  limits: BodyLimits,
  { type = JSON_TYPE, named = "application/json", none = {} }: ReadOptions = {},
): Promise<unknown> {
  const bytes = await readBody(request, type, named, limits);
  return bytes.length === 0 ? none : await parseCounted(bytes, expected);
}

/** JSON by the schema's names, and refusals by the schema's `ErrorBody`. */
export const native: Dialect = {
  contentType: "application/json",
  readBody(route, request, limits) {
    if (route.raw) return readBody(request, JSON_TYPE, "application/json", limits);
    if (route.verb === "GET") return Promise.resolve({});
    const desc = route.body === "*" ? route.method.input : route.body?.message;
    // A job's items are kept as they came.
    const expected = { bounds: route.bounds, desc, pictures: route.method.parent === InferenceService };
    return readJson(request, expected, limits, { none: typeof route.body === "object" ? null : {} });
  },
  ignoresUnknown: false,
  plain: true,
  write: (_desc, value) => JSON.stringify(value),
  refuse: restAnswer,
};
