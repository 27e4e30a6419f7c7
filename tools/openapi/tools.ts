/** Agent tools, derived from the schema and its comments: each RPC with the option `tool`. */
import { type DescMethod, type DescService, getOption } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel as Level } from "@bufbuild/protobuf/wkt";
import { http } from "../../gen/google/api/annotations_pb.ts";
import { rpc } from "../../gen/limber/edge/v1/options_pb.ts";
import type { ToolFacts } from "../../src/edge/transports/mcp-protocol.ts";
import { commentOf, type Keywords, Schemas } from "./document.ts";

const REFERENCE = "#/components/schemas/";

/** Returns the tools of `services`, whose files were compiled with source information. */
export const toolsOf = (services: readonly DescService[]): readonly ToolFacts[] =>
  services.flatMap(({ methods }) => methods.flatMap((method) => toolOf(method) ?? []));

function toolOf(method: DescMethod): ToolFacts | undefined {
  const { tool } = getOption(method, rpc);
  if (tool === undefined) return undefined;
  const readOnly = method.idempotency === Level.NO_SIDE_EFFECTS || getOption(method, http).pattern.case === "get";
  return {
    name: tool.name,
    rpc: `${method.parent.typeName}/${method.name}`,
    description: `${commentOf(method)} ${tool.description}`.trim(),
    inputSchema: inputOf(method, tool.fields),
    // Tools that move a robot or end something may need a user's confirmation.
    annotations: {
      readOnlyHint: readOnly,
      ...(!readOnly && { destructiveHint: tool.moves }),
      openWorldHint: tool.moves,
    },
  };
}

/** Returns the schema of a request as a self-contained document. */
function inputOf(method: DescMethod, fields: readonly string[]): Keywords {
  for (const name of fields)
    if (!method.input.fields.some((field) => field.name === name))
      throw new Error(`the tool of ${method.name} names ${name}, which its request has not`);
  const schemas = new Schemas([method.input]);
  const hidden = fields.length === 0 ? [] : method.input.fields.filter(({ name }) => !fields.includes(name));
  schemas.message(method.input);
  const { description: _, ...whole } = schemas.without(method.input, hidden);
  const definitions = new Map<string, unknown>();
  const placed = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(placed);
    if (typeof value !== "object" || value === null) return value;
    const entries = Object.entries(value).filter(([name]) => name !== "x-enum-descriptions");
    return Object.fromEntries(
      entries.map(([name, each]) => {
        if (name !== "$ref" || typeof each !== "string") return [name, placed(each)];
        const referred = each.slice(REFERENCE.length);
        if (!definitions.has(referred)) {
          definitions.set(referred, undefined); // a message may contain itself
          definitions.set(referred, placed(schemas.all[referred]));
        }
        return [name, `#/$defs/${referred}`];
      }),
    );
  };
  const schema = placed(whole) as Keywords;
  return definitions.size === 0 ? schema : { ...schema, $defs: Object.fromEntries([...definitions].sort()) };
}
