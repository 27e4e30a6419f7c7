/** Stage 4: the order of what survived. Live figures stand above advertised ones, because the health view holds them so. */
import type { Axis } from "../offering.ts";
import { Flag } from "../snapshot/snapshot.ts";
import { type Ask, type Ordering, Reused, type RoutingTarget } from "./intent.ts";
import { cost, MEASURES } from "./sift.ts";

/** The best rows found so far: first by group, then by score, then by place. Lower is better in all three. */
export class Shortlist {
  readonly rows: Uint32Array;
  readonly scores: Float64Array;
  private readonly groups: Float64Array;
  count = 0;

  constructor(size: number) {
    this.rows = new Uint32Array(size);
    this.scores = new Float64Array(size);
    this.groups = new Float64Array(size);
  }

  /** Empties it. */
  clear(): void {
    this.count = 0;
  }

  /** The group of a place. */
  groupAt(place: number): number {
    return this.groups[place]!;
  }

  /**
   * Takes in those of the first `count` rows, all of one group, that are among the best and not in yet. They come in the
   * snapshot's order, so that an equal one stays behind.
   */
  offer(rows: Uint32Array, scores: Float64Array, count: number, group: number): void {
    if (this.count === 0) this.fill(rows, scores, count, group);
    else this.offerGrouped(rows, scores, count, () => group);
  }

  /** The same for an empty list, where no row comes twice and groups need no look: most plans have only one. */
  private fill(from: Uint32Array, all: Float64Array, count: number, group: number): void {
    const { rows, scores, groups } = this;
    const last = rows.length - 1;
    groups.fill(group);
    let held = 0;
    for (let i = 0; i < count; i++) {
      const score = all[i]!;
      if (held > last && score >= scores[last]!) continue;
      let place = held > last ? last : held++;
      for (; place > 0 && score < scores[place - 1]!; place--) {
        rows[place] = rows[place - 1]!;
        scores[place] = scores[place - 1]!;
      }
      rows[place] = from[i]!;
      scores[place] = score;
    }
    this.count = held;
  }

  /** The same for rows that each have a group of their own. */
  offerGrouped(rows: Uint32Array, scores: Float64Array, count: number, groupOf: (row: number) => number): void {
    const others = this.count > 0;
    for (let i = 0; i < count; i++) {
      const row = rows[i]!;
      const group = groupOf(row);
      if (scores[i]! >= this.bar(group) || (others && this.has(row))) continue;
      this.insert(row, group, scores[i]!);
    }
  }

  /** What a score of a group has to be below; NaN, which nothing is as great as, while every score is let in. */
  private bar(group: number): number {
    const last = this.rows.length - 1;
    if (this.count <= last || group < this.groups[last]!) return Number.NaN;
    return group === this.groups[last] ? this.scores[last]! : Number.NEGATIVE_INFINITY;
  }

  private has(row: number): boolean {
    return this.rows.subarray(0, this.count).includes(row);
  }

  private insert(row: number, group: number, score: number): void {
    const { rows, scores, groups, count } = this;
    let place = Math.min(count, rows.length - 1);
    this.count = place + 1;
    while (place > 0 && (group < groups[place - 1]! || (group === groups[place - 1] && score < scores[place - 1]!))) {
      rows[place] = rows[place - 1]!;
      scores[place] = scores[place - 1]!;
      groups[place] = groups[place - 1]!;
      place--;
    }
    rows[place] = row;
    scores[place] = score;
    groups[place] = group;
  }
}

const scoreBuffer = new Reused((length) => new Float64Array(length));
const valueBuffer = new Reused((length) => new Float64Array(length));

/** Puts the best of the first `count` survivors of one target into `best`; `place` is the target's in the request. */
export function rank(
  ask: Ask,
  target: RoutingTarget,
  place: number,
  survivors: Uint32Array,
  count: number,
  best: Shortlist,
): void {
  const scores = scoreBuffer.of(count);
  score(target.alias ? { ...ask, alias: target.alias } : ask, target.ordering, survivors, count, scores);
  const group = place * PER_TARGET;
  const groupOf = groupsOf(ask, group);
  if (groupOf) best.offerGrouped(survivors, scores, count, groupOf);
  else best.offer(survivors, scores, count, group);
}

/** How rows are grouped, where the request says anything that groups them. */
function groupsOf(ask: Ask, base: number): ((row: number) => number) | undefined {
  const places = placesOf(ask);
  const keyed = keyedOf(ask);
  if (!ask.pin && !places && !keyed && !ask.allowSimulated) return undefined;
  const { provider, model, traits } = ask.snapshot.columns;
  // The strong form of `order` is a constraint, which no pin changes.
  const pin = ask.strictOrder ? undefined : ask.pin;
  const pinnedModel = pin ? ask.snapshot.models.of(pin.model) : -1;
  const pinnedProvider = pin ? ask.snapshot.providers.of(pin.provider) : -1;
  return (row) => {
    if (model[row] === pinnedModel && provider[row] === pinnedProvider) return PINNED;
    let group = base;
    if (places) group += places[provider[row]!]!;
    if (keyed && !keyed[provider[row]!]) group += KEYLESS;
    return traits[row]! & Flag.SIMULATED ? group + PLACEHOLDERS : group;
  };
}

/** Groups, foremost first: what the session is pinned to; then each target's rows by `order`, own keys first; placeholders behind every model. */
export const PINNED = -1;
const PER_TARGET = 256;
/** Within a target and a place of `order`: what the caller has no key of its own for that comes first. */
const KEYLESS = 0.5;
const PLACEHOLDERS = 1e6;

