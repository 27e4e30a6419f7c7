/** Requests that nobody should send: each refused by name, and the next call is fine. */
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { AccountService } from "../../../gen/limber/v1/account_service_pb.ts";
import { redSquare } from "../../../src/upstream/pictures/test-picture.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { bearer, inference, refusalIn } from "../../support/clients.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, openWorld, ownGateway } from "../../support/world.ts";

const named = uniqueNames("acme");

let app: App;
let model: Model;
let caller: Caller;
let picture: Buffer;

beforeAll(async () => {
  [app, model, picture] = await Promise.all([openWorld(), openModel(), redSquare(0.5, 0.5, 64)]);
  await app.supply({ provider: named.acme, model: `${named.acme}/base`, endpoint: model.endpoint });
  caller = await app.caller(10);
});
afterEach(async () => {
  expect((await act()).status).toBe(200);
});

const BODY = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0.5] }],
};
const TEXT = JSON.stringify(BODY);
const act = (body: unknown = BODY, headers: Record<string, string> = {}) =>
  app.call("/v1/act", body, { key: caller.key, headers });
const refused = async (body: unknown, headers?: Record<string, string>) => {
  const before = model.acts.length;
  const { status, body: answer } = await act(body, headers);
  expect(model.acts.length).toBe(before);
  return { status, code: answer.error?.code, param: answer.error?.param, detail: answer.detail, error: answer.error };
};

describe("a body that is no JSON", () => {
  it.each([
    ["cut off", TEXT.slice(0, -2)],
    ["followed by more", `${TEXT}{}`],
    ["with a comma too many", `{"model":"${named.acme}/base",}`],
    ["of words", "NaN"],
    ["with NaN in it", `{"model":"${named.acme}/base","observations":[{"proprio":[NaN]}]}`],
    ["of bytes that are no UTF-8", Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d])],
    ["nested a hundred thousand deep", `{"metadata":${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}}`],
    ["of a hundred thousand arrays", "[".repeat(100_000)],
    ["with a key twice", `{"model":"${named.acme}/base","model":"${named.acme}/base","observations":[]}`],
  ])("%s is 400", async (_, body) => {
    const { status, code, error } = await refused(body);
    expect([status, code, error.type]).toEqual([400, "malformed_body", "validation_error"]);
  });

  it("of another shape is 422", async () => {
    for (const body of ["[]", "null", "3", `"text"`]) expect((await refused(body)).status, body).toBe(422);
  });
});

describe("a body of another kind", () => {
  it.each([
    "text/plain",
    "application/x-www-form-urlencoded",
    "application/json; charset=latin1",
    "multipart/form-data; boundary=x",
  ])("%s is 415", async (type) => {
    const { status, code } = await refused(TEXT, { "content-type": type });
    expect([status, code]).toEqual([415, "unsupported_media_type"]);
  });

  it("compressed is 415", async () => {
    expect(await refused(TEXT, { "content-encoding": "gzip" })).toMatchObject({ status: 415 });
  });

  it("of 33 MiB is 413", async () => {
    const { status, code } = await refused(Buffer.alloc(33 << 20, 0x20));
    expect([status, code]).toEqual([413, "payload_too_large"]);
  });

  it("with the wrong method is 405 with the right one", async () => {
    const { status, body, headers } = await app.call("/v1/act", undefined, { method: "GET", key: caller.key });
    expect([status, body.error.code, headers.get("allow")]).toEqual([405, "method_not_allowed", "POST, OPTIONS"]);
    expect((await app.call("/v1/acts", BODY, { key: caller.key })).body.error.code).toBe("not_found");
  });
});

