/** Chat-completions servers of many makers: how their models say "nothing", how answers end, and which fields they send and refuse. */
import { create } from "@bufbuild/protobuf";
import { afterAll, describe, expect, it } from "vitest";
import { CoordinateConvention as C, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { UpstreamFailure } from "../../src/contracts/contract.ts";
import { createUpstream } from "../../src/upstream/index.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { type Chat, completion, startChatServer } from "../support/servers/chat.ts";
import { startHttpServer } from "../support/servers/http.ts";
import { callWith, framesOf, groundInput, nameOf, observed, targetAt } from "../support/wire-calls.ts";

const FENCE = "`".repeat(3);
const upstream = createUpstream({ allowPrivate: true });
afterAll(() => upstream.close());
const wire = upstream.wireOf("openai-chat") as Required<Wire>; // it has all of these
const picture = redSquare(0.75, 0.25, 56);
const JSON_FAMILIES = [C.XY_1000, C.YX_1000, C.XY_PX_RESIZED28, C.XY_UNIT];
const TAG_FAMILIES = [C.XY_100, C.LOC_YX_1024, C.MOLMO2_COORDS];

/** What is found at a server: places, or the failure's name. */
async function found(endpoint: string, coordinates: C, more: { seed?: number } = {}, instruction = "the red cube") {
  const seen = observed({ frames: [{ camera: "front", data: await picture }] });
  const target = targetAt(endpoint, { profile: create(WireProfileSchema, { coordinates }) });
  return wire.ground(target, { ...groundInput(seen, instruction), ...more }, framesOf(seen), callWith()).then(
    ({ points, boxes, note, inputTokens, outputTokens }) => ({
      points: points.map(({ x, y }) => [x, y]),
      boxes: boxes.map(({ xMin, yMin, xMax, yMax }) => [xMin, yMin, xMax, yMax]),
      note,
      tokens: [inputTokens, outputTokens],
    }),
    (thrown: unknown) => {
      if (thrown instanceof UpstreamFailure) return { failure: nameOf(thrown), text: thrown.message };
      throw thrown;
    },
  );
}

/** The same for each text that a server says in turn. */
async function foundIn(texts: readonly string[], coordinates: C) {
  let at = 0;
  const server = await startChatServer(() => texts[at++] ?? "");
  const all = [];
  for (const text of texts) all.push([text, await found(server.endpoint, coordinates)] as const);
  await server.close();
  return all;
}
const only = async (text: string, coordinates: C) => (await foundIn([text], coordinates))[0]![1];

describe("an absence in words", () => {
  const NOTHING = [
    "There is no red cube in the picture.", // roboflow/inference
    "There are none.",
    "There's no red cube in the image.",
    "There aren't any red cubes here.",
    "There does not appear to be a red cube in the image.",
    "The object is not in the image.",
    "The red cube is not visible in the image.",
    "This isn't in the picture.",
    "I looked carefully.\n\nThere are no red cubes visible here.",
    "No red cubes were found.",
    "No red cube.",
    "No, there is no red cube.",
    "Nothing matching was found.",
    "None of the objects in the image is a red cube.",
    "I don't see a red cube in this image.",
    "Sorry, I couldn't find the red cube in the image.",
    "I'm unable to locate the red cube in the image.",
    "The image does not contain any red cubes.",
    "The picture shows no red cube.",
    "The red cube could not be found.",
    "There is no red cube in the image, but there is a blue one.",
    "null",
    "None",
    "**None**",
    `${FENCE}json\nnull\n${FENCE}`,
  ];
  it("is an empty answer, as roboflow/supervision reads it", async () => {
    for (const [text, answer] of await foundIn(NOTHING, C.XY_1000))
      expect([text, answer]).toMatchObject([text, { points: [], boxes: [] }]);
  });

  it.each([...JSON_FAMILIES, ...TAG_FAMILIES])("is recognized in every convention (%i)", async (c) => {
    const some = [...NOTHING.slice(0, 3), "null", `${FENCE}json\nnull\n${FENCE}`];
    for (const [text, answer] of await foundIn(some, c)) expect([text, answer]).toMatchObject([text, { points: [] }]);
  });

  it.each([C.XY_1000, C.XY_100])(
    "excludes doubt, refusals and other denials, as of stepfun-ai/Step1X-Edit (%i)",
    async (c) => {
      const texts = [
        "There is no way I can tell.",
        "There is no way I can tell where the cube is.",
        "There is no image attached.",
        "There is no doubt that the red cube is on the left.",
        "There is a red cube on the table.",
        "I can't help with that.",
        "I cannot see the image.",
        "I cannot identify people in images.",
        "The image is not available.",
        "The image does not contain enough information.",
        "The red cube is not clearly visible.",
        "There may be no red cube.",
        "There is no blue cube, but the red one is here.",
        "The red cube is on the table. There is no other object.",
        "The red cube isn't on the table, it is on the floor.",
        "The red cube is not in the box.",
        "There is no red cube in the box.",
        "None of this makes sense.",
        "No problem, the red cube is at the left.",
      ];
      for (const [text, answer] of await foundIn(texts, c))
        expect([text, answer]).toMatchObject([text, { failure: "MALFORMED_ANSWER" }]);
    },
  );

  it("beside a place counts as a place", async () => {
    const says = 'There is no blue cube, but the red one is here: [{"point_2d": [750, 250], "label": "red cube"}]';
    expect(await only(says, C.XY_1000)).toMatchObject({ points: [[0.75, 0.25]] });
  });
});

describe("the end of an answer", () => {
  const ended = (
    content: string | null,
    finish_reason: string | null,
    more = {},
    usage: object = { prompt_tokens: 300, completion_tokens: 2_048 },
  ) =>
    JSON.stringify({ choices: [{ index: 0, finish_reason, message: { role: "assistant", content, ...more } }], usage });

  it.each([C.XY_100, C.LOC_YX_1024, C.MOLMO2_COORDS, C.XY_1000])(
    "before any content is a failure, as at Gemini, OpenAI and Ollama (%i)",
    async (c) => {
      const answers = await foundIn(
        [
          ended("", "length"),
          ended("", "MAX_TOKENS"),
          ended("There is no red cube in", "model_length"),
          ended("", null),
          ended("", "content_filter"),
          ended("", "SAFETY"),
          ended(null, "stop", { refusal: "no" }),
          ended("", "stop", { reasoning_content: "It may be at (1, 2)…" }),
          ended(
            "",
            "stop",
            {},
            { prompt_tokens: 300, completion_tokens: 90, completion_tokens_details: { reasoning_tokens: 90 } },
          ),
          ended("<think>It is", "length"),
          ended("<think>It is here.</think>", "stop"),
          ended("", "abort"),
        ],
        c,
      );
      for (const [text, answer] of answers)
        expect([text, answer]).toMatchObject([text, { failure: expect.any(String) }]);
      const [, cut] = answers[0]!;
      expect(cut).toMatchObject({
        failure: "EMPTY_ANSWER",
        text: expect.stringMatching(/cut off.*2048 tokens.*max_tokens/),
      });
    },
  );

  it("by the model itself, without a word, means in Molmo's families that nothing was found", async () => {
    for (const c of TAG_FAMILIES) expect(await only(ended("", "stop"), c)).toMatchObject({ points: [], boxes: [] });
    expect(await only(ended("", "stop"), C.XY_1000)).toHaveProperty("failure");
  });

  it("by the limit keeps the places that were complete before it, and reports it", async () => {
    const json = ended('[{"point_2d": [750, 250], "label": "a"}, {"point_2d": [1', "length");
    expect(await only(json, C.XY_1000)).toMatchObject({
      points: [[0.75, 0.25]],
      note: expect.stringContaining("cut off"),
    });
    const nested = ended(
      '{"objects": [{"x_min": 0.7, "y_min": 0.2, "x_max": 0.8, "y_max": 0.3}, {"x_min": 0.1, "y_min"',
      "length",
    );
    expect(await only(nested, C.XY_UNIT)).toMatchObject({ points: [], boxes: [[0.7, 0.2, 0.8, 0.3]] });
  });

  it.each([
    ["PaliGemma", C.LOC_YX_1024, "<loc0256><loc0768>"],
    ["PaliGemma", C.LOC_YX_1024, "<loc0256><loc0768><loc0512>"],
    ["Florence-2", C.XY_1000, "cube<loc_100><loc_200><loc_3"],
    ["Qwen", C.XY_1000, '[{"bbox_2d": [700, 200'],
    ["Gemini", C.YX_1000, "[700, 200"],
  ])("by the limit makes no point from half a box of %s", async (_, c, text) => {
    expect(await only(ended(text, "length"), c)).toHaveProperty("failure");
  });

  it("with a status of 200 and an error in it fails with that error, as OpenRouter reports it", async () => {
    const errors: [object, string][] = [
      [{ error: { code: 429, message: "Rate limit exceeded" } }, "UPSTREAM_BUSY"],
      [
        { choices: [{ error: { code: 502, message: "Provider returned error" }, message: { content: "" } }] },
        "UNREACHABLE",
      ],
      [{ error: { message: "Something" } }, "UPSTREAM_ERROR"],
    ];
    for (const [error, failure] of errors) {
      const server = await startChatServer(() => JSON.stringify({ choices: null, ...error }));
      expect(await found(server.endpoint, C.XY_1000)).toMatchObject({ failure });
      await server.close();
    }
  });
});

describe("JSON in models' variants", () => {
  it.each<[string, C, string, number[][], number[][]]>([
    [
      "Python's quotes and tuples, of Qwen",
      C.XY_1000,
      "[{'point_2d': (750, 250), 'label': 'the robot\\'s cube',}]",
      [[0.75, 0.25]],
      [],
    ],
    [
      "comments and bare keys, of Llama",
      C.XY_1000,
      '[\n  // the cube\n  {point_2d: [750, 250], label: "cube"},\n]',
      [[0.75, 0.25]],
      [],
    ],
    ["curly quotes", C.XY_1000, "[{“point_2d”: [750, 250]}]", [[0.75, 0.25]], []],
    ["numbers as texts, of GLM", C.XY_1000, '[{"bbox_2d": ["700", "200", "800", "300"]}]', [], [[0.7, 0.2, 0.8, 0.3]]],
    ["a bare point, of Gemini", C.YX_1000, "[250, 750]", [[0.75, 0.25]], []],
    [
      "bare boxes in a fence, of Gemini",
      C.YX_1000,
      `${FENCE}json\n[[200, 700, 300, 800]]\n${FENCE}`,
      [],
      [[0.7, 0.2, 0.8, 0.3]],
    ],
    ["two corners of a box, of InternVL", C.XY_1000, '{"box": [[700, 200], [800, 300]]}', [], [[0.7, 0.2, 0.8, 0.3]]],
    ["named sides, whichever order lists have", C.YX_1000, '[{"point": {"x": 750, "y": 250}}]', [[0.75, 0.25]], []],
    [
      "a corner with a width and a height",
      C.XY_1000,
      '{"x": 700, "y": 200, "width": 100, "height": 100}',
      [],
      [[0.7, 0.2, 0.8, 0.3]],
    ],
    ["JSON in a JSON string", C.XY_1000, '"[{\\"point_2d\\": [750, 250]}]"', [[0.75, 0.25]], []],
    [
      "objects without a list around them",
      C.XY_1000,
      '{"point_2d": [750, 250]}\n{"point_2d": [100, 100]}',
      [
        [0.75, 0.25],
        [0.1, 0.1],
      ],
      [],
    ],
    [
      "GLM's box around the answer",
      C.XY_1000,
      '<think>…</think><answer><|begin_of_box|>[{"point_2d": [750, 250]}]<|end_of_box|></answer>',
      [[0.75, 0.25]],
      [],
    ],
    [
      "reasoning of Magistral before it",
      C.XY_1000,
      '[THINK]{"point_2d": [1, 1]}[/THINK][{"point_2d": [750, 250]}]',
      [[0.75, 0.25]],
      [],
    ],
    ["null for a place", C.XY_1000, '{"point_2d": null, "label": "red cube"}', [], []],
    ["a place labeled none", C.XY_1000, '[{"point_2d": [0, 0], "label": "none"}]', [], []],
    ["a word for nothing found", C.XY_1000, '{"found": false}', [], []],
    ["an empty object", C.YX_1000, "{}", [], []],
  ])("with %s is parsed", async (_, c, says, points, boxes) => {
    expect(await only(says, c)).toMatchObject({ points, boxes });
  });

  it.each([
    ["shares where thousandths are declared, of Gemini", C.YX_1000, '[{"point": [0.25, 0.75]}]'],
    ["a list of numbers in prose", C.XY_1000, "The cube is at [750, 250] of [1, 2]."],
    ["a size beside a place that was cut off", C.XY_1000, '{"size": [640, 480], "point_2d": [7'],
    ["an error", C.XY_1000, '{"error": "none"}'],
  ])("with %s is refused", async (_, c, says) => {
    expect(await only(says, c)).toMatchObject({ failure: "MALFORMED_ANSWER" });
  });

  it("in parts, of Mistral and of servers that parse it, is read without the reasoning", async () => {
    const parts = [
      { type: "thinking", thinking: [{ type: "text", text: '[{"point_2d": [1, 1]}]' }] },
      { type: "text", text: '[{"point_2d": [750, 250]}]' },
    ];
    for (const content of [parts, [{ point_2d: [750, 250] }], { point_2d: [750, 250] }])
      expect(await only(JSON.stringify({ choices: [{ message: { content } }] }), C.XY_1000)).toMatchObject({
        points: [[0.75, 0.25]],
      });
  });
});

describe("request and response fields", () => {
  const PLACE = '[{"point_2d": [750, 250]}]';
  it("that smaller servers omit cost only the token count, as at MLX and llama.cpp", async () => {
    const bare = JSON.stringify({ choices: [{ message: { content: PLACE } }] });
    expect(await only(bare, C.XY_1000)).toMatchObject({
      points: [[0.75, 0.25]],
      tokens: [0, 0],
      note: "the server counts no tokens, so that some are not charged",
    });
    const mlx = completion(PLACE, { usage: { input_tokens: 7, output_tokens: 5 } });
    expect(await only(mlx, C.XY_1000)).toMatchObject({ tokens: [7, 5], note: "" });
  });

  /** A server that refuses fields, each in its own words. */
  async function strict(refuses: (chat: Chat) => { status: number; error: unknown } | undefined) {
    const server = await startHttpServer({
      path: "/v1/chat/completions",
      read: (_, headers) => ({ instruction: "", proprio: [], headers }),
      answer: () => {
        const refused = refuses(JSON.parse(server.requests.at(-1)!.toString()) as Chat);
        return refused ? { status: refused.status, body: JSON.stringify(refused.error) } : { body: completion(PLACE) };
      },
      error: (text) => ({ body: text }),
      odd: {} as never, // nothing odd is asked for
    });
    server.behave({ kind: "steps", steps: [] });
    return { ...server, chats: () => server.requests.map((body) => JSON.parse(body.toString()) as Chat) };
  }

  it("that newer OpenAI models refuse are replaced or left out, permanently", async () => {
    const openai = await strict((chat) => {
      const message =
        chat.max_tokens !== undefined
          ? "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
          : chat.temperature !== undefined
            ? "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported."
            : undefined;
      return message === undefined
        ? undefined
        : { status: 400, error: { error: { message, type: "invalid_request_error" } } };
    });
    for (let i = 0; i < 2; i++)
      expect(await found(openai.endpoint, C.XY_1000)).toMatchObject({ points: [[0.75, 0.25]], note: "" });
    const chats = openai.chats();
    expect(chats).toHaveLength(4);
    expect(chats.at(-1)).toMatchObject({ max_completion_tokens: 2_048 });
    expect(Object.keys(chats.at(-1)!)).not.toContain("temperature");
    await openai.close();
  });

  it.each([
    [
      "Mistral",
      422,
      { detail: [{ type: "extra_forbidden", loc: ["body", "seed"], msg: "Extra inputs are not permitted" }] },
    ],
    [
      "Google",
      400,
      [{ error: { code: 400, message: 'Invalid JSON payload received. Unknown name "seed": Cannot find field.' } }],
    ],
    ["Groq", 400, { error: { message: "property 'seed' is unsupported" } }],
  ])("of the caller that %s refuses are left out, and the answer reports it", async (_, status, error) => {
    const server = await strict((chat) => (chat.seed === undefined ? undefined : { status, error }));
    expect(await found(server.endpoint, C.XY_1000, { seed: 7 })).toMatchObject({
      points: [[0.75, 0.25]],
      note: "the server refuses seed, which was left out",
    });
    await server.close();
  });

  it("that do not fit into vLLM's small context are left to the server", async () => {
    const message = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.";
    const vllm = await strict((chat) =>
      chat.max_tokens === undefined ? undefined : { status: 400, error: { object: "error", message } },
    );
    expect(await found(vllm.endpoint, C.XY_1000)).toMatchObject({ points: [[0.75, 0.25]] });
    await vllm.close();
  });

  it("cause no second attempt if the refusal names none", async () => {
    const server = await strict(() => ({ status: 400, error: { error: { message: "image could not be decoded" } } }));
    expect(await found(server.endpoint, C.XY_1000)).toMatchObject({ failure: "INPUT_REJECTED" });
    expect(server.chats()).toHaveLength(1);
    await server.close();
  });
});
