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

it("the process's own servers are reachable at any path, even if private addresses are forbidden", () => {
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
])("the process's own servers do not include %s", (endpoint) => {
  expect(() => at(endpoint)).toThrow(/the address is refused/);
});
