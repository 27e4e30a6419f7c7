/** Small requests that unpack, and large ones that are read, into far more than they are worth: on every RPC of the schema. */
import { request as httpRequest } from "node:http";
import { connect } from "node:http2";
import { promisify } from "node:util";
import { brotliCompress, constants, deflate, gzip } from "node:zlib";
import { type DescField, type DescMessage, type DescMethod, getOption, ScalarType } from "@bufbuild/protobuf";
import { http } from "../../../gen/google/api/annotations_pb.ts";
import { Dialect, rpc } from "../../../gen/limber/edge/v1/options_pb.ts";
import { SERVICES } from "../../../src/app/services.ts";
import { frameMessage } from "../../../src/codecs/grpc.ts";
import { type Attack, type AttackContext, attackerAddress, spread } from "./attack.ts";
import { type Account, within } from "./target.ts";

const METHODS: readonly DescMethod[] = SERVICES.flatMap((service): readonly DescMethod[] => service.methods);

/** How bytes are said to be written, and what of. */
interface Face {
  readonly name: string;
  readonly type: string;
  readonly spelling: "json" | "proto" | "form";
  /** Messages behind a prefix of five bytes, which says whether they are compressed. */
  readonly framed: boolean;
  readonly over: "http1" | "http2";
  readonly rest: boolean;
  /** The header that names the encoding. */
  readonly encodedBy: string;
  suits(method: DescMethod): boolean;
}

const dialectOf = (method: DescMethod): Dialect => getOption(method, rpc).dialect;
const hasBody = (method: DescMethod): boolean => /post|put|patch/.test(getOption(method, http).pattern.case ?? "");
const isUnary = ({ methodKind }: DescMethod): boolean => methodKind === "unary";

const REST = { framed: false, over: "http1", rest: true, encodedBy: "content-encoding" } as const;
const CONNECT = { framed: false, rest: false, over: "http1", encodedBy: "content-encoding", suits: isUnary } as const;
const STREAMS = {
  ...({ framed: true, rest: false, over: "http2", encodedBy: "connect-content-encoding" } as const),
  suits: (method: DescMethod) => !isUnary(method),
} as const;
const GRPC = { framed: true, rest: false, spelling: "proto", encodedBy: "grpc-encoding", suits: () => true } as const;

const FACES: readonly Face[] = [
  { ...REST, name: "REST", type: "application/json", spelling: "json", suits: (method) => hasBody(method) },
  {
    ...{ ...REST, name: "REST form", type: "application/x-www-form-urlencoded", spelling: "form" },
    suits: (method) => hasBody(method) && dialectOf(method) === Dialect.OAUTH,
  },
  {
    ...{ ...REST, name: "REST SCIM", type: "application/scim+json", spelling: "json" },
    suits: (method) => hasBody(method) && dialectOf(method) === Dialect.SCIM,
  },
  { ...CONNECT, name: "Connect JSON", type: "application/json", spelling: "json" },
  { ...CONNECT, name: "Connect proto", type: "application/proto", spelling: "proto" },
  { ...STREAMS, name: "Connect stream JSON", type: "application/connect+json", spelling: "json" },
  { ...STREAMS, name: "Connect stream proto", type: "application/connect+proto", spelling: "proto" },
  { ...GRPC, name: "gRPC", type: "application/grpc", over: "http2" },
  { ...GRPC, name: "gRPC-Web", type: "application/grpc-web+proto", over: "http1" },
];

/** How the bytes are packed. */
const PACKINGS: Readonly<Record<string, (bytes: Buffer) => Promise<Buffer>>> = {
  // Not here and now: the good client lives in this process, and a connection that says nothing for ten seconds is closed.
  identity: async (bytes) => bytes,
  gzip: (bytes) => promisify(gzip)(bytes, { level: 6 }),
  br: (bytes) => promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 2 } }),
  deflate: (bytes) => promisify(deflate)(bytes, { level: 6 }),
};

/** A place in a message: the field at the end of a way through messages. */
type Way = readonly DescField[];

