/** Writes the TypeScript client's class for each reason of the schema. Run by `npm run gen`; another file may be named. */

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createFileRegistry, fromBinary, getOption } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { ErrorType, refusal } from "../gen/limber/edge/v1/options_pb.ts";
import { ReasonSchema } from "../gen/limber/v1/reason_pb.ts";
import { commentOf } from "./openapi/document.ts";

const FAMILIES: Readonly<Record<ErrorType, string>> = {
  [ErrorType.UNSPECIFIED]: "Refused",
  [ErrorType.AUTHENTICATION_ERROR]: "AuthenticationError",
  [ErrorType.PERMISSION_ERROR]: "PermissionRefused",
  [ErrorType.BILLING_ERROR]: "BillingError",
  [ErrorType.RATE_LIMIT_ERROR]: "RateLimitError",
  [ErrorType.VALIDATION_ERROR]: "ValidationError",
  [ErrorType.NOT_FOUND_ERROR]: "NotFoundError",
  [ErrorType.CONFLICT_ERROR]: "ConflictError",
  [ErrorType.ROUTING_ERROR]: "RoutingError",
  [ErrorType.UPSTREAM_ERROR]: "UpstreamError",
  [ErrorType.TIMEOUT_ERROR]: "OutOfTime",
  [ErrorType.SERVER_ERROR]: "ServerError",
};
const PREFIX = "REASON_";

// Generated code has no comments; the compiler's image does.
const image = execFileSync("buf", ["build", "-o", "-"], { maxBuffer: 1 << 28 });
const told = createFileRegistry(fromBinary(FileDescriptorSetSchema, image)).getEnum(ReasonSchema.typeName);

const classes = ReasonSchema.values
  .filter(({ number }) => number !== 0)
  .map((value) => {
    const { status, type, retryable } = getOption(value, refusal);
    const code = value.name.slice(PREFIX.length).toLowerCase();
    const name = code.replaceAll(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase());
    const comment = commentOf(told?.value[value.number] ?? value);
    return { name, code, status, family: FAMILIES[type], retryable, comment };
  });
const families = [...new Set(classes.map(({ family }) => family))].sort();
const text = `/** One class for each reason of \`reason.proto\`. Made by \`npm run gen\`. */
import { ${families.join(", ")}, type RefusedClass } from "./refused.ts";

${classes
  .map(
    ({ name, code, status, family, retryable, comment }) => `/** ${comment} */
export class ${name} extends ${family} {
  static override readonly code: string = "${code}";
  static override readonly status: number = ${status};
  static override readonly retryable: boolean = ${retryable};
}`,
  )
  .join("\n\n")}

/** The class of each reason by its code. */
export const BY_CODE: ReadonlyMap<string, RefusedClass> = new Map<string, RefusedClass>(
  [${classes.map(({ name }) => name).join(", ")}].map((each) => [each.code, each]),
);
`;
const target = process.argv[2] ?? new URL("../clients/typescript/src/gen/reasons.ts", import.meta.url);
writeFileSync(target, text.replaceAll("./refused.ts", "../refused.ts"));
