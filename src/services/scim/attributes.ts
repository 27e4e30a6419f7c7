/** What attributes resources have, by RFC 7643: those of its own schemas that the messages here carry. */
import type { DescMessage } from "@bufbuild/protobuf";
import SCIMMY from "scimmy";
import { EnterpriseUserSchema, GroupSchema, UserSchema } from "../../../gen/limber/scim/v2/resource_pb.ts";

/** One attribute. */
export interface Attribute {
  readonly name: string;
  readonly type: "string" | "boolean" | "decimal" | "integer" | "dateTime" | "reference" | "complex" | "binary";
  readonly multiValued: boolean;
  readonly description: string;
  readonly required: boolean;
  readonly canonicalValues?: readonly string[];
  readonly caseExact?: boolean;
  readonly mutability: "readOnly" | "readWrite" | "immutable" | "writeOnly";
  readonly returned: string;
  readonly uniqueness?: string;
  readonly referenceTypes?: readonly string[];
  readonly subAttributes?: readonly Attribute[];
}

/** A schema as the discovery endpoint shows it. */
export interface SchemaDocument {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly attributes: readonly Attribute[];
}

/** A kind of resource: its own schema, and what further ones it may follow. */
export interface Kind {
  readonly name: "User" | "Group";
  readonly endpoint: string;
  readonly schema: SchemaDocument;
  readonly extensions: readonly SchemaDocument[];
}

/** A schema of RFC 7643, without the attributes that `desc` has no field for. */
function documentOf(definition: { describe(): unknown }, desc: DescMessage): SchemaDocument {
  // The library describes itself as RFC 7643 section 7 writes it; through JSON, for it hides that behind accessors.
  const { id, name, description, attributes } = JSON.parse(JSON.stringify(definition.describe())) as SchemaDocument;
  return { id, name, description, attributes: carried(attributes, desc) };
}

function carried(attributes: readonly Attribute[], desc: DescMessage): Attribute[] {
  return attributes.flatMap((attribute) => {
    const field = desc.fields.find(({ jsonName }) => jsonName === attribute.name);
    if (!field) return [];
    const inner = attribute.subAttributes && field.message && carried(attribute.subAttributes, field.message);
    return [{ ...attribute, ...(inner && { subAttributes: inner }) }];
  });
}

const { User, Group, EnterpriseUser } = SCIMMY.Schemas;

/** The kinds of resources here. */
export const KINDS = {
  user: {
    name: "User",
    endpoint: "/Users",
    schema: documentOf(User.definition, UserSchema),
    extensions: [documentOf(EnterpriseUser.definition, EnterpriseUserSchema)],
  },
  group: { name: "Group", endpoint: "/Groups", schema: documentOf(Group.definition, GroupSchema), extensions: [] },
} as const satisfies Record<string, Kind>;

const plain = (name: string, more: Partial<Attribute> = {}): Attribute => ({
  name,
  type: "string",
  multiValued: false,
  description: "",
  required: false,
  caseExact: true,
  mutability: "readOnly",
  returned: "default",
  ...more,
});

/** What every resource has (RFC 7643 section 3.1). */
const COMMON: readonly Attribute[] = [
  plain("id", { returned: "always" }),
  plain("schemas", { type: "reference", multiValued: true, returned: "always" }),
  plain("externalId", { mutability: "readWrite" }),
  plain("meta", {
    type: "complex",
    subAttributes: [
      plain("resourceType"),
      plain("created", { type: "dateTime" }),
      plain("lastModified", { type: "dateTime" }),
      plain("location", { type: "reference" }),
      plain("version"),
    ],
  }),
];

/** Where an attribute is in a resource, and what it is. */
export interface AttributePlace {
  /** The names on the way, such as `["name", "familyName"]`; the first may be the name of an extension. */
  readonly names: readonly string[];
  readonly attribute: Attribute;
  /** The attribute that it is a part of. */
  readonly parent?: Attribute;
}

const same = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase();

/**
 * Finds an attribute by its name in any case, with its schema before it or without, such as `name.familyName`; the name of an
 * extension alone stands for all of it. Undefined where there is none.
 */
export function placeOf(kind: Kind, path: string): AttributePlace | undefined {
  for (const document of [kind.schema, ...kind.extensions]) {
    const isExtension = document !== kind.schema;
    if (same(path, document.id))
      return isExtension ? { names: [document.id], attribute: wholeOf(document) } : undefined;
    if (!path.toLowerCase().startsWith(`${document.id.toLowerCase()}:`)) continue;
    const attributes = isExtension ? document.attributes : [...COMMON, ...document.attributes];
    const found = within(attributes, path.slice(document.id.length + 1));
    return found && isExtension ? { ...found, names: [document.id, ...found.names] } : found;
  }
  return within([...COMMON, ...kind.schema.attributes], path);
}

const wholeOf = ({ id, attributes }: SchemaDocument): Attribute =>
  plain(id, { type: "complex", mutability: "readWrite", subAttributes: attributes });

function within(attributes: readonly Attribute[], path: string): AttributePlace | undefined {
  const [first = "", second, ...others] = path.split(".");
  const attribute = attributes.find(({ name }) => same(name, first));
  if (!attribute || others.length > 0) return undefined;
  if (second === undefined) return { names: [attribute.name], attribute };
  const part = partOf(attribute, second);
  return part && { names: [attribute.name, part.name], attribute: part, parent: attribute };
}

/** A part of a complex attribute, by its name in any case. */
export const partOf = ({ subAttributes }: Attribute, name: string): Attribute | undefined =>
  subAttributes?.find((part) => same(part.name, name));
