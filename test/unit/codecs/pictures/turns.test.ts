import { describe, expect, it } from "vitest";
import { Cancel } from "../../../../src/cancellation.ts";
import { PictureTurns } from "../../../../src/codecs/pictures/turns.ts";

/** Work that ends when it is told, and notes when it began. */
class Works {
  readonly begun: string[] = [];
  readonly #ends = new Map<string, () => void>();

  of(name: string): () => Promise<string> {
    return () => {
      this.begun.push(name);
      const { promise, resolve } = Promise.withResolvers<string>();
      this.#ends.set(name, () => resolve(name));
      return promise;
    };
  }

  /** Ends a piece of work, and lets what follows begin. */
  async end(name: string): Promise<void> {
    this.#ends.get(name)?.();
    await new Promise(setImmediate);
  }
}

const SMALL = 100;
const LARGE = 10_000;
const limits = { all: 2, large: 1, largePixels: 1_000 };
const by = (key: string, robot = "one") => ({ key, robot });

describe("the slots for image work", () => {
  it("are few at a time", async () => {
    const [turns, works] = [new PictureTurns(limits), new Works()];
    const done = ["a", "b", "c"].map((name) => turns.run(by("key"), SMALL, works.of(name)));
    expect(works.begun).toEqual(["a", "b"]);
    expect(turns.figures).toEqual({ running: 2, waiting: 1, begun: 2, left: 0 });
    await works.end("a");
    expect(works.begun).toEqual(["a", "b", "c"]);
    await works.end("b");
    await works.end("c");
    expect(await Promise.all(done)).toEqual(["a", "b", "c"]);
    expect(turns.figures).toEqual({ running: 0, waiting: 0, begun: 3, left: 0 });
  });

  it("alternate between keys, and between the robots of a key", async () => {
    const [turns, works] = [new PictureTurns({ ...limits, all: 1 }), new Works()];
    const ask = (key: string, robot: string, name: string): void => {
      void turns.run(by(key, robot), SMALL, works.of(name));
    };
    ask("greedy", "1", "first");
    for (let i = 0; i < 3; i++) ask("greedy", "1", `greedy 1.${i}`);
    ask("greedy", "2", "greedy 2.0");
    ask("modest", "1", "modest 0");
    ask("modest", "1", "modest 1");
    ask("other", "1", "other 0");
    for (let i = 0; i < works.begun.length; i++) await works.end(works.begun[i]!);
    expect(works.begun).toEqual([
      "first",
      "greedy 1.0",
      "modest 0",
      "other 0",
      "greedy 2.0",
      "modest 1",
      "greedy 1.1",
      "greedy 1.2",
    ]);
  });

  it("are fewer for large images, so that small ones never wait only for large ones", async () => {
    const [turns, works] = [new PictureTurns(limits), new Works()];
    for (const name of ["large a", "large b", "large c"]) void turns.run(by(name), LARGE, works.of(name));
    void turns.run(by("small"), SMALL, works.of("small"));
    expect(works.begun).toEqual(["large a", "small"]);
    await works.end("small");
    expect(works.begun).toEqual(["large a", "small"]);
    await works.end("large a");
    expect(works.begun).toEqual(["large a", "small", "large b"]);
  });

  it("are never given to callers that left", async () => {
    const [turns, works] = [new PictureTurns({ ...limits, all: 1 }), new Works()];
    const gone = new Error("gone");
    const [leaving, staying] = [new Cancel(), new Cancel()];
    const first = turns.run(by("a"), SMALL, works.of("first"), staying);
    const waiting = turns.run(by("a"), SMALL, works.of("waiting"), leaving);
    const late = turns.run(by("b"), SMALL, works.of("late"), staying);
    leaving.abort(gone);
    await expect(waiting).rejects.toBe(gone);
    await expect(turns.run(by("a"), SMALL, works.of("never"), leaving)).rejects.toBe(gone);
    expect(turns.figures).toEqual({ running: 1, waiting: 1, begun: 1, left: 1 });
    // What has begun goes on.
    staying.abort(gone);
    await expect(late).rejects.toBe(gone);
    await works.end("first");
    expect(await first).toBe("first");
    expect(works.begun).toEqual(["first"]);
  });

  it("are returned after failed work, at once or later", async () => {
    const turns = new PictureTurns({ ...limits, all: 1 });
    const broken = new Error("broken");
    const thrown = turns.run(by("a"), SMALL, () => {
      throw broken;
    });
    const rejected = turns.run(by("a"), SMALL, () => Promise.reject(broken));
    await expect(thrown).rejects.toBe(broken);
    await expect(rejected).rejects.toBe(broken);
    expect(await turns.run(by("a"), SMALL, async () => "well")).toBe("well");
    expect(turns.figures).toEqual({ running: 0, waiting: 0, begun: 3, left: 0 });
  });
});
