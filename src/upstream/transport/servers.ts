/** The model servers of a wire: one entry for each address and credential. */
import type { LookupFunction } from "node:net";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import type { UpstreamTarget } from "../wire.ts";
import { failureOf } from "./failures.ts";
import { checkUrl, type GuardOptions } from "./guard.ts";

/** Where the wires may go, and how they find it. */
export interface ServerReach extends GuardOptions {
  /**
   * Model servers that this process runs itself, by scheme, host and port, such as `grpc://127.0.0.1:50051`: the wires reach them at any
   * path, whatever else is allowed. They cannot be declared as supply where private addresses are not allowed.
   */
  readonly own?: ReadonlySet<string> | undefined;
  /** From guardedLookup, with the same options. */
  readonly lookup: LookupFunction;
  /** Where calls of each endpoint go, as HTTP servers answered; shared by the wires of one gateway. */
  readonly found?: FoundAddresses;
}

/** The address that took the last call of each endpoint, where it isn't the endpoint itself. */
export class FoundAddresses {
  readonly #byEndpoint = new Map<string, string>();

  /** Notes an address, without its query. */
  note(endpoint: string, address: string): void {
    if (this.#byEndpoint.size >= MAX_SERVERS) this.#byEndpoint.clear();
    this.#byEndpoint.set(endpoint, address);
  }

  /** The address of an endpoint's calls; undefined before the first answer. */
  of(endpoint: string): string | undefined {
    return this.#byEndpoint.get(endpoint);
  }
}

/** No valid message of any wire is larger, to a server or from one. */
export const MAX_MESSAGE_BYTES = 64 * 2 ** 20;

/** How one server is reached, after its address was found to be allowed. */
export interface Address {
  /** Its scheme is the one of the protocol beneath, such as `http:` for `grpc:`. */
  readonly url: URL;
  /** Finds the host; refuses addresses that aren't allowed. */
  readonly lookup: LookupFunction;
  /** The value of the `authorization` header, or undefined where no credentials are due. */
  readonly authorization: string | undefined;
  /** Further headers of every call, in small letters. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** What a wire keeps for one server. */
export interface UpstreamServer {
  /** Nothing is open, and nothing is remembered that a new one wouldn't know. */
  readonly idle: boolean;
  /** Ends every connection at once; calls under way fail. */
  close(): void;
}

/** More servers and credentials at one time are more than one replica should hold connections for. */
const MAX_SERVERS = 1_024;

const AUTH_SCHEMES = { bearer: "Bearer", api_key: "Api-Key" } as const;

/** How a target is reached; `schemes` as Servers takes them. Throws an UpstreamFailure: `UNREACHABLE` for an address that isn't allowed. */
export function addressOf(
  { endpoint, auth }: UpstreamTarget,
  schemes: Schemes,
  { lookup, own, allowPrivate: isOpen }: ServerReach,
): Address {
  try {
    const allowPrivate = isOpen || own?.has(placeOf(endpoint)) === true;
    const { protocol, host, pathname, search } = checkUrl(endpoint, { schemes: Object.keys(schemes), allowPrivate });
    const url = new URL(`${schemes[protocol]}//${host}${pathname}${search}`);
    const authorization = auth.type === "none" ? undefined : `${AUTH_SCHEMES[auth.type]} ${auth.secret}`;
    return { url, lookup, authorization };
  } catch (error) {
    throw failureOf(error);
  }
}

/** Scheme, host and port of an address; empty for what is none. */
function placeOf(endpoint: string): string {
  const url = URL.parse(endpoint);
  return url === null ? "" : `${url.protocol}//${url.host}`;
}

/** The schemes of a wire's addresses, each with that of the protocol beneath, as URL.protocol writes them. */
export type Schemes = Readonly<Record<string, string>>;

/** The servers of one wire. Idle ones are forgotten when there are too many. */
export class Servers<S extends UpstreamServer> {
  readonly #reach: ServerReach;
  readonly #schemes: Schemes;
  readonly #open: (address: Address) => S;
  readonly #servers = new Map<string, S>();
  /** The same by the target that asked, as loops ask with one target thousands of times. */
  #known = new WeakMap<UpstreamTarget, S>();

  constructor(reach: ServerReach, schemes: Schemes, open: (address: Address) => S) {
    this.#reach = reach;
    this.#schemes = schemes;
    this.#open = open;
  }

  /** The server of a target, made on first use. Throws an UpstreamFailure: `UNREACHABLE` for an address that isn't allowed. */
  of(target: UpstreamTarget): S {
    const known = this.#known.get(target);
    if (known !== undefined) return known;
    const server = this.#find(target);
    this.#known.set(target, server);
    return server;
  }

  /** How a target is reached. Throws as `of` does. */
  addressOf(target: UpstreamTarget): Address {
    return addressOf(target, this.#schemes, this.#reach);
  }

  /** Closes and forgets all of them. */
  close(): void {
    for (const server of this.#servers.values()) server.close();
    this.#servers.clear();
    this.#known = new WeakMap();
  }

  #find(target: UpstreamTarget): S {
    const { endpoint, auth } = target;
    const key = `${auth.type} ${auth.secret} ${endpoint}`;
    const known = this.#servers.get(key);
    if (known !== undefined) return known;
    this.#makeRoom();
    const server = this.#open(this.addressOf(target));
    this.#servers.set(key, server);
    return server;
  }

  #makeRoom(): void {
    if (this.#servers.size < MAX_SERVERS) return;
    this.#known = new WeakMap();
    for (const [key, server] of this.#servers) if (server.idle) this.#servers.delete(key);
    if (this.#servers.size < MAX_SERVERS) return;
    throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "too many concurrent servers");
  }
}
