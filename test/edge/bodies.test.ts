/** Bodies that are small on the wire and large in memory, on every transport: refused by what they count, and nothing of them is held. */
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { ActRequestSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { ACT, connect, grpc, grpcWeb, list, MIB, MODELS, RPCS, repeated } from "./body-caller.ts";
import { type HouseOptions, KEY, openForTest, shareGateways, type TestGateway } from "./gateway.ts";

shareGateways();

const open = (options: HouseOptions = {}): Promise<TestGateway> => openForTest({ rpcs: RPCS, ...options });

describe("without a key", () => {
  const BOMB = repeated(Buffer.from([0x7a, 0]), MIB);

  it.each(["gzip", "br", "identity"] as const)(
    "refuses a call above 64 KiB on every transport, in %s",
    async (coding) => {
      const gateway = await open();
      expect((await grpc(gateway, MODELS, BOMB, coding)).code).toBe("resource_exhausted");
      expect((await grpcWeb(gateway, MODELS, BOMB, coding)).code).toBe("resource_exhausted");
      expect((await connect(gateway, MODELS, "application/proto", BOMB, coding)).code).toBe("resource_exhausted");
      const json = list("[", "[]", "]", MIB);
      expect((await connect(gateway, MODELS, "application/json", json, coding)).code).toBe("resource_exhausted");
      expect(gateway.memory.held).toBe(0);
    },
  );

  it("limits a message in a query to 64 KiB decompressed", async () => {
    const gateway = await open();
    const packed = gzipSync(BOMB, { level: 9 }).toString("base64url");
    const query = `connect=v1&encoding=proto&base64=1&compression=gzip&message=${packed}`;
    const response = await fetch(`${gateway.base}${MODELS}?${query}`);
    expect(await response.json()).toMatchObject({ code: "resource_exhausted" });
  });

  it("refuses larger REST bodies before they are read", async () => {
    const gateway = await open();
    const response = await fetch(`${gateway.base}/v1/oauth/token`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ client_id: "x".repeat(65 << 10) }),
    });
    expect(response.status, await response.text()).toBe(413);
  });
});

