/** Small worlds for closed-loop tests: each moves by the actions it is given and says where it is. None shares code with the controllers. */

/** A pose in the plane: metres, radians counter-clockwise. */
export interface PlanarPose {
  x: number;
  y: number;
  yaw: number;
}

/** The smallest signed difference between two angles. */
export const angleBetween = (a: number, b: number): number => Math.atan2(Math.sin(a - b), Math.cos(a - b));

/** A wheeled base that follows speed commands with a lag of `lagMs`, integrated in steps of 10 ms. */
export class WheeledBase {
  readonly pose: PlanarPose;
  readonly #lagMs: number;
  #speed = 0;
  #turn = 0;

  constructor(pose: PlanarPose, lagMs: number) {
    this.pose = { ...pose };
    this.#lagMs = lagMs;
  }

  /** Applies one command (m/s, rad/s) for `ms` milliseconds; speeds are capped at 1 m/s and 3 rad/s. */
  drive(speed: number, turn: number, ms: number): void {
    for (let t = 0; t < ms; t += 10) {
      const share = 1 - Math.exp(-10 / this.#lagMs);
      this.#speed += share * (Math.max(-1, Math.min(1, speed)) - this.#speed);
      this.#turn += share * (Math.max(-3, Math.min(3, turn)) - this.#turn);
      this.pose.yaw += this.#turn * 0.01;
      this.pose.x += this.#speed * 0.01 * Math.cos(this.pose.yaw);
      this.pose.y += this.#speed * 0.01 * Math.sin(this.pose.yaw);
    }
  }
}

/** A base with a tracker of its own: it moves towards a commanded pose at up to 0.8 m/s and 2 rad/s. */
export class TrackedBase {
  readonly pose: PlanarPose;

  constructor(pose: PlanarPose) {
    this.pose = { ...pose };
  }

  /** Follows one pose, given as seen from `origin`, for `ms` milliseconds. */
  follow(origin: PlanarPose, [x, y, yaw]: readonly [number, number, number], ms: number): void {
    const cos = Math.cos(origin.yaw);
    const sin = Math.sin(origin.yaw);
    const dx = origin.x + x * cos - y * sin - this.pose.x;
    const dy = origin.y + x * sin + y * cos - this.pose.y;
    const far = Math.hypot(dx, dy);
    const share = far === 0 ? 0 : Math.min(1, (0.0008 * ms) / far);
    this.pose.x += share * dx;
    this.pose.y += share * dy;
    const off = angleBetween(origin.yaw + yaw, this.pose.yaw);
    this.pose.yaw += Math.max(-0.002 * ms, Math.min(0.002 * ms, off));
  }
}

/** Joints with servos that cover 70 % of the way to their targets each step and turn by at most 0.2 rad. */
export class ServoJoints {
  readonly angles: Float64Array;

  constructor(angles: ArrayLike<number>) {
    this.angles = Float64Array.from(angles);
  }

  /** Moves every joint towards its target (rad) for one step. */
  track(targets: ArrayLike<number>): void {
    for (let i = 0; i < this.angles.length; i++) {
      const wanted = 0.7 * (targets[i]! - this.angles[i]!);
      this.angles[i] = this.angles[i]! + Math.max(-0.2, Math.min(0.2, wanted));
    }
  }
}

/** A hand that follows shifts (m) with 85 % of their size, capped at 50 mm. */
export class LaggingHand {
  readonly place: [number, number, number];

  constructor(place: readonly [number, number, number]) {
    this.place = [...place];
  }

  /** Moves by one shift. */
  shift(by: ArrayLike<number>): void {
    for (let axis = 0; axis < 3; axis++) this.place[axis]! += 0.85 * Math.max(-0.05, Math.min(0.05, by[axis]!));
  }
}

/** Gymnasium's Pendulum-v1, written from its public equations: angle 0 is upright; the reward is -(angle² + 0.1 speed² + 0.001 torque²). */
export class Pendulum {
  angle: number;
  speed: number;

  constructor(angle: number, speed: number) {
    this.angle = angle;
    this.speed = speed;
  }

  /** Cosine, sine and speed, as the environment observes. */
  observe(): [number, number, number] {
    return [Math.cos(this.angle), Math.sin(this.angle), this.speed];
  }

  /** Applies a torque (N m, capped at 2) for 50 ms and returns the reward. */
  push(torque: number): number {
    const u = Math.max(-2, Math.min(2, torque));
    const reward = -(angleBetween(this.angle, 0) ** 2 + 0.1 * this.speed ** 2 + 0.001 * u ** 2);
    this.speed = Math.max(-8, Math.min(8, this.speed + (15 * Math.sin(this.angle) + 3 * u) * 0.05));
    this.angle += this.speed * 0.05;
    return reward;
  }
}