/** The nearest field that `fits`, breadth first. */
function wayTo(desc: DescMessage, fits: (field: DescField) => boolean): Way | undefined {
  let ways: Way[] = desc.fields.map((field) => [field]);
  for (let depth = 0; depth < 4 && ways.length > 0; depth++) {
    const found = ways.find((way) => fits(way.at(-1)!));
    if (found !== undefined) return found;
    ways = ways.flatMap((way) => {
      const field = way.at(-1)!;
      const inner = field.fieldKind === "message" || field.fieldKind === "list" ? field.message : undefined;
      return inner?.fields.map((each) => [...way, each]) ?? [];
    });
  }
  return undefined;
}

const varint = (value: number): Buffer => {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return Buffer.from([...bytes, rest]);
};
const tag = ({ number }: { number: number }, wireType: number): Buffer => varint(number * 8 + wireType);
const lengthOf = (bytes: Buffer): Buffer => Buffer.concat([varint(bytes.length), bytes]);
const times = (piece: Buffer, size: number): Buffer =>
  Buffer.alloc(Math.floor(size / piece.length) * piece.length, piece);
const timesText = (piece: string, size: number): string => piece.repeat(Math.floor(size / piece.length));

/** A way's outer messages around what is inside of them. */
const wrapProto = (way: Way, inner: Buffer): Buffer =>
  way.slice(0, -1).reduceRight((inside, field) => Buffer.concat([tag(field, 2), lengthOf(inside)]), inner);
const wrapJson = (way: Way, inner: string): string =>
  way.reduceRight((inside, field, i) => {
    // On the way there each list has one message.
    const isStep = field.fieldKind === "list" && i < way.length - 1;
    return `{"${field.name}":${isStep ? `[${inside}]` : inside}}`;
  }, inner);

const isList =
  (kind: "message" | "scalar") =>
  (field: DescField): boolean =>
    field.fieldKind === "list" && field.listKind === kind;
const isNumbers = (field: DescField): boolean =>
  isList("scalar")(field) && field.scalar !== ScalarType.STRING && field.scalar !== ScalarType.BYTES;
const isTexts = (field: DescField): boolean => isList("scalar")(field) && field.scalar === ScalarType.STRING;
const isText = (field: DescField): boolean => field.fieldKind === "scalar" && field.scalar === ScalarType.STRING;
const isStruct = (field: DescField): boolean =>
  field.fieldKind === "message" && /^google\.protobuf\.(Struct|Value)$/.test(field.message.typeName);
const isMap = (field: DescField): boolean => field.fieldKind === "map";

/** Makes a body of about `size` bytes for messages of a type; undefined where the type has no place for it. */
interface Bomb {
  readonly name: string;
  proto?(desc: DescMessage, size: number): Buffer | undefined;
  json?(desc: DescMessage, size: number): string | undefined;
  form?(size: number): string;
}

const atProto =
  (fits: (field: DescField) => boolean, inner: (field: DescField, size: number) => Buffer) =>
  (desc: DescMessage, size: number): Buffer | undefined => {
    const way = wayTo(desc, fits);
    return way && wrapProto(way, inner(way.at(-1)!, size));
  };
const atJson =
  (fits: (field: DescField) => boolean, inner: (size: number) => string) =>
  (desc: DescMessage, size: number): string | undefined => {
    const way = wayTo(desc, fits);
    return way && wrapJson(way, inner(size));
  };

/** `{"0":…,"1":…}` with so many bytes. */
function manyNames(size: number): string {
  const parts: string[] = [];
  for (let bytes = 0, i = 0; bytes < size; i++) {
    const part = `"${i.toString(36)}":0`;
    bytes += part.length + 1;
    parts.push(part);
  }
  return `{${parts.join(",")}}`;
}

/** Map entries of different keys. */
function manyEntries(field: DescField, size: number): Buffer {
  const entries: Buffer[] = [];
  for (let bytes = 0, i = 0; bytes < size; i++) {
    const key = Buffer.from(i.toString(36));
    const entry = Buffer.concat([tag(field, 2), lengthOf(Buffer.concat([Buffer.of(0x0a), lengthOf(key)]))]);
    bytes += entry.length;
    entries.push(entry);
  }
  return Buffer.concat(entries);
}