describe("422", () => {
  it.each([
    ["horizon 0", { horizon: 0 }, "horizon"],
    ["horizon 257", { horizon: 257 }, "horizon"],
    ["horizon 1.5", { horizon: 1.5 }, "horizon"],
    ["horizon as text", { horizon: "16" }, "horizon"],
    ["a seed that is no integer", { seed: 1.5 }, "seed"],
    ["no observations", { observations: [] }, "observations"],
    ["33 observations", { observations: Array(33).fill({}) }, "observations"],
    [
      "17 frames",
      { observations: [{ frames: Array(17).fill({ url: "data:image/png;base64,AA==" }) }] },
      "observations.0.frames",
    ],
    ["a frame of nothing", { observations: [{ frames: [{ camera: "front" }] }] }, "observations.0.frames.0"],
    ["an unknown action space", { action_space: "legs_9" }, "action_space"],
    ["an unknown preference", { preference: "quickest" }, "preference"],
    ["an empty model", { model: "" }, "model"],
    ["no model", { model: undefined }, "model"],
    ["a long session id", { provider: { session_id: "x".repeat(257) } }, "provider.session_id"],
    ["nine fallback models", { models: Array(9).fill(`${named.acme}/base`) }, "models"],
    ["deadline_ms 0", { provider: { deadline_ms: 0 } }, "provider.deadline_ms"],
    ["an unknown axis", { provider: { objective: { speed: 1 } } }, "provider"],
    ["a weight that is no number", { provider: { objective: { price: "1" } } }, "provider.objective.price"],
    ["metadata that is no object", { metadata: [1] }, "metadata"],
  ])("%s", async (_, more, place) => {
    const { status, code, detail } = await refused({ ...BODY, ...more });
    expect([status, code]).toEqual([422, "validation_failed"]);
    const places = detail.map(({ loc }: { loc: unknown[] }) => loc.slice(1).join("."));
    expect(
      places.some((each: string) => each.startsWith(place)),
      String(places),
    ).toBe(true);
  });

  it("numbers out of range are named, not rounded to infinity", async () => {
    for (const number of ["1e999", "-1e999"]) {
      const body = TEXT.replace("[0.5]", `[0.5,${number}]`);
      const { status, detail } = await refused(body);
      expect([status, detail[0].loc]).toEqual([422, ["body", "observations", 0, "proprio", 1]]);
    }
  });

  it("an unknown field at any depth is named with the nearest known one", async () => {
    const { status, detail } = await refused({ ...BODY, horizn: 3, observations: [{ propio: [1] }] });
    expect(status).toBe(422);
    const texts = new Map(detail.map(({ loc, msg }: { loc: unknown[]; msg: string }) => [loc.join("."), msg]));
    expect(texts.get("body.horizn")).toContain("horizon");
    expect(texts.get("body.observations.0.propio")).toContain("proprio");
  });

  it("__proto__, constructor and prototype are unknown fields like any other, and change nothing", async () => {
    for (const name of ["__proto__", "constructor", "prototype", "hasOwnProperty"]) {
      const { status, detail } = await refused(`{"${name}":{"polluted":1},${TEXT.slice(1)}`);
      expect([status, detail[0].loc]).toEqual([422, ["body", name]]);
    }
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
    const kept = await act(`{"metadata":{"__proto__":{"polluted":1}},${TEXT.slice(1)}`);
    expect([200, 422]).toContain(kept.status);
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
  });

  it("U+0000 and lone surrogates are refused in stored text", async () => {
    for (const bad of ["\\u0000", "\\ud800", "\\udc00x"]) {
      for (const field of [
        `"instruction":"a${bad}"`,
        `"metadata":{"a":"${bad}"}`,
        `"metadata":{"${bad}":1}`,
        `"provider":{"session_id":"${bad}"}`,
      ]) {
        const { status, code } = await refused(`{${field},${TEXT.slice(1)}`);
        expect([400, 422], `${field} ${code}`).toContain(status);
      }
    }
    expect((await act(`{"instruction":"\\ud83e\\udd16",${TEXT.slice(1)}`)).status).toBe(200);
  });
});

describe("over Connect", () => {
  it("U+0000 in stored text is refused and is not an internal error", async () => {
    const call = createClient(AccountService, createConnectTransport({ baseUrl: app.url, httpVersion: "2" })).createOrg(
      { name: "a\u0000b" },
      { headers: { "x-service-admin-token": ADMIN_TOKEN } },
    );
    expect(await refusalIn(call)).toMatchObject({ code: "InvalidArgument", reason: "validation_failed" });
  });

  it("U+0000 in logged text does no harm", async () => {
    const metadata = { note: "a\u0000b" };
    const request = { model: `${named.acme}/base`, actionSpace: "base_twist_2d", observations: [{}], metadata };
    const payer = await app.caller(1);
    await inference(app, "grpc").act(request, bearer(payer.key));
    await expect.poll(async () => (await app.call("/v1/usage", undefined, payer)).body.data.length).toBe(1);
  });
});

