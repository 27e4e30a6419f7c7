import { expect, it } from "vitest";
import { Reason, refuse } from "../../src/errors.ts";

it("a refusal has no stack, which would retain the refused body; other errors have one", () => {
  expect(refuse(Reason.NOT_FOUND, "there is no key of this name").stack).toBe("Refusal: there is no key of this name");
  expect(new Error("a bug").stack).toContain("errors.test.ts");
});
