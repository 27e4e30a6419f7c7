/** The way out: guarded connections to what users name, the wires of model servers, and servers that connect to other replicas. */
import { MOST_AT_ONE_HOOK } from "../store/events/webhooks.ts";
import { releaseServer, takeServer } from "../store/replicas/server-leases.ts";
import { ReplicaRelay } from "../supply/replica-relay.ts";
import { createUpstream, type Upstream } from "../upstream/index.ts";
import { guardedAgent } from "../upstream/transport/guard.ts";
import type { AppContext } from "./context.ts";
import type { Storage } from "./storage.ts";

/** How long the receiver of an event has, in milliseconds. */
export const HOOK_MS = 10_000;

/** The way out, opened. */
export interface OpenedUpstream {
  readonly upstream: Upstream;
  /** Fetches what callers and providers name by URL. */
  readonly agent: ReturnType<typeof guardedAgent>;
  /** Posts events and spans to receivers. */
  readonly hookAgent: ReturnType<typeof guardedAgent>;
  /** Servers that connected to other replicas. */
  readonly relay: ReplicaRelay;
  readonly allowPrivate: boolean;
  /** Addresses of the reference provider, which the guard lets pass. */
  readonly own: Set<string>;
}

/** Opens the way out. */
export function openUpstream(
  { config, log, replica, closers, member }: AppContext,
  { sql, notifications, replicaLine }: Storage,
): OpenedUpstream {
  const { allowPrivateAddresses: allowPrivate, dnsServers } = config;
  const guard = { allowPrivate, dnsServers };
  const agent = guardedAgent(guard);
  closers.add(() => agent.destroy());
  const hookAgent = guardedAgent(guard, { silenceMs: HOOK_MS, connections: MOST_AT_ONE_HOOK });
  closers.add(() => hookAgent.destroy());
  const own = new Set<string>(member?.own);
  const upstream = createUpstream(
    { ...guard, own },
    {
      take: (server, session, runMs) => takeServer(sql, { server, session, runMs, taker: replica }),
      release: (server, released) => releaseServer(sql, { server, ...released }),
    },
  );
  closers.add(() => upstream.close());
  const { hub } = upstream;
  const relay = new ReplicaRelay({ sql, notifications, hub, replica, replicaLine, warn: (text) => log.warn(text) });
  closers.add(() => relay.close());
  return { upstream, agent, hookAgent, relay, allowPrivate, own };
}
