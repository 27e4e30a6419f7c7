/** Clients of the other transports, and a reader of server-sent events. */
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { ErrorDetailsSchema } from "../../gen/limber/v1/error_pb.ts";
import { InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import type { App } from "./app.ts";

const TRANSPORTS = {
  connect: (baseUrl: string) => createConnectTransport({ baseUrl, httpVersion: "2" }),
  grpc: (baseUrl: string) => createGrpcTransport({ baseUrl }),
  "grpc-web": (baseUrl: string) => createGrpcWebTransport({ baseUrl, httpVersion: "2" }),
} as const;

/** A transport that isn't REST. */
export type RpcFace = keyof typeof TRANSPORTS;

/** The inference service of a gateway over one of its transports. */
export const inference = (app: Pick<App, "url">, transport: RpcFace) =>
  createClient(InferenceService, TRANSPORTS[transport](app.url));

/** The headers of a caller. */
export const bearer = (key: string, more: Readonly<Record<string, string>> = {}) => ({
  headers: { authorization: `Bearer ${key}`, ...more },
});

/** How a call was refused: the code of the transport, and the reason and details that every transport carries. */
export async function refusalIn(call: Promise<unknown>) {
  const thrown = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(thrown instanceof ConnectError)) throw new Error("expected a refusal", { cause: thrown });
  const [info] = thrown.findDetails(ErrorInfoSchema);
  const [details] = thrown.findDetails(ErrorDetailsSchema);
  return { code: Code[thrown.code], reason: info?.reason, message: thrown.rawMessage, details };
}

/** One server-sent event. */
export interface ReadEvent {
  readonly event: string;
  readonly id: string | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into events of every shape.
  readonly data: any;
}

/** A stream of events while it's read. */
export interface EventReader {
  readonly status: number;
  readonly type: string;
  /** The next event; undefined at the end. */
  next(): Promise<ReadEvent | undefined>;
  /** All that still come. */
  rest(): Promise<ReadEvent[]>;
  /** Hangs up. */
  leave(): void;
}

/** Opens a stream of events by a POST, or by a GET where there is no body. */
export async function readEvents(app: App, path: string, body: unknown, key: string): Promise<EventReader> {
  const hangUp = new AbortController();
  const response = await fetch(app.url + path, {
    headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
    ...(body !== undefined && { method: "POST", body: JSON.stringify(body) }),
    signal: hangUp.signal,
  });
  const events = eventsIn(response.body!);
  return {
    status: response.status,
    type: response.headers.get("content-type") ?? "",
    next: async () => (await events.next()).value ?? undefined,
    rest: () => Array.fromAsync(events),
    leave: () => hangUp.abort(),
  };
}

async function* eventsIn(body: ReadableStream<Uint8Array>): AsyncGenerator<ReadEvent, undefined> {
  let text = "";
  for await (const chunk of body.pipeThrough(new TextDecoderStream() as never) as ReadableStream<string>) {
    text += chunk;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const fields = text
        .slice(0, end)
        .split("\n")
        .map((line) => line.split(/: (.*)/s));
      text = text.slice(end + 2);
      const field = (name: string): string | undefined => fields.find(([key]) => key === name)?.[1];
      if (field("event") !== undefined)
        yield { event: field("event")!, id: field("id"), data: JSON.parse(field("data") ?? "null") };
    }
  }
  if (text !== "") throw new Error(`an event was cut short: ${JSON.stringify(text)}`);
}
