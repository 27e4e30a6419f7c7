/** SCIM 2.0: people and groups, pushed by an identity provider. */
import { create } from "@bufbuild/protobuf";
import {
  GetResourceTypeResponseSchema,
  GetSchemaResponseSchema,
  GetServiceProviderConfigResponseSchema,
  ListResourceTypesResponseSchema,
  ListSchemasResponseSchema,
  type ScimService,
} from "../../gen/limber/scim/v2/scim_service_pb.ts";
import type { Implementation } from "../call.ts";
import { Reason, refuse } from "../errors.ts";
import { LIST_SCHEMA, type ScimDeps } from "./scim/answers.ts";
import { PROVIDER_CONFIG, RESOURCE_TYPES, SCHEMAS } from "./scim/discovery.ts";
import { groupCalls } from "./scim/groups.ts";
import { searchAll } from "./scim/search.ts";
import { userCalls } from "./scim/users.ts";

/** The SCIM RPCs. */
export function scimService(deps: ScimDeps): Implementation<typeof ScimService> {
  return {
    ...userCalls(deps),
    ...groupCalls(deps),

    search: (request, call) => searchAll(deps.sql, request, call),

    async getServiceProviderConfig() {
      return create(GetServiceProviderConfigResponseSchema, { config: PROVIDER_CONFIG });
    },

    async listResourceTypes() {
      return create(ListResourceTypesResponseSchema, { ...wholeList(RESOURCE_TYPES), resources: [...RESOURCE_TYPES] });
    },

    async getResourceType({ name }) {
      const resourceType = RESOURCE_TYPES.find((each) => each.name === name);
      if (!resourceType) throw refuse(Reason.NOT_FOUND, "there is no kind of resource of this name");
      return create(GetResourceTypeResponseSchema, { resourceType });
    },

    async listSchemas() {
      return create(ListSchemasResponseSchema, { ...wholeList(SCHEMAS), resources: [...SCHEMAS] });
    },

    async getSchema({ id }) {
      const schema = SCHEMAS.find((each) => each.id.toLowerCase() === id.toLowerCase());
      if (!schema) throw refuse(Reason.NOT_FOUND, "there is no schema of this id");
      return create(GetSchemaResponseSchema, { schema });
    },
  };
}

const wholeList = ({ length }: readonly unknown[]) => ({
  schemas: [LIST_SCHEMA],
  totalResults: length,
  startIndex: 1,
  itemsPerPage: length,
});
