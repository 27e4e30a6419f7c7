/** A test of an identity provider names the layer that failed, and the setting for private addresses. */
import { once } from "node:events";
import { createServer as createPlainServer } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import { IssuerStep } from "../../../gen/limber/v1/issuer_service_pb.ts";
import { OidcClients } from "../../../src/services/issuer.ts";
import { type GuardOptions, guardedAgent } from "../../../src/upstream/transport/guard.ts";
import { createVault } from "../../../src/vault.ts";
import { selfSigned } from "../../support/wire-client.ts";

const vault = createVault(Buffer.alloc(32, 1));

/** Tests an issuer through a guard. */
async function tested(issuer: string, guard: GuardOptions) {
  const agent = guardedAgent(guard);
  try {
    const clients = new OidcClients({ vault, agent, allowPrivate: guard.allowPrivate });
    const given = { issuer, clientId: "c", clientSecret: "s", known: undefined };
    return await clients.test(given, { redirect: "https://limber.example/sign-in/callback/test" });
  } finally {
    await agent.destroy();
  }
}

const NAME = "https://accounts.example";

describe("a test of an identity provider", () => {
  it("names the address and the setting if a name resolves to a private address", async () => {
    const resolve = async () => [{ address: "10.0.0.7", family: 4 }];
    const { failed, reason } = await tested(NAME, { allowPrivate: false, resolve });
    expect([failed, reason]).toEqual([
      IssuerStep.ADDRESS,
      expect.stringContaining("`LIMBER_ALLOW_PRIVATE_ADDRESSES=true`"),
    ]);
    const literal = await tested("https://10.0.0.7", { allowPrivate: false });
    expect([literal.failed, literal.reason]).toEqual([failed, expect.stringContaining("LIMBER_ALLOW_PRIVATE")]);
  });

  it("names DNS if a name has no address or its name server fails", async () => {
    for (const code of ["ENOTFOUND", "ECONNREFUSED"]) {
      const resolve = () => Promise.reject(Object.assign(new Error(code), { code, syscall: "queryA" }));
      expect((await tested(NAME, { allowPrivate: false, resolve })).failed, code).toBe(IssuerStep.DNS);
    }
    expect((await tested(NAME, { allowPrivate: false, resolve: async () => [] })).failed).toBe(IssuerStep.DNS);
  });

  it("names TLS if the certificate is not trusted, or the port speaks no TLS", async () => {
    const servers = [createServer(selfSigned()), createPlainServer()];
    try {
      const reasons = await Promise.all(
        servers.map(async (server) => {
          server.listen(0, "127.0.0.1");
          await once(server, "listening");
          const { port } = server.address() as AddressInfo;
          const { failed, reason } = await tested(`https://127.0.0.1:${port}`, { allowPrivate: true });
          expect(failed, reason).toBe(IssuerStep.TLS);
          return reason;
        }),
      );
      expect(reasons).toEqual([
        expect.stringContaining("`NODE_EXTRA_CA_CERTS`"),
        expect.stringContaining("does not speak TLS"),
      ]);
    } finally {
      for (const server of servers) server.close();
    }
  });

  it("names the connection if nothing listens on the port", async () => {
    const server = createPlainServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    server.close();
    await once(server, "close");
    expect((await tested(`http://127.0.0.1:${port}`, { allowPrivate: true })).failed).toBe(IssuerStep.CONNECTION);
  });
});
