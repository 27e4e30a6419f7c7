/** The service's own description (RFC 7643 sections 5 to 7). */
import { create } from "@bufbuild/protobuf";
import {
  type ResourceType,
  ResourceTypeSchema,
  type Schema,
  type SchemaAttribute,
  SchemaAttributeSchema,
  SchemaSchema,
  type ServiceProviderConfig,
  ServiceProviderConfigSchema,
} from "../../../gen/limber/scim/v2/discovery_pb.ts";
import { type Attribute, KINDS, type SchemaDocument } from "./attributes.ts";

const CORE = "urn:ietf:params:scim:schemas:core:2.0";
const BASE = "/v1/scim/v2";

/** Resources in one answer. */
export const MAX_RESULTS = 1000;

/** The kinds of resources. */
export const RESOURCE_TYPES: readonly ResourceType[] = Object.values(KINDS).map(
  ({ name, endpoint, schema, extensions }) =>
    create(ResourceTypeSchema, {
      schemas: [`${CORE}:ResourceType`],
      id: name,
      name,
      description: schema.description,
      endpoint,
      schema: schema.id,
      schemaExtensions: extensions.map(({ id }) => ({ schema: id, required: false })),
      meta: { resourceType: "ResourceType", location: `${BASE}/ResourceTypes/${name}` },
    }),
);

/** The schemas. */
export const SCHEMAS: readonly Schema[] = Object.values(KINDS)
  .flatMap(({ schema, extensions }): SchemaDocument[] => [schema, ...extensions])
  .map(({ id, name, description, attributes }) =>
    create(SchemaSchema, {
      schemas: [`${CORE}:Schema`],
      id,
      name,
      description,
      attributes: attributes.map(attributeMessage),
      meta: { resourceType: "Schema", location: `${BASE}/Schemas/${id}` },
    }),
  );

function attributeMessage(attribute: Attribute): SchemaAttribute {
  const { canonicalValues = [], referenceTypes = [], subAttributes = [], ...rest } = attribute;
  return create(SchemaAttributeSchema, {
    ...rest,
    canonicalValues: [...canonicalValues],
    referenceTypes: [...referenceTypes],
    subAttributes: subAttributes.map(attributeMessage),
  });
}

/** What the service can do. */
export const PROVIDER_CONFIG: ServiceProviderConfig = create(ServiceProviderConfigSchema, {
  schemas: [`${CORE}:ServiceProviderConfig`],
  patch: { supported: true },
  bulk: { supported: false, maxOperations: 0, maxPayloadSize: 0 },
  filter: { supported: true, maxResults: MAX_RESULTS },
  changePassword: { supported: false },
  sort: { supported: true },
  etag: { supported: true },
  authenticationSchemes: [
    {
      type: "oauthbearertoken",
      name: "API key",
      description: "An API key of the role owner or admin, as a bearer token.",
      specUri: "https://www.rfc-editor.org/info/rfc6750",
      primary: true,
    },
  ],
  meta: { resourceType: "ServiceProviderConfig", location: `${BASE}/ServiceProviderConfig` },
});
