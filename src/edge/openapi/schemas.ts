/** The schema's messages and enums as JSON Schema, as REST writes them. */
import { create, type DescEnum, type DescField, type DescMessage, getOption, ScalarType } from "@bufbuild/protobuf";
import { inline, nonempty, nullable, whole } from "../../../gen/limber/edge/v1/options_pb.ts";
import { ErrorDetailsSchema } from "../../../gen/limber/v1/error_pb.ts";
import { wordsOf } from "../messages/json.ts";
import { violationsOf } from "../messages/validate.ts";
import { countBounds, type Keywords, scalarType, valueBounds } from "./bounds.ts";
import { commentOf } from "./comments.ts";

/** Collects the schemas that a document refers to. */
export class Schemas {
  readonly #schemas = new Map<string, Keywords>();
  readonly #asked: ReadonlySet<string>;

  /** `requests` are the messages that callers send; what is inside them is closed to unknown fields. */
  constructor(requests: Iterable<DescMessage>) {
    this.#asked = insideOf(requests);
  }

  /** All schemas by name, in the order of the alphabet. */
  get all(): Readonly<Record<string, Keywords>> {
    return Object.fromEntries([...this.#schemas].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** A reference to the schema of a message. */
  message(desc: DescMessage): Keywords {
    if (desc.typeName === "google.protobuf.Struct") return { type: "object", additionalProperties: true };
    if (desc.typeName === "google.protobuf.Value") return {};
    return this.#refer(desc.name, () => (getOption(desc, inline) ? this.#inline(desc) : this.#object(desc)));
  }

  /** The schema of a field's value, with its comment. */
  field(field: DescField): Keywords {
    const value = this.#value(field);
    const description = commentOf(field);
    return description === "" ? value : { ...value, description };
  }

  /** The same with what stands for a field that is not given. */
  asked(field: DescField): Keywords {
    const { description, ...value } = this.field(field);
    const usual = usualIn(String(description ?? ""), field);
    return {
      ...value,
      ...(usual !== undefined && { default: usual }),
      ...(description !== undefined && { description }),
    };
  }

  /** The schema of a request's body where `fields` of the message travel elsewhere. */
  without(desc: DescMessage, fields: readonly DescField[]): Keywords {
    const gone = new Set(fields.map(({ name }) => name));
    const { properties, required, ...rest } = this.#object(desc);
    const left = Object.entries(properties as Keywords).filter(([name]) => !gone.has(name));
    const demanded = ((required ?? []) as string[]).filter((name) => !gone.has(name));
    return { ...rest, properties: Object.fromEntries(left), ...(demanded.length > 0 && { required: demanded }) };
  }

  /** Whether a request needs no field at all. */
  mayBeEmpty(desc: DescMessage): boolean {
    return demandedOf(desc).length === 0;
  }

  #refer(name: string, make: () => Keywords): Keywords {
    if (!this.#schemas.has(name)) {
      this.#schemas.set(name, {}); // a message may contain itself
      this.#schemas.set(name, make());
    }
    return { $ref: `#/components/schemas/${name}` };
  }

  #inline(desc: DescMessage): Keywords {
    const [only] = desc.fields;
    if (only === undefined) throw new Error(`${desc.typeName} cannot be inline`);
    return { description: commentOf(desc), ...this.#value(only) };
  }

  #object(desc: DescMessage): Keywords {
    const asked = this.#asked.has(desc.typeName);
    const demanded = asked ? demandedOf(desc) : alwaysThere(desc);
    // A property of the name `$ref` is a reference to every reader of such documents, so it goes untold.
    const told = desc.fields.filter((field) => nameOf(field) !== "$ref");
    const properties = told.map((field) => {
      const schema = asked ? this.asked(field) : this.field(field);
      const mayBeNull = getOption(field, nullable) || (asked && !demanded.includes(field.name));
      return [nameOf(field), mayBeNull ? orNull(schema) : schema];
    });
    const required = desc.fields.filter(({ name }) => demanded.includes(name)).map(nameOf);
    // Identity providers send what they have, and what is not known is passed over.
    const closed = asked && !isScim(desc);
    return {
      type: "object",
      description: commentOf(desc),
      properties: Object.fromEntries(properties),
      ...(required.length > 0 && { required }),
      ...(closed && { additionalProperties: false }),
    };
  }

  #value(field: DescField): Keywords {
    switch (field.fieldKind) {
      case "list":
        return {
          type: "array",
          items: this.#item(field),
          ...(getOption(field, nonempty) && { minItems: 1 }),
          ...countBounds(field),
        };
      case "map":
        return { type: "object", additionalProperties: this.#item(field), ...countBounds(field) };
      default:
        return this.#item(field);
    }
  }

  #item(field: DescField): Keywords {
    if (field.message !== undefined) return this.message(field.message);
    if (field.enum !== undefined) return this.#enum(field.enum);
    if (field.scalar === undefined) throw new Error(`${field} has no type`);
    if (getOption(field, whole)) return { type: "integer" };
    return { ...scalarType(field.scalar), ...valueBounds(field) };
  }

