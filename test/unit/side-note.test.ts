import { describe, expect, it } from "vitest";
import { SideNote } from "../../src/side-note.ts";

describe("a side note", () => {
  const colour = new SideNote<{ name: string }, string>("colour");

  it("is attached to its object, under its own name", () => {
    const [cube, ball] = [{ name: "cube" }, { name: "ball" }];
    colour.set(cube, "red");
    expect([colour.of(cube), colour.of(ball)]).toEqual(["red", undefined]);
    expect(new SideNote("colour").of(cube)).toBeUndefined();
    colour.set(cube, "blue");
    expect(colour.of(cube)).toBe("blue");
  });

  it("does not appear in a copy, text or comparison", () => {
    const cube = { name: "cube" };
    colour.set(cube, "red");
    expect(colour.of({ ...cube })).toBeUndefined();
    expect(JSON.stringify(cube)).toBe('{"name":"cube"}');
    expect(cube).toStrictEqual({ name: "cube" });
  });
});
