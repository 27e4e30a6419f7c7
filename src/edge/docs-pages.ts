/** Serves the API reference: the OpenAPI document, an interactive page and a page of all error codes. */
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { FastifyInstance, FastifyReply } from "fastify";
import { RpcCodeSchema } from "../../gen/limber/edge/v1/options_pb.ts";
import { ReasonSchema } from "../../gen/limber/v1/reason_pb.ts";
import { BRAND } from "../brand.ts";
import { samplePictures } from "../codecs/pictures/samples.ts";
import { factsOf, type Reason } from "../errors.ts";

/** These pages load nothing from another origin. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const OPENAPI = new URL("../../gen/openapi.json", import.meta.url);

const ASSETS = {
  "swagger-ui.css": "text/css; charset=utf-8",
  "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
  "favicon-32x32.png": "image/png",
} as const;

const PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${BRAND}: the API</title>
<link rel="icon" type="image/png" href="/docs/favicon-32x32.png">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
`;

const START = `SwaggerUIBundle({ url: "/openapi.json", dom_id: "#api", deepLinking: true, validatorUrl: null });\n`;

/** The page of all refusals, which is the same at every gateway. */
let errors: string | undefined;

/** Serves `/openapi.json`, `/docs` and `/docs/errors`. The document names the gateway's addresses as its servers. */
export function serveDocs(fastify: FastifyInstance, addresses: ServedAddresses = {}): void {
  const openapi = servedAt(addresses, readFileSync(OPENAPI));
  errors ??= errorsPage(descriptionsOf(openapi));
  const refusals = errors;
  const page = (reply: FastifyReply, type: string, body: string | Buffer) =>
    reply
      .headers({
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
      })
      .type(type)
      .send(body);
  fastify.get("/openapi.json", (_, reply) => page(reply, "application/json", openapi));
  fastify.get("/docs", (_, reply) => page(reply, "text/html; charset=utf-8", PAGE));
  fastify.get("/docs/", (_, reply) => reply.redirect("/docs", 308));
  fastify.get("/docs/start.js", (_, reply) => page(reply, "text/javascript; charset=utf-8", START));
  fastify.get("/docs/errors", (_, reply) => page(reply, "text/html; charset=utf-8", refusals));
  for (const [path, picture] of samplePictures) fastify.get(path, (_, reply) => page(reply, "image/png", picture));
  for (const [name, type] of Object.entries(ASSETS)) {
    const file = new URL(import.meta.resolve(`swagger-ui-dist/${name}`));
    fastify.get(`/docs/${name}`, async (_, reply) => page(reply, type, await readFile(file)));
  }
}

/** The gateway's addresses: the public one, and one without a proxy timeout. */
interface ServedAddresses {
  readonly publicUrl?: string | undefined;
  readonly directUrl?: string | undefined;
}

function servedAt({ publicUrl, directUrl }: ServedAddresses, openapi: Buffer): Buffer {
  if (publicUrl === undefined && directUrl === undefined) return openapi;
  const document: object = JSON.parse(openapi.toString());
  const baseOf = (url: string): string => new URL(url).href.replace(/\/$/, "");
  const servers = [
    { url: publicUrl === undefined ? "/" : baseOf(publicUrl), description: "public" },
    ...(directUrl === undefined ? [] : [{ url: baseOf(directUrl), description: "direct, without a proxy timeout" }]),
  ];
  return Buffer.from(JSON.stringify({ ...document, servers }));
}

/** The schema's comment on each reason, by its code. */
function descriptionsOf(openapi: Buffer): Readonly<Record<string, string>> {
  const document: { components?: { schemas?: Record<string, { "x-enum-descriptions"?: Record<string, string> }> } } =
    JSON.parse(openapi.toString());
  return document.components?.schemas?.Reason?.["x-enum-descriptions"] ?? {};
}

function errorsPage(descriptions: Readonly<Record<string, string>>): string {
  const rows = ReasonSchema.values
    .filter(({ number }) => number !== 0)
    .map(({ number }) => {
      const { code, status, rpcCode, retryable } = factsOf(number as Reason);
      const rpc = RpcCodeSchema.value[rpcCode]?.name.slice("RPC_CODE_".length) ?? "";
      const retry = retryable ? " · retryable" : "";
      return `<section id="${code}"><h2><a href="#${code}">${code}</a></h2><p><b>${status}</b> · ${rpc}${retry}</p><p>${escaped(descriptions[code] ?? "")}</p></section>`;
    });
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${BRAND}: error codes</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}h2{font:600 1.1rem ui-monospace,monospace}a{color:inherit}section:target{background:#ffd}</style>
</head>
<body>
<h1>Error codes</h1>
<p>Every error has one of these codes in <code>error.code</code>, and over gRPC as the reason of its <code>ErrorInfo</code>.</p>
${rows.join("\n")}
</body>
</html>
`;
}

const escaped = (text: string): string =>
  text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replace(/`([^`]*)`/g, "<code>$1</code>");
