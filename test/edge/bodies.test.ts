/** Bodies that are small on the wire and large in memory, on every transport: refused, while others are served. */
import * as http2 from "node:http2";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { BadRequestSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { StatusSchema } from "../../gen/google/rpc/status_pb.ts";
import { ActRequestSchema, ActResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { GetHealthResponseSchema } from "../../gen/limber/v1/operations_service_pb.ts";
import { ListModelsResponseSchema } from "../../gen/limber/v1/registry_service_pb.ts";
import { frameMessage } from "../../src/codecs/grpc.ts";
import { eventually } from "../support/eventually.ts";
import { ALL_FAST, PLAIN } from "../support/fast.ts";
import { type HouseOptions, KEY, message, openForTest, shareGateways, type TestGateway } from "./gateway.ts";

shareGateways();

const MIB = 1 << 20;
const ACT = "/limber.v1.InferenceService/Act";
const MODELS = "/limber.v1.RegistryService/ListModels";
const RPCS = {
  GetHealth: () => message(GetHealthResponseSchema, {}),
  Act: () => message(ActResponseSchema, { id: "act_1" }),
  ListModels: () => message(ListModelsResponseSchema, {}),
};
const open = (options: HouseOptions = {}): Promise<TestGateway> =>
  openForTest({ rpcs: RPCS, fast: ALL_FAST, ...options });

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

const repeated = (piece: string | Buffer, bytes: number): Buffer => Buffer.alloc(bytes, piece);

/** `{"observations":[{},{}, …]}` of so many bytes, and its like. */
const list = (head: string, item: string, tail: string, bytes: number): Buffer => {
  const items = Math.floor((bytes - head.length - tail.length) / (item.length + 1));
  return Buffer.from(`${head}${Array(items).fill(item).join(",")}${tail}`);
};

/** How a caller is told no. */
interface Told {
  readonly code: string;
  readonly status: number;
  readonly fields: readonly string[];
  readonly retryAfter: string | null;
}

const PACKED = {
  gzip: (bytes: Buffer) => gzipSync(bytes, { level: 9 }),
  br: (bytes: Buffer) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } }),
  identity: (bytes: Buffer) => bytes,
} as const;
type Encoding = keyof typeof PACKED;

/** A call of Connect over HTTP/1.1. */
async function connect(
  gateway: TestGateway,
  path: string,
  type: string,
  bytes: Buffer,
  encoding: Encoding,
): Promise<Told> {
  const response = await fetch(gateway.base + path, {
    method: "POST",
    headers: {
      "content-type": type,
      authorization: `Bearer ${KEY}`,
      ...(encoding !== "identity" && { "content-encoding": encoding }),
    },
    body: PACKED[encoding](bytes) as Uint8Array<ArrayBuffer>,
  });
  const isJson = response.headers.get("content-type") === "application/json";
  const said = (isJson ? await response.json() : await response.bytes().then(() => ({}))) as {
    code?: string;
    details?: { type: string; value: string }[];
  };
  const detail = said.details?.find(({ type }) => type === "google.rpc.BadRequest");
  const violations = detail && fromBinary(BadRequestSchema, Buffer.from(detail.value, "base64")).fieldViolations;
  return {
    code: said.code ?? "ok",
    status: response.status,
    fields: (violations ?? []).map(({ field, description }) => `${field} ${description}`),
    retryAfter: response.headers.get("retry-after"),
  };
}

const GRPC_CODES: Readonly<Record<string, string>> = {
  "0": "ok",
  "3": "invalid_argument",
  "8": "resource_exhausted",
  "14": "unavailable",
};

/** A call of gRPC over HTTP/2. */
async function grpc(gateway: TestGateway, path: string, bytes: Buffer, encoding: Encoding): Promise<Told> {
  // A client of Node's takes no answer while it holds more than this.
  const session = http2.connect(gateway.base, { maxSessionMemory: 256 });
  try {
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      te: "trailers",
      authorization: `Bearer ${KEY}`,
      ...(encoding !== "identity" && { "grpc-encoding": encoding }),
    });
    const told: Record<string, unknown> = {};
    stream.on("response", (head) => Object.assign(told, head));
    stream.on("trailers", (trailers) => Object.assign(told, trailers));
    stream.on("error", () => undefined).resume();
    stream.end(frameMessage(PACKED[encoding](bytes), encoding !== "identity"));
    await eventually(() => expect(told["grpc-status"]).toBeDefined());
    const status = Buffer.from(String(told["grpc-status-details-bin"] ?? ""), "base64");
    const detail = fromBinary(StatusSchema, status).details.find(({ typeUrl }) => typeUrl.endsWith("BadRequest"));
    const violations = detail && fromBinary(BadRequestSchema, detail.value).fieldViolations;
    return {
      code: GRPC_CODES[String(told["grpc-status"])] ?? String(told["grpc-status"]),
      status: 200,
      fields: (violations ?? []).map(({ field, description }) => `${field} ${description}`),
      retryAfter: (told["retry-after"] as string | undefined) ?? null,
    };
  } finally {
    session.destroy();
  }
}

