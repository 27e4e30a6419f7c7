/** The pictures of earlier calls that a GR00T server looks back to: which are chosen, and how long they are kept. */
import { describe, expect, it } from "vitest";
import { NdArray } from "../../../../src/codecs/python/ndarray.ts";
import { Histories, stacked } from "../../../../src/upstream/gr00t-zmq/history.ts";

/** DROID: a second ago, and now. */
const DROID = { steps: 15, dtMs: 67 };
const OFFSETS = [-15, 0];

const moment = (at: number, bytes = 3) => ({
  at,
  pictures: new Map([["ego", NdArray.uint8(new Uint8Array(bytes).fill(at % 256), [1, bytes / 3, 3])]]),
});

/** By the first byte of each picture that the server gets: when it was shown. */
const look = (film: Parameters<typeof stacked>[0], offsets = OFFSETS, dtMs = DROID.dtMs): number[] => {
  const video = stacked(film, offsets, dtMs).get("ego")!;
  const size = video.data.length / offsets.length;
  return offsets.map((_, i) => video.data[i * size]!);
};

describe("the observation history of a session", () => {
  it.each([
    ["that calls once a second returns the previous call", [0, 1000, 2000], [232, 208]],
    ["that calls twice a second returns the call before the previous one", [0, 500, 1000, 1500], [244, 220]],
    ["that starts returns its first call again", [0], [0, 0]],
    ["that paused returns nothing from before", [0, 5000], [136, 136]],
  ])("%s", (_, times, seen) => {
    const histories = new Histories();
    let film: ReturnType<Histories["shown"]> = [];
    for (const at of times) film = histories.shown("one", moment(at), DROID);
    expect(look(film)).toEqual(seen);
  });

  it("that calls fifty times a second returns moments about a second old, and keeps few", () => {
    const histories = new Histories();
    for (let at = 0; at < 10_000; at += 20) {
      const film = histories.shown("one", moment(at), DROID);
      expect(film.length).toBeLessThanOrEqual(17);
      const wanted = at - 15 * 67;
      const nearest = film.reduce((best, each) =>
        Math.abs(each.at! - wanted) < Math.abs(best.at! - wanted) ? each : best,
      );
      if (wanted > 0) expect(Math.abs(nearest.at! - wanted)).toBeLessThanOrEqual(140);
    }
  });

  it("without a known rate returns its last calls in order", () => {
    const histories = new Histories();
    let film: ReturnType<Histories["shown"]> = [];
    for (const at of [1, 2, 3, 4]) film = histories.shown("one", moment(at), { steps: 15, dtMs: 0 });
    expect(look(film, [-20, -10, 0], 0)).toEqual([2, 3, 4]);
  });

  it("keeps no memory of the messages that contained its images", () => {
    const histories = new Histories();
    const message = new Uint8Array(1 << 20);
    const pictures = new Map([["ego", NdArray.uint8(message.subarray(300, 303), [1, 1, 3])]]);
    histories.shown("one", { at: 0, pictures }, DROID);
    const [kept] = histories.shown("one", moment(1000), DROID);
    expect(kept!.pictures.get("ego")!.data.buffer.byteLength).toBe(3);
  });

  it("contains nothing of another session", () => {
    const histories = new Histories();
    histories.shown("one", moment(1), DROID);
    expect(look(histories.shown("two", moment(1001), DROID))).toEqual([233, 233]);
  });
});

describe("the stored histories", () => {
  it("expire a minute after the session's last call", () => {
    const histories = new Histories();
    histories.shown("one", moment(0), { steps: 15, dtMs: 0 });
    histories.shown("two", moment(61_000), { steps: 15, dtMs: 0 });
    expect(histories.shown("one", moment(61_001), { steps: 15, dtMs: 0 })).toHaveLength(1);
  });

  it("are bounded for any number of sessions: the least recently called is dropped first", () => {
    const histories = new Histories();
    const megabytes = 9 * 2 ** 20;
    for (let i = 0; i < 8; i++) histories.shown(`${i}`, moment(i, megabytes), DROID);
    expect(histories.shown("7", moment(1000, megabytes), DROID)).toHaveLength(2);
    expect(histories.shown("0", moment(1000, megabytes), DROID)).toHaveLength(1);
  });
});
