/** One model, several tasks: which one is meant is read from what is told. */
import { readProprio } from "./layout.ts";
import type { ActInput, Controller } from "./types.ts";

/** A controller that does what the one of these does whose layout the proprio has; no two of them may know a layout of one length. */
export function byLayout(main: Controller, ...others: readonly Controller[]): Controller {
  const all = [main, ...others];
  const proprioLayouts = all.flatMap((controller) => controller.declaration.proprioLayouts);
  const declaration = { ...main.declaration, proprioLayouts };
  const knows = (controller: Controller, { proprio }: ActInput): boolean =>
    controller.declaration.proprioLayouts.some((layout) => layout.length === proprio.length);
  return {
    declaration,
    begin(input) {
      readProprio(input, declaration);
      const controller = all.find((known) => knows(known, input)) ?? main;
      return { ...controller.begin(input), dtMs: controller.declaration.dtMs };
    },
  };
}
