/** Overload: which calls are worked on, which wait, which are refused, and when a gateway is calm again. */

import { beforeEach, expect, it, onTestFinished } from "vitest";
import { Priority } from "../../../../../gen/limber/edge/v1/options_pb.ts";
import { type AdmittedWork, GradientLimit, LoadShedder } from "../../../../../src/edge/gate/admission.ts";
import { FairQueue, type QueuedCall } from "../../../../../src/edge/gate/queue.ts";
import { Reason, Refusal } from "../../../../../src/errors.ts";
import { setAmbient } from "../../../../support/clocks.ts";
import { ManualClock, settle } from "../../../../support/manual-clock.ts";

const { BATCH, ADMINISTRATION, PREDICT, ACT, LOOP, CRITICAL } = Priority;

/** Lets a turn of the event loop end, and what it lets in begin. */
const turn = async (): Promise<void> => {
  await settle();
  await settle();
};

let clock: ManualClock;
beforeEach(() => {
  clock = new ManualClock();
  const restore = setAmbient({ clock });
  onTestFinished(restore);
});

/** A shedder with a limit that stays, and what becomes of the calls that enter it. */
function shedder(limit = 2) {
  const load = new LoadShedder({ initial: limit, least: limit, most: limit });
  const running: { name: string; work: AdmittedWork }[] = [];
  const refused: string[] = [];
  const enter = (
    name: string,
    { priority = ACT as Priority, org = "a", deadline = undefined as number | undefined } = {},
  ) => {
    const entered = load.tryEnter(priority);
    if (entered) running.push({ name, work: entered });
    else
      load
        .enter(priority, () => org, deadline)
        .then(
          (work) => running.push({ name, work }),
          (thrown) => {
            expect(thrown).toBeInstanceOf(Refusal);
            expect(thrown).toMatchObject({ reason: Reason.OVERLOADED });
            refused.push(name);
          },
        );
  };
  const names = () => running.map(({ name }) => name);
  /** Ends the oldest that run, and answers who does then. */
  const serve = async (count = 1): Promise<void> => {
    for (let i = 0; i < count; i++) {
      running.shift()?.work.end();
      await turn();
    }
  };
  /** So many calls of one organisation arrive and stay until the gateway sheds. */
  const flood = async (org = "flood", priority: Priority = ACT): Promise<void> => {
    for (let i = 0; i < 280; i++) enter(`${org}${i}`, { org, priority });
    await clock.advance(480);
    for (let i = 280; i < 300; i++) enter(`${org}${i}`, { org, priority });
    await clock.advance(20);
    expect(load.figures.isShedding).toBe(true);
  };
  return { load, enter, names, serve, refused, running, flood };
}

it("admission admits calls at once up to the limit, and the others in order of arrival", async () => {
  const { enter, names, serve } = shedder();
  for (const name of ["1", "2", "3", "4"]) enter(name);
  expect(names()).toEqual(["1", "2"]);
  await serve(2);
  expect(names()).toEqual(["3", "4"]);
});

it("admission does not count calls that wait for an upstream, nor, after their first turn, for the remaining body", async () => {
  const { enter, names, running, load } = shedder(4);
  for (const name of ["1", "2", "3", "4"]) enter(name);
  running[0]?.work.away();
  await turn();
  enter("5");
  expect(names()).toEqual(["1", "2", "3", "4", "5"]);
  running[0]?.work.back();
  expect(load.figures.inFlight).toBe(5);
  running[0]?.work.end();
  running[0]?.work.end();
  running[1]?.work.reading();
  enter("6");
  expect([names().includes("6"), load.figures.inFlight]).toEqual([false, 3]);
  await turn();
  expect(names()).toContain("6");
});

it("admission never refuses fewer concurrent callers than a queue of 256, however long they wait", async () => {
  const { enter, names, serve, refused, load } = shedder();
  for (let i = 0; i < 256; i++) enter(String(i));
  await clock.advance(60_000);
  expect(load.figures.isShedding).toBe(false);
  while (names().length > 0) await serve();
  expect(refused).toEqual([]);
  expect(load.figures.classes.find(({ priority }) => priority === "act")).toEqual({
    priority: "act",
    queued: 0,
    admitted: 256,
  });
});

it("admission sheds after half a second of a long queue: it refuses the oldest calls that cannot be served soon", async () => {
  const { flood, refused, load, serve, names } = shedder();
  await flood();
  const queued = load.figures.classes.reduce((sum, each) => sum + each.queued, 0);
  expect(queued).toBe(16);
  expect(refused.length + load.figures.held).toBe(300 - 2 - 16);
  expect(refused).not.toContain("flood299");
  expect(load.refuses(ACT, () => "flood")).toBe("flood");
  await serve(2);
  expect(names()).toEqual(["flood299", "flood298"]);
  expect(load.refuses(ACT, () => "flood")).toBeUndefined();
});

