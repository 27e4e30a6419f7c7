/**
 * A fast check that accepts most valid messages. Messages that it does not accept go to protovalidate, which explains every violation, but is
 * slow for valid messages and counts the characters of every image address.
 */
import { type DescField, type DescMessage, type DescOneof, getOption, type Message } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import {
  type FieldRules,
  FieldRulesSchema,
  field as fieldRules,
  Ignore,
  type MessageOneofRule,
  message as messageRules,
  oneof as oneofRules,
} from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";

/** Whether a value is certainly valid; its type is that of the descriptor that the check was compiled from. */
type QuickCheck = (value: unknown) => boolean;

type QuickFields = Record<string, unknown>;

/** Not supported here: protovalidate must decide. */
const unsure: QuickCheck = () => false;
const always: QuickCheck = () => true;

const compiled = new WeakMap<DescMessage, QuickCheck>();

/** True only if protovalidate finds no violation in `message`; false if it must be called. */
export function surelyObeys(desc: DescMessage, message: Message): boolean {
  return checkOf(desc)(message);
}

function checkOf(desc: DescMessage): QuickCheck {
  let check = compiled.get(desc);
  if (check === undefined) {
    let members: QuickCheck | undefined;
    // Compiled on first use, because a message may contain itself.
    check = (message) => {
      members ??= membersCheck(desc);
      return members(message);
    };
    compiled.set(desc, check);
  }
  return check;
}

function membersCheck(desc: DescMessage): QuickCheck {
  const rules = getOption(desc, messageRules);
  if (rules.cel.length > 0 || rules.celExpression.length > 0) return unsure;
  const alone = desc.fields.filter(({ oneof }) => oneof === undefined);
  const checks = [
    ...rules.oneof.map((rule) => oneofCheck(desc, rule)),
    ...desc.oneofs.map(chosenCheck),
    ...alone.map(fieldCheck),
  ];
  return all(checks.filter((check) => check !== always));
}

/** Checks the chosen member of a `oneof`, or that none is required. */
function chosenCheck(oneof: DescOneof): QuickCheck {
  const { required } = getOption(oneof, oneofRules);
  const members = new Map<unknown, QuickCheck>();
  for (const field of oneof.fields) {
    const { required, ignore } = getOption(field, fieldRules);
    members.set(field.localName, required || ignore !== Ignore.UNSPECIFIED ? unsure : valueCheck(field));
  }
  if (!required && [...members.values()].every((check) => check === always)) return always;
  return (message) => {
    const chosen = (message as QuickFields)[oneof.localName] as { case?: string; value?: unknown };
    return chosen.case === undefined ? !required : members.get(chosen.case)!(chosen.value);
  };
}

/** Combines all checks; most fields have no rule, and cost nothing. */
function all(checks: readonly QuickCheck[]): QuickCheck {
  const [first, second] = checks;
  if (first === undefined) return always;
  if (second === undefined) return first;
  if (checks.length === 2) return (value) => first(value) && second(value);
  return (value) => {
    for (let i = 0; i < checks.length; i++) if (!checks[i]!(value)) return false;
    return true;
  };
}

/** At most one of the named fields, or exactly one if required. */
function oneofCheck(desc: DescMessage, { fields, required }: MessageOneofRule): QuickCheck {
  const named = desc.fields.filter(({ name }) => fields.includes(name));
  if (named.some((field) => field.oneof !== undefined || field.fieldKind === "map")) return unsure;
  return (message) => {
    let set = 0;
    for (const { localName } of named) if (isSet((message as QuickFields)[localName])) set++;
    return set === 1 || (set === 0 && !required);
  };
}

const isSet = (value: unknown): boolean =>
  typeof value === "string" || value instanceof Uint8Array || Array.isArray(value) ? value.length > 0 : Boolean(value);

function fieldCheck(field: DescField): QuickCheck {
  const check = valueCheck(field);
  const { required, ignore } = getOption(field, fieldRules);
  if (check === unsure || ignore !== Ignore.UNSPECIFIED) return unsure;
  if (check === always && !required) return always;
  // A field without presence cannot be distinguished from an unset one.
  if (required && field.fieldKind !== "message") return unsure;
  return (message) => {
    const value = (message as QuickFields)[field.localName];
    return value === undefined ? !required : check(value);
  };
}

function valueCheck(field: DescField): QuickCheck {
  const { type, cel, celExpression } = getOption(field, fieldRules);
  if (cel.length > 0 || celExpression.length > 0) return unsure;
  const own = type.case === undefined ? always : rulesCheck(type.case, type.value, field);
  if (field.fieldKind === "message") return both(own, messageCheck(field.message));
  if (field.fieldKind === "list" && field.listKind === "message") return both(own, every(messageCheck(field.message)));
  if (field.fieldKind === "map" && field.mapKind === "message")
    return both(own, everyValue(messageCheck(field.message)));
  return own;
}

// Free-form values have no rules.
const messageCheck = (desc: DescMessage): QuickCheck =>
  desc.typeName.startsWith("google.protobuf.") ? always : checkOf(desc);

