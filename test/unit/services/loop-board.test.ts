/** Which loop of a session goes on, whatever is told late. */
import { expect, it, onTestFinished } from "vitest";
import { type Carried, LoopBoard } from "../../../src/services/inference/loop/board.ts";

const FIGURES = {} as Parameters<LoopBoard["leave"]>[1];

it("a word of a stream that is over here already cuts none that came after it; one of another replica's does", () => {
  const loops = new LoopBoard();
  onTestFinished(() => loops.close());
  const cut: string[] = [];
  const begin = (id: string): void => {
    const loop = { id, session: "s", mover: { key: { keyId: "k" } }, cut: () => end() } as unknown as Carried;
    const end = (): void => {
      cut.push(id);
      loops.leave(loop, FIGURES);
    };
    loops.enter(loop)?.cut(undefined as never);
  };
  for (const id of ["first", "second", "third"]) begin(id);
  expect(cut).toEqual(["first", "second"]);
  for (const late of ["first", "second", "third"]) loops.taken("s", late);
  expect(cut).toEqual(["first", "second"]);
  loops.taken("s", "elsewhere");
  expect(cut).toEqual(["first", "second", "third"]);
});
