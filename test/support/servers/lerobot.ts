/**
 * LeRobot's asynchronous inference server, doing as it's told: pickles, storages and safetensors by its own hand, nothing of the gateway's
 * encoding. It answers in the dialect that it is asked in.
 */
import { bytesField, fieldsIn, type GrpcActServer, startGrpcServer } from "./grpc.ts";

type Steps = readonly (readonly number[])[];

const text = (value: string): Buffer => Buffer.concat([Buffer.of(0x8c, value.length), Buffer.from(value)]);
const global = (module: string, name: string): Buffer => Buffer.concat([text(module), text(name), Buffer.of(0x93)]);
const int = (value: number): Buffer => {
  const bytes = Buffer.alloc(5, 0x4a);
  bytes.writeInt32LE(value, 1);
  return bytes;
};
const float = (value: number): Buffer => {
  const bytes = Buffer.alloc(9, 0x47);
  bytes.writeDoubleBE(value, 1);
  return bytes;
};
const bytes = (value: Buffer): Buffer => {
  const head = Buffer.alloc(5, 0x42);
  head.writeUInt32LE(value.length, 1);
  return Buffer.concat([head, value]);
};
const long = (value: string): Buffer => {
  const head = Buffer.alloc(5, 0x58);
  head.writeUInt32LE(value.length, 1);
  return Buffer.concat([head, Buffer.from(value)]);
};
const P2 = Buffer.of(0x80, 2);
const STOP = Buffer.of(0x2e);
const MARK = Buffer.of(0x28);

/** What `torch.save` wrote before its files became archives: five pickles, a count, the numbers. */
export function storage(numbers: readonly number[], count = numbers.length): Buffer {
  const magic = Buffer.from("8a0a6cfc9c46f9206aa850192e", "hex");
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(count));
  return Buffer.concat([
    ...[P2, magic, P2, Buffer.of(0x4d, 0xe9, 0x03), STOP, P2, Buffer.of(0x7d), STOP],
    ...[
      P2,
      MARK,
      long("storage"),
      Buffer.from("ctorch\nFloatStorage\n"),
      long("1"),
      long("cpu"),
      int(count),
      Buffer.of(0x4e, 0x74, 0x51),
      STOP,
    ],
    ...[P2, Buffer.of(0x5d), long("1"), Buffer.of(0x61), STOP],
    size,
    Buffer.from(Float32Array.from(numbers).buffer),
  ]);
}

/** A view of a storage: one axis unless told otherwise. */
export const tensor = (blob: Buffer, offset: number, sizes: readonly number[], stride = 1): Buffer =>
  Buffer.concat([
    global("torch._utils", "_rebuild_tensor_v2"),
    ...[MARK, global("torch.storage", "_load_from_bytes"), bytes(blob), Buffer.of(0x85, 0x52), int(offset)],
    ...[
      MARK,
      ...sizes.map(int),
      Buffer.of(0x74),
      MARK,
      ...sizes.map(() => int(stride)),
      Buffer.of(0x74),
      Buffer.of(0x89),
    ],
    ...[global("collections", "OrderedDict"), Buffer.of(0x29, 0x52, 0x74, 0x52)],
  ]);

/** A list of timed actions. */
export function timedActions(actions: readonly Buffer[], timestep: number): Buffer {
  const timed = actions.map((action, i) =>
    Buffer.concat([
      ...[global("lerobot.async_inference.helpers", "TimedAction"), Buffer.of(0x29, 0x81, 0x7d), MARK],
      ...[text("timestamp"), float(1_000 + i / 20), text("timestep"), int(timestep + i), text("action"), action],
      Buffer.of(0x75, 0x62),
    ]),
  );
  return Buffer.concat([Buffer.of(0x80, 4, 0x5d), MARK, ...timed, Buffer.of(0x65), STOP]);
}

/** Every row is a view of the whole chunk's storage, as PyTorch leaves it. */
export const chunk = (steps: Steps, timestep: number): Buffer => {
  const blob = storage(steps.flat());
  const width = steps[0]?.length ?? 0;
  return timedActions(
    steps.map((_, t) => tensor(blob, t * width, [width])),
    timestep,
  );
};

/** The dialect without pickles: the JSON's length, the JSON, and the tensors behind a header of their own. */
export function packed(json: object, tensors: Readonly<Record<string, readonly number[]>> = {}): Buffer {
  const told = Buffer.from(JSON.stringify(json));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(told.length);
  let at = 0;
  const header = Object.entries(tensors).map(([name, numbers]) => {
    const begin = at;
    at += 4 * numbers.length;
    return [name, { dtype: "F32", shape: [numbers.length], data_offsets: [begin, at] }];
  });
  if (header.length === 0) return Buffer.concat([length, told]);
  const head = Buffer.from(JSON.stringify(Object.fromEntries(header)));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(head.length));
  const rows = Object.values(tensors).map((numbers) => Buffer.from(Float32Array.from(numbers).buffer));
  return Buffer.concat([length, told, size, head, ...rows]);
}

