/** Golden routing cases: a request over a fixed supply, and the plan or the refusal that it must have. */
import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { type DropReason, DropReasonSchema } from "../../gen/limber/v1/plan_pb.ts";
import { factsOf, Refusal } from "../../src/errors.ts";
import { explain, type PlanArgs, planFor } from "../../src/routing/index.ts";
import { argsOf, type PlanCase, readStated, supplyOf } from "../../tools/plan.ts";

interface GoldenCase extends PlanCase {
  readonly name: string;
  /** Ids of the steps, in order. */
  readonly plan?: readonly string[];
  /** Every dropped offering and its reason. */
  readonly dropped?: Readonly<Record<string, string>>;
  /** The code of the refusal. */
  readonly refuse?: string;
  readonly near?: readonly string[];
  readonly needed?: readonly string[];
  readonly excluded_by?: readonly string[];
  /** Every field at fault, and the rule that it breaks. */
  readonly violations?: Readonly<Record<string, string>>;
  readonly suggestions?: readonly { field: string; value?: number; change?: string; admits: number }[];
  readonly retry_after?: number;
  readonly pinned?: boolean;
  /** Cheapest, first and dearest way, in micro-dollars. */
  readonly cost?: readonly number[];
  /** Why the first step stands there. */
  readonly codes?: readonly string[];
}

const here = new URL("./", import.meta.url);
const read = (path: string): unknown => readStated(new URL(path, here));
const supplied = (path: string) => supplyOf(read(path) as Parameters<typeof supplyOf>[0]);
const supply = supplied("supply.json");
/** Supply of the cases of one file, by its name; others share `supply`. */
const supplies: Readonly<Record<string, typeof supply>> = {
  "trust.yaml": supplied("supply-trust.json"),
  "signed.yaml": supplied("supply-signed.yaml"),
  "inputs.yaml": supplied("supply-inputs.yaml"),
};

function attempt(
  given: GoldenCase,
  from = supply,
): { args?: PlanArgs; plan?: ReturnType<typeof planFor>; refusal?: Refusal } {
  let args: PlanArgs | undefined;
  try {
    args = argsOf(given, from);
    return { args, plan: planFor(args) };
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
    return { ...(args && { args }), refusal: thrown };
  }
}

const wordOf = (reason: DropReason): string =>
  DropReasonSchema.values
    .find((each) => each.number === reason)!
    .name.slice("DROP_REASON_".length)
    .toLowerCase();

for (const file of readdirSync(new URL("cases/", here)).sort()) {
  describe(file.replace(/\.\w+$/, ""), () => {
    test.each(read(`cases/${file}`) as GoldenCase[])("$name", (given) => {
      const { args, plan, refusal } = attempt(given, supplies[file]);
      expect(refusal && factsOf(refusal.reason).code).toBe(given.refuse);
      if (given.plan) expect(plan?.steps.map((step) => step.offering.id)).toEqual(given.plan);
      if (given.dropped) {
        const dropped = refusal ? (refusal.details.dropped ?? []) : explain(args!).dropped;
        expect(Object.fromEntries(dropped.map((each) => [each.offeringId, wordOf(each.reason)]))).toEqual(
          given.dropped,
        );
      }
      if (given.near) expect(refusal?.details.near).toEqual(given.near);
      if (given.needed) expect(refusal?.details.needed).toEqual(given.needed);
      if (given.excluded_by) expect(refusal?.details.excludedBy?.toSorted()).toEqual(given.excluded_by.toSorted());
      if (given.violations)
        expect(Object.fromEntries((refusal?.details.violations ?? []).map(({ path, type }) => [path, type]))).toEqual(
          given.violations,
        );
      if (given.suggestions) {
        const plain = refusal?.details.suggestions?.map(({ field, value, change, admits }) => ({
          field,
          ...(value !== undefined && { value }),
          ...(change !== undefined && { change }),
          admits,
        }));
        expect(plain).toEqual(given.suggestions);
      }
      if (given.retry_after) expect(refusal?.retryAfter).toBe(given.retry_after);
      if (given.pinned !== undefined) expect(plan?.pinned).toBe(given.pinned);
      if (given.cost) expect(plan && [plan.leastMicro, plan.expectedMicro, plan.ceilingMicro]).toEqual(given.cost);
      if (given.codes) expect(explain(args!).plan[0]?.reasonCodes).toEqual(given.codes);
    });
  });
}
