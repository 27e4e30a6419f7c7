/**
 * What a request tells of the browser that sent it: the session's cookie, and whether a page of the gateway's own sent it. A cookie goes with
 * every request to the gateway, of any site's page, so that it counts only where that is known (RFC 6265bis, Fetch Metadata).
 */
import { SESSION_COOKIE } from "../../brand.ts";
import type { BrowserHead } from "../../call.ts";

/** By which address browsers know the gateway. */
export interface OwnAddress {
  /** What the operator says; absent: each request's own. */
  readonly publicUrl?: string | undefined;
  /** Connections to the port are encrypted. */
  readonly isTls: boolean;
}

type HeadersOfRequest = Readonly<Record<string, string | string[] | undefined>>;

/** What other sites' pages can't send without asking first. */
const OWN_TYPE = /^application\/(json|(connect\+)?(json|proto))\s*(;|$)/i;
const WITHOUT_BODY = new Set(["GET", "HEAD", "DELETE"]);

/** What the head of a request by `verb` tells of its browser. */
export function browserOf(headers: HeadersOfRequest, verb: string, address: OwnAddress): BrowserHead {
  const own = originOf(headers, address);
  return new Browser(own, isOwn(headers, verb, own), textOf(headers.cookie));
}

/** The gateway's origin, as browsers write it; undefined where the request names no host. */
function originOf(headers: HeadersOfRequest, { publicUrl, isTls }: OwnAddress): URL | undefined {
  const host = textOf(headers[":authority"]) ?? textOf(headers.host);
  const text = publicUrl ?? `${isTls ? "https" : "http"}://${host}`;
  return (publicUrl === undefined && host === undefined) || !URL.canParse(text) ? undefined : new URL(text);
}

/** Whether a page of the gateway's own sent it; undefined where nothing tells, as with callers that are no browsers. */
function isOwn(headers: HeadersOfRequest, verb: string, own: URL | undefined): boolean | undefined {
  const { origin, "sec-fetch-site": site, "content-type": type } = headers;
  if (origin === undefined && site === undefined) return undefined;
  if (own === undefined || (site !== undefined && site !== "same-origin")) return false;
  if (origin !== undefined && origin !== own.origin) return false;
  return type === undefined ? WITHOUT_BODY.has(verb) : OWN_TYPE.test(textOf(type) ?? "");
}

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

class Browser implements BrowserHead {
  readonly origin: string | undefined;
  readonly isOwn: boolean | undefined;
  readonly canKeep: boolean;
  readonly cookies: string[] = [];
  readonly #isSecure: boolean;
  readonly #sent: string | undefined;

  constructor(own: URL | undefined, isOwn: boolean | undefined, sent: string | undefined) {
    this.origin = own?.origin;
    this.isOwn = isOwn;
    this.#isSecure = own?.protocol === "https:";
    this.canKeep = this.#isSecure || LOOPBACK.test(own?.hostname ?? "");
    this.#sent = sent;
  }

  get session(): string | undefined {
    return this.kept(SESSION_COOKIE);
  }

  kept(name: string): string | undefined {
    if (this.#sent === undefined || !this.canKeep) return undefined;
    const begins = `${this.#nameOf(name)}=`;
    const found = this.#sent.split(";").find((pair) => pair.trimStart().startsWith(begins));
    return found?.trim().slice(begins.length);
  }

  keep(name: string, value: string, forS: number): void {
    // Browsers take the prefix for an encrypted connection alone: it keeps other hosts of the domain from setting the cookie.
    const attributes = `Path=/; Max-Age=${forS}; HttpOnly; SameSite=Lax${this.#isSecure ? "; Secure" : ""}`;
    this.cookies.push(`${this.#nameOf(name)}=${value}; ${attributes}`);
  }

  #nameOf(name: string): string {
    return this.#isSecure ? `__Host-${name}` : name;
  }
}

const textOf = (value: string | string[] | undefined): string | undefined =>
  typeof value === "string" ? value : undefined;