/** A chunk in that dialect. */
export const packedChunk = (steps: Steps, timestep: number): Buffer =>
  packed(
    {
      type: "TimedActions",
      actions: steps.map((_, i) => ({ timestamp: 1_000 + i / 20, timestep: timestep + i })),
    },
    Object.fromEntries(steps.map((step, i) => [`action_${i}`, step])),
  );

/** What an observation of that dialect says in JSON; undefined for a pickle. */
export function saidIn(observation: Buffer): Said | undefined {
  if (observation[0] === 0x80) return undefined;
  return JSON.parse(observation.toString("utf8", 4, 4 + observation.readUInt32BE()));
}

interface Said {
  readonly timestep: number;
  readonly must_go: boolean;
  readonly numpy_keys: readonly string[];
  readonly scalar_data: Readonly<Record<string, number>> & { readonly task: string };
}

/** A server with every message that came. */
export interface LerobotServer extends GrpcActServer {
  readonly setups: readonly Buffer[];
  readonly observations: readonly Buffer[];
}

/** Starts a server; `empty` many answers say nothing first, `unasked` is what it has for who shows it nothing, and `motors` are read. */
export async function startLerobotServer({
  empty = 0,
  unasked,
  motors = ["a", "b", "c"],
}: {
  empty?: number;
  unasked?: Buffer;
  motors?: readonly string[];
} = {}): Promise<LerobotServer> {
  const setups: Buffer[] = [];
  const observations: Buffer[] = [];
  let pending: Buffer | undefined;
  let silent = empty;
  let timestep = 0;
  let isPacked = false;
  const message = (pickle: Buffer): Buffer => bytesField(1, pickle);
  const odd = (pickle: Buffer): Buffer => message(pickle);
  const server = await startGrpcServer({
    method: "GetActions",
    read: (_, headers) => {
      if (pending === undefined || silent-- > 0) return undefined;
      const said = saidIn(pending);
      isPacked = said !== undefined;
      timestep = said?.timestep ?? intAfter(pending, "timestep");
      const read = {
        instruction: said?.scalar_data.task ?? textAfter(pending, "task"),
        proprio: motors.map((name) => said?.scalar_data[name] ?? floatAfter(pending!, name)),
        headers,
      };
      pending = undefined;
      return read;
    },
    answer: (steps) => message(isPacked ? packedChunk(steps, timestep) : chunk(steps, timestep)),
    odd: {
      bomb: odd(Buffer.concat([P2, Buffer.alloc(200_000, 0x5d), Buffer.alloc(199_999, 0x61), STOP])),
      text: odd(Buffer.from("<html>200 OK</html>")),
      batch: odd(timedActions([tensor(storage([1, 2, 3, 4]), 0, [2, 2])], 0)),
      objects: odd(Buffer.concat([P2, global("os", "system"), text("true"), Buffer.of(0x85, 0x52), STOP])),
      short: odd(timedActions([tensor(storage([1], 9), 0, [9])], 0)),
    },
    nothing: unasked === undefined ? Buffer.alloc(0) : message(unasked),
    others: {
      Ready: () => Buffer.alloc(0),
      SendPolicyInstructions: ([setup]) => {
        setups.push(fieldsIn(setup!)[0]![1]);
        return Buffer.alloc(0);
      },
      SendObservations: (pieces) => {
        pending = Buffer.concat(pieces.map((piece) => fieldsIn(piece).find(([field]) => field === 2)![1]));
        observations.push(pending);
        return Buffer.alloc(0);
      },
    },
  });
  return { ...server, setups, observations };
}

/** Where a key's value begins: behind its text. */
function behind(pickle: Buffer, key: string): number {
  const at = pickle.indexOf(long(key));
  if (at < 0) throw new Error(`there is no ${key}`);
  return at + 5 + key.length;
}
const floatAfter = (pickle: Buffer, key: string): number => pickle.readDoubleBE(behind(pickle, key) + 1);
const intAfter = (pickle: Buffer, key: string): number => pickle.readInt32LE(behind(pickle, key) + 1);
const textAfter = (pickle: Buffer, key: string): string => {
  const at = behind(pickle, key);
  return pickle.toString("utf8", at + 5, at + 5 + pickle.readUInt32LE(at + 1));
};
