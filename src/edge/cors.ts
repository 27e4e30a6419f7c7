/**
 * Calls from pages of browsers (CORS, the Fetch standard). Without an origin that is named no answer says anything of it, so that a page
 * reads no answer. Cookies are no part of it: a page shows its key itself.
 */
import type { FastifyInstance } from "fastify";

/** Headers of answers that pages may read, beside those that every page may. No cookie is sent, so that `*` stands for all. */
const EXPOSED = "*";
/** Headers of requests that pages may send: `*` stands for all but this one. */
const ACCEPTED = "authorization, *";
const METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE";
/** How long a browser remembers that it may call, in seconds. */
const REMEMBERED_S = "600";

/** Lets pages of these origins read answers, and lets their browsers ask beforehand. Does nothing for any other. */
export function serveCors(fastify: FastifyInstance, origins: ReadonlySet<string>): void {
  if (origins.size === 0) return;
  fastify.addHook("onRequest", async ({ raw: { method, headers } }, reply) => {
    const { raw } = reply;
    // What is kept of an answer to one page is none for another.
    raw.setHeader("vary", "origin");
    const { origin } = headers;
    if (origin === undefined || !origins.has(origin)) return;
    raw.setHeader("access-control-allow-origin", origin);
    raw.setHeader("access-control-expose-headers", EXPOSED);
    if (method !== "OPTIONS" || headers["access-control-request-method"] === undefined) return;
    reply.hijack();
    raw.setHeader("access-control-allow-methods", METHODS);
    raw.setHeader("access-control-allow-headers", ACCEPTED);
    raw.setHeader("access-control-max-age", REMEMBERED_S);
    raw.writeHead(204).end();
  });
}
