/** Validates messages by the schema's rules, and refuses with every invalid field. */
import { create, type DescField, type DescMessage, getOption, type Message, ScalarType } from "@bufbuild/protobuf";
import type { Path } from "@bufbuild/protobuf/reflect";
import { createValidator, type Violation as RuleViolation } from "@bufbuild/protovalidate";
import {
  type FieldRules,
  field as fieldRules,
  message as messageRules,
} from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { inline } from "../../../gen/limber/edge/v1/options_pb.ts";
import { type Violation, ViolationSchema } from "../../../gen/limber/v1/error_pb.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { tooManyItems } from "./bounds.ts";
import { sentenceOf } from "./errors.ts";
import { type Fault, MAX_FAULTS, wordsOf } from "./json-text.ts";
import { surelyObeys } from "./quick-validation.ts";

const validator = createValidator({ regexMatch: (pattern, against) => regexOf(pattern).test(against) });

const regexes = new Map<string, RegExp>();

// The patterns are the schema's own and take linear time, so the engine's RegExp is safe.
function regexOf(pattern: string): RegExp {
  let regex = regexes.get(pattern);
  if (regex === undefined) {
    regex = new RegExp(pattern, "u");
    regexes.set(pattern, regex);
  }
  return regex;
}

/** Returns every violated rule of a message; paths are those of its REST JSON, such as `observations.0.proprio.2`. */
export function violationsOf(desc: DescMessage, message: Message): Violation[] {
  const areNamesGood = areNamesOneLine(desc, message);
  if (areNamesGood && surelyObeys(desc, message)) return [];
  const result = validator.validate(desc, message);
  if (result.kind === "error") throw result.error;
  const faults = (result.violations ?? []).map((violation) => ({
    path: pathOf(violation.field),
    message: messageOf(violation, message),
    type: typeOf(violation, message),
  }));
  const names = areNamesGood ? [] : brokenNamesOf(desc, message).map((path) => ({ path: [...path], ...NOT_ONE_LINE }));
  return [...faults, ...names].slice(0, MAX_FAULTS).map(violationOf);
}

const NOT_ONE_LINE = {
  message: "must not contain control characters such as line breaks",
  type: "string_pattern_mismatch",
};

/** Returns a decoding fault as a violation. */
export function violationOf({ path, message, type }: Fault): Violation {
  return create(ViolationSchema, { path: path.join("."), message, type });
}

/** Returns the refusal that lists `violations`, of which there is at least one. */
export function invalid(violations: readonly Violation[]): Refusal {
  const extras = violations[0] === undefined ? {} : { param: violations[0].path };
  return refuse(Reason.VALIDATION_FAILED, sentenceOf(violations), { violations: [...violations] }, extras);
}

/** Refuses an invalid message with `validation_failed` and all violations. */
export function assertValid(desc: DescMessage, message: Message): void {
  const violations = violationsOf(desc, message);
  if (violations.length > 0) throw invalid(violations);
}

/** Compiles the rules of message types ahead of their first request. */
export function warmUp(descs: Iterable<DescMessage>): void {
  for (const desc of descs) validator.validate(desc, create(desc));
}

/** If an inline message is replaced by its only field, the path leaves out that field's name. */
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

/** A range is violated at its lower end, or otherwise at its upper. */
function isBelow(path: Path, message: Message): boolean {
  const value = valueAt(path, message);
  const least = rulesAt(path)?.greaterThan?.value;
  if (typeof value !== "number" || typeof least !== "number") return true;
  return value <= least || Number.isNaN(value);
}

/** The limits in a field's rules. Each field type has some of them. */
interface Limits {
  readonly minLen?: bigint;
  readonly maxLen?: bigint;
  readonly len?: bigint;
  readonly minItems?: bigint;
  readonly pattern?: string;
  readonly in?: readonly unknown[];
  readonly notIn?: readonly unknown[];
  readonly const?: unknown;
  readonly greaterThan?: Bound;
  readonly lessThan?: Bound;
}

/** One end of a range: `gt`, `gte`, `lt` or `lte` with its value. */
interface Bound {
  readonly case?: string | undefined;
  readonly value?: unknown;
}