describe("with a key", () => {
  const TOO_MANY = "observations must have at most 32 items";
  const IN_ALL = " must have at most 104857 values in total";
  const NESTED = ((): Buffer => {
    const inner = repeated(Buffer.from([0x0a, 0]), MIB);
    return Buffer.concat([Buffer.from([0x12, 0x80, 0x80, 0x40]), inner]);
  })();
  it.each([
    ["empty observations", repeated(Buffer.from([0x12, 0]), MIB), TOO_MANY],
    ["empty frames of one observation", NESTED, "observations.0.frames must have at most 16 items"],
    ["unknown fields", repeated(Buffer.from([0xfa, 0x7f, 0]), MIB), IN_ALL],
  ])("counts %s before allocation", async (_, bytes, said) => {
    const fast = await open();
    const general = await open({ byConnect: true });
    const all = [
      await grpc(fast, ACT, bytes, "gzip"),
      await grpc(fast, ACT, bytes, "identity"),
      await grpc(general, ACT, bytes, "gzip"),
      await connect(fast, ACT, "application/proto", bytes, "identity"),
    ];
    for (const told of all) expect(told).toMatchObject({ code: "invalid_argument", fields: [said] });
    expect((await grpcWeb(fast, ACT, bytes, "gzip")).code).toBe("invalid_argument");
    expect([fast.inside(), general.inside(), fast.memory.held]).toEqual([0, 0, 0]);
  });

  const NUMBERS = " must have at most 1000000 numbers in total";
  it.each([
    ["observations", list('{"observations":[', "{}", "]}", MIB), TOO_MANY],
    ["lists in lists", list('{"metadata":{"a":[', "[]", "]}}", MIB), IN_ALL],
    ["members", list('{"metadata":{', '"a":0', "}}", MIB), IN_ALL],
    ["numbers", list('{"metadata":{"a":[', "0", "]}}", 2 * MIB + 100), NUMBERS],
    ["words", list('{"metadata":{"a":[', "null", "]}}", MIB), IN_ALL],
    [
      "frames",
      list('{"observations":[{},{"frames":[', "{}", "]}]}", MIB),
      "observations.1.frames must have at most 16 items",
    ],
  ])("counts %s in JSON before allocation", async (_, bytes, said) => {
    const gateway = await open();
    const response = await fetch(`${gateway.base}/v1/act`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${KEY}` },
      body: bytes as Uint8Array<ArrayBuffer>,
    });
    const { error } = (await response.json()) as { error: { code: string; details: { violations: object[] } } };
    expect([response.status, error.code]).toEqual([422, "validation_failed"]);
    const [path, ...words] = said.split(" ");
    expect(error.details.violations).toEqual([{ path, message: words.join(" "), type: "too_long" }]);
    const told = await connect(gateway, ACT, "application/json", bytes, "gzip");
    expect(told).toMatchObject({ code: "invalid_argument", fields: [said] });
    expect([gateway.inside(), gateway.memory.held]).toEqual([0, 0]);
  });

  it("refuses more than 32 MiB on every transport, however small on the wire", async () => {
    const gateway = await open();
    const bytes = repeated(Buffer.from([0x12, 0]), 33 * MIB);
    expect((await grpc(gateway, ACT, bytes, "gzip")).code).toBe("resource_exhausted");
    expect((await grpcWeb(gateway, ACT, bytes, "gzip")).code).toBe("resource_exhausted");
    expect((await connect(gateway, ACT, "application/proto", bytes, "gzip")).code).toBe("resource_exhausted");
    expect([gateway.inside(), gateway.memory.held]).toEqual([0, 0]);
  });

  it("drops a few unknown fields", async () => {
    const seen: unknown[] = [];
    const Act = (request: object) => {
      seen.push(request);
      return RPCS.Act();
    };
    const gateway = await open({ rpcs: { ...RPCS, Act } });
    const sound = toBinary(
      ActRequestSchema,
      create(ActRequestSchema, { model: "o/n", observations: [{ proprio: [1] }] }),
    );
    const bytes = Buffer.concat([sound, repeated(Buffer.from([0xfa, 0x7f, 0]), 3000)]);
    expect((await grpc(gateway, ACT, bytes, "identity")).code).toBe("ok");
    expect((await connect(gateway, ACT, "application/proto", bytes, "identity")).code).toBe("ok");
    expect(seen).toHaveLength(2);
    for (const request of seen) expect(request).not.toHaveProperty("$unknown");
  });

  it("accepts images of any size within the limit on every transport", async () => {
    const gateway = await open();
    const data = Buffer.alloc(MIB, 7);
    const url = `data:image/png;base64,${data.toString("base64")}`;
    const frames = [
      { camera: "a", data },
      { camera: "b", data },
    ];
    const request = create(ActRequestSchema, { model: "o/n", observations: [{ frames }] });
    const bytes = Buffer.from(toBinary(ActRequestSchema, request));
    const json = Buffer.from(JSON.stringify({ model: "o/n", observations: [{ frames: [{ camera: "a", url }] }] }));
    expect((await grpc(gateway, ACT, bytes, "gzip")).code).toBe("ok");
    expect((await grpcWeb(gateway, ACT, bytes, "identity")).code).toBe("ok");
    expect((await connect(gateway, ACT, "application/proto", bytes, "br")).code).toBe("ok");
    expect((await connect(gateway, ACT, "application/json", json, "identity")).code).toBe("ok");
    const response = await fetch(`${gateway.base}/v1/act`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${KEY}` },
      body: json,
    });
    expect(response.status, await response.text()).toBe(200);
    expect(gateway.memory.held).toBe(0);
  });
});
