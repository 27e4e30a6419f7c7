/** Writes gen/openapi.json and gen/tools.json from the schema and its comments. Run by `npm run gen`; another folder may be named. */

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { ErrorBodySchema } from "../gen/limber/v1/error_pb.ts";
import { SERVICES } from "../src/app/services.ts";
import { openapiOf } from "./openapi/document.ts";
import { toolsOf } from "./openapi/tools.ts";

// Generated code has no comments; the compiler's image does.
const image = execFileSync("buf", ["build", "-o", "-"], { maxBuffer: 1 << 28 });
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, image));

const services = SERVICES.map(({ typeName }) => {
  const service = registry.getService(typeName);
  if (service === undefined) throw new Error(`the image has no ${typeName}`);
  return service;
});
const errorBody = registry.getMessage(ErrorBodySchema.typeName);
if (errorBody === undefined) throw new Error("the image has no body for refusals");

const folder = process.argv[2] ?? join(import.meta.dirname, "../gen");
const write = (name: string, value: unknown): void =>
  writeFileSync(join(folder, name), `${JSON.stringify(value, null, 2)}\n`);
write("openapi.json", openapiOf(services, errorBody));
write("tools.json", toolsOf(services));
