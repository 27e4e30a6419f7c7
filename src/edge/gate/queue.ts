/** The queue of calls: fair between organizations, and by priority class within one. */
import type { Priority } from "../../../gen/limber/edge/v1/options_pb.ts";

/** A queued call. */
export interface QueuedCall {
  readonly org: string;
  readonly priority: Priority;
  /** When it arrived, and when its response becomes useless; on the monotonic clock in milliseconds. */
  readonly since: number;
  readonly deadline: number | undefined;
}

/** The calls of one organization, by class, oldest first. */
class AdmissionQueue<T extends QueuedCall> {
  readonly #classes: T[][] = [];
  size = 0;

  push(call: T): void {
    let list = this.#classes[call.priority];
    if (list === undefined) {
      list = [];
      this.#classes[call.priority] = list;
    }
    list.push(call);
    this.size++;
  }

  /** The next call of the most important class. */
  next(newestFirst: boolean): T | undefined {
    for (let priority = this.#classes.length - 1; priority >= 0; priority--) {
      const list = this.#classes[priority];
      if (list === undefined || list.length === 0) continue;
      this.size--;
      return newestFirst ? list.pop() : list.shift();
    }
    return undefined;
  }

  /** The least important class with calls; undefined if there are none. */
  get lowest(): Priority | undefined {
    const found = this.#classes.findIndex((list) => list !== undefined && list.length > 0);
    return found < 0 ? undefined : (found as Priority); // sound: lists stand at the numbers of their classes
  }

  /** Removes the oldest call of the least important class. */
  dropOldest(): T | undefined {
    const { lowest } = this;
    if (lowest === undefined) return undefined;
    this.size--;
    return this.#classes[lowest]?.shift();
  }

  /** Removes the calls for which `isOver` is true. */
  takeOut(isOver: (call: T) => boolean, out: T[]): void {
    for (const list of this.#classes) {
      if (list === undefined) continue;
      let kept = 0;
      for (const call of list) {
        if (isOver(call)) out.push(call);
        else list[kept++] = call;
      }
      this.size -= list.length - kept;
      list.length = kept;
    }
  }
}

/** All queued calls. The caller limits their number. */
export class FairQueue<T extends QueuedCall> {
  /** In service order: the served organization moves to the end. */
  readonly #lines = new Map<string, AdmissionQueue<T>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(call: T): void {
    let line = this.#lines.get(call.org);
    if (line === undefined) {
      line = new AdmissionQueue();
      this.#lines.set(call.org, line);
    }
    line.push(call);
    this.#size++;
  }

  /** Removes the next call of the next organization. */
  next(newestFirst: boolean): T | undefined {
    for (const [org, line] of this.#lines) {
      this.#lines.delete(org);
      const call = line.next(newestFirst);
      if (call === undefined) continue;
      if (line.size > 0) this.#lines.set(org, line);
      this.#size--;
      return call;
    }
    return undefined;
  }

  /**
   * The organization that loses a place in a full queue to a new call of `org`: the one with the most places if it has more than `org`, or `org`
   * itself if it has a less important call; undefined if there is none.
   */
  giver(org: string, priority: Priority): string | undefined {
    const own = this.#lines.get(org);
    let most = (own?.size ?? 0) + 1;
    let giver: string | undefined;
    for (const [name, { size }] of this.#lines)
      if (name !== org && size > most) {
        most = size;
        giver = name;
      }
    if (giver !== undefined) return giver;
    const lowest = own?.lowest;
    return lowest !== undefined && lowest < priority ? org : undefined;
  }

  /** Removes the oldest call of the least important class of an organization, or of the one with the most calls. */
  evict(org = this.#largest()): T | undefined {
    const line = org === undefined ? undefined : this.#lines.get(org);
    const call = line?.dropOldest();
    if (call === undefined || org === undefined) return undefined;
    if (line?.size === 0) this.#lines.delete(org);
    this.#size--;
    return call;
  }

  /** Removes every call for which `isOver` is true. */
  takeOut(isOver: (call: T) => boolean): T[] {
    const out: T[] = [];
    for (const [org, line] of this.#lines) {
      line.takeOut(isOver, out);
      if (line.size === 0) this.#lines.delete(org);
    }
    this.#size -= out.length;
    return out;
  }

  #largest(): string | undefined {
    let most = 0;
    let largest: string | undefined;
    for (const [org, { size }] of this.#lines)
      if (size > most) {
        most = size;
        largest = org;
      }
    return largest;
  }
}
