/** The schema's own rules on messages, and the refusal that lists every field at fault. */
import { create, type DescField, type DescMessage, getOption, type Message, ScalarType } from "@bufbuild/protobuf";
import type { Path } from "@bufbuild/protobuf/reflect";
import { createValidator, type Violation as RuleViolation } from "@bufbuild/protovalidate";
import { type FieldRules, field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { inline } from "../../../gen/limber/edge/v1/options_pb.ts";
import { type Violation, ViolationSchema } from "../../../gen/limber/v1/error_pb.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { sentenceOf } from "./errors.ts";
import { type Fault, MAX_FAULTS, wordsOf } from "./json-text.ts";
import { surelyObeys } from "./quick-validation.ts";

const validator = createValidator({ regexMatch: (pattern, against) => regexOf(pattern).test(against) });

const regexes = new Map<string, RegExp>();

// The patterns are the schema's own and linear, so that the engine's speed may be had.
function regexOf(pattern: string): RegExp {
  let regex = regexes.get(pattern);
  if (regex === undefined) {
    regex = new RegExp(pattern, "u");
    regexes.set(pattern, regex);
  }
  return regex;
}

/** Every rule of the schema that a message breaks; paths are those of its REST JSON, such as `observations.0.proprio.2`. */
export function violationsOf(desc: DescMessage, message: Message): Violation[] {
  const areNamesGood = areNamesOneLine(desc, message);
  if (areNamesGood && surelyObeys(desc, message)) return [];
  const result = validator.validate(desc, message);
  if (result.kind === "error") throw result.error;
  const faults = (result.violations ?? []).map((violation) => ({
    path: pathOf(violation.field),
    message: messageOf(violation),
    type: typeOf(violation, message),
  }));
  const names = areNamesGood ? [] : brokenNamesOf(desc, message).map((path) => ({ path: [...path], ...NOT_ONE_LINE }));
  return [...faults, ...names].slice(0, MAX_FAULTS).map(violationOf);
}

const NOT_ONE_LINE = {
  message: "must not contain control characters such as line breaks",
  type: "string_pattern_mismatch",
};

/** A fault of decoding in the form of a violation. */
export function violationOf({ path, message, type }: Fault): Violation {
  return create(ViolationSchema, { path: path.join("."), message, type });
}

/** The refusal that lists `violations`, of which there is at least one. */
export function invalid(violations: readonly Violation[]): Refusal {
  const extras = violations[0] === undefined ? {} : { param: violations[0].path };
  return refuse(Reason.VALIDATION_FAILED, sentenceOf(violations), { violations: [...violations] }, extras);
}

/** Refuses a message that breaks rules of the schema, with `validation_failed` and all of them. */
export function assertValid(desc: DescMessage, message: Message): void {
  const violations = violationsOf(desc, message);
  if (violations.length > 0) throw invalid(violations);
}

/** Compiles the rules of message types ahead of their first request. */
export function warmUp(descs: Iterable<DescMessage>): void {
  for (const desc of descs) validator.validate(desc, create(desc));
}

/** Where an inline message stands for its one field, the path has no place for that field's name. */
function pathOf(path: Path): (string | number)[] {
  const segments: (string | number)[] = [];
  for (const part of path) {
    if (part.kind === "list_sub") segments.push(part.index);
    else if (part.kind === "map_sub") segments.push(String(part.key));
    else if (part.kind !== "field" || !getOption(part.parent, inline)) segments.push(part.name);
  }
  return segments;
}

/** Rules by pydantic's names, which clients of the described service know. */
const TYPES: Readonly<Record<string, string>> = {
  required: "missing",
  "string.min_len": "string_too_short",
  "string.max_len": "string_too_long",
  "string.pattern": "string_pattern_mismatch",
  "string.in": "enum",
  "enum.defined_only": "enum",
  "enum.not_in": "enum",
  "bytes.max_len": "bytes_too_long",
  "repeated.min_items": "too_short",
  "repeated.max_items": "too_long",
  "map.max_pairs": "too_long",
};

const BOUNDS: Readonly<Record<string, string>> = {
  gt: "greater_than",
  gte: "greater_than_equal",
  lt: "less_than",
  lte: "less_than_equal",
  finite: "finite_number",
};

function typeOf({ ruleId, field }: RuleViolation, message: Message): string {
  const known = TYPES[ruleId];
  if (known !== undefined) return known;
  const [lower = "", upper] = ruleId.split(".")[1]?.split("_") ?? [];
  const bound = upper === undefined || isBelow(field, message) ? lower : upper;
  return BOUNDS[bound] ?? "value_error";
}

/** A rule on a range is broken at its lower end, or else at its upper. */
function isBelow(path: Path, message: Message): boolean {
  const owner = path.findLast((part) => part.kind === "field");
  const value = valueAt(path, message);
  if (owner === undefined || typeof value !== "number") return true;
  const least = lowerBoundOf(owner, path.at(-1) !== owner);
  return least === undefined || value <= least || Number.isNaN(value);
}

function lowerBoundOf(owner: DescField, inItem: boolean): number | undefined {
  const { type } = getOption(owner, fieldRules);
  const rules = !inItem
    ? type
    : type.case === "repeated"
      ? type.value.items?.type
      : type.case === "map"
        ? type.value.values?.type
        : undefined;
  const value = rules?.value;
  if (value === undefined || !("greaterThan" in value)) return undefined;
  const least = value.greaterThan.value;
  return typeof least === "number" ? least : undefined;
}

function valueAt(path: Path, message: Message): unknown {
  let value: unknown = message;
  for (const part of path) {
    if (typeof value !== "object" || value === null) return undefined;
    const key =
      part.kind === "list_sub"
        ? part.index
        : part.kind === "map_sub"
          ? String(part.key)
          : "localName" in part
            ? part.localName
            : "";
    value = (value as Record<string | number, unknown>)[key];
  }
  return value;
}

// Two of the library's sentences speak of numbers that a caller of REST never sees, and one does not stand after a name.
function messageOf({ ruleId, field, message }: RuleViolation): string {
  if (ruleId === "required") return "is required";
  if (!ruleId.startsWith("enum.")) return message;
  const owner = field.findLast((part) => part.kind === "field");
  return owner?.enum === undefined ? message : `must be one of ${[...wordsOf(owner.enum).toNumber.keys()].join(", ")}`;
}

const LONGEST_NAME = 256n;
const CONTROL = /[\p{Cc}\u2028\u2029]/u;

type NamePath = readonly (string | number)[];
/** Reports whether every name in a value is on one line; adds the paths of the others to `bad` if it is given. */
type Check = (value: unknown, path: NamePath, bad: NamePath[] | undefined) => boolean;

const isOneLine: Check = (value, path, bad) => {
  if (!CONTROL.test(value as string)) return true;
  bad?.push(path);
  return false;
};

/** Whether every name in a message is of one line. */
const areNamesOneLine = (desc: DescMessage, message: Message): boolean => checkOf(desc)(message, [], undefined);

/** The paths of the names in a message that are not. */
function brokenNamesOf(desc: DescMessage, message: Message): NamePath[] {
  const bad: NamePath[] = [];
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
      const value = fieldValue(field, message as Record<string, unknown>);
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

function fieldValue(field: DescField, message: Record<string, unknown>): unknown {
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
