/**
 * Reads Python's pickles as inert data: a list of opcodes, a list of names, and no calls. Objects that a pickle would construct are returned as
 * records of their name and arguments. Source: CPython, Lib/pickle.py and Lib/pickletools.py, protocols 2 to 5; out-of-band buffers are not
 * read.
 */
import { CodecError } from "../error.ts";

/** A record of an object, call, class or persistent id: its Python name and its arguments. */
export class PyObject {
  readonly name: string;
  readonly args: readonly PyValue[];
  /** The state that BUILD set: an instance's fields. */
  state: PyValue | undefined;

  constructor(name: string, args: readonly PyValue[] = []) {
    this.name = name;
    this.args = args;
  }
}

/** A value as read. Lists, tuples and sets are arrays; a list can contain itself, so traversals need a limit. */
export type PyValue = null | boolean | number | bigint | string | Buffer | PyObject | PyValue[] | Map<PyValue, PyValue>;

/** The name of a persistent id's record. */
export const PERSISTENT_ID = "persistent id";

const MAX_OPS = 1_000_000;
const MAX_STACK = 100_000;

/**
 * Reads the pickle that begins at `start`; `end` is its end, possibly before that of the bytes. `allowed` lists the permitted names
 * (`module.name`); by default all are permitted, because objects become records either way. Throws CodecError: `unsupported` for any other name
 * or opcode, `malformed`, `truncated`, `too_many_values`.
 */
export function readPickle(bytes: Buffer, allowed?: ReadonlySet<string>, start = 0): { value: PyValue; end: number } {
  const machine = new Machine(bytes, allowed, start);
  for (let ops = 0; ops < MAX_OPS; ops++) {
    const value = machine.step();
    if (value !== undefined) return { value, end: machine.at };
  }
  throw new CodecError("too_many_values");
}

/** A class or function that was not called yet. */
const GLOBAL = Symbol("global");
const MARK = Symbol("mark");
/** A dict that Python writes as an object followed by its items. */
const ORDERED = "collections.OrderedDict";
type PickleItem = PyValue | { readonly [GLOBAL]: string } | typeof MARK;

class Machine {
  at: number;
  readonly #bytes: Buffer;
  readonly #allowed: ReadonlySet<string> | undefined;
  readonly #stack: PickleItem[] = [];
  readonly #memo = new Map<number, PickleItem>();

  constructor(bytes: Buffer, allowed: ReadonlySet<string> | undefined, start: number) {
    this.#bytes = bytes;
    this.#allowed = allowed;
    this.at = start;
  }

