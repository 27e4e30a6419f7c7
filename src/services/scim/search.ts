/** Looks for resources of every kind at once (RFC 7644 section 3.4.3): users first, each kind in the order that is asked for. */
import { create, fromJson, type JsonObject } from "@bufbuild/protobuf";
import { FoundSchema } from "../../../gen/limber/scim/v2/resource_pb.ts";
import {
  type SearchRequest,
  type SearchResponse,
  SearchResponseSchema,
} from "../../../gen/limber/scim/v2/scim_service_pb.ts";
import { type Call, keyOf } from "../../call.ts";
import { Reason, Refusal } from "../../errors.ts";
import { listGroups, listUsers, type ScimPage, type ScimQuery } from "../../store/account/scim.ts";
import type { Sql } from "../../store/database/tx.ts";
import { LIST_SCHEMA, queryFor, shownOf } from "./answers.ts";
import { KINDS, type Kind } from "./attributes.ts";

const LISTS: readonly (readonly [Kind, (sql: Sql, query: ScimQuery) => Promise<ScimPage>])[] = [
  [KINDS.user, listUsers],
  [KINDS.group, listGroups],
];

/** One page of everything that a search finds. Refuses with `invalid_filter` what no kind of resource can be asked. */
export async function searchAll(sql: Sql, request: SearchRequest, call: Call): Promise<SearchResponse> {
  const { orgId } = keyOf(call);
  const asked = LISTS.map(([kind, list]) => ({ kind, list, query: queryOf(kind, orgId, request) }));
  const refused = asked.find(({ query }) => query instanceof Refusal);
  const can = asked.filter(({ query }) => !(query instanceof Refusal)) as ((typeof asked)[number] & {
    query: ScimQuery;
  })[];
  if (can.length === 0) throw refused?.query;
  let { offset, limit } = can[0]!.query;
  const start = offset;
  let total = 0;
  const resources: JsonObject[] = [];
  for (const { kind, list, query } of can) {
    const page = await list(sql, { ...query, offset, limit });
    total += page.total;
    offset = Math.max(0, offset - page.total);
    limit -= page.resources.length;
    for (const each of page.resources) resources.push(shownOf(kind, each, request) as JsonObject);
  }
  return create(SearchResponseSchema, {
    schemas: [LIST_SCHEMA],
    totalResults: total,
    startIndex: start + 1,
    itemsPerPage: resources.length,
    resources: resources.map((each) => fromJson(FoundSchema, each, { ignoreUnknownFields: true })),
  });
}

/** A kind that lacks an attribute of the filter, or the one to sort by, is not found by it. */
function queryOf(kind: Kind, orgId: string, request: SearchRequest): ScimQuery | Refusal {
  try {
    return queryFor(kind, orgId, request);
  } catch (thrown) {
    if (thrown instanceof Refusal && (thrown.reason === Reason.INVALID_FILTER || thrown.reason === Reason.INVALID_PATH))
      return thrown;
    throw thrown;
  }
}
