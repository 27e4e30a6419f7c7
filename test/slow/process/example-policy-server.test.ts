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

it("the example policy server describes itself and counts as healthy", async () => {
  const [model] = await upstream.native.describe(targetAt(endpoint), callWith());
  expect(model).toMatchObject({ slug: "example/drive-home", actionSpaces: ["base_twist_2d"], maxHorizon: 64 });
  await upstream.native.health(targetAt(endpoint), callWith());
});

it("the example policy server answers concurrent acts, each by its own observation", async () => {
  const places = Array.from({ length: 20 }, (_, i) => i / 100);
  const answers = await Promise.all(
    places.map((x) => act({ observations: [observed({ proprio: [-x, 0, 0] })], horizon: 3 })),
  );
  const speeds = answers.map((answer) => rowsOf(answer).map(([speed]) => speed));
  expect(speeds).toEqual(places.map((x) => [x, x, x]));
});

it("the example policy server refuses an unknown action space and continues", async () => {
  expect(nameOf(await failureIn(act({ actionSpace: "joint_pos_7" })))).toBe("INPUT_REJECTED");
  expect(rowsOf(await act())).toHaveLength(2);
});

it("the example policy server reports the contracts that it does not implement", async () => {
  const call = upstream.native.ground!(targetAt(endpoint), groundInput(observed(), "x"), framesOf(), callWith());
  const failure = await failureIn(call);
  expect(nameOf(failure)).toBe("UPSTREAM_ERROR");
  expect(failure.message).toMatch(/^status 12: /);
});
