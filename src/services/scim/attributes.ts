/** What attributes resources have: those of RFC 7643 that the messages carry, with what a field does not say of them. */
import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { EnterpriseUserSchema, GroupSchema, UserSchema } from "../../../gen/limber/scim/v2/resource_pb.ts";

/** One attribute, as a schema shows it (RFC 7643 section 7). */
export interface Attribute {
  readonly name: string;
  readonly type: "string" | "boolean" | "dateTime" | "reference" | "complex";
  readonly multiValued: boolean;
  readonly description: string;
  readonly required: boolean;
  readonly caseExact: boolean;
  readonly mutability: "readOnly" | "readWrite" | "immutable";
  readonly returned: "default" | "always";
  readonly uniqueness: "none" | "server";
  readonly canonicalValues?: readonly string[];
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

const READ_ONLY = { mutability: "readOnly" } as const;
const PLACES = { canonicalValues: ["work", "home", "other"] };
const EXTERNAL = { type: "reference", referenceTypes: ["external"] } as const;

/** Facts of attributes and of their parts, which take the mutability of the whole. */
const FACTS: Readonly<Record<string, Partial<Attribute>>> = {
  userName: { required: true, uniqueness: "server" },
  profileUrl: EXTERNAL,
  "emails.type": PLACES,
  "addresses.type": PLACES,
  "phoneNumbers.type": { canonicalValues: ["work", "home", "mobile", "fax", "pager", "other"] },
  "photos.value": EXTERNAL,
  "photos.type": { canonicalValues: ["photo", "thumbnail"] },
  groups: READ_ONLY,
  "groups.type": { canonicalValues: ["direct", "indirect"] },
  "groups.$ref": { referenceTypes: ["Group"] },
  "manager.$ref": { referenceTypes: ["User"] },
  "manager.displayName": READ_ONLY,
  "Group.displayName": { required: true },
  "members.value": { mutability: "immutable" },
  "members.$ref": { mutability: "immutable", referenceTypes: ["User"] },
  "members.type": { mutability: "immutable", canonicalValues: ["User"] },
};

const DEFAULTS = {
  ...({ type: "string", multiValued: false, required: false, caseExact: false } as const),
  ...({ mutability: "readWrite", returned: "default", uniqueness: "none" } as const),
};

const attribute = (name: string, more: Partial<Attribute> = {}): Attribute => {
  const description = name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  return { name, ...DEFAULTS, description, ...more };
};

/** What is the gateway's own, and differs by case. */
const OWN = { mutability: "readOnly", caseExact: true } as const;

/** What every resource has (RFC 7643 section 3.1). */
const COMMON: readonly Attribute[] = [
  attribute("id", { ...OWN, returned: "always" }),
  attribute("schemas", { ...OWN, type: "reference", multiValued: true, returned: "always" }),
  attribute("externalId", { caseExact: true }),
  attribute("meta", {
    ...({ ...OWN, type: "complex" } as const),
    subAttributes: [
      ...["resourceType", "version"].map((name) => attribute(name, OWN)),
      ...["created", "lastModified"].map((name) => attribute(name, { ...OWN, type: "dateTime" })),
      attribute("location", { ...OWN, type: "reference" }),
    ],
  }),
];

function attributeOf(
  { jsonName: name, fieldKind, scalar, message }: DescField,
  path: string,
  above: object,
): Attribute {
  const facts: Partial<Attribute> = { ...above, ...FACTS[name], ...FACTS[path] };
  const { mutability = DEFAULTS.mutability } = facts;
  return attribute(name, {
    type: message ? "complex" : scalar === ScalarType.BOOL ? "boolean" : name === "$ref" ? "reference" : "string",
    multiValued: fieldKind === "list",
    ...facts,
    ...(message && {
      subAttributes: message.fields.map((part) => attributeOf(part, `${name}.${part.jsonName}`, { mutability })),
    }),
  });
}

const documentOf = (id: string, name: string, description: string, { fields }: DescMessage): SchemaDocument => ({
  ...{ id, name, description },
  attributes: fields
    .filter(({ jsonName }) => !jsonName.includes(":") && !COMMON.some((common) => common.name === jsonName))
    .map((field) => attributeOf(field, `${name}.${field.jsonName}`, {})),
});

const SCHEMAS = "urn:ietf:params:scim:schemas";

/** The kinds of resources here. */
export const KINDS = {
  user: {
    ...{ name: "User", endpoint: "/Users" },
    schema: documentOf(`${SCHEMAS}:core:2.0:User`, "User", "User account", UserSchema),
    extensions: [
      documentOf(`${SCHEMAS}:extension:enterprise:2.0:User`, "EnterpriseUser", "Enterprise user", EnterpriseUserSchema),
    ],
  },
  group: {
    ...{ name: "Group", endpoint: "/Groups" },
    schema: documentOf(`${SCHEMAS}:core:2.0:Group`, "Group", "Group", GroupSchema),
    extensions: [],
  },
} as const satisfies Record<string, Kind>;

/** Where an attribute is in a resource, and what it is. */
export interface AttributePlace {
  /** The names on the way, such as `["name", "familyName"]`; the first may be the name of an extension. */
  readonly names: readonly string[];
  readonly attribute: Attribute;
  /** The attribute that it is a part of. */
  readonly parent?: Attribute;
}

const same = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase();

/** A part of a complex attribute, by its name in any case. */
export const partOf = ({ subAttributes }: Attribute, name: string): Attribute | undefined =>
  subAttributes?.find((part) => same(part.name, name));

/**
 * Finds an attribute by its name in any case, with its schema before it or without, such as `name.familyName`; the name of an
 * extension alone stands for all of it. Undefined where there is none.
 */
export function placeOf({ schema, extensions }: Kind, path: string): AttributePlace | undefined {
  const own = [...COMMON, ...schema.attributes];
  const extension = extensions.find(({ id }) => same(path, id) || same(path.slice(0, id.length + 1), `${id}:`));
  if (extension === undefined)
    return within(
      own,
      same(path.slice(0, schema.id.length + 1), `${schema.id}:`) ? path.slice(schema.id.length + 1) : path,
    );
  const { id, attributes } = extension;
  if (same(path, id)) return { names: [id], attribute: attribute(id, { type: "complex", subAttributes: attributes }) };
  const found = within(attributes, path.slice(id.length + 1));
  return found && { ...found, names: [id, ...found.names] };
}

function within(attributes: readonly Attribute[], path: string): AttributePlace | undefined {
  const [first = "", second, ...others] = path.split(".");
  const attribute = attributes.find(({ name }) => same(name, first));
  if (!attribute || others.length > 0) return undefined;
  if (second === undefined) return { names: [attribute.name], attribute };
  const part = partOf(attribute, second);
  return part && { names: [attribute.name, part.name], attribute: part, parent: attribute };
}
