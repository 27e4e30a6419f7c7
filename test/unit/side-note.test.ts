import { describe, expect, it } from "vitest";
import { SideNote } from "../../src/side-note.ts";

describe("a side note", () => {
  const colour = new SideNote<{ name: string }, string>("colour");

  it("is known of the object that it was made of, under its own name", () => {
    const [cube, ball] = [{ name: "cube" }, { name: "ball" }];
    colour.set(cube, "red");
    expect([colour.of(cube), colour.of(ball)]).toEqual(["red", undefined]);
    expect(new SideNote("colour").of(cube)).toBeUndefined();
    colour.set(cube, "blue");
    expect(colour.of(cube)).toBe("blue");
  });

  it("is in no copy, text or comparison", () => {
    const cube = { name: "cube" };
    colour.set(cube, "red");
    expect(colour.of({ ...cube })).toBeUndefined();
    expect(JSON.stringify(cube)).toBe('{"name":"cube"}');
    expect(cube).toStrictEqual({ name: "cube" });
  });
});