describe("a frame", () => {
  const dataUrl = (bytes: Buffer, type = "image/png"): string => `data:${type};base64,${bytes.toString("base64")}`;
  const withFrame = (frame: object) => ({
    ...BODY,
    observations: [{ proprio: [0.5], frames: [{ camera: "front", ...frame }] }],
  });

  it.each([
    ["that is cut short", () => ({ url: dataUrl(picture.subarray(0, picture.length / 2)) }), "frame_truncated"],
    ["that is no picture", () => ({ url: dataUrl(Buffer.from("<svg></svg>")) }), "frame_not_an_image"],
    ["that is empty", () => ({ url: "data:image/png;base64," }), undefined],
    ["of broken base64", () => ({ url: "data:image/png;base64,!!!!" }), "frame_malformed"],
    ["with another hash", () => ({ url: dataUrl(picture), sha256: "0".repeat(64) }), "frame_hash_mismatch"],
    ["at a file", () => ({ url: "file:///etc/passwd" }), "frame_address_refused"],
    ["at nothing", () => ({ url: "not an address" }), undefined],
  ] as const)("%s is refused with its place", async (_, frame, type) => {
    const { status, detail, code } = await refused(withFrame(frame()));
    expect([status, ["frame_refused", "address_refused", "validation_failed"].includes(code)]).toEqual([422, true]);
    expect(detail[0].loc.join(".")).toMatch(/^body\.observations\.0\.frames\.0/);
    if (type !== undefined) expect(detail[0].type).toBe(type);
  });

  it("with its own hash, by bytes or by address, is forwarded unchanged", async () => {
    const sha256 = createHash("sha256").update(picture).digest("hex");
    expect((await act(withFrame({ url: dataUrl(picture), sha256 }))).status).toBe(200);
    expect((await act(withFrame({ data: picture.toString("base64") }))).status).toBe(200);
    expect(Buffer.from(model.acts.at(-1)!.observations[0]!.frames[0]!.data).equals(picture)).toBe(true);
  });
});

describe("an address that is not public", () => {
  let strict: App;
  let hits = 0;
  const inside = createServer((_, response) => {
    hits++;
    response.writeHead(200, { "content-type": "image/png" }).end(picture);
  });

  beforeAll(async () => {
    await new Promise<void>((resolve) => inside.listen(0, "127.0.0.1", resolve));
    // The supply was let in by the gateway that allows such addresses.
    strict = await ownGateway({ allowPrivateAddresses: false, database: app.database });
  });
  afterAll(async () => {
    inside.close();
  });

  it.each([
    (port: number) => `https://127.0.0.1:${port}/a.png`,
    (port: number) => `http://127.0.0.1:${port}/a.png`,
    (port: number) => `https://localhost:${port}/a.png`,
    (port: number) => `https://[::1]:${port}/a.png`,
    (port: number) => `https://[::ffff:127.0.0.1]:${port}/a.png`,
    (port: number) => `https://2130706433:${port}/a.png`,
    () => "https://169.254.169.254/latest/meta-data",
    () => "https://10.0.0.1/a.png",
    () => "https://metadata.google.internal/a.png",
  ])("is never fetched (%#)", async (urlAt) => {
    const url = urlAt((inside.address() as AddressInfo).port);
    const request = { ...BODY, observations: [{ proprio: [0.5], frames: [{ camera: "front", url }] }] };
    const { status, body, text } = await strict.call("/v1/act", request, { key: caller.key });
    expect([status, ["address_refused", "frame_refused"].includes(body.error?.code)], text).toEqual([422, true]);
    expect(body.detail[0].loc.slice(0, 5).join(".")).toBe("body.observations.0.frames.0");
    expect(hits).toBe(0);
  });
});
