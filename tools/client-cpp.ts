/**
 * Writes what the C++ client needs of the schema: one file of its messages and calls without options, which the protoc of any distribution
 * reads, and the facts of each reason. Run by `npm run gen`; another folder may be named.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescService,
  getOption,
  ScalarType,
} from "@bufbuild/protobuf";
import { ErrorInfoSchema, RetryInfoSchema } from "../gen/google/rpc/error_details_pb.ts";
import { StatusSchema } from "../gen/google/rpc/status_pb.ts";
import { ErrorType, refusal } from "../gen/limber/edge/v1/options_pb.ts";
import { ErrorDetailsSchema } from "../gen/limber/v1/error_pb.ts";
import { InferenceService } from "../gen/limber/v1/inference_service_pb.ts";
import { ReasonSchema } from "../gen/limber/v1/reason_pb.ts";
import { RegistryService } from "../gen/limber/v1/registry_service_pb.ts";
import { RobotService } from "../gen/limber/v1/robot_service_pb.ts";

const CALLS: readonly (readonly [DescService, readonly string[]])[] = [
  [InferenceService, ["Act", "ActStream", "Ground"]],
  [RegistryService, ["ListModels"]],
  [RobotService, ["StopRobots", "ReleaseRobots"]],
];
/** What comes with a refusal over gRPC. */
const DETAILS = [StatusSchema, ErrorInfoSchema, RetryInfoSchema, ErrorDetailsSchema];
/** Fields that the client neither fills in nor reads, and whose messages would be most of what is compiled. */
const LEFT_OUT: Readonly<Record<string, readonly string[]>> = {
  "limber.v1.ActRequest": ["metadata"],
  "limber.v1.ActResponse": ["prediction"],
  "limber.v1.ErrorDetails": ["route", "estimated", "max_affordable"],
  "limber.v1.Frame": ["intrinsics"],
  "limber.v1.GroundRequest": ["metadata"],
  "limber.v1.InputContract": ["proprio", "language", "goal_image", "history"],
  "limber.v1.LoopOpen": ["metadata"],
  "limber.v1.LoopOpened": ["actions"],
  "limber.v1.Model": ["offerings", "input", "actions"],
  "limber.v1.Route": ["attempts"],
};
const FAMILIES: Readonly<Record<ErrorType, string>> = {
  [ErrorType.UNSPECIFIED]: "kUnspecified",
  [ErrorType.AUTHENTICATION_ERROR]: "kAuthentication",
  [ErrorType.PERMISSION_ERROR]: "kPermission",
  [ErrorType.BILLING_ERROR]: "kBilling",
  [ErrorType.RATE_LIMIT_ERROR]: "kRateLimit",
  [ErrorType.VALIDATION_ERROR]: "kValidation",
  [ErrorType.NOT_FOUND_ERROR]: "kNotFound",
  [ErrorType.CONFLICT_ERROR]: "kConflict",
  [ErrorType.ROUTING_ERROR]: "kRouting",
  [ErrorType.UPSTREAM_ERROR]: "kUpstream",
  [ErrorType.TIMEOUT_ERROR]: "kTimeout",
  [ErrorType.SERVER_ERROR]: "kServer",
};
const KNOWN = "google.protobuf.";
const PREFIX = "REASON_";

const kept = (message: DescMessage): DescField[] =>
  message.fields.filter(({ name }) => !LEFT_OUT[message.typeName]?.includes(name));

/** The name of a type in the one file. Those of google.rpc take another one: a robot's other software may bring the same. */
const nameOf = (type: DescMessage | DescEnum): string => {
  if (type.typeName.startsWith(KNOWN)) return type.typeName;
  const name = type.typeName.slice(type.file.proto.package.length + 1);
  return type.file.proto.package === "google.rpc" ? `Rpc${name}` : name;
};

const top = (type: DescMessage): DescMessage => (type.parent ? top(type.parent) : type);

const messages = new Map<string, DescMessage>();
const enums = new Map<string, DescEnum>();
const imports = new Set<string>();

function reach(message: DescMessage): void {
  if (message.typeName.startsWith(KNOWN)) {
    imports.add(`${message.file.name}.proto`);
    return;
  }
  const whole = top(message);
  if (messages.has(whole.typeName)) return;
  messages.set(whole.typeName, whole);
  reachFields(whole);
}

function reachFields(message: DescMessage): void {
  for (const field of kept(message)) {
    if (field.message) reach(field.message);
    if (field.enum?.parent) reach(field.enum.parent);
    else if (field.enum) enums.set(field.enum.typeName, field.enum);
  }
  for (const inner of message.nestedMessages) reachFields(inner);
}

