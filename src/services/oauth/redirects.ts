/** Redirect addresses of applications: which may be registered, which fits a registered one, and what is sent there (RFC 8252, RFC 9207). */

const LOOPBACK_HOSTS: ReadonlySet<string> = new Set(["127.0.0.1", "[::1]", "localhost"]);

/** Schemes that are never an application's own: they run scripts, read files, or belong to the browser, the mail program or the network. */
const FOREIGN_SCHEMES: ReadonlySet<string> = new Set(
  "javascript data vbscript file blob about view-source filesystem jar chrome resource intent urn ws wss ftp ftps sftp ssh telnet ldap smb nfs mailto tel sms ms-msdt search-ms"
    .split(" ")
    .map((scheme) => `${scheme}:`),
);

/**
 * Says why codes must not be sent to an address; undefined where they may. Allowed are https, http on loopback with any port, and an
 * application's own scheme. An address has no fragment, user or wildcard, and nothing that a parser would repair.
 */
export function redirectFault(text: string): string | undefined {
  if (!/^[\x21-\x7e]+$/.test(text) || /[\\*#<>"{}|^`]/.test(text) || !URL.canParse(text))
    return "must be an absolute address without fragment, wildcard or white space";
  const { protocol, hostname, username, password } = new URL(text);
  if (username !== "" || password !== "") return "must not name a user";
  const isWeb = protocol === "https:" || protocol === "http:";
  if (isWeb && (hostname === "" || !/^https?:\/\/[^/]/i.test(text))) return "must name a host";
  if (protocol === "http:" && !LOOPBACK_HOSTS.has(hostname))
    return "must be https; http is allowed on 127.0.0.1, [::1] and localhost only";
  return FOREIGN_SCHEMES.has(protocol) ? "must be https, http on loopback, or the application's own scheme" : undefined;
}

const LOOPBACK = /^(http:\/\/(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d*)?(?=[/?]|$)/;

/** An address whose path is empty is the same as the one with a slash (RFC 3986, 6.2.3). */
const rooted = (uri: string): string => (/^https?:\/\/[^/?]+$/.test(uri) ? `${uri}/` : uri);

/** Whether two addresses are the same to the letter. */
export const isSameRedirect = (one: string, other: string): boolean => rooted(one) === rooted(other);

/**
 * Whether an address fits one that was registered: to the letter, but for the port of a loopback address, which a program takes anew
 * whenever it listens (RFC 8252, 7.3).
 */
export function fitsRedirect(registered: string, asked: string): boolean {
  const portless = (uri: string): string => rooted(uri.replace(LOOPBACK, "$1"));
  return redirectFault(asked) === undefined && portless(registered) === portless(asked);
}

/** What a person knows an address by: its host, or the scheme of a program's own. */
export function hostOf(uri: string): string {
  const { host, protocol } = new URL(uri);
  return protocol === "https:" || protocol === "http:" ? host : protocol.slice(0, -1);
}

/** The address with a code, the caller's state and who gave the code (RFC 9207) in its query. */
export function withCode(
  uri: string,
  { code, state, iss }: { code: string; state?: string | undefined; iss?: string | undefined },
): string {
  const query = new URLSearchParams({ code, ...(state !== undefined && { state }), ...(iss !== undefined && { iss }) });
  return `${uri}${uri.includes("?") ? "&" : "?"}${query}`;
}
