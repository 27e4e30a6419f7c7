/** The provider that ships with us, through the whole gateway. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { REFERENCE_MODELS } from "../../../src/reference/models.ts";
import { ADMIN_TOKEN, type Answer, type App, type Caller, openApp } from "../../support/app.ts";
import { readEvents } from "../../support/clients.ts";
import { iou, movingShapes, psnr, tableScene } from "../../support/scenes.ts";

let app: App;
let caller: Caller;

beforeAll(async () => {
  // As beside an outside database: the gateway's own provider is reached all the same.
  app = await openApp({ referenceSupply: true, allowPrivateAddresses: false });
  caller = await app.caller(10);
});
afterAll(() => app.close());

const SPACES = REFERENCE_MODELS.flatMap(({ slug, actions }) =>
  actions.map(({ space, dim, dtMs, proprioLayouts, visualLayouts }) => {
    const names = proprioLayouts.find(({ length }) => length > 0 && !visualLayouts.includes(length)) ?? [];
    return { slug, space, dim, dtMs, names };
  }),
);

/** At rest, with a goal to its front. */
const VALUES: Readonly<Record<string, number>> = { cos_theta: -1, sin_theta: 0.1 };
const observed = (names: readonly string[]) => ({
  proprio: names.map((name) => VALUES[name] ?? (name.includes("goal") ? 0.3 : 0)),
  proprio_names: names,
});