/** A Struct within a Struct, deeper than any reader goes. */
function deepStruct(size: number): Buffer {
  let inside: Buffer = Buffer.alloc(0);
  // Its length in bytes grows with each level, and is written once a level: ten thousand are deep enough.
  for (let level = 0; level < 10_000 && inside.length < size; level++)
    inside = Buffer.concat([
      Buffer.of(0x0a),
      lengthOf(Buffer.concat([Buffer.of(0x0a, 0, 0x12), lengthOf(Buffer.concat([Buffer.of(0x2a), lengthOf(inside)]))])),
    ]);
  return inside;
}

const BOMBS: readonly Bomb[] = [
  {
    name: "empty messages in a list",
    proto: atProto(isList("message"), (field, size) => times(Buffer.concat([tag(field, 2), Buffer.of(0)]), size)),
    json: atJson(isList("message"), (size) => `[${timesText("{},", size)}{}]`),
  },
  {
    name: "unknown fields",
    proto: (_desc, size) => times(Buffer.of(0xfa, 0x3f, 0), size),
    json: (_desc, size) => manyNames(size),
    form: (size) => Array.from({ length: size >> 3 }, (_, i) => `${i.toString(36)}=0`).join("&"),
  },
  { name: "an unknown field of two bytes again and again", proto: (_desc, size) => times(Buffer.of(0x7a, 0), size) },
  { name: "groups within groups", proto: (_desc, size) => times(Buffer.of(0x7b), size) },
  { name: "empty lists in a list", json: (_desc, size) => `[${timesText("[],", size)}[]]` },
  { name: "lists within lists", json: (_desc, size) => timesText("[", size) },
  { name: "objects within objects", json: (_desc, size) => timesText('{"a":', size) },
  {
    name: "a long list of numbers",
    proto: atProto(isNumbers, (field, size) => Buffer.concat([tag(field, 2), lengthOf(Buffer.alloc(size, 1))])),
    json: atJson(isNumbers, (size) => `[${timesText("0,", size)}0]`),
  },
  {
    name: "a list of texts of nothing",
    proto: atProto(isTexts, (field, size) => times(Buffer.concat([tag(field, 2), Buffer.of(0)]), size)),
    json: atJson(isTexts, (size) => `[${timesText('"",', size)}""]`),
  },
  {
    name: "a long text",
    proto: atProto(isText, (field, size) => Buffer.concat([tag(field, 2), lengthOf(Buffer.alloc(size, 97))])),
    json: atJson(isText, (size) => `"${"a".repeat(size)}"`),
    form: (size) => `code=${"a".repeat(size)}`,
  },
  {
    name: "a text of escapes",
    json: atJson(isText, (size) => `"${timesText("\\u0041", size)}"`),
    form: (size) => `code=${timesText("%41", size)}`,
  },
  {
    name: "one text said again and again",
    proto: atProto(isText, (field, size) => times(Buffer.concat([tag(field, 2), lengthOf(Buffer.from("a"))]), size)),
    form: (size) => timesText("code=a&", size),
  },
  {
    name: "entries of a map",
    proto: atProto((field) => isMap(field), manyEntries),
    json: atJson(isMap, manyNames),
  },
  {
    name: "a tree of notes",
    proto: atProto(isStruct, (field, size) => Buffer.concat([tag(field, 2), lengthOf(deepStruct(size))])),
    json: atJson(isStruct, (size) => `{"a":${timesText("[", size / 2)}${timesText("]", size / 2)}}`),
  },
];

/** One bomb, made ready. */
interface Charge {
  readonly method: DescMethod;
  readonly transport: Face;
  readonly packing: string;
  readonly bomb: Bomb;
  readonly keyed: boolean;
  readonly size: number;
}

const nameOf = ({ method, transport, packing, bomb, keyed, size }: Charge): string =>
  `${size >> 20} MiB of ${bomb.name}, ${packing}, to ${method.parent.name}.${method.name} by ${transport.name} ${keyed ? "with" : "without"} a key`;

/** The body of a charge as it is sent; undefined where the RPC's request has no place for the bomb. */
async function bodyOf({ method, transport, packing, bomb, size }: Charge): Promise<Buffer | undefined> {
  const plain =
    transport.spelling === "proto"
      ? bomb.proto?.(method.input, size)
      : transport.spelling === "json"
        ? bomb.json?.(method.input, size)
        : bomb.form?.(size);
  if (plain === undefined) return undefined;
  const packed = await PACKINGS[packing]!(Buffer.from(plain));
  return transport.framed ? frameMessage(packed, packing !== "identity") : packed;
}