function both(one: QuickCheck, other: QuickCheck): QuickCheck {
  if (one === unsure || other === unsure) return unsure;
  return all([one, other].filter((check) => check !== always));
}

/** Lists of numbers, the longest in frequent messages, are checked in one loop without a call per number. */
function every(check: QuickCheck): QuickCheck {
  if (check === finite) return (value) => areFinite(value as readonly unknown[]);
  return (value) => {
    const items = value as readonly unknown[];
    for (let i = 0; i < items.length; i++) if (!check(items[i])) return false;
    return true;
  };
}

const finite: QuickCheck = (value) => Number.isFinite(value);

function areFinite(items: readonly unknown[]): boolean {
  for (let i = 0; i < items.length; i++) if (!Number.isFinite(items[i])) return false;
  return true;
}

const everyValue =
  (check: QuickCheck): QuickCheck =>
  (value) =>
    Object.values(value as QuickFields).every((item) => check(item));

/** Returns the checks of the set rules, such as buf.validate.StringRules; unsure if one is unknown. */
function rulesCheck(kind: string, rules: Message, field: DescField): QuickCheck {
  const desc = FieldRulesSchema.fields.find(({ name }) => name === kind)?.message;
  if (desc === undefined) return unsure;
  const set = reflect(desc, rules);
  const checks = desc.fields
    .filter((rule) => set.isSet(rule))
    .map(({ name, localName }) => {
      const member = set.desc.fields.find((each) => each.name === name);
      const bound =
        member?.oneof === undefined
          ? (rules as unknown as QuickFields)[localName]
          : ((rules as unknown as QuickFields)[member.oneof.localName] as QuickFields).value;
      return (RULES[`${kind}.${name}`] ?? NUMBER_RULES[name])?.(bound, field) ?? unsure;
    });
  return checks.includes(unsure) ? unsure : all(checks);
}

const nested = (rules: unknown, field: DescField): QuickCheck => {
  // Sound: `items`, `keys` and `values` are FieldRules.
  const { type, required, ignore, cel } = rules as FieldRules;
  if (required || ignore !== Ignore.UNSPECIFIED || cel.length > 0) return unsure;
  return type.case === undefined ? always : rulesCheck(type.case, type.value, field);
};

const lengthOf = (value: unknown): number => (value as { readonly length: number }).length;

/** The maximum length of a text that is kept for comparison with the next one. */
const MOST_KEPT = 64;

/** Creates a rule's check from its limit. */
type Rule = (bound: unknown, field: DescField) => QuickCheck;

const RULES: Readonly<Record<string, Rule>> = {
  // A character has one or two string units, so the length bounds the number of characters in both directions.
  "string.min_len": (n) => (value) => lengthOf(value) >= (n === 1n ? 1 : 2 * Number(n)),
  "string.max_len": (n) => (value) => lengthOf(value) <= Number(n),
  "string.pattern": (pattern) => {
    const regex = new RegExp(String(pattern), "u");
    // Caches the last text, because a robot sends the same instruction with every call.
    let before: unknown;
    return (value) => {
      if (value === before) return true;
      const fits = regex.test(value as string);
      if (fits && lengthOf(value) <= MOST_KEPT) before = value;
      return fits;
    };
  },
  "string.in": (words) => {
    const known = new Set(words as readonly unknown[]);
    return (value) => known.has(value);
  },
  "bytes.max_len": (n) => (value) => lengthOf(value) <= Number(n),
  "enum.defined_only": (_, field) => {
    const known = new Set(field.enum?.values.map(({ number }) => number));
    return (value) => known.has(value as number);
  },
  "enum.not_in": (numbers) => (value) => !(numbers as readonly unknown[]).includes(value),
  "repeated.min_items": (n) => (value) => lengthOf(value) >= Number(n),
  "repeated.max_items": (n) => (value) => lengthOf(value) <= Number(n),
  "repeated.unique": () => (value) => new Set(value as readonly unknown[]).size === lengthOf(value),
  "repeated.items": (rules, field) => {
    const check = nested(rules, field);
    return check === unsure || check === always ? check : every(check);
  },
  "map.max_pairs": (n) => (value) => Object.keys(value as QuickFields).length <= Number(n),
  "map.keys": (rules, field) => {
    const check = nested(rules, field);
    return check === unsure ? unsure : (value) => Object.keys(value as QuickFields).every((key) => check(key));
  },
  "map.values": (rules, field) => {
    const check = nested(rules, field);
    return check === unsure || check === always ? check : everyValue(check);
  },
};

/** The rules that all number types share. */
const NUMBER_RULES: Readonly<Record<string, Rule>> = {
  gt: (bound) => (value) => (value as number) > Number(bound),
  gte: (bound) => (value) => (value as number) >= Number(bound),
  lt: (bound) => (value) => (value as number) < Number(bound),
  lte: (bound) => (value) => (value as number) <= Number(bound),
  finite: () => finite,
};