const scalarOf = (scalar: ScalarType): string => ScalarType[scalar].toLowerCase();

function typeOf(field: DescField): string {
  if (field.fieldKind === "map") {
    const value = field.mapKind === "scalar" ? scalarOf(field.scalar) : nameOf(field.message ?? field.enum);
    return `map<${scalarOf(field.mapKey)}, ${value}>`;
  }
  const type = field.scalar === undefined ? nameOf((field.message ?? field.enum)!) : scalarOf(field.scalar);
  if (field.fieldKind === "list") return `repeated ${type}`;
  return field.proto.proto3Optional ? `optional ${type}` : type;
}

const fieldText = (field: DescField): string => `${typeOf(field)} ${field.name} = ${field.number};`;

const enumText = (each: DescEnum): string[] => [
  `enum ${nameOf(each).split(".").at(-1)} {`,
  ...each.values.map(({ name, number }) => `  ${name} = ${number};`),
  "}",
];

function messageText(message: DescMessage): string[] {
  const lines = [
    ...message.nestedEnums.flatMap(enumText),
    ...message.nestedMessages.filter(({ proto }) => !proto.options?.mapEntry).flatMap(messageText),
  ];
  const told = new Set<string>();
  for (const field of kept(message)) {
    if (!field.oneof) lines.push(fieldText(field));
    else if (!told.has(field.oneof.name)) {
      told.add(field.oneof.name);
      const inside = field.oneof.fields.map((each) => `  ${fieldText(each)}`);
      lines.push(`oneof ${field.oneof.name} {`, ...inside, "}");
    }
  }
  if (lines.length === 0) return [`message ${nameOf(message).split(".").at(-1)} {}`];
  return [`message ${nameOf(message).split(".").at(-1)} {`, ...lines.map((line) => `  ${line}`), "}"];
}

for (const [service, names] of CALLS)
  for (const { name, input, output } of service.methods)
    if (names.includes(name)) {
      reach(input);
      reach(output);
    }
for (const each of DETAILS) reach(each);

const stream = (is: boolean): string => (is ? "stream " : "");
const services = CALLS.map(([service, names]) => {
  const rpcs = service.methods
    .filter(({ name }) => names.includes(name))
    .map(({ name, input, output, methodKind }) => {
      const [up, down] = [methodKind === "bidi_streaming", methodKind !== "unary"];
      return `  rpc ${name}(${stream(up)}${nameOf(input)}) returns (${stream(down)}${nameOf(output)});`;
    });
  return [`service ${service.name} {`, ...rpcs, "}"].join("\n");
});
const byName = <T>(types: ReadonlyMap<string, T>): T[] =>
  [...types].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, type]) => type);

const schema = `// What the C++ client needs of proto/limber/v1, which has the comments. Made by \`npm run gen\`.
syntax = "proto3";

package limber.v1;

${[...imports]
  .sort()
  .map((name) => `import "${name}";\n`)
  .join("")}
// No descriptors: less to compile, and nothing to register twice beside other stubs.
option optimize_for = LITE_RUNTIME;

${[
  ...services,
  ...byName(messages).map((each) => messageText(each).join("\n")),
  ...byName(enums).map((each) => enumText(each).join("\n")),
].join("\n\n")}
`;

const reasons = ReasonSchema.values
  .filter(({ number }) => number !== 0)
  .map((value) => {
    const { status, type, retryable } = getOption(value, refusal);
    return `    {"${value.name.slice(PREFIX.length).toLowerCase()}", Family::${FAMILIES[type]}, ${status}, ${retryable}},`;
  });
const facts = `// The facts of each reason of reason.proto. Made by \`npm run gen\`.
#pragma once

#include <string_view>

namespace limber::internal {

enum class Family { ${Object.values(FAMILIES).join(", ")} };

struct ReasonFacts {
  std::string_view code;
  Family family;
  // The HTTP status of the same refusal over REST.
  int status;
  // The same call may succeed later without a change.
  bool retryable;
};

inline constexpr ReasonFacts kReasons[] = {
${reasons.join("\n")}
};

}  // namespace limber::internal
`;

const folder = process.argv[2] ?? new URL("../clients/cpp/gen", import.meta.url).pathname;
for (const [name, text] of [
  ["limber/v1/client.proto", schema],
  ["reasons.hpp", facts],
] as const) {
  const file = join(folder, name);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
