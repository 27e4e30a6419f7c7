/** A robot that waits for runs of agents, and an agent by the Model Context Protocol. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  ArmingService,
  AttendRobotRequestSchema,
  type AttendRobotResponse,
} from "../../gen/limber/v1/arming_service_pb.ts";
import type { App } from "./app.ts";
import { bearer } from "./clients.ts";

type Said = MessageInitShape<typeof AttendRobotRequestSchema>["message"];
/** What a robot that waits is told. */
export type Heard = AttendRobotResponse["event"];

/** A robot that waits, and everything that it was told. */
export interface Attending {
  readonly heard: readonly Heard[];
  /** Chunks that came so far. */
  readonly chunks: number;
  /** How the stream ended; undefined while it lasts. */
  readonly ended: Promise<unknown>;
  observe(step: number, proprio?: readonly number[], names?: readonly string[]): void;
  leave(): void;
}

/** A robot that waits; it senses on by itself, a step after each message that it hears, where `senses` says so. */
export function attend(
  app: Pick<App, "url">,
  key: string,
  open: Extract<Said, { case: "open" }>["value"],
  onHeard: (event: Heard, robot: Attending) => void = () => {},
): Attending {
  const queue: Said[] = [{ case: "open", value: open }];
  let wake = (): void => {};
  const gone = new AbortController();
  const heard: Heard[] = [];
  async function* messages() {
    for (;;) {
      while (queue.length > 0) yield create(AttendRobotRequestSchema, { message: queue.shift()! } as never);
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }
  const client = createClient(ArmingService, createGrpcTransport({ baseUrl: app.url }));
  const ended = Promise.withResolvers<unknown>();
  const robot: Attending = {
    heard,
    get chunks() {
      return heard.filter((event) => event.case === "chunk").length;
    },
    ended: ended.promise,
    observe(step, proprio = [step / 1000], names = []) {
      const observations = [{ proprio: [...proprio], proprioNames: [...names] }];
      queue.push({ case: "observation", value: { step, observations } } as Said);
      wake();
    },
    leave: () => gone.abort(),
  };
  const listen = async (): Promise<void> => {
    for await (const { event } of client.attendRobot(messages(), { ...bearer(key), signal: gone.signal })) {
      heard.push(event);
      onHeard(event, robot);
    }
  };
  listen().then(() => ended.resolve("well"), ended.resolve);
  return robot;
}

/** What a tool answered. */
export interface ToolResult {
  readonly isError: boolean;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
  readonly body: any;
}

/** An agent, connected. */
export interface Agent {
  use(name: string, input?: object): Promise<ToolResult>;
  tools(): Promise<readonly string[]>;
  close(): Promise<void>;
}

/** Connects the SDK's own client. */
export async function agent(app: Pick<App, "url">, key: string): Promise<Agent> {
  const client = new Client({ name: "an-agent", version: "1.0.0" });
  const requestInit = { headers: { authorization: `Bearer ${key}` } };
  // The SDK's transport says more of its fields than its interface does.
  await client.connect(new StreamableHTTPClientTransport(new URL(`${app.url}/mcp`), { requestInit }) as never);
  return {
    async use(name, input = {}) {
      const result = await client.callTool({ name, arguments: input as Record<string, unknown> });
      const [content] = result.content as { text: string }[];
      return { isError: result.isError === true, body: JSON.parse(content!.text) };
    },
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    close: () => client.close(),
  };
}
