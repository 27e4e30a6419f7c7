/**
 * Names are of one line. A string field of at most 256 characters, or one whose name ends in `name`, holds no control character: what it says is
 * shown in lists, logs, mails and headers. Longer texts, such as an instruction or a reason, may have lines.
 */
import { type DescField, type DescMessage, getOption, type Message, ScalarType } from "@bufbuild/protobuf";
import { type FieldRules, field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { inline } from "../../../gen/limber/edge/v1/options_pb.ts";

const LONGEST_NAME = 256n;
const CONTROL = /[\p{Cc}\u2028\u2029]/u;

type Path = readonly (string | number)[];
/** Reports whether every name in a value is on one line; adds the paths of the others to `bad` if it is given. */
type Check = (value: unknown, path: Path, bad: Path[] | undefined) => boolean;

const isOneLine: Check = (value, path, bad) => {
  if (!CONTROL.test(value as string)) return true;
  bad?.push(path);
  return false;
};

/** Whether every name in a message is of one line. */
export const areNamesOneLine = (desc: DescMessage, message: Message): boolean => checkOf(desc)(message, [], undefined);

/** The paths of the names in a message that are not. */
export function brokenNamesOf(desc: DescMessage, message: Message): Path[] {
  const bad: Path[] = [];
  checkOf(desc)(message, [], bad);
  return bad;
}

const compiled = new WeakMap<DescMessage, Check>();
const always: Check = () => true;

function checkOf(desc: DescMessage): Check {
  const known = compiled.get(desc);
  if (known !== undefined) return known;
  // Such a message stands for its one field in REST's JSON.
  const isInline = getOption(desc, inline);
  let members: readonly (readonly [DescField, Check])[] | undefined;
  const check: Check = (message, path, bad) => {
    // At first use, because a message may contain itself.
    members ??= desc.fields.flatMap((field) => {
      const check = fieldCheck(field);
      return check === always ? [] : [[field, check] as const];
    });
    let good = true;
    for (const [field, check] of members) {
      const value = valueAt(field, message as Record<string, unknown>);
      if (value === undefined || check(value, bad === undefined || isInline ? path : [...path, field.name], bad))
        continue;
      if (bad === undefined) return false;
      good = false;
    }
    return good;
  };
  const needed = mayHoldNames(desc, new Set()) ? check : always;
  compiled.set(desc, needed);
  return needed;
}

function valueAt(field: DescField, message: Record<string, unknown>): unknown {
  if (field.oneof === undefined) return message[field.localName];
  const chosen = message[field.oneof.localName] as { readonly case?: string; readonly value?: unknown };
  return chosen.case === field.localName ? chosen.value : undefined;
}

function fieldCheck(field: DescField): Check {
  if (field.fieldKind === "message") return checkOf(field.message);
  if (field.fieldKind === "map")
    return field.mapKind === "message" ? eachOf(checkOf(field.message), Object.entries) : always;
  const own = isName(field)
    ? isOneLine
    : field.fieldKind === "list" && field.listKind === "message"
      ? checkOf(field.message)
      : always;
  return field.fieldKind === "list" ? eachOf(own, (list) => (list as readonly unknown[]).entries()) : own;
}

function eachOf(check: Check, entries: (value: object) => Iterable<readonly [string | number, unknown]>): Check {
  if (check === always) return always;
  return (value, path, bad) => {
    let good = true;
    for (const [key, item] of entries(value as object)) {
      if (check(item, bad === undefined ? path : [...path, key], bad)) continue;
      if (bad === undefined) return false;
      good = false;
    }
    return good;
  };
}

function isName(field: DescField): boolean {
  if (field.scalar !== ScalarType.STRING) return false;
  if (/(^|_)names?$/.test(field.name)) return true;
  const { type } = getOption(field, fieldRules);
  const rules: FieldRules["type"] | undefined = type.case === "repeated" ? type.value.items?.type : type;
  return rules?.case === "string" && rules.value.maxLen > 0n && rules.value.maxLen <= LONGEST_NAME;
}

/** What is free of form, such as metadata, holds no names. */
function mayHoldNames(desc: DescMessage, above: Set<DescMessage>): boolean {
  if (desc.typeName.startsWith("google.protobuf.") || above.has(desc)) return false;
  above.add(desc);
  return desc.fields.some(
    (field) => isName(field) || (field.message !== undefined && mayHoldNames(field.message, above)),
  );
}
