/** OAuth's convention for endpoints that applications talk to (RFC 6749 section 5, RFC 7009). */
import type { Message } from "@bufbuild/protobuf";
import { factsOf, Reason, refuse } from "../../../../errors.ts";
import { restAnswer } from "../../../messages/errors.ts";
import { readBody } from "../body.ts";
import { headerOf } from "../exchange.ts";
import type { RestRoute } from "../route.ts";
import type { Dialect } from "./dialect.ts";
import { readJson } from "./native.ts";
import { originOf } from "./origin.ts";

const FORM = /^application\/x-www-form-urlencoded\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i;
/** No honest request is near this. */
const MAX_PARAMETERS = 100;

/** The reasons that are words of RFC 6749 themselves. */
const WORDS: ReadonlySet<Reason> = new Set([
  Reason.INVALID_CLIENT,
  Reason.INVALID_GRANT,
  Reason.INVALID_SCOPE,
  Reason.UNSUPPORTED_GRANT_TYPE,
  // Of RFC 7591 and RFC 8707.
  Reason.INVALID_REDIRECT_URI,
  Reason.INVALID_CLIENT_METADATA,
  Reason.INVALID_TARGET,
]);

/** Forms or JSON in, JSON out; refusals are `{error, error_description}`. */
export const oauth: Dialect = {
  trailingSlash: true,
  contentType: "application/json",
  async readBody(route, request, limits) {
    if (route.verb === "GET") return {};
    const isForm = FORM.test(request.headers["content-type"] ?? "");
    const given = isForm
      ? formOf(await readBody(request, FORM, "a form", limits))
      : await readJson(request, { bounds: route.bounds }, limits);
    return knownOf(route, given);
  },
  ignoresUnknown: true,
  readHead(message, request) {
    // The two fields that requests of this convention may carry in their head.
    const fields = message as Message & { clientId?: string; clientSecret?: string; issuer?: string };
    if (message.$typeName.endsWith("MetadataRequest")) fields.issuer = originOf(request);
    const basic = basicOf(headerOf(request, "authorization"));
    if (!basic) return;
    if (fields.clientSecret !== undefined || (fields.clientId !== undefined && fields.clientId !== basic.id))
      throw refuse(Reason.MALFORMED_BODY, "the client must prove itself in one way only");
    fields.clientId = basic.id;
    // A client without a secret may send an empty one (RFC 6749 section 2.3.1).
    if (basic.secret !== "") fields.clientSecret = basic.secret;
  },
  write: (_desc, value) => JSON.stringify(value),
  head: () => ({ headers: ["pragma", "no-cache"] }),
  refuse(refusal, requestId, given) {
    const { status, headers } = restAnswer(refusal, requestId, given);
    const { code } = factsOf(refusal.reason);
    const error = WORDS.has(refusal.reason)
      ? code
      : status === 503 || status === 429 // it has no word of its own for too many
        ? "temporarily_unavailable"
        : status >= 500
          ? "server_error"
          : "invalid_request";
    const violations = refusal.details.violations ?? [];
    const about = violations.map(({ path, message }) => `${path} ${message}`).join("; ") || refusal.message;
    return {
      // A wrong parameter is 400 here, whatever the gateway says elsewhere.
      status: status === 422 ? 400 : status,
      headers: headers.map((each) => (each === "Bearer" ? 'Basic realm="oauth"' : each)),
      body: JSON.stringify({ error, error_description: printable(about) }),
    };
  },
};

/** The letters that RFC 6749 section 5.2 allows in a description. */
const printable = (text: string): string => text.replaceAll(/[^\x20\x21\x23-\x5b\x5d-\x7e]/g, "?").slice(0, 500);

function formOf(bytes: Buffer): Record<string, string> {
  const parameters = [...new URLSearchParams(bytes.toString("utf8"))];
  if (parameters.length > MAX_PARAMETERS) throw refuse(Reason.MALFORMED_BODY, "there are too many parameters");
  const names = new Set(parameters.map(([name]) => name));
  if (names.size < parameters.length) throw refuse(Reason.MALFORMED_BODY, "a parameter is given twice");
  // A parameter without a value is one that was left out (RFC 6749 section 3.2).
  return Object.fromEntries(parameters.filter(([, value]) => value !== ""));
}

function knownOf(route: RestRoute, given: unknown): unknown {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return given;
  const known = new Set(route.method.input.fields.map(({ name }) => name));
  return Object.fromEntries(Object.entries(given).filter(([name]) => known.has(name)));
}

/** Name and secret of HTTP Basic, each percent-decoded (RFC 6749 section 2.3.1). */
function basicOf(authorization: string | undefined): { id: string; secret: string } | undefined {
  const given = /^basic +([A-Za-z0-9+/]+=*) *$/i.exec(authorization ?? "")?.[1];
  if (given === undefined) return undefined;
  const [, id, secret] = /^([^:]*):(.*)$/s.exec(Buffer.from(given, "base64").toString("utf8")) ?? [];
  const decoded = [id, secret].map((part) => part !== undefined && unescaped(part));
  if (!decoded[0] || decoded[1] === undefined || decoded[1] === false)
    throw refuse(Reason.INVALID_CLIENT, "the client's name and secret cannot be read");
  return { id: decoded[0], secret: decoded[1] };
}

function unescaped(text: string): string | false {
  try {
    const plain = decodeURIComponent(text.replaceAll("+", " "));
    return !plain.includes("\0") && plain;
  } catch {
    return false;
  }
}
