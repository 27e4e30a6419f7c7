/** Invalid input and broken servers: the TypeScript client throws one error with a helpful message, and the robot holds. */
import { spawn } from "node:child_process";
import { createServer as createH2 } from "node:http2";
import { type AddressInfo, createServer } from "node:net";
import { create } from "@bufbuild/protobuf";
import { connectNodeAdapter, createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import {
  ActStreamResponseSchema,
  InferenceService,
} from "../../clients/typescript/src/gen/limber/v1/inference_service_pb.ts";
import {
  BadInput,
  ClockJumped,
  type Command,
  InputContract,
  Limber,
  LimberError,
  MalformedAnswer,
  observationOf,
  type Sensed,
} from "../../clients/typescript/src/index.ts";
import { Loop } from "../../clients/typescript/src/loop/loop.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import type { App, Caller } from "../support/app.ts";
import type { Model } from "../support/model.ts";
import { openModel, ownGateway } from "../support/world.ts";

const CLIENT = new URL("../../clients/typescript/src/index.ts", import.meta.url).href;
const LOOP = {
  model: "acme/base",
  actionSpace: "base_twist_2d",
  horizon: 16,
  rateHz: 50,
  robot: "ts-bad",
  hold: [0, 0],
};

describe("invalid observations throw BadInput", () => {
  it.each<[string, Sensed, RegExp]>([
    ["NaN in the state", { state: [1, Number.NaN] }, /state\[1\] must be a finite number/],
    ["a state that is a matrix", { state: [[1, 2]] as never }, /state\[0\] must be a finite number/],
    ["64-bit integers", { state: new BigInt64Array(1) as never }, /state\[0\] must be a finite number/],
    ["an infinite gripper opening", { gripper: Number.POSITIVE_INFINITY }, /gripper must be a finite number/],
    ["a time that is NaN", { tMs: Number.NaN }, /tMs must be a finite number/],
    [
      "floats instead of an encoded image",
      { images: { front: new Float32Array(12) as never } },
      /images.front must be a Uint8Array.*got Float32Array/,
    ],
    ["pixels of a canvas", { images: { front: new Uint8ClampedArray(16) as never } }, /Uint8ClampedArray/],
    [
      "rows of pixels",
      { images: { front: new Uint8Array(48) } },
      /images.front must be an encoded PNG, JPEG or WebP; encode pixels first/,
    ],
    ["no bytes", { images: { front: new Uint8Array() } }, /images.front must be an encoded PNG/],
  ])("%s", (_, sensed, words) => {
    expect(() => observationOf(sensed)).toThrow(BadInput);
    expect(() => observationOf(sensed)).toThrow(words);
  });
});

describe("at a gateway", () => {
  let app: App;
  let model: Model;
  let caller: Caller;
  let limber: Limber;
  beforeAll(async () => {
    [app, model] = await Promise.all([ownGateway(), openModel()]);
    await app.supply({
      provider: "acme",
      model: "acme/base",
      endpoint: model.endpoint,
      input: { cameras: [{ name: "wrist" }] },
    });
    caller = await app.caller(1_000);
    limber = new Limber({ url: app.url, key: caller.key });
  });

  it("refuses an unknown camera by name, and ends a loop that sends one with a hold", async () => {
    const sensed = { state: [0.5], images: { nose: await redSquare(0.5, 0.5) } };
    const { rateHz: _, robot: __, hold: ___, ...act } = LOOP;
    const refused = await limber
      .act({ ...act, observations: [observationOf(sensed)] })
      .catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(InputContract);
    expect((refused as InputContract).message).toMatch(/nose/);
    const told: Command[] = [];
    const ran = limber.loop(LOOP).run(
      () => sensed,
      (command) => void told.push(command),
      { maxSeconds: 30 },
    );
    await expect(ran).rejects.toThrow(/nose/);
    expect(told.every(({ values }) => values?.join() === "0,0")).toBe(true);
  });

  it("ends a loop with a hold if its clock goes back or returns NaN", async () => {
    const transport = createGrpcTransport({
      baseUrl: app.url,
      interceptors: [
        (next) => (request) => {
          request.header.set("authorization", `Bearer ${caller.key}`);
          return next(request);
        },
      ],
    });
    for (const [jump, words] of [
      [-5_000, /the clock went back/],
      [Number.NaN, /the clock returned NaN/],
    ] as const) {
      let by = 0;
      const told: Command[] = [];
      const loop = new Loop(transport, LOOP, () => performance.now() + by);
      const ran = loop.run(
        () => ({ state: [0.5] }),
        (command) => {
          told.push(command);
          if (command.hold === undefined) by = jump;
        },
        { maxSeconds: 30 },
      );
      await expect(ran).rejects.toThrow(ClockJumped);
      await expect(ran).rejects.toThrow(words);
      expect(told.at(-1)?.values).toEqual([0, 0]);
    }
  });

  it("a client's Ctrl-C makes the robot hold, and ends the program with a message", async () => {
    const program = `
      import { Limber } from ${JSON.stringify(CLIENT)};
      const limber = new Limber(${JSON.stringify({ url: app.url, key: caller.key })});
      await limber.loop(${JSON.stringify({ ...LOOP, robot: "ts-ctrl-c" })}).run(
        () => ({ state: [0.5] }),
        ({ hold, values }) => console.log(hold ?? "acts", String(values)),
        { maxSeconds: 60 },
      );`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", program]);
    let said = "";
    let errors = "";
    child.stdout.on("data", (text) => {
      said += text;
      if (said.includes("acts ") && !child.killed) child.kill("SIGINT");
    });
    child.stderr.on("data", (text) => {
      errors += text;
    });
    const code = await new Promise((resolve) => child.once("close", resolve));
    expect({ code, errors }).toMatchObject({ code: 1, errors: expect.stringContaining("Ctrl-C ended the run") });
    expect(said.trimEnd().split("\n").at(-1)).toBe("interrupted 0,0");
  });
});

describe("a misbehaving server", () => {
  it("is reported as not a gateway if it uses another protocol, by calls and by loops", async () => {
    const server = createServer((socket) =>
      socket.on("error", () => undefined).end("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const far = new Limber({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, key: "lmb_sk_test" });
    await expect(far.model("a/b", { timeoutMs: 5_000 })).rejects.toThrow(LimberError);
    const told: Command[] = [];
    const ran = far.loop({ ...LOOP, giveUpMs: 300 }).run(
      () => ({ state: [0] }),
      (command) => void told.push(command),
      { maxSeconds: 30 },
    );
    await expect(ran).rejects.toThrow(LimberError);
    expect(told.every(({ values }) => values?.join() === "0,0")).toBe(true);
    server.close();
  });

  it.each([
    ["no actions", [], /without actions/],
    ["empty rows", [{ values: [] }], /without actions/],
    ["rows of different lengths", [{ values: [1, 2] }, { values: [1] }], /rows have different lengths: 2 and 1/],
    ["an action that is NaN", [{ values: [1, Number.NaN] }], /not finite/],
    ["an infinite action", [{ values: [Number.POSITIVE_INFINITY, 1] }], /not finite/],
  ])("ends a loop with a hold if a chunk has %s", async (_, steps, words) => {
    const sessions = new Set<{ destroy(): void }>();
    const server = createH2(
      connectNodeAdapter({
        routes(router) {
          router.rpc(InferenceService.method.actStream, async function* (requests) {
            for await (const { message } of requests) {
              if (message.case === "open")
                yield create(ActStreamResponseSchema, {
                  event: { case: "opened", value: { episode: 1, deadlineMs: 5_000 } },
                });
              if (message.case === "observation") {
                const value = { episode: 1, startStep: 0, validUntilStep: 1_000, action: { dtMs: 20, steps } };
                yield create(ActStreamResponseSchema, { event: { case: "chunk", value } });
              }
            }
          });
        },
      }),
    );
    server.on("session", (session) => sessions.add(session));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const far = new Limber({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, key: "lmb_sk_test" });
    const told: Command[] = [];
    const ran = far.loop(LOOP).run(
      () => ({ state: [0] }),
      (command) => void told.push(command),
      { maxSeconds: 30 },
    );
    await expect(ran).rejects.toThrow(MalformedAnswer);
    await expect(ran).rejects.toThrow(words);
    expect(told.every(({ hold, values }) => hold !== undefined && values?.join() === "0,0")).toBe(true);
    server.close();
    for (const session of sessions) session.destroy();
  });
});
