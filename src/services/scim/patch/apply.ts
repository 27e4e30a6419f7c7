/** One operation on one attribute, as SCIMMY applies it. */
import SCIMMY from "scimmy";
import { Reason, refuse } from "../../../errors.ts";
import { breathe } from "../../../slices.ts";
import type { Attribute } from "../attributes.ts";

/** What SCIMMY is asked to do. */
export interface Operation {
  readonly op: "add" | "remove";
  readonly path: string;
  readonly value?: unknown;
}

/**
 * Every value that SCIMMY is given: its filter compares letter by letter and knows no escapes, so that which values a path chooses is
 * settled before. `np` is its word for what is not there.
 */
export const EACH = "[nothing np]";

/** So many values at a time, since each takes it some ten microseconds, and others wait for the event loop. */
const SLICE = 50;

/**
 * The values of an attribute after an operation; undefined where none is left. SCIMMY gets the attribute alone: it holds a resource
 * against its schema as a whole, and what a change does not touch shall not fail it. Refuses with what SCIMMY says of it.
 */
export async function applied(attribute: Attribute, before: unknown, operation: Operation): Promise<unknown> {
  const { value } = operation;
  if (!attribute.multiValued) return once(attribute, before, operation);
  if (Array.isArray(value)) return inParts(value, (some) => once(attribute, before, { ...operation, value: some }));
  if (Array.isArray(before)) return inParts(before, (some) => once(attribute, some, operation));
  return once(attribute, before, operation);
}

async function inParts(
  all: readonly unknown[],
  one: (some: readonly unknown[]) => Promise<unknown>,
): Promise<unknown[]> {
  const done: unknown[] = [];
  for (let from = 0; from < all.length; from += SLICE) {
    const after = await one(all.slice(from, from + SLICE));
    if (Array.isArray(after)) for (const each of after) done.push(each);
    await breathe();
  }
  return done;
}

async function once(attribute: Attribute, before: unknown, { op, path, value }: Operation): Promise<unknown> {
  const { name } = attribute;
  try {
    const Holder = holderFor(attribute);
    const resource = new Holder({ [name]: before });
    const Operations = [{ op, path, ...(value !== undefined && { value }) }];
    const patch = new SCIMMY.Messages.PatchOp({ schemas: [SCIMMY.Messages.PatchOp.id], Operations });
    // It answers with nothing where nothing has changed.
    const after = (await patch.apply(resource)) ?? resource;
    const fields: Record<string, unknown> = JSON.parse(JSON.stringify(after)); // its values are proxies and accessors
    return fields[name];
  } catch (cause) {
    const scimType = cause instanceof SCIMMY.Types.Error ? cause.scimType : "";
    const reason = REASONS[scimType] ?? Reason.INVALID_VALUE;
    throw refuse(reason, `${path.replace(EACH, "")} does not take this`, {}, { cause });
  }
}

const REASONS: Readonly<Record<string, Reason>> = {
  invalidPath: Reason.INVALID_PATH,
  noTarget: Reason.NO_TARGET,
  mutability: Reason.NOT_MUTABLE,
};

type Holder = new (data: Record<string, unknown>) => SCIMMY.Types.Schema;

const holders = new WeakMap<Attribute, Holder>();

/** A kind of resource that has this attribute and what SCIMMY gives to all. */
function holderFor(attribute: Attribute): Holder {
  const known = holders.get(attribute);
  if (known) return known;
  const { name } = attribute;
  const schema = new SCIMMY.Types.SchemaDefinition(name, `urn:ietf:params:scim:schemas:limber:${name}`, "");
  if (!schema.attributes.some((each) => each.name === name)) schema.extend([definitionOf(attribute)]);
  const made = class extends SCIMMY.Types.Schema {
    static override get id(): string {
      return schema.id;
    }
    static override get definition(): SCIMMY.Types.SchemaDefinition {
      return schema;
    }
    constructor(data: Record<string, unknown>) {
      super({});
      Object.assign(this, { [name]: data[name] });
    }
  };
  holders.set(attribute, made);
  return made;
}

/**
 * SCIMMY's attribute, without what would refuse more in a change than in a whole resource: examples of values (RFC 7643 calls them
 * suggestions), and forms of addresses.
 */
function definitionOf({ name, type, multiValued, subAttributes = [] }: Attribute): SCIMMY.Types.Attribute {
  const plain = type === "reference" ? "string" : type;
  return new SCIMMY.Types.Attribute(plain, name, { multiValued }, subAttributes.map(definitionOf));
}
