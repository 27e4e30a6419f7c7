/** Calls that wait for their answers, by numbers that follow one another. */

/** As many as are usually under way at once, and a power of two. */
const PLACES = 1024;

/** Something with a number of its own. */
interface Numbered {
  readonly id: number;
}

/**
 * A place for each number, and again from the first one on, so that nothing is hashed and no room is made for a call. What holds its
 * place when another number comes to it waits apart.
 */
export class PendingAnswers<T extends Numbered> {
  readonly #places: (T | undefined)[] = Array.from({ length: PLACES }, () => undefined);
  readonly #apart = new Map<number, T>();
  /** How many wait. */
  size = 0;

  /** Takes one in, whose number is new. */
  add(call: T): void {
    const place = call.id & (PLACES - 1);
    const before = this.#places[place];
    if (before !== undefined) this.#apart.set(before.id, before);
    this.#places[place] = call;
    this.size += 1;
  }

  /** The call of this number, which waits no longer; undefined where none does. */
  take(id: number): T | undefined {
    const place = id & (PLACES - 1);
    const call = this.#places[place];
    if (call?.id === id) {
      this.#places[place] = undefined;
      this.size -= 1;
      return call;
    }
    if (this.#apart.size === 0) return undefined;
    const late = this.#apart.get(id);
    if (late && this.#apart.delete(id)) this.size -= 1;
    return late;
  }

  /** All that wait, in the order of their numbers; none waits any longer. */
  takeAll(): T[] {
    const all = [...this.#apart.values(), ...this.#places.filter((call) => call !== undefined)];
    this.#apart.clear();
    this.#places.fill(undefined);
    this.size = 0;
    return all.sort((a, b) => a.id - b.id);
  }
}
