/**
 * Guards user-supplied addresses: frames, model servers, webhooks, evaluated policies. A name is checked by the addresses that it resolves to at
 * connection time, and the connection uses exactly those. Neither an odd spelling nor a name with changing addresses therefore reaches a private
 * address.
 */
import { Resolver } from "node:dns";
import { lookup } from "node:dns/promises";
import { isIP, type LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";
import { Agent, buildConnector, type Dispatcher, fetch } from "undici";
import { BRAND } from "../../brand.ts";
import type { Signal } from "../../cancellation.ts";
import { after, inTime } from "../../clock.ts";
import { Gatherer } from "../../codecs/gatherer.ts";

/** Why an address was refused: a short, stable code without the address. */
type AddressReason =
  | "too_long"
  | "bad_character"
  | "malformed"
  | "scheme_not_allowed"
  | "credentials_in_url"
  | "port_not_allowed"
  | "private_address";

/** The address is forbidden. Nothing was sent to it. */
export class AddressRefused extends Error {
  override readonly name = "AddressRefused";
  readonly reason: AddressReason;

  constructor(reason: AddressReason) {
    super(reason);
    this.reason = reason;
  }
}

/** Describes what is wrong with an address, as a continuation of its name; `schemes` in the form of URL.protocol. */
export function wordsOfRefusal({ reason }: AddressRefused, { schemes, allowPrivate }: UrlPolicy): string {
  const begins = schemes.map((scheme) => `${scheme}//`).join(" or ");
  const whole = `must be ${allowPrivate ? "an" : "a public"} address that begins with ${begins}`;
  switch (reason) {
    case "port_not_allowed":
      return "must name the port 80, 443 or one above 1023 that no other protocol is known by";
    case "credentials_in_url":
      return "must not hold a user name or a password";
    case "too_long":
      return `must have no more than ${MAX_URL_LENGTH} characters`;
    case "private_address":
      return allowPrivate ? "must not be a link-local, multicast or metadata address" : whole;
    default:
      return whole;
  }
}

/** Which addresses the operator allows. */
interface AddressPolicy {
  /**
   * False: public unicast addresses only. True: also loopback, private networks, unique local and shared (100.64/10) addresses. Link-local,
   * multicast, reserved and cloud metadata addresses are refused either way.
   */
  readonly allowPrivate: boolean;
}

/** The requirements of an accepted URL. Schemes are in the form of URL.protocol: `https:`. */
interface UrlPolicy extends AddressPolicy {
  readonly schemes: readonly string[];
}

const MAX_URL_LENGTH = 4096;
/** Control, invisible and private-use characters, unpaired surrogates, any white space; and the backslash, which parsers treat differently. */
const BAD_CHARACTER = /[\p{C}\p{Z}\\]/u;
const AUTHORITY = /^[^:/?#]+:\/\/([^/?#]+)/;

/**
 * Returns the parsed URL if nothing in its text is forbidden; otherwise throws AddressRefused. Literal addresses are checked here, in every
 * spelling; names are checked on connection, which requires guardedAgent or guardedLookup.
 */
export function checkUrl(text: string, { schemes, allowPrivate }: UrlPolicy): URL {
  if (text.length > MAX_URL_LENGTH) throw new AddressRefused("too_long");
  if (BAD_CHARACTER.test(text)) throw new AddressRefused("bad_character");
  const url = URL.parse(text);
  if (url === null) throw new AddressRefused("malformed");
  if (!schemes.includes(url.protocol)) throw new AddressRefused("scheme_not_allowed");
  // `https:host` and `https:///host` are hosts to a browser and paths to other parsers.
  const authority = AUTHORITY.exec(text)?.[1];
  if (authority === undefined) throw new AddressRefused("malformed");
  if (authority.includes("@")) throw new AddressRefused("credentials_in_url");
  if (!isAllowedPort(url.port)) throw new AddressRefused("port_not_allowed");
  const host = hostOf(url);
  if (isIP(host) !== 0 && !isAllowedAddress(host, { allowPrivate })) throw new AddressRefused("private_address");
  return url;
}

/** Returns the host as a resolver expects it, without brackets. Schemes unknown to WHATWG keep odd spellings of addresses, which are refused. */
function hostOf(url: URL): string {
  const hostname = URL.parse(`http://${url.host}`)?.hostname;
  if (hostname === undefined || hostname !== url.hostname.toLowerCase()) throw new AddressRefused("malformed");
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}

/** Ports above 1023 of other known protocols, from "bad port" in the WHATWG fetch standard. */
const OTHER_PROTOCOLS = new Set([
  1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
]);

/** URL.port: empty for the scheme's default. */
function isAllowedPort(port: string): boolean {
  const number = Number(port);
  return port === "" || number === 80 || number === 443 || (number > 1023 && !OTHER_PROTOCOLS.has(number));
}

/** Range names are those of ipaddr.js. */
const PUBLIC_RANGES: ReadonlySet<string> = new Set(["unicast"]);
const PRIVATE_RANGES: ReadonlySet<string> = new Set([
  ...PUBLIC_RANGES,
  "loopback",
  "private",
  "uniqueLocal",
  "carrierGradeNat",
]);

/** Addresses of cloud credentials outside the link-local range: Azure, Alibaba, AWS, Google. */
const METADATA: ReadonlySet<string> = new Set(["168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"]);

/** Whether this literal address is permitted; an IPv4 address inside an IPv6 one counts as itself. */
export function isAllowedAddress(address: string, { allowPrivate }: AddressPolicy): boolean {
  if (isIP(address) === 0) return false;
  const ip = ipaddr.process(address);
  const range = ip.range();
  // An unassigned address is not public; of IPv6 only 2000::/3 is assigned.
  if (ip instanceof ipaddr.IPv6 && range === "unicast" && ip.parts[0]! >> 13 !== 1) return false;
  return (allowPrivate ? PRIVATE_RANGES : PUBLIC_RANGES).has(range) && !METADATA.has(ip.toString());
}

/** One address of a name. */
export interface LookupAnswer {
  readonly address: string;
  readonly family: number;
}

/** Resolves a name to its addresses, or rejects. */
type Resolve = (hostname: string) => Promise<readonly LookupAnswer[]>;

/** A policy, and the name resolver: by default the system's if private addresses are allowed, otherwise only DNS. */
export interface GuardOptions extends AddressPolicy {
  readonly resolve?: Resolve;
  /** Name servers to use instead of the system's, as `address` or `address:port`. */
  readonly dnsServers?: readonly string[] | undefined;
}

/**
 * Returns a `lookup` for sockets: it resolves once, fails with AddressRefused if any address is forbidden, and passes exactly those addresses to
 * the socket. Sockets do not look up literal addresses: check those by checkUrl first.
 */
export function guardedLookup(options: GuardOptions): LookupFunction {
  const asksDns = !options.allowPrivate || options.dnsServers !== undefined;
  const resolve = options.resolve ?? (asksDns ? resolvePublicly(options.dnsServers) : resolveLocally);
  const judged = async (hostname: string, family: number): Promise<readonly LookupAnswer[]> => {
    const answers = await resolve(hostname);
    if (!answers.every(({ address }) => isAllowedAddress(address, options)))
      throw new AddressRefused("private_address");
    const wanted = answers.filter((answer) => family === 0 || answer.family === family);
    if (wanted.length === 0) throw lookupFailed("the host name has no address");
    return wanted;
  };
  return (hostname, { all, family }, callback) => {
    judged(hostname, FAMILIES[family ?? 0] ?? 0).then(
      (answers) => {
        if (all) callback(null, [...answers]);
        else callback(null, answers[0]!.address, answers[0]!.family);
      },
      (error: Error) => callback(error, []),
    );
  };
}

/** A failed lookup, by the system call that Node names in its own. */
const lookupFailed = (message: string): Error => Object.assign(new Error(message), { syscall: "getaddrinfo" });

/** Node accepts both spellings. */
const FAMILIES: Readonly<Record<string, number>> = { 4: 4, 6: 6, IPv4: 4, IPv6: 6 };

/** Milliseconds. A name that takes longer is slow until a faster answer. */
const SLOW_NAME_MS = 1_000;
/** The maximum number of concurrent lookups besides one slow name: three of Node's four threads. */
const LOOKUPS = 2;
const MOST_SLOW_NAMES = 1_000;
/** Milliseconds that a call waits for a name, as long as for a connection. */
const LOOKUP_MS = 5_000;

/**
 * The system resolver occupies one of the process's few threads as long as a name server is silent, and images are decoded on the same
 * threads. Therefore a name is looked up once for all callers, few names at a time, and names that were slow before are queued: together
 * they occupy one thread.
 */
export function oneAtATime(resolve: Resolve): Resolve {
  const asked = new Map<string, Promise<readonly LookupAnswer[]>>();
  const slow = new Set<string>();
  const lines = { quick: new AddressPlaces(LOOKUPS), slow: new AddressPlaces(1) };

  const ask = async (hostname: string): Promise<readonly LookupAnswer[]> => {
    let line = slow.has(hostname) ? lines.slow : lines.quick;
    await line.enter();
    let isSlow = false;
    const forget = after(SLOW_NAME_MS, () => {
      isSlow = true;
      if (slow.size >= MOST_SLOW_NAMES) slow.clear();
      slow.add(hostname);
      // If no other name is slow, names that do resolve need not wait for this one.
      if (line === lines.slow || !lines.slow.take()) return;
      line.leave();
      line = lines.slow;
    });
    try {
      return await resolve(hostname);
    } finally {
      forget();
      if (!isSlow) slow.delete(hostname);
      line.leave();
      asked.delete(hostname);
    }
  };

  return (hostname) => {
    let answer = asked.get(hostname);
    if (answer === undefined) {
      if (asked.size >= MOST_SLOW_NAMES) return Promise.reject(lookupFailed("too many concurrent DNS lookups"));
      answer = ask(hostname);
      asked.set(hostname, answer);
    }
    return inTime(answer, { ms: LOOKUP_MS, late: () => lookupFailed("the DNS lookup timed out") });
  };
}

/** A limited number of concurrent lookups; the others wait in order. */
class AddressPlaces {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(places: number) {
    this.#free = places;
  }

  /** Takes a slot if one is free. */
  take(): boolean {
    if (this.#free === 0) return false;
    this.#free--;
    return true;
  }

  /** Waits for a slot. */
  async enter(): Promise<void> {
    if (!this.take()) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free++;
    else next();
  }
}

/** Uses the hosts file and search domains, by which an operator's own machines may be named. */
const resolveLocally: Resolve = oneAtATime((hostname) => lookup(hostname, { all: true, order: "verbatim" }));

/** Queries DNS without a pool thread, so that a user's slow name server cannot delay image decoding. */
function resolvePublicly(servers: readonly string[] | undefined): Resolve {
  const resolver = new Resolver({ timeout: 2_000, tries: 2 });
  if (servers !== undefined) resolver.setServers(servers);
  const ask = (hostname: string, family: 4 | 6): Promise<readonly LookupAnswer[]> =>
    new Promise((resolve, reject) => {
      const record = family === 4 ? "A" : "AAAA";
      resolver.resolve(hostname, record, (error, addresses) => {
        if (error !== null) reject(error);
        else resolve(addresses.map((address) => ({ address, family })));
      });
    });
  return async (hostname) => {
    const [four, six] = await Promise.allSettled([ask(hostname, 4), ask(hostname, 6)]);
    if (four.status === "rejected" && six.status === "rejected") throw four.reason;
    return [four, six].flatMap((result) => (result.status === "fulfilled" ? result.value : []));
  };
}

/** The layer in which a connection failed. */
export type FailedLayer = "address" | "dns" | "tls" | "connection";

/** Returns the layer in which a connection through the guard failed; undefined if none did. Follows the causes of an error. */
export function failedLayer(thrown: unknown): FailedLayer | undefined {
  for (let each = thrown, i = 0; each instanceof Error && i < MOST_CAUSES; each = each.cause, i++) {
    if (each instanceof AddressRefused) return "address";
    const { code = "", syscall = "" } = each as NodeJS.ErrnoException;
    if (syscall === "getaddrinfo" || /^query/.test(syscall)) return "dns";
    if (TLS_CODE.test(String(code))) return "tls";
    if (CONNECTION_CODE.test(String(code)) || each.name === "TimeoutError") return "connection";
  }
  return undefined;
}

const MOST_CAUSES = 6;
/** Codes of OpenSSL's certificate checks and of Node's TLS. */
const TLS_CODE =
  /^(?:ERR_TLS_|ERR_SSL_|EPROTO$|CERT_|CRL_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|HOSTNAME_MISMATCH$|INVALID_(?:CA|PURPOSE)$|PATH_LENGTH_EXCEEDED$)/;
const CONNECTION_CODE = /^(?:ECONN|EHOST|ENET|ETIMEDOUT$|EPIPE$|EADDR|UND_ERR_|HPE_)/;

const CONNECT_TIMEOUT_MS = 5_000;

/**
 * Returns an undici connector: literal addresses are checked, names go through guardedLookup, and the socket's final address is checked again
 * before a request is sent. `dial` opens the socket; undici's own by default.
 */
export function guardedConnector(
  options: GuardOptions,
  dial: buildConnector.connector = buildConnector({
    lookup: guardedLookup(options),
    timeout: CONNECT_TIMEOUT_MS,
    allowH2: false,
  }),
): buildConnector.connector {
  return (target, callback) => {
    if (isIP(target.hostname) !== 0 && !isAllowedAddress(target.hostname, options)) {
      queueMicrotask(() => callback(new AddressRefused("private_address"), null));
      return;
    }
    dial(target, (error, socket) => {
      if (error !== null) callback(error, null);
      else if (isAllowedAddress(socket.remoteAddress ?? "", options)) callback(null, socket);
      else {
        socket.destroy();
        callback(new AddressRefused("private_address"), null);
      }
    });
  };
}

const CONNECTIONS_PER_ORIGIN = 16;
const SILENCE_MS = 10_000;
const MAX_HEADER_BYTES = 16 * 1024;

/** The limits of an agent. */
interface AgentOptions {
  /** Milliseconds without a byte of the response; 0 waits until the request is aborted. */
  readonly silenceMs?: number;
  readonly connections?: number;
}

/**
 * Returns an undici Agent that reaches only permitted addresses: HTTP/1.1, no redirects, no proxy, and an idle timeout unless `silenceMs` is 0.
 */
export const guardedAgent = (
  options: GuardOptions,
  { silenceMs = SILENCE_MS, connections = CONNECTIONS_PER_ORIGIN }: AgentOptions = {},
): Agent =>
  new Agent({
    connect: guardedConnector(options),
    connections,
    allowH2: false,
    pipelining: 1,
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: silenceMs,
    bodyTimeout: silenceMs,
    keepAliveMaxTimeout: 60_000,
  });

/** Why nothing was fetched. */
type FetchReason = "unreachable" | "timed_out" | "bad_status" | "too_large" | "encoded";

/** The address was permitted, but gave no usable response. The cause is for the log, not for callers. */
export class FetchFailed extends Error {
  override readonly name = "FetchFailed";
  readonly reason: FetchReason;

  constructor(reason: FetchReason, cause?: unknown) {
    super(reason, { cause });
    this.reason = reason;
  }
}

/** The agent, limits and caller of a fetch. */
interface FetchOptions {
  /** From guardedAgent. */
  readonly agent: Dispatcher;
  readonly maxBytes: number;
  /** The timeout until the last byte. */
  readonly timeoutMs: number;
  /** The accepted media types. */
  readonly accept: string;
  readonly signal?: Signal | undefined;
}

/**
 * Resolves with the body of a 200 response to one GET, at most `maxBytes`. Rejects with AddressRefused, FetchFailed (any other status, so
 * redirects are not followed; a body with a content encoding, which could expand beyond the limit) or the signal's reason.
 */
export const fetchBytes = (url: URL, options: FetchOptions): Promise<Buffer> =>
  new Promise((resolve, reject) => {
    options.signal?.throwIfAborted();
    const headers = { accept: options.accept, "accept-encoding": "identity", "user-agent": BRAND };
    const request = { origin: url.origin, path: url.pathname + url.search, method: "GET", headers };
    options.agent.dispatch(request, new Download(options, resolve, reject));
  });

/** One exchange, settled by the first of response, failure, timer and signal. */
class Download implements Dispatcher.DispatchHandler {
  readonly #options: FetchOptions;
  readonly #resolve: (body: Buffer) => void;
  readonly #reject: (reason: unknown) => void;
  readonly #forgetTimer: () => void;
  readonly #onAbort = (): void => this.#fail(this.#options.signal?.reason);
  #controller: Dispatcher.DispatchController | undefined;
  #body: Gatherer | undefined;
  #failed = false;

  constructor(options: FetchOptions, resolve: (body: Buffer) => void, reject: (reason: unknown) => void) {
    this.#options = options;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#forgetTimer = after(options.timeoutMs, () => this.#fail(new FetchFailed("timed_out")));
    options.signal?.addEventListener("abort", this.#onAbort, { once: true });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // It may have been aborted while it waited for its connection.
    if (this.#failed) this.#hangUp();
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: Headers): void {
    if (status < 200) return;
    const encoding = headers["content-encoding"] ?? "identity";
    const announced = Number(headers["content-length"] ?? 0);
    if (status !== 200) this.#fail(new FetchFailed("bad_status"));
    else if (encoding !== "identity") this.#fail(new FetchFailed("encoded"));
    else if (announced > this.#options.maxBytes) this.#fail(new FetchFailed("too_large"));
    else this.#body = new Gatherer(announced || this.#options.maxBytes);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#failed || this.#body === undefined) return;
    if (this.#body.length + chunk.length > this.#options.maxBytes) this.#fail(new FetchFailed("too_large"));
    else this.#body.add(chunk);
  }

  onResponseEnd(): void {
    this.#leave();
    this.#resolve(this.#body?.bytes() ?? Buffer.alloc(0));
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#fail(error instanceof AddressRefused ? error : new FetchFailed("unreachable", error));
  }

  #fail(reason: unknown): void {
    if (this.#failed) return;
    this.#failed = true;
    this.#leave();
    this.#reject(reason);
    this.#hangUp();
  }

  #hangUp(): void {
    this.#controller?.abort(new FetchFailed("unreachable"));
  }

  #leave(): void {
    this.#forgetTimer();
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
  }
}

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** A request in the form of libraries. */
interface GuardedRequest {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | URLSearchParams | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Resolves with the complete response. `agent` is from `guardedAgent`; check the address's text by `checkUrl` before. Rejects with `FetchFailed`
 * if the decompressed body exceeds `maxBytes`, or as `fetch` does.
 */
export async function guardedFetch(
  address: string,
  { method, headers, body, signal }: GuardedRequest,
  { agent, maxBytes }: { agent: Dispatcher; maxBytes: number },
): Promise<Response> {
  const answer = await fetch(address, {
    method,
    headers,
    redirect: "manual",
    dispatcher: agent,
    ...(body !== undefined && { body }),
    ...(signal && { signal }),
  });
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of answer.body ?? []) {
    size += chunk.length;
    if (size > maxBytes) throw new FetchFailed("too_large");
    chunks.push(chunk);
  }
  const { status } = answer;
  return new Response(WITHOUT_BODY.has(status) ? null : Buffer.concat(chunks), {
    status,
    headers: [...answer.headers],
  });
}

const WITHOUT_BODY = new Set([101, 204, 205, 304]);
