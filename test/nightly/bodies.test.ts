/** Bodies that are small on the wire and large in memory, on every transport: refused, while others are served. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { create, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { ActRequestSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { ACT, connect, grpc, grpcWeb, list, MIB, MODELS, RPCS, repeated } from "../edge/body-caller.ts";
import { type HouseOptions, KEY, openForTest, shareGateways, type TestGateway } from "../edge/gateway.ts";

shareGateways();

const open = (options: HouseOptions = {}): Promise<TestGateway> => openForTest({ rpcs: RPCS, ...options });

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** Bytes that are in use after a collection. */
async function inUse(): Promise<number> {
  // What is freed by one collection may free more in the next.
  for (let i = 0; i < 4; i++) {
    collect();
    await new Promise(setImmediate);
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Calls that are served while `run` runs, one after the other, and at least so many. */
async function besides(gateway: TestGateway, run: () => Promise<void>): Promise<void> {
  let isOver = false;
  let served = 0;
  const others = (async () => {
    while (!isOver || served < 20) {
      const response = await fetch(`${gateway.base}/health`);
      expect(response.status).toBe(200);
      await response.arrayBuffer();
      served++;
    }
  })();
  await run();
  isOver = true;
  await others;
  expect(served).toBeGreaterThanOrEqual(20);
}

describe("without a key,", () => {
  const BOMBS = [
    ["unknown fields", "application/proto", repeated(Buffer.from([0x7a, 0]), 60 * MIB)],
    ["empty lists in JSON", "application/json", list("[", "[]", "]", 60 * MIB)],
  ] as const;
  it.each(
    BOMBS.flatMap(([name, type, bytes]) =>
      (["gzip", "br"] as const).map((coding) => [name, coding, type, bytes] as const),
    ),
  )("60 MiB of %s under %s end at 64 KiB, and others are served", async (_, coding, type, bytes) => {
    const gateway = await open();
    const before = await inUse();
    await besides(gateway, async () => {
      for (let i = 0; i < 4; i++) {
        const told = await connect(gateway, MODELS, type, bytes, coding);
        expect(told.code).toBe("resource_exhausted");
      }
    });
    expect(await inUse()).toBeLessThan(before * 1.1);
  });
});

describe("with a key,", () => {
  const TOO_MANY = "observations must have at most 32 items";
  const IN_ALL = " must have at most 104857 values in total";
  const EMPTY = repeated(Buffer.from([0x12, 0]), 31 * MIB);
  const STRANGE = repeated(Buffer.from([0xfa, 0x7f, 0]), 30 * MIB);
  const NESTED = ((): Buffer => {
    const inner = repeated(Buffer.from([0x0a, 0]), 20 * MIB);
    const head = Buffer.from([0x12, 0, 0, 0, 0]);
    for (let i = 0, rest = inner.length; i < 4; i++, rest >>>= 7) head[i + 1] = (rest & 0x7f) | (i < 3 ? 0x80 : 0);
    return Buffer.concat([head, inner]);
  })();
  const BINARY = [
    ["empty observations", EMPTY, TOO_MANY],
    ["empty frames of one observation", NESTED, "observations.0.frames must have at most 16 items"],
    ["unknown fields", STRANGE, IN_ALL],
  ] as const;

  it.each(
    BINARY.flatMap(([name, bytes, said]) =>
      (["gzip", "identity"] as const).map((coding) => [name, coding, bytes, said] as const),
    ),
  )("%s in %s are counted before they are decoded, and others are served", async (_, coding, bytes, said) => {
    const fast = await open();
    const general = await open({ byConnect: true });
    const before = await inUse();
    await besides(fast, async () => {
      const all = [
        await grpc(fast, ACT, bytes, coding),
        await grpc(general, ACT, bytes, coding),
        await connect(fast, ACT, "application/proto", bytes, coding),
      ];
      for (const told of all) expect(told).toMatchObject({ code: "invalid_argument", fields: [said] });
      expect((await grpcWeb(fast, ACT, bytes, coding)).code).toBe("invalid_argument");
    });
    expect(await inUse()).toBeLessThan(before * 1.1);
    expect([fast.inside(), general.inside(), fast.memory.held]).toEqual([0, 0, 0]);
  });

  const JSONS = [
    ["observations", list('{"observations":[', "{}", "]}", 31 * MIB), TOO_MANY],
    ["lists in lists", list('{"metadata":{"a":[', "[]", "]}}", 31 * MIB), IN_ALL],
    ["members", list('{"metadata":{', '"a":0', "}}", 31 * MIB), IN_ALL],
    ["numbers", list('{"metadata":{"a":[', "0", "]}}", 31 * MIB), " must have at most 1000000 numbers in total"],
    ["words", list('{"metadata":{"a":[', "null", "]}}", 31 * MIB), IN_ALL],
    [
      "frames",
      list('{"observations":[{},{"frames":[', "{}", "]}]}", 31 * MIB),
      "observations.1.frames must have at most 16 items",
    ],
  ] as const;
  it.each(JSONS)(
    "31 MiB of %s in JSON are counted before they are decoded, and others are served",
    async (_, bytes, said) => {
      const gateway = await open();
      const before = await inUse();
      await besides(gateway, async () => {
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
      });
      expect(await inUse()).toBeLessThan(before * 1.1);
      expect([gateway.inside(), gateway.memory.held]).toEqual([0, 0]);
    },
  );

  it("large images are accepted on every transport", async () => {
    const gateway = await open();
    const data = Buffer.alloc(15 * MIB, 7);
    const url = `data:image/png;base64,${data.toString("base64")}`;
    const request = create(ActRequestSchema, {
      model: "o/n",
      observations: [
        {
          frames: [
            { camera: "a", data },
            { camera: "b", data },
          ],
        },
      ],
    });
    const bytes = Buffer.from(toBinary(ActRequestSchema, request));
    const json = Buffer.from(JSON.stringify({ model: "o/n", observations: [{ frames: [{ camera: "a", url }] }] }));
    await besides(gateway, async () => {
      expect((await grpc(gateway, ACT, bytes, "gzip")).code).toBe("ok");
      expect((await grpcWeb(gateway, ACT, bytes, "identity")).code).toBe("ok");
      expect((await connect(gateway, ACT, "application/proto", bytes, "br")).code).toBe("ok");
      expect((await connect(gateway, ACT, "application/json", json, "identity")).code).toBe("ok");
      const response = await fetch(`${gateway.base}/v1/act`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${KEY}` },
        body: json,
      });
      expect(response.status).toBe(200);
    });
    expect(gateway.memory.held).toBe(0);
  });
});
