/** The guard: no address that somebody gave us leads inside. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer, isIP, type LookupFunction } from "node:net";
import { Agent, type Dispatcher, request } from "undici";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import {
  AddressRefused,
  checkUrl,
  fetchBytes,
  guardedConnector,
  guardedLookup,
  isAllowedAddress,
  type LookupAnswer,
} from "../../../../src/upstream/transport/guard.ts";
import { hostileUrls, LEGITIMATE_URLS } from "./hostile-urls.ts";
import { agentFor, closeEach, closeLater, limits } from "./served.ts";

afterEach(closeEach);

/** Listens on both loopbacks at one port and counts who comes; nobody should. */
class Canary {
  connections = 0;
  port = 0;
  readonly #servers: Server[] = [];

  async open(): Promise<void> {
    for (const host of ["127.0.0.1", "::1"]) {
      const server = createServer((_request, response) => response.end("secret"));
      server.on("connection", () => this.connections++);
      server.listen(this.port, host);
      await once(server, "listening");
      this.port = (server.address() as AddressInfo).port;
      this.#servers.push(server);
    }
  }

  close(): void {
    for (const server of this.#servers) server.close().closeAllConnections();
  }
}

const canary = new Canary();
beforeAll(() => canary.open());
afterAll(() => canary.close());

const HTTP = { schemes: ["http:", "https:"] };
const inside = async (): Promise<LookupAnswer[]> => [{ address: "127.0.0.1", family: 4 }];

const guarded = async (text: string, agent: Agent): Promise<Buffer> =>
  fetchBytes(checkUrl(text, { ...HTTP, allowPrivate: false }), { ...limits, agent });

const unguarded = async (text: string, agent: Agent): Promise<Dispatcher.ResponseData> =>
  request(new URL(text), { dispatcher: agent });

const reasonOf = (text: string, allowPrivate = false): string => {
  try {
    checkUrl(text, { ...HTTP, allowPrivate });
    return "accepted";
  } catch (error) {
    if (!(error instanceof AddressRefused)) throw error;
    return error.reason;
  }
};

describe("the guard against URLs of internal servers", () => {
  it("keeps every hostile URL from a server on this machine", async () => {
    const urls = hostileUrls(canary.port);
    expect(urls.length).toBeGreaterThan(600);
    const agent = agentFor({ allowPrivate: false, resolve: inside });
    const reached: string[] = [];
    for (const text of urls) {
      await guarded(text, agent).then(
        () => reached.push(text),
        (error: unknown) => {
          if (!(error instanceof AddressRefused)) reached.push(`${text}: ${error}`);
        },
      );
    }
    expect(reached).toEqual([]);
    expect(canary.connections).toBe(0);
  });

  it("is necessary: without it, hundreds of the corpus's URLs reach the server", async () => {
    const lookup: LookupFunction = (_name, _options, callback) => callback(null, [{ address: "127.0.0.1", family: 4 }]);
    const agent = new Agent({ connect: { lookup } });
    closeLater({ close: () => agent.destroy() });
    const local = hostileUrls(canary.port).filter((text) => {
      const host = URL.parse(text)?.hostname.replace(/^\[|\]$/g, "") ?? "";
      return (
        URL.parse(text)?.port === String(canary.port) &&
        (isIP(host) === 0 || /^(127\.|0\.0\.0\.0|::1$|::$|::ffff:7f)/.test(host))
      );
    });
    let hits = 0;
    for (const text of local) {
      const answer = await unguarded(text, agent).catch(() => undefined);
      if ((await answer?.body.text()) === "secret") hits++;
    }
    canary.connections = 0;
    expect(hits).toBeGreaterThan(100);
  });

  it.each([
    ["http://127.0.0.1/", "private_address"],
    ["http://0x7f000001/", "private_address"],
    ["http://[::ffff:10.0.0.1]/", "private_address"],
    ["http://a b.example/", "bad_character"],
    ["http://a\\b.example/", "bad_character"],
    ["http://a\u0000.example/", "bad_character"],
    ["http://user@example.com/", "credentials_in_url"],
    ["http://@example.com/", "credentials_in_url"],
    ["ftp://example.com/", "scheme_not_allowed"],
    ["file:///etc/passwd", "scheme_not_allowed"],
    ["http://example.com:22/", "port_not_allowed"],
    ["http://example.com:6667/", "port_not_allowed"],
    ["http://example.com:0/", "port_not_allowed"],
    ["http:example.com", "malformed"],
    ["http:///example.com/", "malformed"],
    ["example.com", "malformed"],
    [`http://example.com/${"a".repeat(5000)}`, "too_long"],
  ])("reports why it refuses %j: %s", (text, reason) => {
    expect(reasonOf(text)).toBe(reason);
  });

  it("does not normalize hosts of schemes that the URL standard does not normalize", () => {
    const policy = { schemes: ["grpc:", "tcp:"], allowPrivate: false };
    for (const host of [
      "0x7f.1",
      "2130706433",
      "127.1",
      "127.0.0.1",
      "[::1]",
      "[::ffff:127.0.0.1]",
      "%31.1.1.1",
      "①.1.1.1",
    ]) {
      expect(() => checkUrl(`grpc://${host}:50051`, policy)).toThrow(AddressRefused);
    }
    expect(checkUrl("grpc://Policy.example.com:50051", policy).hostname).toBe("Policy.example.com");
    expect(checkUrl("tcp://8.8.8.8:5555", policy).port).toBe("5555");
  });
});

describe("the guard against names with changing addresses", () => {
  /** Node's two ways to ask: all answers, or one. */
  const look = (lookup: LookupFunction, all: boolean): Promise<string[]> =>
    new Promise((resolve, reject) => {
      lookup("rebind.example", { all }, (error, address) => {
        if (error) reject(error);
        else resolve(typeof address === "string" ? [address] : address.map((answer) => answer.address));
      });
    });

  it("connects only to addresses that it checked in that very lookup, 10,000 times", async () => {
    const OUTSIDE = "93.184.215.14";
    const answers = [
      [OUTSIDE],
      ["127.0.0.1"],
      [OUTSIDE, "10.0.0.1"],
      ["::1", OUTSIDE],
      ["169.254.169.254"],
      [OUTSIDE, OUTSIDE],
    ];
    let asked = 0;
    const lookup = guardedLookup({
      allowPrivate: false,
      resolve: async () => answers[asked++ % answers.length]!.map((address) => ({ address, family: isIP(address) })),
    });
    let given = 0;
    for (let i = 0; i < 10_000; i++) {
      await look(lookup, i % 7 < 4).then(
        (addresses) => {
          given++;
          expect(addresses.every((address) => address === OUTSIDE)).toBe(true);
        },
        (error: unknown) => expect(error).toBeInstanceOf(AddressRefused),
      );
    }
    expect(asked).toBe(10_000);
    expect(given).toBe(3333);
  });

  it("refuses a name with a single forbidden address", async () => {
    const lookup = guardedLookup({
      allowPrivate: false,
      resolve: async () => [
        { address: "93.184.215.14", family: 4 },
        { address: "fd00::1", family: 6 },
      ],
    });
    await expect(look(lookup, true)).rejects.toThrow(new AddressRefused("private_address"));
  });

  it("checks all addresses even if a socket requests one family", async () => {
    const both = async (): Promise<LookupAnswer[]> => [
      { address: "93.184.215.14", family: 4 },
      { address: "2606:4700::1111", family: 6 },
    ];
    const six = (lookup: LookupFunction): Promise<unknown> =>
      new Promise((resolve, reject) => {
        lookup("x.example", { family: 6 }, (error, address) => (error ? reject(error) : resolve(address)));
      });
    expect(await six(guardedLookup({ allowPrivate: false, resolve: both }))).toBe("2606:4700::1111");
    const mixed = async (): Promise<LookupAnswer[]> => [...(await both()), { address: "127.0.0.1", family: 4 }];
    await expect(six(guardedLookup({ allowPrivate: false, resolve: mixed }))).rejects.toThrow("private_address");
  });

  it("does not connect a plain socket if the name resolves to an internal address", async () => {
    const socket = connect({
      host: "rebind.example",
      port: canary.port,
      lookup: guardedLookup({ allowPrivate: false, resolve: inside }),
    });
    const [error] = await once(socket, "error").catch((thrown: unknown) => [thrown]);
    expect(error).toEqual(new AddressRefused("private_address"));
    expect(canary.connections).toBe(0);
  });

  it("closes the connection before the request if the network connected elsewhere", async () => {
    const received: Buffer[] = [];
    const trap = createTcpServer((socket) => socket.on("data", (data) => received.push(data)).on("error", () => {}));
    trap.listen(0, "127.0.0.1");
    await once(trap, "listening");
    closeLater({ close: () => trap.close() });
    const { port } = trap.address() as AddressInfo;
    const hijacked = guardedConnector({ allowPrivate: false }, (_target, callback) => {
      const socket = connect(port, "127.0.0.1", () => callback(null, socket));
    });
    const agent = new Agent({ connect: hijacked });
    closeLater({ close: () => agent.destroy() });
    await expect(fetchBytes(new URL("http://93.184.215.14/"), { ...limits, agent })).rejects.toThrow(AddressRefused);
    expect(received).toEqual([]);
  });

  it("checks a literal address that never passed checkUrl", async () => {
    const agent = agentFor({ allowPrivate: false });
    for (const host of ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"]) {
      const url = new URL(`http://${host}:${canary.port}/`);
      await expect(fetchBytes(url, { ...limits, agent })).rejects.toThrow(AddressRefused);
    }
    expect(canary.connections).toBe(0);
  });
});

describe("the guard for permitted addresses", () => {
  it("accepts a hundred legitimate URLs without connecting to them", () => {
    expect(LEGITIMATE_URLS.length).toBeGreaterThanOrEqual(100);
    expect(LEGITIMATE_URLS.filter((text) => reasonOf(text) !== "accepted")).toEqual([]);
  });

  it("permits this machine by address and by name once the operator allows private addresses", async () => {
    const agent = agentFor({ allowPrivate: true });
    for (const host of ["127.0.0.1", "[::1]", "localhost"]) {
      const url = checkUrl(`http://${host}:${canary.port}/`, { ...HTTP, allowPrivate: true });
      expect((await fetchBytes(url, { ...limits, agent })).toString()).toBe("secret");
    }
    canary.connections = 0;
  });

  it.each([
    ["127.0.0.1", false, true],
    ["10.1.2.3", false, true],
    ["192.168.1.1", false, true],
    ["172.16.1.1", false, true],
    ["100.64.1.1", false, true],
    ["::1", false, true],
    ["fd12::1", false, true],
    ["::ffff:10.0.0.1", false, true],
    ["8.8.8.8", true, true],
    ["2606:4700::1111", true, true],
    ["::ffff:8.8.8.8", true, true],
    ["169.254.169.254", false, false],
    ["100.100.100.200", false, false],
    ["168.63.129.16", false, false],
    ["fd00:ec2::254", false, false],
    ["fe80::1", false, false],
    ["fe80::1%eth0", false, false],
    ["0.0.0.0", false, false],
    ["::", false, false],
    ["224.0.0.1", false, false],
    ["255.255.255.255", false, false],
    ["::7f00:1", false, false],
    ["64:ff9b::7f00:1", false, false],
    ["64:ff9b::808:808", false, false],
    ["2002:7f00:1::1", false, false],
    ["2001:0:7f00:1::1", false, false],
    ["localhost", false, false],
    ["0x7f.1", false, false],
    ["", false, false],
  ])("checks %j: public policy %s, private policy %s", (address, publicly, privately) => {
    expect(isAllowedAddress(address, { allowPrivate: false })).toBe(publicly);
    expect(isAllowedAddress(address, { allowPrivate: true })).toBe(privately);
  });
});
