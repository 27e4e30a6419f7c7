/**
 * A thread that asks the listener for operations while the thread that began it stands still. `workerData` is `AskerTask`. It says when it
 * could begin, begins when the first place of `shared` becomes 1, writes statuses from the second place on, and 2 into the first at the end.
 */
import { request } from "node:http";
import { parentPort, workerData } from "node:worker_threads";

/** What is asked: one thing after the other, on a connection of its own each. */
export interface AskerTask {
  readonly shared: Int32Array<SharedArrayBuffer>;
  readonly port: number;
  readonly asks: readonly {
    readonly path: string;
    readonly headers?: Readonly<Record<string, string>>;
    /** Asks again and again until this is the status. */
    readonly until?: number;
  }[];
}

const { shared, port, asks } = workerData as AskerTask; // as its starter gives it

const statusOf = (path: string, headers: Readonly<Record<string, string>> = {}): Promise<number> =>
  new Promise((resolve) =>
    request({ port, path, headers, agent: false }, (answer) => {
      answer.resume().once("end", () => resolve(answer.statusCode ?? 0));
    })
      .once("error", () => resolve(0))
      .end(),
  );

parentPort?.postMessage("ready");
Atomics.wait(shared, 0, 0);
for (const [i, { path, headers, until }] of asks.entries()) {
  do shared[i + 1] = await statusOf(path, headers);
  while (until !== undefined && shared[i + 1] !== until);
}
Atomics.store(shared, 0, 2);
Atomics.notify(shared, 0);