/** A message of gRPC-Web over HTTP/1.1. */
async function grpcWeb(gateway: TestGateway, path: string, bytes: Buffer, encoding: Encoding): Promise<Told> {
  const response = await fetch(gateway.base + path, {
    method: "POST",
    headers: {
      "content-type": "application/grpc-web+proto",
      authorization: `Bearer ${KEY}`,
      ...(encoding !== "identity" && { "grpc-encoding": encoding }),
    },
    body: frameMessage(PACKED[encoding](bytes), encoding !== "identity") as Uint8Array<ArrayBuffer>,
  });
  const text = Buffer.from(await response.arrayBuffer()).toString("latin1");
  const code = /grpc-status: (\d+)/.exec(text)?.[1] ?? "";
  return { code: GRPC_CODES[code] ?? code, status: response.status, fields: [], retryAfter: null };
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

describe("without a key", () => {
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

  it.each(["gzip", "br", "identity"] as const)("gRPC and gRPC-Web end there too, in %s", async (coding) => {
    const gateway = await open();
    const bytes = repeated(Buffer.from([0x7a, 0]), 8 * MIB);
    await besides(gateway, async () => {
      expect((await grpc(gateway, MODELS, bytes, coding)).code).toBe("resource_exhausted");
      expect((await grpcWeb(gateway, MODELS, bytes, coding)).code).toBe("resource_exhausted");
      expect((await connect(gateway, MODELS, "application/proto", bytes, coding)).code).toBe("resource_exhausted");
    });
  });

  it("a message in a query is unpacked to 64 KiB", async () => {
    const gateway = await open();
    const packed = gzipSync(repeated(Buffer.from([0x7a, 0]), MIB), { level: 9 }).toString("base64url");
    const query = `connect=v1&encoding=proto&base64=1&compression=gzip&message=${packed}`;
    const response = await fetch(`${gateway.base}${MODELS}?${query}`);
    expect(await response.json()).toMatchObject({ code: "resource_exhausted" });
  });

  it("REST bodies end there, before they are read", async () => {
    const gateway = await open();
    const response = await fetch(`${gateway.base}/v1/oauth/token`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ client_id: "x".repeat(65 << 10) }),
    });
    expect(response.status).toBe(413);
  });
});

describe("with a key", () => {
  const TOO_MANY = "observations must contain no more than 32 item(s)";
  const IN_ALL = " must contain no more than 104857 values in all";
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
    ["empty frames of one observation", NESTED, "observations.0.frames must contain no more than 16 item(s)"],
    ["unknown fields", STRANGE, IN_ALL],
  ] as const;

  it.each(
    BINARY.flatMap(([name, bytes, said]) =>
      (["gzip", "identity"] as const).map((coding) => [name, coding, bytes, said] as const),
    ),
  )("%s in %s are counted before they are made, and others are served", async (_, coding, bytes, said) => {
    const fast = await open();
    const general = await open({ fast: PLAIN });
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
    ["numbers", list('{"metadata":{"a":[', "0", "]}}", 31 * MIB), " must contain no more than 1000000 numbers in all"],
    ["words", list('{"metadata":{"a":[', "null", "]}}", 31 * MIB), IN_ALL],
    [
      "frames",
      list('{"observations":[{},{"frames":[', "{}", "]}]}", 31 * MIB),
      "observations.1.frames must contain no more than 16 item(s)",
    ],
  ] as const;
  it.each(JSONS)(
    "31 MiB of %s in JSON are counted before they are made, and others are served",
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

  it("more than 32 MiB end there on every transport, packed or not", async () => {
    const gateway = await open();
    const bytes = repeated(Buffer.from([0x12, 0]), 33 * MIB);
    for (const coding of ["gzip", "identity"] as const) {
      expect((await grpc(gateway, ACT, bytes, coding)).code).toBe("resource_exhausted");
      expect((await grpcWeb(gateway, ACT, bytes, coding)).code).toBe("resource_exhausted");
      expect((await connect(gateway, ACT, "application/proto", bytes, coding)).code).toBe("resource_exhausted");
    }
    expect([gateway.inside(), gateway.memory.held]).toEqual([0, 0]);
  });

  it("unknown fields that are few are dropped", async () => {
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

  it("large pictures are taken on every transport", async () => {
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
