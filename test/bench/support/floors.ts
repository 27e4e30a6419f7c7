/** The bare programs that the gateway is compared with: they relay one act call and do nothing else. */
import { connect, createServer } from "node:http2";
import { type AddressInfo, connect as connectTcp, createServer as createTcp } from "node:net";
import { setFlagsFromString } from "node:v8";
import { type ConnectRouter, createClient } from "@connectrpc/connect";
import { connectNodeAdapter, createGrpcTransport } from "@connectrpc/connect-node";
import fastify from "fastify";
import { Pool } from "undici";
import { WebSocket, WebSocketServer } from "ws";
import { InferenceService } from "../../../gen/limber/v1/inference_service_pb.ts";

const [kind, upstream] = [process.argv[2], process.argv[3] ?? ""];

// As the gateway sets it, unless V8 is to be left as it is.
if (process.argv[4] !== "plain") setFlagsFromString("--no-allocation-site-pretenuring");

/** Fastify in front, undici behind; both bodies are parsed and written again. */
async function restFloor(): Promise<number> {
  const pool = new Pool(upstream, { connections: 64 });
  const app = fastify({ bodyLimit: 16 << 20 });
  app.post("/v1/act", async (request) => {
    const answer = await pool.request({
      method: "POST",
      path: "/act",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(request.body),
    });
    return answer.body.json();
  });
  await app.listen({ port: 0, host: "127.0.0.1" });
  return (app.server.address() as AddressInfo).port;
}

/** Fastify in front, undici behind; a stream of events is piped through. */
async function eventsFloor(): Promise<number> {
  const pool = new Pool(upstream, { connections: 256 });
  const app = fastify();
  app.post("/v1/predict/stream", async (request, reply) => {
    const answer = await pool.request({
      method: "POST",
      path: "/frames",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(request.body),
    });
    return reply.type("text/event-stream").send(answer.body);
  });
  await app.listen({ port: 0, host: "127.0.0.1" });
  return (app.server.address() as AddressInfo).port;
}

/** Connect's own gRPC handler in front, Connect's own gRPC client behind; messages are typed. */
function connectFloor(): Promise<number> {
  const client = createClient(InferenceService, createGrpcTransport({ baseUrl: upstream }));
  const routes = (router: ConnectRouter): void => {
    router.rpc(InferenceService.method.act, (request) => client.act(request));
    router.rpc(InferenceService.method.actStream, (requests) => client.actStream(requests));
  };
  const server = createServer(connectNodeAdapter({ routes }));
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve((server.address() as AddressInfo).port)));
}

/** node:http2 on both sides; the bytes of a stream go on as they come. */
function http2Floor(): Promise<number> {
  const session = connect(upstream);
  const server = createServer();
  server.on("stream", (stream, headers) => {
    const onward = session.request({
      ":method": "POST",
      ":path": String(headers[":path"]),
      "content-type": "application/grpc",
      te: "trailers",
    });
    stream.respond({ ":status": 200, "content-type": "application/grpc" });
    for (const side of [stream, onward]) side.on("error", () => undefined);
    stream.on("data", (chunk) => onward.write(chunk));
    stream.on("end", () => onward.end());
    stream.on("close", () => onward.close(8));
    onward.on("data", (chunk) => stream.write(chunk));
    onward.on("close", () => stream.end());
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve((server.address() as AddressInfo).port)));
}

/** `ws` on both sides: a connection behind each one in front, and messages go on as they are. */
function webSocketFloor(): Promise<number> {
  const options = { perMessageDeflate: false, maxPayload: 64 << 20 } as const;
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", ...options });
  server.on("connection", (client) => {
    const onward = new WebSocket(upstream, options);
    onward.on("message", (data) => client.send(data));
    client.on("message", (data) => onward.send(data));
    for (const side of [client, onward]) side.on("error", () => undefined);
    client.on("close", () => onward.terminate());
  });
  return new Promise((resolve) => server.on("listening", () => resolve((server.address() as AddressInfo).port)));
}

/** Bytes of TCP go on as they come, which is all that a relay of ZeroMQ has to do. */
function bytesFloor(): Promise<number> {
  const { hostname, port } = new URL(upstream);
  const server = createTcp({ noDelay: true }, (socket) => {
    const onward = connectTcp({ host: hostname, port: Number(port), noDelay: true });
    for (const side of [socket, onward]) side.on("error", () => undefined);
    socket.pipe(onward).pipe(socket);
    socket.on("close", () => onward.destroy());
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve((server.address() as AddressInfo).port)));
}

const FLOORS = {
  rest: restFloor,
  events: eventsFloor,
  connect: connectFloor,
  http2: http2Floor,
  ws: webSocketFloor,
  tcp: bytesFloor,
};
console.log(JSON.stringify({ port: await FLOORS[kind as keyof typeof FLOORS]() }));
process.on("SIGTERM", () => process.exit(0));
