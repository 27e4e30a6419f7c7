/** The queue of calls: fair between organizations, and by priority class within one. */
import { Priority } from "../../../gen/limber/edge/v1/options_pb.ts";

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

  has(priority: Priority): boolean {
    return (this.#classes[priority]?.length ?? 0) > 0;
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
   * itself if it has a less important call. An organization's first control loop also takes the place of a less important call of another one.
   * Undefined if there is none.
   */
  giver(org: string, priority: Priority): string | undefined {
    const own = this.#lines.get(org);
    const places = (own?.size ?? 0) + 1;
    const largest = this.#largest((name) => name !== org);
    if (largest !== undefined && this.#lines.get(largest)!.size > places) return largest;
    if (own !== undefined && isBelow(own, priority)) return org;
    if (priority !== Priority.LOOP || own?.has(priority)) return undefined;
    return this.#largest((name, line) => name !== org && isBelow(line, priority));
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

  #largest(mayBe: (org: string, line: AdmissionQueue<T>) => boolean = () => true): string | undefined {
    let most = 0;
    let largest: string | undefined;
    for (const [org, line] of this.#lines)
      if (line.size > most && mayBe(org, line)) {
        most = line.size;
        largest = org;
      }
    return largest;
  }
}

/** Whether a queue has a call of a less important class. */
const isBelow = <T extends QueuedCall>({ lowest }: AdmissionQueue<T>, priority: Priority): boolean =>
  lowest !== undefined && lowest < priority;
