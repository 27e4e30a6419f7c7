/** The example that partners copy is a server that the gateway can call. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createUpstream, type Upstream } from "../../../src/upstream/index.ts";
import {
  actInput,
  callWith,
  failureIn,
  framesOf,
  groundInput,
  nameOf,
  observed,
  rowsOf,
  targetAt,
} from "../../support/wire-calls.ts";

const EXAMPLE = fileURLToPath(new URL("../../../examples/policy-server.ts", import.meta.url));
let child: ChildProcess;
let upstream: Upstream;
let endpoint: string;

beforeAll(async () => {
  child = spawn(process.execPath, [EXAMPLE, "0"], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(child.stdout!, "data");
  endpoint = `grpc://127.0.0.1:${/port: (\d+)/.exec(String(line))?.[1]}`;
  upstream = createUpstream({ allowPrivate: true });
});
afterAll(async () => {
  await upstream.close();
  child.kill();
});

const act = (more = {}) => upstream.native.act!(targetAt(endpoint), actInput(more), framesOf(), callWith());

it("describes itself, and counts as healthy", async () => {
  const [model] = await upstream.native.describe(targetAt(endpoint), callWith());
  expect(model).toMatchObject({ slug: "example/drive-home", actionSpaces: ["base_twist_2d"], maxHorizon: 64 });
  await upstream.native.health(targetAt(endpoint), callWith());
});

it("answers many acts at one time, each by its own observation", async () => {
  const places = Array.from({ length: 20 }, (_, i) => i / 100);
  const answers = await Promise.all(
    places.map((x) => act({ observations: [observed({ proprio: [-x, 0, 0] })], horizon: 3 })),
  );
  const speeds = answers.map((answer) => rowsOf(answer).map(([speed]) => speed));
  expect(speeds).toEqual(places.map((x) => [x, x, x]));
});

it("refuses an action space that it lacks, and goes on", async () => {
  expect(nameOf(await failureIn(act({ actionSpace: "joint_pos_7" })))).toBe("INPUT_REJECTED");
  expect(rowsOf(await act())).toHaveLength(2);
});

it("says that it doesn't do what it leaves out", async () => {
  const call = upstream.native.ground!(targetAt(endpoint), groundInput(observed(), "x"), framesOf(), callWith());
  const failure = await failureIn(call);
  expect(nameOf(failure)).toBe("UPSTREAM_ERROR");
  expect(failure.message).toMatch(/^status 12: /);
});