  /** Runs one opcode; returns the result at STOP. */
  step(): PyValue | undefined {
    const op = this.#uint(1);
    if (op === 0x2e) return this.#value();
    const run = OPS[op];
    if (run === undefined) throw new CodecError("unsupported");
    run(this);
    if (this.#stack.length > MAX_STACK || this.#memo.size > MAX_STACK) throw new CodecError("too_many_values");
    return undefined;
  }

  push(item: PickleItem): void {
    this.#stack.push(item);
  }

  skip(length: number): void {
    this.#take(length);
  }

  pushUint(width: 1 | 2): void {
    this.push(this.#uint(width));
  }

  pushInt32(): void {
    this.push(this.#bytes.readInt32LE(this.#take(4)));
  }

  pushFloat(): void {
    this.push(this.#bytes.readDoubleBE(this.#take(8)));
  }

  /** Little-endian two's complement of any length; only values within a double's range become a number. */
  pushLong(): void {
    const length = this.#uint(1);
    let value = 0n;
    const start = this.#take(length);
    for (let i = length - 1; i >= 0; i--) value = (value << 8n) | BigInt(this.#bytes[start + i]!);
    const signed = length === 0 ? 0n : BigInt.asIntN(8 * length, value);
    const isSafe = signed >= Number.MIN_SAFE_INTEGER && signed <= Number.MAX_SAFE_INTEGER;
    this.push(isSafe ? Number(signed) : signed);
  }

  pushText(width: 1 | 4 | 8): void {
    const length = this.#length(width);
    const start = this.#take(length);
    this.push(this.#bytes.toString("utf8", start, start + length));
  }

  /** A view of the pickle's own bytes. */
  pushBytes(width: 1 | 4 | 8): void {
    const length = this.#length(width);
    const start = this.#take(length);
    this.push(this.#bytes.subarray(start, start + length));
  }

  memoize(at: number | undefined = this.#memo.size): void {
    this.#memo.set(at, this.#stack.at(-1) ?? fault());
  }

  memoAt(width: 1 | 4): number {
    return this.#uint(width);
  }

  get(width: 1 | 4): void {
    this.push(this.#memo.get(this.#uint(width)) ?? fault());
  }

  tuple(length: number): void {
    if (this.#stack.length < length) fault();
    this.push(this.#stack.splice(this.#stack.length - length).map(plain));
  }

  tupleFromMark(): void {
    this.push(this.#sinceMark());
  }

  append(): void {
    this.#extend([this.#value()]);
  }

  appends(): void {
    this.#extend(this.#sinceMark());
  }

  setItem(): void {
    const value = this.#value();
    this.#set([this.#value(), value]);
  }

  setItems(): void {
    this.#set(this.#sinceMark());
  }

  popMark(): void {
    this.#sinceMark();
  }

  duplicate(): void {
    this.push(this.#stack.at(-1) ?? fault());
  }

  /** Takes the module and name from two texts on the stack. */
  stackGlobal(): void {
    const name = this.#value();
    const module = this.#value();
    if (typeof name !== "string" || typeof module !== "string") fault();
    this.#global(`${module}.${name}`);
  }

  /** Takes the module and name from two lines. */
  lineGlobal(): void {
    const module = this.#line();
    this.#global(`${module}.${this.#line()}`);
  }

  /** NEWOBJ and REDUCE: records what would be constructed. */
  make(): void {
    const args = this.#value();
    const callee = this.#stack.pop();
    if (!Array.isArray(args) || !isGlobal(callee)) fault();
    const name = (callee as { [GLOBAL]: string })[GLOBAL]; // both were checked
    this.push(name === ORDERED && args.length === 0 ? new Map() : (bytesOf(name, args) ?? new PyObject(name, args)));
  }

  /** NEWOBJ_EX: positional and keyword arguments; keyword arguments are not read. */
  makeNamed(): void {
    if (!(this.#value() instanceof Map)) fault();
    this.make();
  }

  build(): void {
    const state = this.#value();
    const object = this.#stack.at(-1);
    if (object instanceof PyObject) object.state = state;
    else fault();
  }

  persistentId(): void {
    this.push(new PyObject(PERSISTENT_ID, [this.#value()]));
  }

  pop(): void {
    if (this.#stack.pop() === undefined) fault();
  }

  #global(name: string): void {
    if (this.#allowed?.has(name) === false) throw new CodecError("unsupported");
    this.push({ [GLOBAL]: name });
  }

  #value(): PyValue {
    const item = this.#stack.pop();
    return item === undefined ? fault() : plain(item);
  }

  #sinceMark(): PyValue[] {
    const at = this.#stack.lastIndexOf(MARK);
    if (at < 0) fault();
    return this.#stack.splice(at).slice(1).map(plain);
  }

  /** A subclass of list remains a record of its arguments. */
  #extend(values: readonly PyValue[]): void {
    const list = this.#stack.at(-1);
    if (list instanceof PyObject) return;
    if (!Array.isArray(list)) fault();
    for (const value of values) list.push(value);
  }

  /** Alternating keys and values. A subclass of dict remains a record of its arguments. */
  #set(values: readonly PyValue[]): void {
    const map = this.#stack.at(-1);
    if (values.length % 2 !== 0) fault();
    if (map instanceof PyObject) return;
    if (!(map instanceof Map)) fault();
    for (let i = 0; i < values.length; i += 2) map.set(values[i]!, values[i + 1]!);
  }

  #line(): string {
    const end = this.#bytes.indexOf(0x0a, this.at);
    if (end < 0 || end - this.at > 256) throw new CodecError("truncated");
    const line = this.#bytes.toString("latin1", this.at, end);
    this.at = end + 1;
    return line;
  }

  #length(width: 1 | 4 | 8): number {
    if (width !== 8) return this.#uint(width);
    // A length beyond a double's range is also beyond the bytes.
    return Number(this.#bytes.readBigUInt64LE(this.#take(8)));
  }

  #uint(width: 1 | 2 | 4): number {
    return this.#bytes.readUIntLE(this.#take(width), width);
  }

  #take(length: number): number {
    const start = this.at;
    if (length > this.#bytes.length - start) throw new CodecError("truncated");
    this.at = start + length;
    return start;
  }
}

/** Python 3 has no opcode for bytes in protocol 2: it writes a call that encodes text of the same Latin-1 characters. */
const ENCODE = "_codecs.encode";
const BYTES = new Set(["__builtin__.bytes", "builtins.bytes"]);
const BYTE_ARRAYS = new Set(["__builtin__.bytearray", "builtins.bytearray"]);
const BEYOND_LATIN_1 = /[^\0-\xff]/;

/** The bytes of such a call; undefined for others. */
function bytesOf(name: string, args: readonly PyValue[]): Buffer | undefined {
  const [value, encoding] = args;
  if (name === ENCODE && typeof value === "string" && encoding === "latin1")
    return BEYOND_LATIN_1.test(value) ? fault() : Buffer.from(value, "latin1");
  if ((BYTES.has(name) || BYTE_ARRAYS.has(name)) && args.length === 0) return Buffer.alloc(0);
  return BYTE_ARRAYS.has(name) && Buffer.isBuffer(value) ? value : undefined;
}

const isGlobal = (item: PickleItem | undefined): boolean =>
  typeof item === "object" && item !== null && Object.hasOwn(item, GLOBAL);

/** A class as an argument is a record of its name. */
function plain(item: PickleItem): PyValue {
  if (item === MARK) return fault();
  return isGlobal(item) ? new PyObject((item as { [GLOBAL]: string })[GLOBAL]) : (item as PyValue);
}

function fault(): never {
  throw new CodecError("malformed");
}

/** All supported opcodes. */
const OPS: Readonly<Record<number, (machine: Machine) => void>> = {
  128: (m) => m.skip(1), // PROTO
  149: (m) => m.skip(8), // FRAME
  40: (m) => m.push(MARK),
  48: (m) => m.pop(),
  49: (m) => m.popMark(),
  50: (m) => m.duplicate(),
  78: (m) => m.push(null), // NONE
  136: (m) => m.push(true),
  137: (m) => m.push(false),
  75: (m) => m.pushUint(1), // BININT1
  77: (m) => m.pushUint(2), // BININT2
  74: (m) => m.pushInt32(), // BININT
  138: (m) => m.pushLong(), // LONG1
  71: (m) => m.pushFloat(), // BINFLOAT
  140: (m) => m.pushText(1), // SHORT_BINUNICODE
  88: (m) => m.pushText(4), // BINUNICODE
  67: (m) => m.pushBytes(1), // SHORT_BINBYTES
  66: (m) => m.pushBytes(4), // BINBYTES
  141: (m) => m.pushText(8), // BINUNICODE8
  142: (m) => m.pushBytes(8), // BINBYTES8
  150: (m) => m.pushBytes(8), // BYTEARRAY8
  93: (m) => m.push([]), // EMPTY_LIST
  143: (m) => m.push([]), // EMPTY_SET
  144: (m) => m.appends(), // ADDITEMS
  145: (m) => m.tupleFromMark(), // FROZENSET
  125: (m) => m.push(new Map()), // EMPTY_DICT
  41: (m) => m.push([]), // EMPTY_TUPLE
  133: (m) => m.tuple(1),
  134: (m) => m.tuple(2),
  135: (m) => m.tuple(3),
  116: (m) => m.tupleFromMark(),
  97: (m) => m.append(),
  101: (m) => m.appends(),
  115: (m) => m.setItem(),
  117: (m) => m.setItems(),
  148: (m) => m.memoize(),
  113: (m) => m.memoize(m.memoAt(1)), // BINPUT
  114: (m) => m.memoize(m.memoAt(4)), // LONG_BINPUT
  104: (m) => m.get(1), // BINGET
  106: (m) => m.get(4), // LONG_BINGET
  147: (m) => m.stackGlobal(),
  99: (m) => m.lineGlobal(), // GLOBAL
  129: (m) => m.make(), // NEWOBJ
  82: (m) => m.make(), // REDUCE
  146: (m) => m.makeNamed(), // NEWOBJ_EX
  98: (m) => m.build(),
  81: (m) => m.persistentId(), // BINPERSID
};
