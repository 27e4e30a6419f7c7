/** The base of `base-nav` in the scenario's own physics, attending: it carries out what its stream brings, and nothing else. */
import type { EpisodeRecord } from "../../src/scenarios/episode.ts";
import { Arena } from "../../src/scenarios/episode.ts";
import { BUILT_IN } from "../../src/scenarios/index.ts";
import type { App } from "./app.ts";
import { attend, type Heard } from "./attending.ts";

/** The base while it attends. */
export interface ArmedBase {
  /** Resolves when the gateway knows that it attends. */
  readonly attends: Promise<void>;
  /** One episode, from now on: it senses until a run moves it. */
  drive(): Promise<EpisodeRecord>;
  leave(): void;
}

/** Has the base attend under a name, with its own key. */
export async function attendBase(app: Pick<App, "url">, key: string, robotId: string): Promise<ArmedBase> {
  const nav = BUILT_IN.find(({ id }) => id === "base-nav")!.variants[0];
  const arena = await Arena.of(nav);
  const attends = Promise.withResolvers<void>();
  let step = 0;
  let answer = (_: Heard): void => {};
  const robot = attend(app, key, { robotId, actionSpace: nav.actionSpace, horizon: 8, deadlineMs: 10_000 }, (event) => {
    attends.resolve();
    answer(event);
  });
  void robot.ended.then((why) => attends.reject(new Error(`the base's stream ended: ${String(why)}`)));
  const chunkFor = (proprio: readonly number[]): Promise<readonly number[][]> =>
    new Promise((resolve) => {
      const sense = (): void => robot.observe(++step, proprio, nav.proprioNames);
      answer = (event) => {
        if (event.case === "chunk" && event.value.startStep === step)
          resolve(event.value.action!.steps.map(({ values }) => values));
        else if (event.case === "hold" || event.case === "run") sense();
      };
      sense();
    });
  return {
    attends: attends.promise,
    drive: () =>
      arena.run(1, async ({ proprio }) => ({ rows: await chunkFor(proprio), latencyMs: 0 }), {
        mode: "sync",
        replanSteps: undefined,
      }),
    leave() {
      robot.leave();
      arena.close();
    },
  };
}
