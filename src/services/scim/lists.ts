/** Lists of resources: filtered, sorted, page by page (RFC 7644 section 3.4.2). */
import { Reason, refuse } from "../../errors.ts";
import type { ScimQuery } from "../../store/account/scim.ts";
import { type Kind, placeOf } from "./attributes.ts";
import { MAX_RESULTS } from "./discovery.ts";
import { parseFilter } from "./filter.ts";
import { jsonPathOf, sortPathOf } from "./query.ts";

/** What a caller asks of a list. */
export interface ListWish {
  readonly filter?: string | undefined;
  readonly sortBy?: string | undefined;
  readonly sortOrder?: string | undefined;
  readonly startIndex?: number | undefined;
  readonly count?: number | undefined;
}

const DEFAULT_COUNT = 100;

/** The schema of lists. */
export const LIST_SCHEMA = "urn:ietf:params:scim:api:messages:2.0:ListResponse";

/** The store's query for a wish. */
export function queryFor(kind: Kind, orgId: string, wish: ListWish): ScimQuery {
  const { filter, sortBy, sortOrder, startIndex = 1, count = DEFAULT_COUNT } = wish;
  return {
    orgId,
    filter: filter === undefined ? undefined : jsonPathOf(parseFilter(kind, filter)),
    sortBy: sortBy === undefined ? undefined : sortPath(kind, sortBy),
    descending: sortOrder === "descending",
    // What is out of bounds means the nearest that is not (RFC 7644 section 3.4.2.4).
    offset: Math.max(0, startIndex - 1),
    limit: Math.min(MAX_RESULTS, Math.max(0, count)),
  };
}

/** A page of a list, as answers have it; `shown` makes what a caller sees of a resource. */
export const pageOf = <R, S>(
  { offset }: Pick<ScimQuery, "offset">,
  { total, resources }: { readonly total: number; readonly resources: readonly R[] },
  shown: (resource: R) => S,
) => ({
  schemas: [LIST_SCHEMA],
  totalResults: total,
  startIndex: offset + 1,
  itemsPerPage: resources.length,
  resources: resources.map(shown),
});

function sortPath(kind: Kind, name: string): string {
  const place = placeOf(kind, name);
  if (!place) throw refuse(Reason.INVALID_PATH, "sortBy names an attribute that there is not", {}, { param: "sortBy" });
  return sortPathOf(place);
}