it("admission refuses calls that waited 400 ms while it sheds", async () => {
  const { flood, refused, load } = shedder();
  await flood();
  expect(load.figures.classes.find(({ priority }) => priority === "act")?.queued).toBe(16);
  await clock.advance(20_000);
  expect(load.figures.classes.map(({ queued }) => queued)).toEqual([0, 0, 0, 0, 0, 0]);
  expect(refused).toHaveLength(300 - 2);
  expect(load.figures.shed.find(({ reason }) => reason === "queue_timeout")?.count).toBe(278 + 16);
});

it("admission gives a call its turn after a stall of the process, instead of refusing it for the stall", async () => {
  const { flood, enter, names, refused, serve, load } = shedder();
  await flood();
  enter("modest", { org: "modest" });
  clock.stall(2_000);
  await clock.advance(0);
  expect(load.figures.isShedding).toBe(true);
  expect(refused).not.toContain("modest");
  await serve(2);
  expect(names()).toContain("modest");
});

it("admission stops shedding a second after the last refusal", async () => {
  const { flood, running, load, enter, names } = shedder();
  await flood();
  await clock.advance(20);
  await clock.advance(500);
  for (const { work } of running.splice(0)) work.end();
  await clock.advance(20_000);
  expect(load.figures).toMatchObject({ isShedding: false, held: 0, inFlight: 0 });
  // Nothing is timed while nothing waits.
  expect(clock.pending).toBe(0);
  enter("after");
  expect(names()).toEqual(["after"]);
});

it("admission neither refuses nor counts critical calls", async () => {
  const { flood, enter, names, load } = shedder();
  await flood();
  expect(load.refuses(CRITICAL, () => "flood")).toBeUndefined();
  enter("stop", { priority: CRITICAL });
  expect(names()).toContain("stop");
  expect(load.figures.inFlight).toBe(2);
});

it("admission serves an organization that requests less than its share while another one floods", async () => {
  const { flood, enter, names, serve, refused, load } = shedder();
  await flood();
  await clock.advance(20);
  for (let i = 0; i < 20; i++) {
    for (let j = 0; j < 10; j++)
      if (!load.refuses(ACT, () => "flood")) enter(`flood again ${i}.${j}`, { org: "flood" });
    expect(load.refuses(ACT, () => "modest")).toBeUndefined();
    enter(`modest${i}`, { org: "modest" });
    await serve(2);
    await clock.advance(20);
    expect(names().filter((name) => name === `modest${i}`)).toHaveLength(1);
    await serve(2);
  }
  expect(refused.filter((name) => name.startsWith("modest"))).toEqual([]);
});

it("admission sheds batch first, then administration, predict, act, and loops last", async () => {
  const { flood, enter, names, serve, load } = shedder(1);
  await flood("a", BATCH);
  await clock.advance(500);
  const classes = [BATCH, ADMINISTRATION, PREDICT, ACT, LOOP] as const;
  for (let i = 0; i < 16; i++) enter(`${BATCH}`, { priority: BATCH });
  for (const priority of classes.slice(1)) {
    expect(load.refuses(priority, () => "a")).toBeUndefined();
    enter(`${priority}`, { priority });
  }
  expect(load.refuses(BATCH, () => "a")).toBe("a");
  const order: string[] = [];
  for (let i = 0; i < 5; i++) {
    await serve();
    order.push(...names());
  }
  expect(order).toEqual([LOOP, ACT, PREDICT, ADMINISTRATION, BATCH].map(String));
});

it("admission refuses a call with an unreachable deadline at once: before, during and after its wait, and after its body was read", async () => {
  const { enter, refused, load, running, serve } = shedder(1);
  enter("slow");
  await clock.advance(3_200);
  await serve(); // a call costs about 100 ms now
  enter("first");
  enter("hopeless", { deadline: clock.steady() + 50 });
  await settle();
  expect(refused).toEqual(["hopeless"]);
  enter("in time", { deadline: clock.steady() + 400 });
  await clock.advance(350);
  expect(refused).toEqual(["hopeless", "in time"]);
  enter("read");
  await clock.advance(300);
  await serve();
  const work = running[0]?.work;
  if (!work) return expect.unreachable();
  expect(work.waitedMs).toBe(300);
  expect(() => load.assertInTime(work, ACT, 350)).toThrow("the gateway is overloaded");
  expect(() => load.assertInTime(work, ACT, 5_000)).not.toThrow();
  expect(load.figures.shed).toEqual([{ priority: "act", reason: "deadline", count: 3 }]);
});

it("admission delays refusals that cost more than their share, and answers all of them in the end", async () => {
  const { flood, load, enter } = shedder();
  await flood();
  for (let i = 0; i < 16; i++) enter(`queued${i}`);
  let answered = 0;
  for (let i = 0; i < 2_000; i++) if (load.refuses(ACT, () => "flood")) load.pace("flood", () => answered++);
  expect(load.figures.held).toBeGreaterThan(0);
  await clock.advance(20_000);
  expect(load.figures.held).toBe(0);
  expect(answered).toBe(2_000);
});

