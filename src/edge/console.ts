/**
 * The web console: the build of `console/`, served from memory. Without a build, the gateway serves only its API.
 */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/** The path of the build, both from the source file and from the compiled one. */
const DIST = fileURLToPath(new URL("../../console/dist/", import.meta.url));

/**
 * Allows scripts, styles and calls only from this origin, and no embedding by other origins. Images can be data URLs from calls. Styles set by
 * scripts are not inline styles.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  "media-src 'self' blob:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const HEADERS = {
  "content-security-policy": POLICY,
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  // The playground uses the camera if its user allows it.
  "permissions-policy": "camera=(self), microphone=(), geolocation=()",
};

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".json": "application/json",
  ".png": "image/png",
  ".jpg": "image/jpeg",
};

/** The encodings of each file in a build, best first. */
const CODINGS = [
  ["br", ".br"],
  ["gzip", ".gz"],
] as const;

interface StaticFile {
  readonly type: string;
  readonly cache: string;
  readonly forms: Readonly<Partial<Record<"identity" | "br" | "gzip", StaticForm>>>;
}

interface StaticForm {
  readonly bytes: Buffer;
  readonly etag: string;
}

/** Names with a content hash never change; others are revalidated by ETag. */
const IMMUTABLE = "public, max-age=31536000, immutable";
const ASKED_AGAIN = "no-cache";

/**
 * Serves `/console/…` and `/oauth/authorize`, and redirects browsers from `/`. `welcome` serves `/` for all other clients. Paths are looked up
 * among the files that existed at the start, so no path can reach another file. Returns a handler that serves the page itself, for `/sign-in`;
 * undefined without a build.
 */
export function serveConsole(
  fastify: FastifyInstance,
  welcome: string,
  folder = DIST,
): ((request: FastifyRequest, reply: FastifyReply) => FastifyReply) | undefined {
  const files = filesOf(folder);
  const page = files.get("index.html");
  fastify.get("/", async (request, reply) => {
    reply.header("vary", "accept");
    if (page !== undefined && wantsPage(request)) return reply.redirect("/console", 302);
    return reply.type("application/json").send(welcome);
  });
  if (page === undefined) return undefined;
  const show = (request: FastifyRequest, reply: FastifyReply): FastifyReply => send(request, reply, page);
  fastify.get("/console", async (request, reply) => show(request, reply));
  // The consent page, at the address in the authorization server's metadata.
  fastify.get("/oauth/authorize", async (request, reply) => show(request, reply));
  fastify.get<{ Params: { "*": string } }>("/console/*", async (request, reply) => {
    const name = request.params["*"];
    const file = files.get(name);
    if (file !== undefined) return send(request, reply, file);
    // Pages of the console have client-side routes; a missing file does not.
    if (name.startsWith("assets/")) return reply.callNotFound();
    return show(request, reply);
  });
  return show;
}

/** Whether a browser requests a page to display, as opposed to an API client. */
const wantsPage = ({ headers }: FastifyRequest): boolean => /\btext\/html\b/.test(headers.accept ?? "");

function send(request: FastifyRequest, reply: FastifyReply, file: StaticFile): FastifyReply {
  const accepted = acceptedBy(request.headers["accept-encoding"]);
  const [coding] = CODINGS.find(([name]) => accepted.has(name) && file.forms[name] !== undefined) ?? ["identity"];
  const form = file.forms[coding as keyof StaticFile["forms"]] ?? file.forms.identity!;
  reply.headers({ ...HEADERS, "cache-control": file.cache, etag: form.etag, vary: "accept-encoding" });
  const known = request.headers["if-none-match"]?.split(",").map((tag) => tag.trim().replace(/^W\//, ""));
  if (known?.includes(form.etag)) return reply.code(304).send();
  if (coding !== "identity") reply.header("content-encoding", coding);
  return reply.type(file.type).send(form.bytes);
}

/** The encodings that an `accept-encoding` header allows by name; `q=0` forbids one (RFC 9110, 12.5.3). */
function acceptedBy(header: string | string[] | undefined): ReadonlySet<string> {
  const codings = String(header ?? "").split(",");
  const allowed = codings.filter((coding) => !/;\s*q=0(?:\.0*)?\s*$/i.test(coding));
  return new Set(allowed.map((coding) => (coding.split(";", 1)[0] ?? "").trim().toLowerCase()));
}

/** Every file of the build in all encodings, by path; empty without a build. */
function filesOf(folder: string): ReadonlyMap<string, StaticFile> {
  if (!existsSync(join(folder, "index.html"))) return new Map();
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => name.replaceAll(sep, "/"));
  const files = names.filter((name) => TYPES[extname(name)] !== undefined);
  return new Map(
    files.map((name) => {
      const forms: Partial<Record<"identity" | "br" | "gzip", StaticForm>> = { identity: formOf(join(folder, name)) };
      for (const [coding, extension] of CODINGS)
        if (names.includes(name + extension)) forms[coding] = formOf(join(folder, name + extension));
      const cache = name.startsWith("assets/") ? IMMUTABLE : ASKED_AGAIN;
      return [name, { type: TYPES[extname(name)]!, cache, forms }];
    }),
  );
}

function formOf(path: string): StaticForm {
  const bytes = readFileSync(path);
  return { bytes, etag: `"${createHash("sha256").update(bytes).digest("base64url").slice(0, 22)}"` };
}
