import { expect, it } from "vitest";
import { Cancel } from "../../../src/cancellation.ts";
import { Cores, ExtraLanes } from "../../../src/jobs/cores.ts";

const never = new Cancel();

/** Enters in this order, and answers the order in which cores were had. */
async function orderOf(cores: Cores, orgs: readonly string[]): Promise<string[]> {
  const order: string[] = [];
  await Promise.all(
    orgs.map(async (org) => {
      const leave = await cores.enter(org, never);
      order.push(org);
      leave();
    }),
  );
  return order;
}

it("cores are assigned to organizations in turn, however many runs of one wait", async () => {
  const cores = new Cores(1);
  const leave = await cores.enter("a", never);
  const order = orderOf(cores, ["a", "a", "a", "b", "b", "c"]);
  leave();
  expect(await order).toEqual(["a", "b", "c", "a", "b", "a"]);
});

it("at most as many runs as cores are admitted, and each core is returned once", async () => {
  const cores = new Cores(2);
  const [one, two] = [await cores.enter("a", never), await cores.enter("a", never)];
  let third = false;
  const waits = cores.enter("b", never).then((leave) => {
    third = true;
    return leave;
  });
  await Promise.resolve();
  expect(third).toBe(false);
  one();
  one();
  const three = await waits;
  const off = new Cancel();
  const fourth = cores.enter("b", off);
  off.abort(new Error("called off"));
  await expect(fourth).rejects.toThrow("called off");
  two();
  three();
  expect(await orderOf(cores, ["a", "b", "c"])).toEqual(["a", "b", "c"]);
});

it("a canceled run does not get a core", async () => {
  const off = new Cancel();
  off.abort(new Error("called off"));
  const cores = new Cores(1);
  await expect(cores.enter("a", off)).rejects.toThrow("called off");
  (await cores.enter("a", never))();
});

it("an organization gets at most its share of the extra lanes, and a released lane is free again", () => {
  const lanes = new ExtraLanes({ inAll: 3, ofOrg: 2 });
  const [one, two] = [lanes.enter("a"), lanes.enter("a")];
  expect([one, two, lanes.enter("a")].map((lane) => lane !== undefined)).toEqual([true, true, false]);
  expect(lanes.enter("b")).toBeDefined();
  expect(lanes.enter("b")).toBeUndefined();
  one!();
  expect(lanes.enter("a")).toBeDefined();
});
