/** Which pages of browsers may read answers: none without a setting, and those of named origins with it. */
import { once } from "node:events";
import { connect } from "node:http2";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { App } from "../support/app.ts";
import { ownGateway } from "../support/world.ts";

const OURS = "https://console.example.com";
const THEIRS = "https://evil.example.com";

let closed: App;
let open: App;
let key: string;
beforeAll(async () => {
  [closed, open] = await Promise.all([ownGateway(), ownGateway({ corsOrigins: new Set([OURS]) })]);
  ({ key } = await open.caller(0));
});
afterAll(async () => {
  await closed.close();
  await open.close();
});

const named = (headers: Headers): string[] => [...headers.keys()].filter((name) => name.startsWith("access-control-"));
const ASK = { "access-control-request-method": "POST", "access-control-request-headers": "authorization" };
const PATHS: readonly [path: string, method: string][] = [
  ["/v1/key", "GET"],
  ["/v1/act", "POST"],
  ["/v1/models", "GET"],
  ["/limber.v1.InferenceService/Act", "POST"],
  ["/nowhere", "GET"],
  ["/health", "GET"],
  ["/docs", "GET"],
];

describe("without the setting", () => {
  it("sends no CORS headers", async () => {
    for (const [path, method] of PATHS) {
      for (const origin of [OURS, THEIRS, "null"]) {
        const headers = { origin, "content-type": "application/json" };
        const body = method === "POST" ? {} : undefined;
        const answers = [
          await closed.call(path, body, { headers, method }),
          await closed.call(path, undefined, { headers: { origin, ...ASK }, method: "OPTIONS" }),
        ];
        expect([path, origin, ...answers.flatMap((answer) => named(answer.headers))]).toEqual([path, origin]);
      }
    }
  });
});

describe("with an origin named", () => {
  it("lets its pages send preflights, call with a key, and read responses, headers and errors", async () => {
    for (const [path, method] of PATHS) {
      const asked = await open.call(path, undefined, { headers: { origin: OURS, ...ASK }, method: "OPTIONS" });
      expect([path, asked.status, asked.headers.get("access-control-allow-origin")]).toEqual([path, 204, OURS]);
      expect(asked.headers.get("access-control-allow-headers")).toMatch(/\bauthorization\b/);
      expect(asked.headers.get("access-control-allow-methods")).toContain("PATCH");
      const headers = { origin: OURS, "content-type": "application/json" };
      const answer = await open.call(path, method === "POST" ? {} : undefined, { headers, method, key });
      expect([path, answer.headers.get("access-control-allow-origin")]).toEqual([path, OURS]);
      expect([answer.headers.get("access-control-expose-headers"), answer.headers.get("vary")]).toEqual([
        "*",
        expect.stringContaining("origin"),
      ]);
      expect(answer.headers.get("access-control-allow-credentials")).toBe(null);
    }
    const { status, body } = await open.call("/v1/key", undefined, { headers: { origin: OURS }, key });
    expect([status, body.role]).toEqual([200, "owner"]);
    const { headers } = await open.call("/v1/act", {}, { headers: { origin: OURS }, key });
    expect(headers.get("x-request-id")).toMatch(/^req_/);
  });

  it("refuses every other origin, similar, empty or listed", async () => {
    for (const origin of [THEIRS, `${OURS}.evil.example`, `${OURS}:8443`, "http://console.example.com", "null", "*"]) {
      const asked = await open.call("/v1/act", undefined, { headers: { origin, ...ASK }, method: "OPTIONS" });
      const answer = await open.call("/v1/key", undefined, { headers: { origin }, key });
      expect([origin, ...named(asked.headers), ...named(answer.headers)]).toEqual([origin]);
    }
  });

  it("applies over HTTP/2", async () => {
    const session = connect(open.url);
    const ask = async (headers: Record<string, string>) => {
      const stream = session.request({ ":path": "/v1/key", authorization: `Bearer ${key}`, ...headers });
      const [answer] = (await once(stream, "response")) as [Record<string, unknown>];
      stream.resume().end();
      return [answer[":status"], answer["access-control-allow-origin"]];
    };
    expect(await ask({ origin: OURS })).toEqual([200, OURS]);
    expect(await ask({ origin: OURS, ":method": "OPTIONS", ...ASK })).toEqual([204, OURS]);
    expect(await ask({ origin: THEIRS })).toEqual([200, undefined]);
    session.close();
  });

  it("serves other calls on the same connection normally", async () => {
    for (const origin of [OURS, undefined, THEIRS, OURS]) {
      const answer = await open.call("/v1/act", {}, { key, headers: origin === undefined ? {} : { origin } });
      const allowed = answer.headers.get("access-control-allow-origin");
      expect([answer.status, allowed]).toEqual([422, origin === OURS ? OURS : null]);
    }
  });
});
