/** Servers and agents of the tests of the guard, closed after each test. */
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import type { Agent } from "undici";
import { guardedAgent } from "../../../../src/upstream/transport/guard.ts";

/** How much is fetched, and how whenDatabaseAnswers. */
export const limits = { maxBytes: 1000, timeoutMs: 60_000, accept: "image/png" };

const open: { close(): unknown }[] = [];
/** Notes what is to be closed after the test. */
export const closeLater = (each: { close(): unknown }): void => void open.push(each);

/** What every test ends with. */
export async function closeEach(): Promise<void> {
  for (const each of open.splice(0)) await each.close();
}

/** A web server of ours on 127.0.0.1; closed after the test. */
export async function serve(listener: RequestListener): Promise<URL> {
  const server = createServer(listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  closeLater({ close: () => server.close().closeAllConnections() });
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
}

/** An agent of the guard; destroyed after the test. */
export function agentFor(...options: Parameters<typeof guardedAgent>): Agent {
  const agent = guardedAgent(...options);
  closeLater({ close: () => agent.destroy() });
  return agent;
}
