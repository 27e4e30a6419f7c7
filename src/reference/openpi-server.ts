/**
 * The reference provider on the openpi wire: one address for each act model and action space, each with the behavior of an openpi server, errors
 * included. Source: scripts/serve_policy.py and websocket_policy_server.py (Physical-Intelligence/openpi).
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import { steadyNow } from "../clock.ts";
import { CodecError } from "../codecs/error.ts";
import type { UnpackedMap } from "../codecs/python/msgpack.ts";
import { decodeNumpy, encodeNumpy, NdArray } from "../codecs/python/ndarray.ts";
import { plan } from "./act/plan.ts";
import type { ActionDeclaration } from "./act/types.ts";
import type { RgbFrame } from "./image.ts";
import { REFERENCE_MODELS } from "./models.ts";
import type { ServedElsewhere } from "./policy-server.ts";
import { UnsupportedObservation } from "./unsupported.ts";

/** Rows of every answer: openpi's protocol has no field for a number. */
const CHUNK = 50;
const MAX_MESSAGE_BYTES = 64 * 2 ** 20;

/** A listening server, and its models by path. */
export interface OpenpiServer {
  readonly url: string;
  readonly served: readonly ServedElsewhere[];
  /** Closes every connection at once. */
  close(): Promise<void>;
}

/** Serves every act model at `/<owner>/<name>/<action space>`; port 0 selects a free one. */
export async function serveOpenpi(listen: { readonly host: string; readonly port: number }): Promise<OpenpiServer> {
  const http = createServer(answerHttp);
  const sockets = new WebSocketServer({ noServer: true, perMessageDeflate: false, maxPayload: MAX_MESSAGE_BYTES });
  http.on("upgrade", (request, socket, head) => {
    const policy = POLICIES.get(new URL(request.url ?? "/", "ws://localhost").pathname);
    if (policy === undefined) socket.end("HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    else sockets.handleUpgrade(request, socket, head, (client) => serve(client, policy));
  });
  await new Promise<void>((resolve, reject) => {
    http.once("error", reject);
    http.listen(listen.port, listen.host, resolve);
  });
  const { port } = http.address() as AddressInfo; // a TCP server's address is never a string
  const url = `ws://${listen.host}:${port}`;
  return {
    url,
    served: [...POLICIES].map(([path, { slug, declaration }]) => ({
      slug,
      actionSpace: declaration.space,
      runtime: "openpi-ws",
      endpoint: url + path,
      maxHorizon: CHUNK,
    })),
    close: () =>
      new Promise((resolve) => {
        http.close(() => resolve());
        http.closeAllConnections();
        for (const client of sockets.clients) client.terminate();
      }),
  };
}

interface ServedPolicy {
  readonly slug: string;
  readonly declaration: ActionDeclaration;
}

const POLICIES: ReadonlyMap<string, ServedPolicy> = new Map(
  REFERENCE_MODELS.flatMap(({ slug, actions }) =>
    actions.map((declaration) => [`/${slug}/${declaration.space}`, { slug, declaration }]),
  ),
);

function answerHttp(request: IncomingMessage, response: ServerResponse): void {
  if (request.url === "/healthz") response.end("OK\n");
  else response.writeHead(426).end("this is a WebSocket server\n");
}

function serve(client: WebSocket, policy: ServedPolicy): void {
  client.on("error", () => undefined); // a broken connection closes
  client.send(encodeNumpy(metadataOf(policy)));
  client.on("message", (data, isBinary) => {
    try {
      if (!isBinary) throw new UnsupportedObservation("a bytes-like object is required, not 'str'");
      client.send(infer(policy, data as Buffer)); // the default `binaryType`
    } catch (error) {
      client.send(`Traceback (most recent call last):\n${lastLine(error)}`);
      client.close(1011, "Internal server error. Traceback included in previous frame.");
    }
  });
}

/** The last line of a Python traceback. An observation that this server cannot read raises `InvalidInput`, which the gateway recognizes. */
function lastLine(error: unknown): string {
  if (error instanceof UnsupportedObservation || error instanceof CodecError) return `InvalidInput: ${error.message}`;
  return error instanceof Error ? `${error.name}: ${error.message}` : "failed";
}

const metadataOf = ({ slug, declaration }: ServedPolicy) => ({
  model: slug,
  action_space: declaration.space,
  action_dim: declaration.dim,
  action_horizon: CHUNK,
  dt_ms: declaration.dtMs,
  proprio: declaration.proprioLayouts,
});

function infer({ slug, declaration }: ServedPolicy, bytes: Buffer): Buffer {
  const started = steadyNow();
  const observation = decodeNumpy(bytes);
  if (!(observation instanceof Map)) throw new UnsupportedObservation("the observation must be a map");
  const { steps, dim } = plan(
    {
      actionSpace: declaration.space,
      horizon: CHUNK,
      proprio: stateOf(observation),
      instruction: promptOf(observation),
      frames: framesOf(observation),
    },
    slug,
  );
  const actions = NdArray.float64(steps, [CHUNK, dim]);
  return encodeNumpy({ actions, server_timing: { infer_ms: steadyNow() - started } });
}

type Observation = UnpackedMap<NdArray>;

function stateOf(observation: Observation): Float64Array {
  const state = observation.get("observation/state");
  if (state === undefined) return new Float64Array();
  if (!(state instanceof NdArray)) throw new UnsupportedObservation("observation/state must be an array");
  return state.toFloat64();
}

function promptOf(observation: Observation): string {
  const prompt = observation.get("prompt") ?? "";
  if (typeof prompt !== "string") throw new UnsupportedObservation("prompt must be text");
  return prompt;
}

function framesOf(observation: Observation): RgbFrame[] {
  const image = observation.get("observation/image");
  if (image === undefined) return [];
  const [height, width, channels] = image instanceof NdArray ? image.shape : [];
  if (!(image instanceof NdArray) || image.dtype !== "|u1" || channels !== 3 || !width || !height) {
    throw new UnsupportedObservation("observation/image must be an array of bytes of shape [height, width, 3]");
  }
  return [{ camera: "image", image: { width, height, data: image.data } }];
}
