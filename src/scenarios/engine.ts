/** The physics: MuJoCo, compiled to WebAssembly, with the same arithmetic on every machine. */
import load, { type MainModule, type MjData, type MjModel } from "@mujoco/mujoco";
import { ScenarioError } from "./failure.ts";
import { ENGINE_FACTS } from "./scenario.ts";

let engine: Promise<MainModule> | undefined;

/** The kinds of objects in a model. */
type Named = "body" | "joint" | "geom" | "site" | "camera" | "actuator" | "sensor";

/** A compiled model with its state. MuJoCo's arrays move when its memory grows, so they are read again at every access. */
export class World {
  readonly #mj: MainModule;
  readonly #model: MjModel;
  readonly #data: MjData;
  // The list is a reference into the data: freeing it would crash the engine.
  readonly #warnings: MjData["warning"];
  readonly #ids = new Map<string, number>();
  #warned = 0;

  private constructor(mj: MainModule, model: MjModel) {
    this.#mj = mj;
    this.#model = model;
    this.#data = new mj.MjData(model);
    this.#warnings = this.#data.warning;
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

  get qpos(): Float64Array {
    return this.#data.qpos as Float64Array;
  }

  get qvel(): Float64Array {
    return this.#data.qvel as Float64Array;
  }

  get ctrl(): Float64Array {
    return this.#data.ctrl as Float64Array;
  }

  /** Resets to the model's initial state. */
  reset(): void {
    this.#mj.mj_resetData(this.#model, this.#data);
    this.#mj.mj_forward(this.#model, this.#data);
    this.#warned = this.#warningCount();
  }

  /** Computes everything that depends on positions and velocities, without advancing time. */
  forward(): void {
    this.#mj.mj_forward(this.#model, this.#data);
  }

  /** Advances time by `count` steps and computes all positions. */
  step(count = 1): void {
    for (let i = 0; i < count; i++) this.#mj.mj_step(this.#model, this.#data);
    this.#mj.mj_forward(this.#model, this.#data);
  }

  /** Whether the simulation became unstable since the reset, so that its results are invalid. */
  get unstable(): boolean {
    return this.#warningCount() > this.#warned;
  }

  /** The index of a named object. Throws `ScenarioError` if the model does not contain it. */
  id(kind: Named, name: string): number {
    const key = `${kind} ${name}`;
    const known = this.#ids.get(key);
    if (known !== undefined) return known;
    const type = this.#mj.mjtObj[`mjOBJ_${kind.toUpperCase()}` as "mjOBJ_BODY"];
    const id = this.#mj.mj_name2id(this.#model, (type as unknown as { value: number }).value, name);
    if (id < 0) throw new ScenarioError(`the scenario's model has no ${kind} named ${name}`);
    this.#ids.set(key, id);
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
    return tripleAt(this.#data.site_xpos as Float64Array, this.id("site", name));
  }

  /** A site's rotation: nine numbers, row by row. */
  siteTurn(name: string): Float64Array {
    const at = this.id("site", name) * 9;
    return (this.#data.site_xmat as Float64Array).slice(at, at + 9);
  }

  /** A body's position in world coordinates, in meters. */
  body(name: string): [number, number, number] {
    return tripleAt(this.#data.xpos as Float64Array, this.id("body", name));
  }

  /** A body's rotation: nine numbers, row by row. */
  bodyTurn(name: string): Float64Array {
    const at = this.id("body", name) * 9;
    return (this.#data.xmat as Float64Array).slice(at, at + 9);
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
    const placed = this.#data.mocap_pos as Float64Array;
    return Float64Array.of(...this.qpos, ...this.qvel, ...placed);
  }

  /** Places a mocap body (a goal, an obstacle). */
  put(body: string, [x, y, z]: readonly [number, number, number]): void {
    const at = 3 * this.#model.body_mocapid[this.id("body", body)]!;
    const placed = this.#data.mocap_pos as Float64Array;
    placed[at] = x;
    placed[at + 1] = y;
    placed[at + 2] = z;
  }

  /** Frees the engine's memory. */
  close(): void {
    this.#data.delete();
    this.#model.delete();
  }

  #warningCount(): number {
    let count = 0;
    for (let i = 0; i < this.#warnings.size(); i++) {
      const warning = this.#warnings.get(i);
      count += warning?.number ?? 0;
      warning?.delete();
    }
    return count;
  }
}

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
