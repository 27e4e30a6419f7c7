/** The model servers of a wire: one entry for each address and credential. */
import type { LookupFunction } from "node:net";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import type { UpstreamTarget } from "../wire.ts";
import { failureOf } from "./failures.ts";
import { checkUrl, type GuardOptions } from "./guard.ts";

/** Where the wires can connect, and how they resolve names. */
export interface ServerReach extends GuardOptions {
  /**
   * Model servers that this process runs itself, by scheme, host and port, such as `grpc://127.0.0.1:50051`. The wires reach them at any path,
   * regardless of the policy. They cannot be declared as supply if private addresses are forbidden.
   */
  readonly own?: ReadonlySet<string> | undefined;
  /** From guardedLookup, with the same options. */
  readonly lookup: LookupFunction;
  /** The addresses of each endpoint's calls, as HTTP servers accepted them; shared by the wires of one gateway. */
  readonly found?: FoundAddresses;
}

/** The address of each endpoint's last call, if it differs from the endpoint. */
export class FoundAddresses {
  readonly #byEndpoint = new Map<string, string>();

  /** Stores an address without its query. */
  note(endpoint: string, address: string): void {
    if (this.#byEndpoint.size >= MAX_SERVERS) this.#byEndpoint.clear();
    this.#byEndpoint.set(endpoint, address);
  }

  /** The address of an endpoint's calls; undefined before the first answer. */
  of(endpoint: string): string | undefined {
    return this.#byEndpoint.get(endpoint);
  }
}

/** Maximum size of any wire's message, to or from a server. */
export const MAX_MESSAGE_BYTES = 64 * 2 ** 20;

/** How to reach one server, after its address was allowed. */
export interface Address {
  /** Its scheme is that of the underlying protocol, such as `http:` for `grpc:`. */
  readonly url: URL;
  /** Resolves the host; refuses addresses that are not allowed. */
  readonly lookup: LookupFunction;
  /** The value of the `authorization` header; undefined without credentials. */
  readonly authorization: string | undefined;
  /** Other headers of every call, in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** A wire's state for one server. */
export interface UpstreamServer {
  /** Whether nothing is open and no state would be lost. */
  readonly idle: boolean;
  /** Closes every connection at once; running calls fail. */
  close(): void;
}

/** Maximum number of servers and credentials with connections on one replica. */
const MAX_SERVERS = 1_024;

const AUTH_SCHEMES = { bearer: "Bearer", api_key: "Api-Key" } as const;

/**
 * Returns how to reach a target; `schemes` as in `Servers`. Throws an UpstreamFailure: `UNREACHABLE` for an address that is not allowed.
 */
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

/** Scheme, host and port of an address; empty if it is invalid. */
function placeOf(endpoint: string): string {
  const url = URL.parse(endpoint);
  return url === null ? "" : `${url.protocol}//${url.host}`;
}

/** The schemes of a wire's addresses, each with that of the underlying protocol, in the form of URL.protocol. */
export type Schemes = Readonly<Record<string, string>>;

/** The servers of one wire. Idle ones are dropped if there are too many. */
export class Servers<S extends UpstreamServer> {
  readonly #reach: ServerReach;
  readonly #schemes: Schemes;
  readonly #open: (address: Address) => S;
  readonly #servers = new Map<string, S>();
  /** The same by target object, because loops use one target thousands of times. */
  #known = new WeakMap<UpstreamTarget, S>();

  constructor(reach: ServerReach, schemes: Schemes, open: (address: Address) => S) {
    this.#reach = reach;
    this.#schemes = schemes;
    this.#open = open;
  }

  /** The server of a target, created on first use. Throws an UpstreamFailure: `UNREACHABLE` for an address that is not allowed. */
  of(target: UpstreamTarget): S {
    const known = this.#known.get(target);
    if (known !== undefined) return known;
    const server = this.#find(target);
    this.#known.set(target, server);
    return server;
  }

  /** Returns how to reach a target. Throws as `of` does. */
  addressOf(target: UpstreamTarget): Address {
    return addressOf(target, this.#schemes, this.#reach);
  }

  /** Closes and drops all of them. */
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
