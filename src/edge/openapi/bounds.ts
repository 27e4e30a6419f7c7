/** The bounds of the schema's rules as the keywords that JSON Schema has for them. */
import { type DescField, getOption, ScalarType } from "@bufbuild/protobuf";
import { type FieldRules, field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";

/** JSON Schema keywords and their values. */
export type Keywords = Readonly<Record<string, unknown>>;

/** The keywords for one value of a field: the field's own, or an item's where the field is repeated or a map. */
export function valueBounds(field: DescField): Keywords {
  const { type } = getOption(field, fieldRules);
  if (field.fieldKind === "list") return type.case === "repeated" ? boundsOf(type.value.items?.type) : {};
  if (field.fieldKind === "map") return type.case === "map" ? boundsOf(type.value.values?.type) : {};
  return boundsOf(type);
}

/** The keywords for how many items or members a repeated field or a map has. */
export function countBounds(field: DescField): Keywords {
  const { type } = getOption(field, fieldRules);
  if (type.case === "repeated") {
    const { minItems, maxItems, unique } = type.value;
    return defined({ minItems: count(minItems), maxItems: count(maxItems), uniqueItems: unique || undefined });
  }
  if (type.case !== "map") return {};
  const { minPairs, maxPairs, keys } = type.value;
  const names = boundsOf(keys?.type);
  return defined({
    minProperties: count(minPairs),
    maxProperties: count(maxPairs),
    propertyNames: Object.keys(names).length > 0 ? names : undefined,
  });
}

function boundsOf(type: FieldRules["type"] | undefined): Keywords {
  switch (type?.case) {
    case "string": {
      const { minLen, maxLen, pattern, in: words, wellKnown } = type.value;
      return defined({
        minLength: count(minLen),
        maxLength: count(maxLen),
        pattern: pattern || undefined,
        enum: words.length > 0 ? words : undefined,
        format: FORMATS[wellKnown.case ?? ""],
      });
    }
    case "bytes":
      // Four letters for every three bytes.
      return defined({ maxLength: type.value.maxLen > 0n ? Math.ceil(Number(type.value.maxLen) / 3) * 4 : undefined });
    case "double":
    case "uint32":
    case "int32": {
      const { greaterThan, lessThan } = type.value;
      return defined({
        [LOWER[greaterThan.case ?? ""] ?? ""]: greaterThan.value,
        [UPPER[lessThan.case ?? ""] ?? ""]: lessThan.value,
      });
    }
    default:
      return {};
  }
}

const FORMATS: Readonly<Record<string, string>> = { email: "email", uri: "uri" };
const LOWER: Readonly<Record<string, string>> = { gt: "exclusiveMinimum", gte: "minimum" };
const UPPER: Readonly<Record<string, string>> = { lt: "exclusiveMaximum", lte: "maximum" };

const count = (value: bigint): number | undefined => (value > 0n ? Number(value) : undefined);

const defined = (keywords: Keywords): Keywords =>
  Object.fromEntries(Object.entries(keywords).filter(([name, value]) => name !== "" && value !== undefined));

/** The keywords of a scalar type as REST JSON writes it. */
export function scalarType(scalar: ScalarType): Keywords {
  switch (scalar) {
    case ScalarType.STRING:
      return { type: "string" };
    case ScalarType.BOOL:
      return { type: "boolean" };
    case ScalarType.BYTES:
      return { type: "string", contentEncoding: "base64" };
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return { type: "number" };
    case ScalarType.UINT32:
    case ScalarType.FIXED32:
      return { type: "integer", minimum: 0, maximum: 2 ** 32 - 1 };
    default:
      return { type: "integer" };
  }
}
