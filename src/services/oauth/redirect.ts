/** Addresses that codes are sent to. */

const LOOPBACK = new Set(["127.0.0.1", "[::1]", "localhost"]);
/** Never an application's own, whatever they look like. */
const NEVER = new Set(["javascript:", "data:", "vbscript:", "file:", "blob:", "about:", "ws:", "wss:", "ftp:"]);

/**
 * Whether codes may go to an address: https; http on loopback; or an application's own scheme, which has a dot in it (RFC 8252).
 * No fragment, no user, no wildcard, nothing that a parser would mend.
 */
export function isRedirectUri(text: string): boolean {
  if (!/^[\x21-\x7e]+$/.test(text) || /[\\*#<>"{}|^`]/.test(text) || !URL.canParse(text)) return false;
  const { protocol, hostname, username, password } = new URL(text);
  if (username !== "" || password !== "" || NEVER.has(protocol)) return false;
  if (protocol === "https:") return hostname !== "" && /^https:\/\/[^/]/i.test(text);
  if (protocol === "http:") return LOOPBACK.has(hostname) && /^http:\/\/[^/]/i.test(text);
  return protocol.includes(".");
}

/** The address with a code and the caller's state in its query. */
export function withCode(uri: string, code: string, state: string | undefined): string {
  const query = new URLSearchParams({ code, ...(state !== undefined && { state }) });
  return `${uri}${uri.includes("?") ? "&" : "?"}${query}`;
}