/** By provider code: its place in `provider.order`, or behind all of them. Undefined when nothing is ordered. */
function placesOf({ preferences, snapshot }: Ask): Uint8Array | undefined {
  const order = preferences?.order;
  if (!order?.length) return undefined;
  const places = new Uint8Array(snapshot.providers.names.length).fill(order.length);
  for (let i = order.length - 1; i >= 0; i--) {
    const code = snapshot.providers.of(order[i]!);
    if (code >= 0) places[code] = i;
  }
  return places;
}

/** By provider code: whether the caller's own key comes first there. Undefined when it does nowhere. */
function keyedOf({ ownKeys, snapshot }: Ask): Uint8Array | undefined {
  if (!ownKeys) return undefined;
  const keyed = new Uint8Array(snapshot.providers.names.length);
  let any = false;
  for (const [name, use] of ownKeys.byProvider) {
    const code = use === "first" ? snapshot.providers.of(name) : -1;
    if (code < 0) continue;
    keyed[code] = 1;
    any = true;
  }
  return any ? keyed : undefined;
}

function score(ask: Ask, ordering: Ordering, rows: Uint32Array, count: number, scores: Float64Array): void {
  if (ordering.kind === "axis") MEASURES[ordering.axis](ask, rows, count, scores);
  else if (ordering.kind === "objective") weigh(ask, ordering.weights, rows, count, scores);
  else shuffle(ask, rows, count, scores);
}

/** One axis of an objective over the survivors: what `value - least` is multiplied by. */
interface Axle {
  readonly values: Float64Array;
  readonly least: number;
  readonly slope: number;
}

/** Each axis is spread over 0 to 1 among the survivors, so that only the ratios of the weights matter. */
function weigh(
  ask: Ask,
  weights: readonly (readonly [Axis, number])[],
  rows: Uint32Array,
  count: number,
  scores: Float64Array,
): void {
  // Weights may be as great or as small as numbers are: their sum alone could be beyond all of them.
  let greatest = 0;
  for (const [, weight] of weights) greatest = Math.max(greatest, weight);
  let sum = 0;
  for (const [, weight] of weights) sum += weight / greatest;
  const axles = weights.map(([axis, weight], i): Axle => {
    figures[i] ??= new Reused((length) => new Float64Array(length));
    const values = figures[i].of(count);
    MEASURES[axis](ask, rows, count, values);
    return axleOf(values, count, weight / greatest / sum);
  });
  add(axles, count, scores);
}

/** Where the figures of each axis are written. */
const figures: Reused<Float64Array>[] = [];

function axleOf(values: Float64Array, count: number, share: number): Axle {
  let least = Number.POSITIVE_INFINITY;
  let most = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < count; i++) {
    const value = values[i]!;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  if (most === Number.POSITIVE_INFINITY) [least, most] = withUnknown(values, count, least);
  return { values, least, slope: most > least ? share / (most - least) : 0 };
}

/** Three axes at once: most objectives have no more. One that lacks some adds its first again, times nothing. */
function add(axles: readonly Axle[], count: number, scores: Float64Array): void {
  const [first] = axles;
  const none = { ...first!, slope: 0 };
  for (let at = 0; at < axles.length; at += 3) {
    const { values: a, least: leastA, slope: slopeA } = axles[at]!;
    const { values: b, least: leastB, slope: slopeB } = axles[at + 1] ?? none;
    const { values: c, least: leastC, slope: slopeC } = axles[at + 2] ?? none;
    for (let i = 0; i < count; i++) {
      const sum = (a[i]! - leastA) * slopeA + (b[i]! - leastB) * slopeB + (c[i]! - leastC) * slopeC;
      scores[i] = at === 0 ? sum : scores[i]! + sum;
    }
  }
}

/** What is not known becomes the worst there is, beyond all that is equally good. Answers the least and the most that there are then. */
function withUnknown(values: Float64Array, count: number, least: number): [number, number] {
  let most = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < count; i++) if (values[i]! < Number.POSITIVE_INFINITY && values[i]! > most) most = values[i]!;
  const from = most === Number.NEGATIVE_INFINITY ? 0 : least;
  const worst = most > from ? most : from + 1;
  for (let i = 0; i < count; i++) if (values[i] === Number.POSITIVE_INFINITY) values[i] = worst;
  return [from, worst];
}

/** What a free call counts as in the weights, in micro-dollars: it is cheap, not infinitely so. */
const LEAST_MICRO = 1;

/**
 * A weighted draw without replacement: each row's score is an exponential variate over its weight, and the lowest goes
 * first. Weights fall with the square of the price and rise with the square of the share of calls that succeed, and who is
 * slower than usual gets next to nothing.
 */
function shuffle(ask: Ask, rows: Uint32Array, count: number, scores: Float64Array): void {
  const { success, pace } = ask.health;
  const { place } = ask.snapshot;
  const values = valueBuffer.of(count);
  cost(ask, rows, count, values);
  const salt = mix(Math.floor(ask.seed) | 0);
  for (let i = 0; i < count; i++) {
    const row = rows[i]!;
    const price = values[i]! + LEAST_MICRO;
    const health = success[row]! * pace[row]!;
    scores[i] =
      (EXPONENTIALS[mix(place[row]! ^ salt) & (EXPONENTIALS.length - 1)]! * price * price) / (health * health + 1e-6);
  }
}

/** Exponential variates at evenly spaced probabilities: a table costs a tenth of a logarithm. */
const EXPONENTIALS = Float64Array.from({ length: 4096 }, (_, i) => -Math.log((i + 0.5) / 4096));

/** Scatters the bits of a 32-bit number (the finalizer of MurmurHash3). */
function mix(word: number): number {
  let h = word;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