it("admission holds at most 4096 refusals, drops those of the largest organization, and answers organizations in turn", async () => {
  const { flood, load } = shedder();
  await flood();
  const answered: string[] = [];
  const dropped: string[] = [];
  const hold = (org: string): void =>
    void load.pace(org, () => void answered.push(org), { drop: () => void dropped.push(org) });
  // What refusing may cost until the next look is spent before.
  while (load.figures.held === 0) hold("flood");
  answered.length = 0;
  for (let i = 0; i < 5_000; i++) hold("flood");
  for (let i = 0; i < 10; i++) hold("modest");
  expect(load.figures.held).toBe(4_096);
  // Those that the flood itself held before were the oldest.
  expect(dropped.length).toBe(5_000 + 10 - 4_096);
  expect(new Set(dropped)).toEqual(new Set(["flood"]));
  await clock.advance(20_000);
  expect(load.figures.held).toBe(0);
  expect(answered.filter((org) => org === "modest")).toHaveLength(10);
  expect(answered.lastIndexOf("modest")).toBeLessThan(40);
});

it("admission tells callers to retry in one to four seconds, spread out, and reports the number of running calls", () => {
  const { load } = shedder(7);
  const advised = Array.from({ length: 200 }, () => load.advice());
  expect(new Set(advised.map(({ retryAfter }) => retryAfter))).toEqual(new Set([1, 2, 3, 4]));
  for (const { retryAfter, headers } of advised)
    expect(headers).toEqual([
      "ratelimit-policy",
      '"gateway";q=7;qu="concurrent-requests"',
      "ratelimit",
      `"gateway";r=0;t=${retryAfter}`,
    ]);
  expect(load.refusal()).toMatchObject({ reason: Reason.OVERLOADED, headers: expect.arrayContaining(["ratelimit"]) });
});

it("admission finds a limit that keeps event-loop turns short, and raises it again afterwards", () => {
  const limit = new GradientLimit({ initial: 256, least: 4, most: 1000 });
  // A processor that takes a millisecond for each call that is worked on.
  for (let i = 0; i < 50; i++) limit.update(limit.value, limit.value, true);
  expect(limit.value).toBeGreaterThan(10);
  expect(limit.value).toBeLessThan(40);
  for (let i = 0; i < 50; i++) limit.update(limit.value / 100, limit.value, true);
  expect(limit.value).toBe(1000);
  for (let i = 0; i < 100; i++) limit.update(1000, 1000, true);
  expect(limit.value).toBeLessThan(10);
  for (let i = 0; i < 100; i++) limit.update(1, 1, false);
  expect(limit.value).toBeLessThan(10); // nobody asked for more
});

it("admission serves waiting organizations in turn, and takes slots from the largest one", () => {
  const queue = new FairQueue<QueuedCall & { name: string }>();
  const add = (name: string, org: string, priority: Priority = ACT): void =>
    queue.push({ name, org, priority, since: 0, deadline: undefined });
  for (const name of ["a1", "a2", "a3", "a4"]) add(name, "a");
  add("b1", "b");
  add("b2", "b", LOOP);
  expect(queue.giver("c", ACT)).toBe("a");
  expect(queue.giver("a", ACT)).toBeUndefined();
  expect(queue.giver("b", LOOP)).toBe("a");
  expect(queue.evict("a")?.name).toBe("a1");
  const order = Array.from({ length: 5 }, () => queue.next(false)?.name);
  expect(order).toEqual(["a2", "b2", "a3", "b1", "a4"]);
  expect([queue.size, queue.next(false), queue.evict()]).toEqual([0, undefined, undefined]);
});

it("admission serves an organization that requests less than its share while another one opens control loops", async () => {
  const { flood, enter, names, serve, refused, load } = shedder();
  await flood("flood", LOOP);
  await clock.advance(20);
  for (let i = 0; i < 20; i++) {
    for (let j = 0; j < 10; j++)
      if (!load.refuses(LOOP, () => "flood")) enter(`flood again ${i}.${j}`, { org: "flood", priority: LOOP });
    enter(`modest${i}`, { org: "modest" });
    await serve(2);
    await clock.advance(20);
    expect(names()).toContain(`modest${i}`);
    await serve(2);
  }
  expect(refused.filter((name) => name.startsWith("modest"))).toEqual([]);
});

it("admission gives an organization's first control loop a place in a full queue, and its second one none", () => {
  const queue = new FairQueue<QueuedCall>();
  const add = (org: string, priority: Priority): void => queue.push({ org, priority, since: 0, deadline: undefined });
  add("a", LOOP);
  add("b", ACT);
  expect(queue.giver("c", ACT)).toBeUndefined();
  expect(queue.giver("c", LOOP)).toBe("b");
  add("c", LOOP);
  expect(queue.giver("c", LOOP)).toBeUndefined();
  queue.evict("b");
  expect(queue.giver("d", LOOP)).toBeUndefined();
});