/** What came of a bomb: the status of HTTP and that of gRPC, or how the connection ended. */
interface Blast {
  readonly status: number;
  readonly code: string;
}

/** A bomb that is answered by nobody for so long hangs. */
const ANSWER_HANGS_MS = 120_000;

function send(
  port: number,
  path: string,
  verb: string,
  charge: Charge,
  body: Buffer,
  account: Account,
): Promise<Blast> {
  const { transport, packing, keyed } = charge;
  const headers: Record<string, string> = {
    "content-type": transport.type,
    ...(packing !== "identity" && { [transport.encodedBy]: packing }),
    ...(keyed && { authorization: `Bearer ${account.key}` }),
  };
  return transport.over === "http1" ? overHttp1(port, path, verb, headers, body) : overHttp2(port, path, headers, body);
}

function overHttp1(port: number, path: string, method: string, headers: object, body: Buffer): Promise<Blast> {
  return new Promise((resolve) => {
    const request = httpRequest({
      ...{ port, host: "127.0.0.1", localAddress: attackerAddress(), path, method, agent: false },
      headers: { ...headers, "content-length": body.length },
    });
    // Who refuses early closes on bytes that still come: that is an answer too.
    request
      .on("error", () => resolve({ status: 0, code: "" }))
      .once("response", (response) => {
        const status = response.statusCode ?? 0;
        response.on("error", () => undefined).resume();
        response.once("close", () => resolve({ status, code: String(response.trailers["grpc-status"] ?? "") }));
      });
    request.end(body);
  });
}

function overHttp2(port: number, path: string, headers: object, body: Buffer): Promise<Blast> {
  return new Promise((resolve) => {
    const session = connect(`http://127.0.0.1:${port}`, { localAddress: attackerAddress() } as object);
    let status = 0;
    let code = "";
    const over = (): void => {
      session.destroy();
      resolve({ status, code });
    };
    session.on("error", over);
    const stream = session.request({ ":method": "POST", ":path": path, te: "trailers", ...headers });
    const look = (fields: Record<string, unknown>): void => {
      status = Number(fields[":status"] ?? status);
      code = String(fields["grpc-status"] ?? code);
    };
    stream.on("response", look).on("trailers", look).resume();
    stream.on("error", () => undefined).once("close", over);
    stream.end(body);
  });
}

/** What a caller can cause above 499: a method or a version of HTTP (conversations need HTTP/2) that isn't served, and overload. */
const REFUSALS = new Set([501, 503, 505]);
const OUR_FAULT = new Set(["2", "13"]);

async function drop(context: AttackContext, charge: Charge, account: Account): Promise<void> {
  const { method, transport } = charge;
  const body = await bodyOf(charge);
  if (body === undefined) return;
  const { case: verb, value } = getOption(method, http).pattern;
  const path = transport.rest
    ? String(value).replaceAll(/\{\w+\}/g, "nothing-of-this-name")
    : `/${method.parent.typeName}/${method.name}`;
  context.count("bombs");
  context.count("bytes", body.length);
  const sent = send(
    context.target.port,
    path,
    transport.rest ? String(verb).toUpperCase() : "POST",
    charge,
    body,
    account,
  );
  try {
    const { status, code } = await within(sent, `an answer to ${nameOf(charge)}`, ANSWER_HANGS_MS);
    context.count(status === 0 ? "cut off" : `answered ${status}`);
    if (context.isOver()) context.find(`it died of ${nameOf(charge)}`);
    else if ((status >= 500 && !REFUSALS.has(status)) || OUR_FAULT.has(code))
      context.find(`${nameOf(charge)} was answered ${status} ${code}`);
  } catch (thrown) {
    context.find(String(thrown));
  }
}

const byName = (name: string): DescMethod => METHODS.find((method) => `${method.parent.name}.${method.name}` === name)!;
const faceOf = (name: string): Face => FACES.find((transport) => transport.name === name)!;
const bombOf = (name: string): Bomb => BOMBS.find((bomb) => bomb.name === name)!;

