/** The physics: MuJoCo, compiled to WebAssembly, with the same arithmetic on every machine. */
import load, { type MainModule, type MjData, type MjModel } from "@mujoco/mujoco";
import { ScenarioError } from "./failure.ts";
import { ENGINE_FACTS } from "./scenario.ts";

let engine: Promise<MainModule> | undefined;

/** The kinds of objects in a model. */
type Named = "body" | "joint" | "geom" | "site" | "camera" | "actuator" | "sensor" | "key";

/** The arrays of a state that scenarios read. */
const ARRAYS = ["qpos", "qvel", "ctrl", "site_xpos", "site_xmat", "xpos", "xmat", "mocap_pos", "sensordata"] as const;
type ArrayName = (typeof ARRAYS)[number];

/** A compiled model with its state. */
export class World {
  readonly #mj: MainModule;
  readonly #model: MjModel;
  readonly #data: MjData;
  readonly #warnings: Warnings;
  readonly #arrays: Record<ArrayName, Float64Array>;
  readonly #ids: Readonly<Record<Named, Map<string, number>>> = {
    body: new Map(),
    joint: new Map(),
    geom: new Map(),
    site: new Map(),
    camera: new Map(),
    actuator: new Map(),
    sensor: new Map(),
    key: new Map(),
  };
  /** Whether the integrator computes all that depends on positions and velocities once a step, so that `step` can share it. */
  readonly #isShared: boolean;
  /** Whether all that depends on the current positions and velocities is computed, as the next step expects it. */
  #isReady = false;
  #warned = 0;

  private constructor(mj: MainModule, model: MjModel) {
    this.#mj = mj;
    this.#model = model;
    this.#data = new mj.MjData(model);
    this.#warnings = new Warnings(this.#data);
    this.#isShared = model.opt.integrator !== RUNGE_KUTTA;
    this.#arrays = Object.fromEntries(ARRAYS.map((name) => [name, this.#data[name]])) as Record<
      ArrayName,
      Float64Array
    >;
    this.reset();
  }

  /** Compiles MJCF with its files. Throws `ScenarioError` for an invalid model. Free it by `close`. */
  static async of(mjcf: string, assets: ReadonlyMap<string, Uint8Array> = new Map()): Promise<World> {
    engine ??= load();
    const mj = await engine;
    if (mj.mj_versionString() !== ENGINE_FACTS.version)
      throw new ScenarioError(`the physics engine must be MuJoCo ${ENGINE_FACTS.version}`);
    for (const [name, bytes] of assets) mj.FS.writeFile(name, bytes);
    try {
      return new World(mj, mj.MjModel.from_xml_string(mjcf));
    } catch (cause) {
      throw new ScenarioError(`the scenario's model does not compile: ${sentenceOf(cause)}`, { cause });
    } finally {
      for (const name of assets.keys()) mj.FS.unlink(name);
    }
  }

  get model(): MjModel {
    return this.#model;
  }

  get data(): MjData {
    return this.#data;
  }

  get mj(): MainModule {
    return this.#mj;
  }

  /** Seconds of one step. */
  get timestep(): number {
    return this.#model.opt.timestep;
  }

  /** Positions. `forward` must follow a change. */
  get qpos(): Float64Array {
    return this.#array("qpos");
  }

  /** Velocities. `forward` must follow a change. */
  get qvel(): Float64Array {
    return this.#array("qvel");
  }

  get ctrl(): Float64Array {
    return this.#array("ctrl");
  }

  /** Resets to the model's initial state, or to a keyframe. */
  reset(keyframe?: number): void {
    if (keyframe === undefined) this.#mj.mj_resetData(this.#model, this.#data);
    else this.#mj.mj_resetDataKeyframe(this.#model, this.#data, keyframe);
    this.forward();
    this.#warned = this.#warnings.count;
  }

  /** Computes everything that depends on positions and velocities, without advancing time. */
  forward(): void {
    this.#mj.mj_forward(this.#model, this.#data);
    this.#isReady = false;
  }

  /**
   * Advances time by `count` steps and computes all positions and velocities. The engine's own step begins with the same computation, so the
   * next step continues after it, to the same state.
   */
  step(count = 1): void {
    const mj = this.#mj;
    const model = this.#model;
    const data = this.#data;
    for (let i = this.#continue() ? 1 : 0; i < count; i++) mj.mj_step(model, data);
    if (this.#isShared) {
      mj.mj_fwdPosition(model, data);
      mj.mj_sensorPos(model, data);
      mj.mj_fwdVelocity(model, data);
      mj.mj_sensorVel(model, data);
    } else {
      mj.mj_forward(model, data);
    }
    this.#isReady = this.#isShared;
  }

  /** Completes the first step if its first part is computed; returns whether it is completed. */
  #continue(): boolean {
    if (!this.#isReady) return false;
    const mj = this.#mj;
    this.#isReady = false;
    mj.mj_checkPos(this.#model, this.#data);
    mj.mj_checkVel(this.#model, this.#data);
    // The checks reset an invalid state, from which the step has to begin.
    if (this.unstable) return false;
    mj.mj_step2(this.#model, this.#data);
    return true;
  }

  /** Whether the simulation became unstable since the reset, so that its results are invalid. */
  get unstable(): boolean {
    return this.#warnings.count > this.#warned;
  }

  /** The index of a named object. Throws `ScenarioError` if the model does not contain it. */
  id(kind: Named, name: string): number {
    const known = this.#ids[kind].get(name);
    if (known !== undefined) return known;
    const type = this.#mj.mjtObj[`mjOBJ_${kind.toUpperCase()}` as "mjOBJ_BODY"];
    const id = this.#mj.mj_name2id(this.#model, (type as unknown as { value: number }).value, name);
    if (id < 0)
      throw new ScenarioError(`the scenario's model has no ${kind === "key" ? "keyframe" : kind} named ${name}`);
    this.#ids[kind].set(name, id);
    return id;
  }

  /** The index of a joint's position in `qpos`. */
  qposAt(joint: string): number {
    return this.#model.jnt_qposadr[this.id("joint", joint)]!;
  }

  /** The index of a joint's speed in `qvel`. */
  qvelAt(joint: string): number {
    return this.#model.jnt_dofadr[this.id("joint", joint)]!;
  }

  /** A site's position in world coordinates, in meters: x, y, z. */
  site(name: string): [number, number, number] {
    return tripleAt(this.#array("site_xpos"), this.id("site", name));
  }

  /** A site's rotation: nine numbers, row by row. */
  siteTurn(name: string): Float64Array {
    const at = this.id("site", name) * 9;
    return this.#array("site_xmat").slice(at, at + 9);
  }

  /** A body's position in world coordinates, in meters. */
  body(name: string): [number, number, number] {
    return tripleAt(this.#array("xpos"), this.id("body", name));
  }

  /** A body's rotation: nine numbers, row by row. */
  bodyTurn(name: string): Float64Array {
    const at = this.id("body", name) * 9;
    return this.#array("xmat").slice(at, at + 9);
  }

  /** Whether two bodies touch, or whether one touches anything if `other` is omitted. */
  touching(body: string, other?: string): boolean {
    const contacts = this.#data.contact;
    const wanted = this.id("body", body);
    const second = other === undefined ? undefined : this.id("body", other);
    try {
      for (let i = 0; i < this.#data.ncon; i++) {
        const contact = contacts.get(i);
        if (!contact) continue;
        const a = this.#model.geom_bodyid[contact.geom1]!;
        const b = this.#model.geom_bodyid[contact.geom2]!;
        contact.delete();
        if (a === wanted && (second === undefined || b === second)) return true;
        if (b === wanted && (second === undefined || a === second)) return true;
      }
      return false;
    } finally {
      contacts.delete();
    }
  }

  /** Positions, velocities, and the positions of mocap bodies (goals, obstacles): the complete state. */
  state(): Float64Array {
    return Float64Array.of(...this.qpos, ...this.qvel, ...this.#array("mocap_pos"));
  }

  /** The values of a sensor. */
  sensor(name: string): Float64Array {
    const id = this.id("sensor", name);
    // A step leaves sensors of forces and accelerations to the next one.
    if (this.#isReady && (this.#model.sensor_needstage as Int32Array)[id] === ACCELERATION_STAGE) this.forward();
    const at = this.#model.sensor_adr[id]!;
    return this.#array("sensordata").slice(at, at + this.#model.sensor_dim[id]!);
  }

  /** Places a mocap body (a goal, an obstacle). */
  put(body: string, [x, y, z]: readonly [number, number, number]): void {
    const at = 3 * this.#model.body_mocapid[this.id("body", body)]!;
    const placed = this.#array("mocap_pos");
    placed[at] = x;
    placed[at + 1] = y;
    placed[at + 2] = z;
    this.#isReady = false;
  }

  /** Frees the engine's memory. */
  close(): void {
    this.#data.delete();
    this.#model.delete();
  }

  /** An array of the state, in the engine's memory. When that memory grows, arrays of the old one have no bytes. */
  #array(name: ArrayName): Float64Array {
    const known = this.#arrays[name];
    if (known.byteLength > 0) return known;
    this.#arrays[name] = this.#data[name] as Float64Array;
    return this.#arrays[name];
  }
}

/** `mjINT_RK4`: four evaluations a step. */
const RUNGE_KUTTA = 1;
/** `mjSTAGE_ACC`. */
const ACCELERATION_STAGE = 3;

/** The engine's counters of warnings. Reading them by its interface takes longer than a step of a small model. */
class Warnings {
  readonly #data: MjData;
  // The list is a reference into the data: freeing it would crash the engine.
  readonly #list: MjData["warning"];
  /** The index of the first counter in the engine's memory, as 32-bit words; undefined if they are not where this version has them. */
  readonly #first: number | undefined;
  #words: Int32Array;

  constructor(data: MjData) {
    this.#data = data;
    this.#list = data.warning;
    this.#words = new Int32Array((data.qpos as Float64Array).buffer);
    this.#first = this.#found();
  }

  /** All warnings since the last reset of the data. */
  get count(): number {
    if (this.#first === undefined) return this.#counted();
    if (this.#words.byteLength === 0) this.#words = new Int32Array((this.#data.qpos as Float64Array).buffer);
    let count = 0;
    for (let i = 0; i < WARNINGS; i++) count += this.#words[this.#first + 2 * i]!;
    return count;
  }

  #counted(): number {
    let count = 0;
    for (let i = 0; i < this.#list.size(); i++) {
      const warning = this.#list.get(i);
      count += warning?.number ?? 0;
      warning?.delete();
    }
    return count;
  }

  /** The list is a vector of pairs: a pointer to two words, of which the second counts, and a flag. The pointers are 8 bytes apart. */
  #found(): number | undefined {
    const { ptr } = (this.#list as unknown as { $$: { ptr?: number } }).$$;
    if (ptr === undefined || this.#list.size() !== WARNINGS) return undefined;
    const begin = this.#words[ptr >> 2]! >> 2;
    const pointers = Array.from({ length: WARNINGS }, (_, i) => this.#words[begin + 2 * i]!);
    const [first] = pointers;
    if (first === undefined || pointers.some((pointer, i) => pointer !== first + 8 * i)) return undefined;
    return (first >> 2) + 1;
  }
}

/** `mjNWARNING`. */
const WARNINGS = 7;

/** MuJoCo's own error text, in one line. */
function sentenceOf(cause: unknown): string {
  const text = cause instanceof Error ? cause.message : String(cause);
  return text.replaceAll(/\s+/g, " ").trim().slice(0, 500);
}

const tripleAt = (values: Float64Array, id: number): [number, number, number] => [
  values[3 * id]!,
  values[3 * id + 1]!,
  values[3 * id + 2]!,
];
