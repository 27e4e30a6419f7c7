/** Base addresses as people paste them: where a provider's calls, its health checks and a collector's spans go. */
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { create } from "@bufbuild/protobuf";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { CoordinateConvention, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { addressUnder, pathsUnder } from "../../src/codecs/base-address.ts";
import { createUpstream } from "../../src/upstream/index.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import { otlpAddresses } from "../../src/upstream/post.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { completion } from "../support/servers/chat.ts";
import { callWith, failureIn, framesOf, groundInput, nameOf, observed, targetAt } from "../support/wire-calls.ts";

const CHAT = "/v1/chat/completions";
const CHAT_OPERATIONS = [CHAT, "/v1/models"];

describe("calls of chat completions go to the documented path", () => {
  it.each([
    ["Google's OpenAI-compatible base", "/v1beta/openai", "/v1beta/openai/chat/completions"],
    ["the same with a slash at its end", "/v1beta/openai/", "/v1beta/openai/chat/completions"],
    ["the same with the whole address", "/v1beta/openai/chat/completions", "/v1beta/openai/chat/completions"],
    ["the address of Google's list of models", "/v1beta/openai/models", "/v1beta/openai/chat/completions"],
    ["Z.ai's base", "/api/paas/v4", "/api/paas/v4/chat/completions"],
    ["Volcano's base", "/api/v3/", "/api/v3/chat/completions"],
    ["DashScope's base", "/compatible-mode/v1", "/compatible-mode/v1/chat/completions"],
    ["Groq's base", "/openai/v1", "/openai/v1/chat/completions"],
    ["OpenRouter's base", "/api/v1", "/api/v1/chat/completions"],
    [
      "Vertex's base",
      "/v1/projects/p/locations/l/endpoints/openapi",
      "/v1/projects/p/locations/l/endpoints/openapi/chat/completions",
    ],
    ["vLLM's root", "/", "/v1/chat/completions"],
    ["vLLM's documented base", "/v1", "/v1/chat/completions"],
    ["a vLLM server behind a path", "/team/vllm", "/team/vllm/v1/chat/completions"],
    ["GitHub Models' whole address", "/inference/chat/completions", "/inference/chat/completions"],
    ["Azure's deployment", "/openai/deployments/eyes", "/openai/deployments/eyes/chat/completions"],
    ["Azure's whole address", "/openai/deployments/eyes/chat/completions", "/openai/deployments/eyes/chat/completions"],
  ])("for %s", (_, base, path) => {
    expect(pathsUnder(base, CHAT, CHAT_OPERATIONS)[0]).toBe(path);
  });

  it("for bases without a version, such as DeepSeek's, and to the path without one as the second choice", () => {
    expect(pathsUnder("/", CHAT, CHAT_OPERATIONS)).toEqual([CHAT, "/chat/completions"]);
  });
});

describe("the paths of other wires", () => {
  it.each([
    [
      "KServe's model address",
      "/v2/models/arm",
      "/v2/models/arm/infer",
      ["/v2/models/*", "/v2/models/*/infer"],
      "/v2/models/arm/infer",
    ],
    ["KServe's version of another protocol", "/v1", "/v2/health/ready", ["/v2/models/*"], "/v1/v2/health/ready"],
    ["Triton behind a path", "/triton/v2", "/v2/models/arm/infer", ["/v2/models/*"], "/triton/v2/models/arm/infer"],
    ["Cosmos NIM's whole address", "/v1/infer", "/v1/health/ready", ["/v1/infer"], "/v1/health/ready"],
    ["OpenVLA's whole address", "/act", "/docs", ["/act"], "/docs"],
    ["Cog's whole address", "/predictions/", "/health-check", ["/predictions"], "/health-check"],
  ])("follow from %s", (_, base, operation, operations, path) => {
    expect(pathsUnder(base, operation, operations)[0]).toBe(path);
  });

  it("include vLLM's health check beside the version at a base's end", () => {
    expect(pathsUnder("/v1/videos", "/health", ["/v1/videos"])).toEqual(["/v1/health", "/health"]);
  });

  it("keep a gateway's base path in LeRobot's sidecar, with or without the version at its end", () => {
    expect(addressUnder("https://robots.example/limber", "/v1/act").href).toBe("https://robots.example/limber/v1/act");
    expect(addressUnder("https://robots.example/limber/v1/", "/v1/act").href).toBe(
      "https://robots.example/limber/v1/act",
    );
  });
});

describe("traces go to the address of OTLP's specification", () => {
  it.each([
    ["Grafana's base", "/otlp", "/otlp/v1/traces"],
    ["Langfuse's base", "/api/public/otel", "/api/public/otel/v1/traces"],
    ["a base with a version before its end", "/api/v1/otlp/", "/api/v1/otlp/v1/traces"],
    ["a base that ends in the version", "/v1", "/v1/traces"],
    ["the whole address with a slash at its end", "/otlp/v1/traces/", "/otlp/v1/traces"],
    ["the address of logs", "/otlp/v1/logs", "/otlp/v1/traces"],
  ])("from %s", (_, pasted, path) => {
    const base = `https://collector.example${pasted}`;
    expect(otlpAddresses({ endpoint: base, protocol: "http/protobuf" })[0]).toBe(`https://collector.example${path}`);
  });

  it.each([
    ["Honeycomb's for gRPC", "api.honeycomb.io:443", "https://api.honeycomb.io:443"],
    ["Dash0's for gRPC", "ingress.eu-west-1.aws.dash0.com:4317", "https://ingress.eu-west-1.aws.dash0.com:4317"],
    ["a collector's on this machine", "localhost:4317", "http://localhost:4317"],
    ["one with white space", " https://api.honeycomb.io ", "https://api.honeycomb.io"],
  ])("from a host without a scheme: %s", (_, endpoint, address) => {
    expect(otlpAddresses({ endpoint, protocol: "grpc" })).toEqual([address]);
  });

  it("from New Relic's, Dynatrace's and Sentry's bases", () => {
    const at = (endpoint: string) => otlpAddresses({ endpoint, protocol: "http/protobuf" })[0];
    expect(at("otlp.nr-data.net:4318/v1/traces")).toBe("https://otlp.nr-data.net:4318/v1/traces");
    expect(at("https://a.live.dynatrace.com/api/v2/otlp")).toBe("https://a.live.dynatrace.com/api/v2/otlp/v1/traces");
    expect(at("https://o1.ingest.sentry.io/api/1/integration/otlp")).toBe(
      "https://o1.ingest.sentry.io/api/1/integration/otlp/v1/traces",
    );
    for (const other of ["ftp://a.example", "a b.example", "mailto:a@b.example"])
      expect([other, at(other)]).toEqual([other, other]);
  });

  it("and to a collector's own path unchanged", () => {
    const own = "https://collector.example/ingest?team=7";
    expect(otlpAddresses({ endpoint: own, protocol: "http/json" })).toEqual([
      "https://collector.example/ingest/v1/traces?team=7",
      own,
    ]);
  });
});

describe("a provider's server", () => {
  const upstream = createUpstream({ allowPrivate: true });
  const closing: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0)) await close();
  });
  afterAll(() => upstream.close());

  /** A server that knows these paths alone; `asked` has every path in order. */
  async function serving(paths: Readonly<Record<string, string>>) {
    const asked: string[] = [];
    const server = createServer((request: IncomingMessage, response) => {
      asked.push(`${request.method} ${request.url}`);
      const body = paths[(request.url ?? "").replace(/\?.*/, "")];
      request.resume().on("end", () => response.writeHead(body === undefined ? 404 : 200).end(body ?? "{}"));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closing.push(() => new Promise((resolve) => server.close(resolve).closeAllConnections()));
    return { at: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
  }
  const profile = create(WireProfileSchema, { coordinates: CoordinateConvention.YX_1000, serverModel: "er-test" });
  const chat = upstream.wireOf("openai-chat") as Required<Wire>; // it has all of these
  const ground = async (endpoint: string) => {
    const seen = observed({ frames: [{ camera: "front", data: await redSquare(0.5, 0.5, 56) }] });
    return chat.ground(targetAt(endpoint, { profile }), groundInput(seen, "it"), framesOf(seen), callWith());
  };
  const PLACE = completion('[{"point": [500, 500], "label": "it"}]');

  it("such as Google's is queried only at its documented paths, and its model name is found in its list", async () => {
    const google = await serving({
      "/v1beta/openai/models": JSON.stringify({ data: [{ id: "models/er-test" }] }),
      "/v1beta/openai/chat/completions": PLACE,
    });
    for (const end of ["", "/", "/chat/completions"]) {
      const target = targetAt(`${google.at}/v1beta/openai${end}`, { profile });
      await chat.health(target, callWith());
      await expect(chat.probes[0]!.look(target, callWith())).resolves.toMatch(/models\/er-test.*er-test/);
      expect((await ground(target.endpoint)).points).toHaveLength(1);
      expect(upstream.addressOf(target.endpoint)).toBe(`${google.at}/v1beta/openai/chat/completions`);
    }
    expect(new Set(google.asked)).toEqual(
      new Set(["GET /v1beta/openai/models", "POST /v1beta/openai/chat/completions"]),
    );
  });

  it("such as Azure's, without a version and a list, is found once and keeps the query", async () => {
    const azure = await serving({ "/openai/deployments/eyes/chat/completions": PLACE });
    const endpoint = `${azure.at}/openai/deployments/eyes?api-version=2024-10-21`;
    await chat.health(targetAt(endpoint, { profile }), callWith());
    azure.asked.splice(0);
    for (let i = 0; i < 2; i++) await ground(endpoint);
    const asked = "POST /openai/deployments/eyes/chat/completions?api-version=2024-10-21";
    expect(azure.asked).toEqual([asked, asked]);
  });

  it("such as Perplexity's, without a version, is found by its 404 and then only called there", async () => {
    const perplexity = await serving({ "/chat/completions": PLACE });
    for (let i = 0; i < 2; i++) await ground(perplexity.at);
    expect(perplexity.asked).toEqual(["POST /v1/chat/completions", "POST /chat/completions", "POST /chat/completions"]);
  });

  it("without a service at the address fails with the called address, without its query", async () => {
    const nothing = await serving({});
    const failure = await failureIn(ground(`${nothing.at}/v1?key=secret`));
    expect([nameOf(failure), failure.address]).toEqual(["UPSTREAM_ERROR", `${nothing.at}/v1/chat/completions`]);
  });

  it("of openpi behind a path has its health checked there, and at the root if it has none there", async () => {
    const openpi = upstream.wireOf("openpi-ws")!;
    const behind = await serving({ "/policies/arm/healthz": "OK" });
    await openpi.health(targetAt(`${behind.at.replace("http", "ws")}/policies/arm`), callWith());
    const root = await serving({ "/healthz": "OK" });
    await openpi.health(targetAt(`${root.at.replace("http", "ws")}/ws`), callWith());
    expect([behind.asked, root.asked]).toEqual([["GET /policies/arm/healthz"], ["GET /ws/healthz", "GET /healthz"]]);
  });
});