/** Returns the rules of the value at `path`, or of a map's key there. */
function rulesAt(path: Path, forKey = false): Limits | undefined {
  const owner = path.findLast((part) => part.kind === "field");
  if (owner === undefined) return undefined;
  const { type } = getOption(owner, fieldRules);
  if (path.at(-1) === owner) return type.value as Limits | undefined;
  if (type.case === "repeated") return type.value.items?.type.value as Limits | undefined;
  if (type.case !== "map") return undefined;
  return (forKey ? type.value.keys : type.value.values)?.type.value as Limits | undefined;
}

function valueAt(path: Path, message: Message): unknown {
  let value: unknown = message;
  for (const part of path) {
    if (typeof value !== "object" || value === null) return undefined;
    const members = value as Record<string | number, unknown>;
    if (part.kind === "list_sub") value = members[part.index];
    else if (part.kind === "map_sub") value = members[String(part.key)];
    else if (part.kind !== "field") return undefined;
    else if (part.oneof === undefined) value = members[part.localName];
    else value = (members[part.oneof.localName] as { readonly value?: unknown } | undefined)?.value;
  }
  return value;
}

/** The texts for violated rules, by rule id. They include limits and sizes, and values only if they are numbers. */
const TEXTS: Readonly<Record<string, (limits: Limits, value: unknown, field: string) => string | undefined>> = {
  "string.min_len": ({ minLen }, value) =>
    minLen === 1n ? "must not be empty" : `must have at least ${minLen} characters, got ${lengthOf(value)}`,
  "string.max_len": ({ maxLen }, value) => `must have at most ${maxLen} characters, got ${lengthOf(value)}`,
  "string.pattern": ({ pattern }, _, field) => patternText(pattern ?? "", field),
  "string.in": ({ in: words = [] }) => `must be one of ${words.join(", ")}`,
  "string.not_in": ({ notIn: words = [] }) => `must not be one of ${words.join(", ")}`,
  "string.email": () => "must be an e-mail address",
  "string.email_empty": () => "must be an e-mail address",
  "string.uri": () => "must be an absolute URI",
  "string.uri_empty": () => "must be an absolute URI",
  "bytes.len": ({ len }, value) => `must have exactly ${len} bytes, got ${lengthOf(value)}`,
  "bytes.max_len": ({ maxLen }, value) => `must have at most ${maxLen} bytes, got ${lengthOf(value)}`,
  "repeated.min_items": ({ minItems }) =>
    minItems === 1n ? "must have at least one item" : `must have at least ${minItems} items`,
  "repeated.unique": () => "must not contain duplicates",
  "bool.const": ({ const: only }) => `must be ${only}`,
  "double.finite": () => "must be a finite number",
};

/** Texts of the schema's patterns. */
const PATTERNS: Readonly<Record<string, string>> = {
  "^\\P{C}*$": "must not contain control characters such as line breaks",
  "^[^\\p{C}]*$": "must not contain control characters such as line breaks",
  "^[!-~]*$": "must contain only printable ASCII characters without spaces",
  "^[!-~]{1,255}$": "must be 1 to 255 printable ASCII characters without spaces",
  "^[\\x20-\\x7e]*$": "must contain only printable ASCII characters",
  "^[A-Za-z0-9_.-]+$": "must contain only letters, digits, `_`, `.` and `-`",
  "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$":
    "must be 1 to 100 letters, digits, `.`, `_` and `-`, and start with a letter or digit",
  "^[a-z0-9][a-z0-9-]*$": "must contain only lower-case letters, digits and hyphens, and not start with a hyphen",
  "^[a-z0-9][a-z0-9-]{0,62}$": "must be 1 to 63 lower-case letters, digits and hyphens, and not start with a hyphen",
  "^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$":
    "must be 1 to 64 lower-case letters, digits and hyphens, and not start or end with a hyphen",
  "^[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*$": "must be a lower-case slug such as `owner/name`",
  "^[^/:\\s*]{1,128}/[^/:\\s*]{1,128}$": "must be an exact slug such as `owner/name`",
  "^[1-9][0-9]{0,3}x[1-9][0-9]{0,3}$": "must be a size such as `640x480`",
  "^[0-9a-f]{64}$": "must be a SHA-256 of 64 lower-case hex digits",
  "^sha256:[0-9a-f]{64}$": "must be `sha256:` and 64 lower-case hex digits",
  "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,4}$": "must be a BCP 47 language tag such as `en`",
  "^[A-Za-z0-9_-]{43}$": "must be a SHA-256 of 43 base64url characters",
  "^[0-9]{4}-[0-9]{2}-[0-9]{2}$": "must be a date such as `2026-01-31`",
  "^20[0-9]{2}-(0[1-9]|1[0-2])$": "must be a month such as `2026-11`",
  "^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?[.])+[a-z][a-z0-9-]{0,61}[a-z0-9]$":
    "must be a lower-case domain such as `acme.example`",
  "^/([^/\\\\\\x00-\\x20][^\\\\\\x00-\\x20]*)?$": "must be a path that starts with a single `/`",
};

