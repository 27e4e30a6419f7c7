/**
 * One message of the Model Context Protocol, answered by the protocol's own SDK. It is loaded at the first message: the SDK takes long to
 * load.
 */
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js";
import { CallToolRequestSchema, ErrorCode, ListToolsRequestSchema, McpError } from "@modelcontextprotocol/sdk/types.js";
import { API_VERSION, BRAND } from "../../brand.ts";

/** What `tools/list` shows of a tool, and the RPC behind it. */
export interface ToolFacts {
  readonly name: string;
  /** Such as `limber.v1.InferenceService/Act`. */
  readonly rpc: `${string}/${string}`;
  readonly description: string;
  /** JSON Schema of what it takes. */
  readonly inputSchema: Readonly<Record<string, unknown>>;
  /** The protocol's hints: whether it changes something, and what. */
  readonly annotations: Readonly<Record<string, unknown>>;
}

/** What a tool answers: a text that an agent reads, and whether it is a refusal. */
export interface ToolAnswer {
  readonly text: string;
  readonly isRefusal: boolean;
}

/** What a message may ask for. */
export interface McpCalls {
  /** The tools that the caller may use. */
  list(): readonly ToolFacts[];
  /** How one of them is carried out; undefined if there is no such tool. */
  find(name: string): ((input: unknown) => Promise<ToolAnswer>) | undefined;
}

/** A message as it came. */
export interface McpRequest {
  readonly url: string;
  readonly headers: Headers;
  /** The message, read. */
  readonly body: unknown;
  /** The answer is an event stream rather than JSON. */
  readonly events: boolean;
}

const INSTRUCTIONS =
  "Models for robots, behind one gateway. Before a call: list_models, get_model and preview_route say what a model reads, who serves it and what it costs. " +
  "act answers actions and moves nothing. run_policy moves a robot, where a person has armed that robot for you, for as long as max_seconds says. " +
  "stop_robots stops robots at once; only people release them.";

/** Returns a message. */
export async function answerMcp({ url, headers, body, events }: McpRequest, calls: McpCalls): Promise<Response> {
  const server = new Server(
    { name: BRAND, version: API_VERSION },
    { capabilities: { tools: {} }, instructions: INSTRUCTIONS },
  );
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: calls.list().map(({ name, description, inputSchema, annotations }) => ({
      ...{ name, description, annotations },
      inputSchema: { ...inputSchema, type: "object" as const },
    })),
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params: { name, arguments: input = {} } }) => {
    const call = calls.find(name);
    if (call === undefined) throw new McpError(ErrorCode.InvalidParams, `there is no tool of the name ${name}`);
    const { text, isRefusal } = await call(input);
    return { content: [{ type: "text" as const, text }], ...(isRefusal && { isError: true }) };
  });
  const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: !events });
  await server.connect(transport);
  try {
    const response = await transport.handleRequest(new Request(url, { method: "POST", headers }), { parsedBody: body });
    // Read here: what follows it is closed.
    return new Response(await response.text(), { status: response.status, headers: response.headers });
  } finally {
    await server.close();
  }
}