  #enum(desc: DescEnum): Keywords {
    const { toNumber, ofNumber } = wordsOf(desc);
    const meanings = desc.values
      .filter(({ number }) => number !== 0)
      .map((value) => [ofNumber.get(value.number), commentOf(value)]);
    return this.#refer(desc.name, () => ({
      type: "string",
      description: commentOf(desc),
      enum: [...toNumber.keys()],
      "x-enum-descriptions": Object.fromEntries(meanings),
    }));
  }
}

/** How comments say what an absent field stands for: `50 when absent.`, `` `act` when absent ``, `True when absent.` */
const USUAL = /(?:^|[.;] )(?:`([^`]+)`|([\d.,]+)|(true|false)) when absent/i;
/** How the value of an enum that is not stated says what it stands for. */
const STANDS_FOR = /behaves as `?(\w+)/i;

/** What a field stands for that is not given, where its comment says so by a value and not in words. */
function usualIn(comment: string, field: DescField): string | number | boolean | undefined {
  const isPlain = field.fieldKind === "scalar" || field.fieldKind === "enum";
  // What changes something, or stands in for a request, leaves what it does not say.
  if (!isPlain || field.oneof !== undefined || /^(Update|Preset)/.test(field.parent.name)) return undefined;
  const [, word, figure, truth] = USUAL.exec(comment) ?? [];
  if (field.scalar === ScalarType.BOOL) {
    // Without presence it is false, whatever else is said.
    if (truth !== undefined) return truth.toLowerCase() === "true";
    return hasPresence(field) ? undefined : false;
  }
  if (field.enum !== undefined) {
    const meant = word ?? STANDS_FOR.exec(commentOf(field.enum.values[0]!))?.[1]?.toLowerCase();
    return meant !== undefined && wordsOf(field.enum).toNumber.has(meant) ? meant : undefined;
  }
  // What is set in that type may be another field, too.
  if (field.scalar === ScalarType.STRING)
    return field.parent.fields.some(({ name }) => name === word) ? undefined : word;
  const number = Number(figure?.replaceAll(",", "") ?? Number.NaN);
  return Number.isNaN(number) ? undefined : number;
}

/** Names of the messages that `roots` contain, and of themselves. */
function insideOf(roots: Iterable<DescMessage>, found = new Set<string>()): Set<string> {
  for (const desc of roots) {
    if (found.has(desc.typeName)) continue;
    found.add(desc.typeName);
    insideOf(
      desc.fields.flatMap(({ message }) => message ?? []),
      found,
    );
  }
  return found;
}

/** Fields that a request must have: those that the rules miss in an empty message. */
function demandedOf(desc: DescMessage): string[] {
  const missed = new Set(violationsOf(desc, create(desc)).map(({ path }) => path));
  return desc.fields.map(({ name }) => name).filter((name) => missed.has(name));
}

/** Fields that an answer always has: those without presence, and those that are null instead of absent. */
function alwaysThere(desc: DescMessage): string[] {
  if (desc.typeName === ErrorDetailsSchema.typeName) return []; // each refusal sets the fields of its kind
  return desc.fields
    .filter((field) => field.oneof === undefined && (!hasPresence(field) || getOption(field, nullable)))
    .map(({ name }) => name);
}

/** The messages that are written by RFC 7644's convention, which names fields by their JSON names. */
const isScim = (desc: DescMessage): boolean => desc.file.proto.package === "limber.scim.v2";

const nameOf = (field: DescField): string => (isScim(field.parent) ? field.jsonName : field.name);

const hasPresence = (field: DescField): boolean =>
  field.fieldKind === "message" ||
  (field.fieldKind !== "list" && field.fieldKind !== "map" && field.proto.proto3Optional);

function orNull(schema: Keywords): Keywords {
  const { type, $ref, description, default: usual, enum: words, ...rest } = schema;
  const said = {
    ...(usual !== undefined && { default: usual }),
    ...(description !== undefined && { description }),
  };
  if ($ref !== undefined) return { anyOf: [{ $ref }, { type: "null" }], ...said };
  const either = { ...(type !== undefined && { type: [type, "null"] }), ...rest, ...said };
  return Array.isArray(words) ? { ...either, enum: [...words, null] } : either;
}
