/** The calls that run at the moment. */

/**
 * Members that come and go by the thousand a second. Not a Set: one that grows or shrinks leaves a table behind, which the collector takes for
 * alive until its next full round, with all members that were in it and all that they hold.
 */
export class RunningCalls<T> {
  readonly #places: (T | undefined)[] = [];
  readonly #free: number[] = [];

  /** Takes a member in; call the returned function once, when it leaves. */
  enter(member: T): () => void {
    const place = this.#free.pop() ?? this.#places.length;
    this.#places[place] = member;
    return () => {
      this.#places[place] = undefined;
      this.#free.push(place);
    };
  }

  /** Calls `visit` for every member; members may leave meanwhile. */
  each(visit: (member: T) => void): void {
    for (const member of [...this.#places]) if (member !== undefined) visit(member);
  }
}
