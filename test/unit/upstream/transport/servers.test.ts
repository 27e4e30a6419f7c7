/** Which addresses the wires reach. */
import { expect, it } from "vitest";
import { addressOf, type ServerReach } from "../../../../src/upstream/transport/servers.ts";

const SCHEMES = { "ws:": "http:", "wss:": "https:" };
const reach: ServerReach = {
  allowPrivate: false,
  own: new Set(["ws://127.0.0.1:50052"]),
  lookup: () => expect.fail("a literal address is looked up"),
};
const at = (endpoint: string) =>
  addressOf(
    {
      ...{ offeringId: "off_1", model: "acme/base", endpoint, auth: { type: "none", secret: "" } },
      ...{ profile: undefined, actionDim: undefined, dtMs: 0 },
    },
    SCHEMES,
    reach,
  ).url.href;

it("reach a server that the process runs itself at any of its paths, where private addresses are not allowed", () => {
  expect(at("ws://127.0.0.1:50052")).toBe("http://127.0.0.1:50052/");
  expect(at("ws://127.0.0.1:50052/reference/push-t?space=xy")).toBe("http://127.0.0.1:50052/reference/push-t?space=xy");
});

it.each([
  "ws://127.0.0.1:50053/reference/push-t",
  "wss://127.0.0.1:50052/",
  "ws://127.0.0.2:50052/",
  "ws://[::1]:50052/",
  "ws://user@127.0.0.1:50052/",
  "ws:\\\\127.0.0.1:50052",
])("do not reach %s, which is none of its own", (endpoint) => {
  expect(() => at(endpoint)).toThrow(/the address is refused/);
});
