/** SCIM's convention for what identity providers talk to (RFC 7644 section 3). */
import { factsOf } from "../../../../errors.ts";
import { restAnswer } from "../../../messages/errors.ts";
import { headerOf } from "../exchange.ts";
import type { Dialect } from "./dialect.ts";
import { readJson } from "./native.ts";
import { originOf } from "./origin.ts";
import { fromNative, toNative } from "./scim-json.ts";

const TYPE = /^application\/(scim\+)?json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i;

const NAMED = "application/scim+json or application/json";

/** `application/scim+json` in and out, versions as ETags, refusals of SCIM's own schema. */
export const scim: Dialect = {
  root: "/v1/scim/v2",
  trailingSlash: true,
  contentType: "application/scim+json",
  async readBody(route, request, limits) {
    if (route.body === undefined) return {};
    const given = await readJson(request, { bounds: route.bounds }, limits, { type: TYPE, named: NAMED });
    const desc = route.body === "*" ? route.method.input : route.body.message;
    if (desc === undefined) return given;
    const told = toNative(desc, given);
    // A body that says nothing is none: a resource must not be emptied by a slip.
    return route.body !== "*" && isEmpty(told) ? null : told;
  },
  ignoresUnknown: true,
  parameterOf: (field) => field.jsonName,
  write: (desc, value, request) => JSON.stringify(fromNative(desc, value, originOf(request))),
  head(route, value, request) {
    const { version, location } = metaOf(value);
    if (version === undefined) return { headers: [] };
    const headers = ["etag", version];
    if (route.status === 201 && location !== undefined) headers.push("location", originOf(request) + location);
    const seen = route.verb === "GET" ? headerOf(request, "if-none-match") : undefined;
    const same = seen?.split(",").some((each) => each.trim() === version || each.trim() === "*");
    return { headers, ...(same && { status: 304 }) };
  },
  refuse(refusal, requestId, given) {
    const { status: said, headers, body } = restAnswer(refusal, requestId, given);
    // A wrong value is 400 here, whatever the gateway says elsewhere.
    const status = said === 422 ? 400 : said;
    const { scimType } = factsOf(refusal.reason);
    const error = {
      schemas: ["urn:ietf:params:scim:api:messages:2.0:Error"],
      status: String(status),
      ...(scimType !== "" && { scimType }),
      detail: JSON.parse(body).error.message, // sound: just written
    };
    return { status, headers, body: JSON.stringify(error) };
  },
};

const isEmpty = (value: unknown): boolean =>
  typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length === 0;

function metaOf(value: unknown): { version?: string | undefined; location?: string | undefined } {
  const meta = typeof value === "object" && value !== null && "meta" in value ? value.meta : undefined;
  // The schema's Meta, or that of a resource that has no version.
  return typeof meta === "object" && meta !== null ? (meta as { version?: string; location?: string }) : {};
}