it("the reference provider answers every step of the quick start, and the last one has a price", async () => {
  const page = readFileSync(join(import.meta.dirname, "../../../docs/operations/quick-start.md"), "utf8");
  const learnt = new Map<string, string>();
  const filled = (text: string): string => text.replace(/\$(\w+)/g, (_, name: string) => learnt.get(name) ?? name);
  let last: Answer | undefined;
  for (const [, name, path, more, body] of page.matchAll(
    /^(?:(\w+)=\$\()?curl -s localhost:8080(\S+)([^']*?)-d '([^']*)'/gm,
  )) {
    const asked = more?.includes("$admin") ? { admin: ADMIN_TOKEN } : { key: learnt.get("key") ?? "" };
    last = await app.call(filled(path ?? ""), JSON.parse(body ?? ""), asked);
    expect(last.status, `${path} ${last.text}`).toBeLessThan(300);
    if (name !== undefined) learnt.set(name, name === "key" ? last.body.key : last.body.id);
  }
  expect([...learnt.keys()]).toEqual(["org", "key"]);
  expect(last?.body.usage.cost_usd).toBeGreaterThan(0);
});

it("the reference provider satisfies ordinary latency and uptime constraints by its advertised figures", async () => {
  const provider = { max_latency_ms: 500, min_uptime_30d: 0.9 };
  for (const [contract, more] of [
    ["act", { action_space: "base_twist_2d", observations: [{ proprio: [0, 0, 0, 1, 1, 0] }] }],
    ["predict", { observations: [{ frames: [{ url: "https://robot.example/front.png" }] }] }],
  ] as const) {
    const request = { model: "service/auto", provider, ...more };
    const { body } = await app.call(`/v1/routes/preview?contract=${contract}`, request, { key: caller.key });
    expect(body.plan.length, contract).toBeGreaterThan(0);
    expect(body).not.toHaveProperty("would_refuse");
  }
});

describe("POST /v1/act at the reference provider", () => {
  it.each(SPACES)("$slug acts in $space", async ({ slug, space, dim, dtMs, names }) => {
    for (const model of [slug, "service/auto"]) {
      const request = { model, action_space: space, horizon: 8, observations: [observed(names)] };
      const { status, body, text } = await app.call("/v1/act", request, { key: caller.key });
      expect(status, text).toBe(200);
      expect(body).toMatchObject({
        model: slug,
        action: { space, dt_ms: dtMs },
        route: { simulated: false, provider: "reference" },
        usage: { action_steps: 8, cost_usd: 0.0008 },
      });
      // Two models act in continuous_nd, each on numbers of its own: for an alias the one that can't read them is passed over.
      expect(body.route.attempts.at(-1)).toMatchObject({ status: "ok" });
      if (model === slug) expect(body.route.attempts).toHaveLength(1);
      expect(body.action.steps.map((step: number[]) => step.length)).toEqual(Array(8).fill(dim));
      expect(body.action.steps.flat().some((value: number) => value !== 0)).toBe(true);
    }
  });

  it("returns what a model reads if no provider reads the input, and calls none", async () => {
    const request = { model: "reference/ik-reach", action_space: "joint_pos_7", observations: [{ proprio: [1, 2] }] };
    const { status, body } = await app.call("/v1/act", request, { key: caller.key });
    expect([status, body.error.code, body.error.retryable]).toEqual([422, "input_contract", false]);
    const [reads] = body.error.details.needed;
    expect(reads).toContain(
      "reads no pictures; 10 values (j1, j2, j3, j4, j5, j6, j7, goal_x, goal_y, goal_z) of proprioception or 13",
    );
    expect(body.error.details.violations).toEqual([
      { path: "observations.0.proprio", message: expect.stringContaining("has 2 values"), type: "length" },
    ]);
    expect(body.detail).toEqual([
      expect.objectContaining({ loc: ["body", "observations", 0, "proprio"], type: "length" }),
    ]);
    expect(body.error.details.suggestions[0]).toMatchObject({ field: "observations.0.proprio", value: 10, admits: 2 });
    expect(body).not.toHaveProperty("route");
  });

  it("suggests the image as the cause if the model reads the input and finds nothing in it", async () => {
    const grey = sharp({ create: { width: 64, height: 64, channels: 3, background: "#888888" } });
    const url = `data:image/png;base64,${(await grey.png().toBuffer()).toString("base64")}`;
    const request = {
      model: "reference/visual-reach",
      instruction: "reach the green cube",
      observations: [{ frames: [{ camera: "wrist", url }] }],
    };
    const { status, body } = await app.call("/v1/act", request, { key: caller.key });
    expect([status, body.error.code]).toEqual([422, "input_contract"]);
    expect(body.error.message).toContain("might not find the instruction's object in the images");
  });
});

describe("POST /v1/predict at the reference provider", () => {
  it("predicts beyond the last frame, equally as one response and as a stream", async () => {
    const sequence = movingShapes(5, 6);
    const pngs = await Promise.all(
      sequence.map(({ image: { data, width, height } }) =>
        sharp(data, { raw: { width, height, channels: 3 } })
          .png()
          .toBuffer(),
      ),
    );
    const observations = pngs.slice(0, 4).map((png, i) => ({
      t_ms: i * 100,
      frames: [{ camera: "front", data: png.toString("base64") }],
    }));
    const request = { model: "reference/block-flow", horizon: 2, observations };
    const { status, body } = await app.call("/v1/predict", request, { key: caller.key });
    expect([status, body.frames?.length, body.usage?.cost_usd]).toEqual([200, 2, 0.001]);
    const { data, info } = await sharp(Buffer.from(body.frames[0].data, "base64"))
      .removeAlpha()
      .raw()
      .toBuffer({ resolveWithObject: true });
    const predicted = { data, width: info.width, height: info.height };
    const truth = sequence[4]!.image;
    expect(psnr(predicted, truth)).toBeGreaterThan(psnr(sequence[3]!.image, truth));

    const events = await (await readEvents(app, "/v1/predict/stream", request, caller.key)).rest();
    expect(events.map(({ event }) => event)).toEqual(["route", "frame", "frame", "done"]);
    expect(events.slice(1, 3).map((event) => event.data.data)).toEqual(
      body.frames.map((frame: { data: string }) => frame.data),
    );
  });
});

describe("POST /v1/ground at the reference provider", () => {
  it("locates the named object", async () => {
    const { frame, box } = tableScene(3, "red", "square");
    const { data, width, height } = frame.image;
    const png = await sharp(data, { raw: { width, height, channels: 3 } })
      .png()
      .toBuffer();
    const url = `data:image/png;base64,${png.toString("base64")}`;
    const request = { instruction: "the red cube", observations: [{ frames: [{ camera: "overhead", url }] }] };
    const { status, body } = await app.call("/v1/ground", request, { key: caller.key });
    expect([status, body.model, body.route.simulated]).toEqual([200, "reference/colour-shape", false]);
    const [found] = body.boxes;
    const unit = { xMin: found.x_min, yMin: found.y_min, xMax: found.x_max, yMax: found.y_max };
    expect(iou(unit, box)).toBeGreaterThanOrEqual(0.7);
    expect(body.points[0].x).toBeGreaterThan(box.xMin);
    expect(body.points[0].x).toBeLessThan(box.xMax);
  });

  it("searches every frame of the observation, and names the frame of each object", async () => {
    const shown = await Promise.all(
      (["red", "blue"] as const).map(async (paint) => {
        const { data, width, height } = tableScene(3, paint, "square").frame.image;
        const png = await sharp(data, { raw: { width, height, channels: 3 } })
          .png()
          .toBuffer();
        return { camera: paint, url: `data:image/png;base64,${png.toString("base64")}` };
      }),
    );
    const request = { instruction: "the red cube and the blue cube", observations: [{ frames: shown.toReversed() }] };
    const { status, text, body } = await app.call("/v1/ground", request, { key: caller.key });
    expect(status, text).toBe(200);
    const places = body.points.map(({ frame, camera, label }: Record<string, unknown>) => [frame, camera, label]);
    expect(places).toContainEqual([0, "blue", expect.stringContaining("blue")]);
    expect(places).toContainEqual([1, "red", expect.stringContaining("red")]);
  });
});