/** Fields whose value is from an earlier response. Their patterns differ, their text does not. */
const CURSORS: ReadonlySet<string> = new Set(["cursor", "last_event_id"]);

/** Describes the format that `pattern` requires of `field`; undefined for a pattern without a text. */
export const patternText = (pattern: string, field: string): string | undefined =>
  CURSORS.has(field) ? "must be a cursor that an earlier response of this call contains" : PATTERNS[pattern];

const lengthOf = (value: unknown): number =>
  typeof value === "string" ? [...value].length : value instanceof Uint8Array ? value.length : 0;

function messageOf({ ruleId, field: path, forKey, message: byLibrary }: RuleViolation, message: Message): string {
  const owner = path.findLast((part) => part.kind === "field");
  if (ruleId === "required") return "is required";
  if (ruleId === "message.oneof") return oneofText(owner) ?? byLibrary;
  if (owner === undefined) return byLibrary;
  if (ruleId.startsWith("enum.") && owner.enum !== undefined)
    return `must be one of ${[...wordsOf(owner.enum).toNumber.keys()].join(", ")}`;
  if (ruleId === "repeated.max_items" || ruleId === "map.max_pairs") return tooManyItems(owner);
  const limits = rulesAt(path, forKey) ?? {};
  const part = path.at(-1);
  const value = forKey && part?.kind === "map_sub" ? part.key : valueAt(path, message);
  return TEXTS[ruleId]?.(limits, value, owner.name) ?? rangeText(limits, value) ?? byLibrary;
}

const LIMITS: Readonly<Record<string, string>> = {
  gt: "greater than",
  gte: "at least",
  lt: "less than",
  lte: "at most",
};

function rangeText({ greaterThan: lower, lessThan: upper }: Limits, value: unknown): string | undefined {
  const ends = [lower, upper].filter((end) => end?.case !== undefined);
  if (ends.length === 0) return undefined;
  const said =
    lower?.case === "gte" && upper?.case === "lte"
      ? `between ${lower.value} and ${upper.value}`
      : ends.map((end) => `${LIMITS[end!.case!]} ${end!.value}`).join(" and ");
  return `must be ${said}, got ${value}`;
}

function oneofText(owner: DescField | undefined): string | undefined {
  const desc = owner?.message;
  const fields = desc === undefined ? [] : getOption(desc, messageRules).oneof.flatMap((each) => each.fields);
  return fields.length === 0
    ? undefined
    : `must have exactly one of ${fields.map((name) => `\`${name}\``).join(" and ")}`;
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

/** Whether every name in a message is on one line. */
const areNamesOneLine = (desc: DescMessage, message: Message): boolean => checkOf(desc)(message, [], undefined);

/** Returns the paths of the multi-line names in a message. */
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
  // Its only field replaces such a message in REST's JSON.
  const isInline = getOption(desc, inline);
  let members: readonly (readonly [DescField, Check])[] | undefined;
  const check: Check = (message, path, bad) => {
    // Created on first use, because a message may contain itself.
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

/** Free-form values, such as metadata, contain no names. */
function mayHoldNames(desc: DescMessage, above: Set<DescMessage>): boolean {
  if (desc.typeName.startsWith("google.protobuf.") || above.has(desc)) return false;
  above.add(desc);
  return desc.fields.some(
    (field) => isName(field) || (field.message !== undefined && mayHoldNames(field.message, above)),
  );
}