/** Bombs that once did harm: always thrown, at their full size. */
const KNOWN: readonly Charge[] = [
  ["RegistryService.ListModels", "Connect proto", "gzip", "an unknown field of two bytes again and again", false, 60],
  ["RegistryService.ListModels", "Connect JSON", "gzip", "empty lists in a list", false, 60],
  ["RegistryService.ListModels", "Connect proto", "br", "unknown fields", false, 60],
  ["InferenceService.Act", "gRPC", "gzip", "empty messages in a list", true, 60],
  ["InferenceService.Act", "REST", "identity", "empty messages in a list", true, 31],
  ["InferenceService.Act", "gRPC", "identity", "a long list of numbers", true, 31],
].map(([method, transport, packing, bomb, keyed, mib]) => ({
  ...{ method: byName(method as string), transport: faceOf(transport as string), bomb: bombOf(bomb as string) },
  ...{ packing: packing as string, keyed: keyed as boolean, size: (mib as number) << 20 },
}));

/** Every charge that makes sense, of one size. */
const allCharges = (size: number): Charge[] =>
  METHODS.flatMap((method) =>
    FACES.filter((transport) => transport.suits(method)).flatMap((transport) =>
      Object.keys(PACKINGS).flatMap((packing) =>
        BOMBS.filter((bomb) => bomb[transport.spelling] !== undefined).flatMap((bomb) =>
          [false, true].map((keyed) => ({ method, transport, packing, bomb, keyed, size })),
        ),
      ),
    ),
  );

const SIZES = { known: 1, short: 4 << 20, whole: 8 << 20 } as const;
const SAMPLE = { short: 60, whole: 1_500 } as const;
const WIDTH = { short: 2, whole: 3 } as const;

/** What heap and buffers may grow by at once, however many bombs come. */
const MOST_PEAK = 700 << 20;

/** The bombs that are known, one attack each, and a sample of all others. */
export const bombAttacks = (): Attack[] => [
  ...KNOWN.map((charge) => ({
    name: `a bomb: ${nameOf(charge)}`,
    mostPeak: MOST_PEAK,
    run: async (context: AttackContext) => drop(context, charge, context.target.bad),
  })),
  {
    name: "bombs of every kind to every RPC",
    mostPeak: MOST_PEAK,
    async run(context) {
      // What they change and end is their own.
      const account = await context.target.account("bombs");
      const [size, count, width] = context.whole
        ? [SIZES.whole, SAMPLE.whole, WIDTH.whole]
        : [SIZES.short, SAMPLE.short, WIDTH.short];
      const all = allCharges(size);
      const sample = Array.from({ length: count }, () => context.pick(all));
      await spread(context, sample, width, (charge) => drop(context, charge, account));
    },
  },
  {
    name: "large bodies that are begun and not ended",
    mostPeak: MOST_PEAK,
    run: hoard,
  },
];

/** Callers who send all of a large body but its last byte, and then leave. */
const HOARDERS = 32;
const HOARDED_BYTES = 31 << 20;

async function hoard(context: AttackContext): Promise<void> {
  const { port, bad } = context.target;
  const body = Buffer.alloc(HOARDED_BYTES, " ");
  const all = Array.from({ length: HOARDERS }, (_, i) => i);
  const leave: (() => void)[] = [];
  await spread(context, all, HOARDERS, async () => {
    const request = httpRequest({
      ...{ port, host: "127.0.0.1", localAddress: attackerAddress(), path: "/v1/act", method: "POST", agent: false },
      headers: {
        authorization: `Bearer ${bad.key}`,
        "content-type": "application/json",
        "content-length": body.length + 1,
      },
    });
    leave.push(() => request.destroy());
    context.count("large bodies");
    const refused = new Promise<void>((resolve) => {
      request.on("error", () => resolve()).once("close", resolve);
      request.once("response", (response) => {
        context.count(`answered ${response.statusCode}`);
        response.on("error", () => undefined).resume();
        resolve();
      });
    });
    // Whoever is not read from has as little as the gateway wants.
    const taken = new Promise<void>((resolve) => request.write(body, () => resolve()));
    await Promise.race([taken, refused, context.good.progress(100)]);
  });
  await context.good.progress(5);
  for (const each of leave) each();
}
