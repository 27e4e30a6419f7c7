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
    "Red cube: not found", // the parsers of roboflow/supervision
    "Could not find the red cube.",
    "Not in the image.",
    "There are zero red cubes in the picture.",
    "It appears that there is no red cube in the image.",
    "The image provided does not contain a red cube.",
    "The red cube is missing.",
    "The red cube is not in the field of view.",
    "The answer is none.",
    "Final answer: none",
    "未检测到目标", // QwenLM/Qwen3-VL, asked in Chinese
    "なし",
    "Nichts gefunden.",
    "Aucun objet trouvé.",
    '{"answer": "There is no red cube in the image."}',
    "I can see a table, but there is no red cube.",
    "Upon closer inspection, there is no red cube.",
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
        "There is no blue cube in the image.", // another cube
        "There is no dog in the picture.",
        "There is a red cube here, but there is no red cube in the box.",
        "There is nothing but a red cube.",
        "No object other than the red cube is visible.",
        "There is no red cube in the first image, but there is one in the second image.",
        "If there is no red cube, answer [].", // the prompt, repeated
        "No image found.",
        "图中没有红色方块。",
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
    content: unknown,
    finish_reason: string | null,
    more = {},
    usage: object = { prompt_tokens: 300, completion_tokens: 2_048 },
    choice = {},
  ) => {
    const message = { role: "assistant", content, ...more };
    return JSON.stringify({ choices: [{ index: 0, finish_reason, message, ...choice }], usage });
  };
  const TOOL = { type: "function", function: { name: "locate", arguments: '{"point_2d": [750, 250]}' } };

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

  it.each(["stop", "STOP", "eos", "normal", "stop_str", "FinishReason.STOP", "FINISH_REASON_STOP", { type: "stop" }])(
    "by the model itself is regular in every spelling, of vLLM, SGLang, Baidu and Vertex: %j",
    async (reason) => {
      expect(await only(ended("[]", reason as string), C.XY_1000)).toMatchObject({ points: [], boxes: [], note: "" });
    },
  );

  it.each([
    ["an error, of OpenRouter and Together", ended('[{"point_2d": [750, 250]}]', "error"), "UPSTREAM_ERROR"],
    ["a lost connection, of Zhipu", ended('[{"point_2d": [750, 250]}]', "network_error"), "UPSTREAM_ERROR"],
    ["toxicity, of Cohere", ended("", "ERROR_TOXIC"), "INPUT_REJECTED"],
    ["a refusal in parts, of OpenAI", ended([{ type: "refusal", refusal: "no" }], "stop"), "INPUT_REJECTED"],
    [
      "Azure's filter",
      ended("", "stop", {}, {}, { content_filter_results: { hate: { filtered: true } } }),
      "INPUT_REJECTED",
    ],
    ["a call of a tool, of vLLM's parsers", ended(null, "stop", { tool_calls: [TOOL] }), "MALFORMED_ANSWER"],
    ["a call of a tool beside an empty text", ended("", "stop", { tool_calls: [TOOL] }), "MALFORMED_ANSWER"],
    ["an old function call", ended("", "function_call", { function_call: TOOL.function }), "MALFORMED_ANSWER"],
    ["no content, of llama.cpp", ended(undefined, "stop"), "MALFORMED_ANSWER"],
    ["reasoning details, of OpenRouter", ended("", "stop", { reasoning_details: [{ text: "…" }] }), "MALFORMED_ANSWER"],
    [
      "counted reasoning, of xAI",
      ended("", "stop", {}, { completion_tokens: 9, reasoning_tokens: 9 }),
      "MALFORMED_ANSWER",
    ],
  ])("by %s is a failure in every convention", async (_, answer, failure) => {
    for (const c of [C.XY_1000, ...TAG_FAMILIES]) expect(await only(answer, c)).toMatchObject({ failure });
  });

  it("leaves special tokens at the end out, as of servers that don't skip them", async () => {
    expect(await only("<eos>", C.LOC_YX_1024)).toMatchObject({ points: [], boxes: [] });
    expect(await only("[]<|im_end|>", C.XY_1000)).toMatchObject({ points: [], boxes: [] });
  });

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
  const BOX = [[0.7, 0.2, 0.8, 0.3]];
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
    ["GLM's box around a bare list", C.XY_1000, "<|begin_of_box|>[[700, 200, 800, 300]]<|end_of_box|>", [], BOX],
    ["InternVL's tags", C.XY_1000, "<ref>red cube</ref><box>[[700, 200, 800, 300]]</box>", [], BOX],
    ["DeepSeek-VL2's tags", C.XY_1000, "<|ref|>red cube<|/ref|><|det|>[[700, 200, 800, 300]]<|/det|>", [], BOX],
    ["Qwen-VL's tags", C.XY_1000, "<ref>red cube</ref><box>(700,200),(800,300)</box>", [], BOX],
    ["Seed's tags", C.XY_1000, "<point>750 250</point>", [[0.75, 0.25]], []],
    ["a tuple, of UI-TARS", C.XY_1000, "(750, 250)", [[0.75, 0.25]], []],
    ["numbers in one text", C.XY_1000, '[{"bbox_2d": "700, 200, 800, 300"}]', [], BOX],
    ["several boxes under one key", C.XY_1000, '{"bbox_2d": [[700, 200, 800, 300]], "label": "cube"}', [], BOX],
    [
      "lists of boxes and labels, of Florence-2",
      C.XY_1000,
      '{"bboxes": [[700, 200, 800, 300]], "labels": ["cube"]}',
      [],
      BOX,
    ],
    ["a list of points", C.XY_1000, '{"points": [[750, 250]]}', [[0.75, 0.25]], []],
    ["named corners", C.XY_1000, '{"top_left": [700, 200], "bottom_right": [800, 300]}', [], BOX],
    ["corners from zero, of torchvision", C.XY_1000, '{"x0": 700, "y0": 200, "x1": 800, "y1": 300}', [], BOX],
    ["keys in capitals", C.XY_1000, '{"Bbox-2D": {"xMin": 700, "yMin": 200, "xMax": 800, "yMax": 300}}', [], BOX],
    ["quotes inside a label", C.XY_1000, '[{"point_2d": [750, 250], "label": "the "red" cube"}]', [[0.75, 0.25]], []],
    ["a confidence of NaN", C.XY_1000, '[{"point_2d": [750, 250], "score": NaN}]', [[0.75, 0.25]], []],
    [
      "a draft before the final answer",
      C.XY_1000,
      'Perhaps [{"point_2d": [1, 1]}]. Final answer: [{"point_2d": [750, 250]}]',
      [[0.75, 0.25]],
      [],
    ],
    ["single quotes, of Molmo", C.XY_100, "<point x='75.0' y='25.0' alt='cube'>cube</point>", [[0.75, 0.25]], []],
    ["percent signs, of Molmo", C.XY_100, '<point x="75.0%" y="25.0%">cube</point>', [[0.75, 0.25]], []],
    ["names in a tuple, of RoboPoint", C.XY_UNIT, "[(x1=0.75, y1=0.25)]", [[0.75, 0.25]], []],
    [
      "two boxes of one label, of Florence-2",
      C.XY_1000,
      "cube<loc_700><loc_200><loc_800><loc_300><loc_700><loc_200><loc_800><loc_300>",
      [],
      [...BOX, ...BOX],
    ],
    ["-1 for every number, of GUI models", C.XY_1000, '[{"bbox_2d": [-1, -1, -1, -1]}]', [], []],
    ["a box without a size at the origin", C.XY_1000, '{"bbox_2d": [0, 0, 0, 0]}', [], []],
    ["a place of an object that was not found", C.XY_1000, '{"found": false, "x": 0, "y": 0}', [], []],
    ["a count of zero", C.XY_1000, '{"count": 0}', [], []],
    ["named corners in the declared order", C.YX_1000, '{"top_left": [200, 700], "bottom_right": [300, 800]}', [], BOX],
    [
      "shares beside thousandths, which are left out",
      C.XY_1000,
      '[{"point": [0.5, 0.5]}, {"point": [750, 250]}]',
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
    ["an empty list beside an unreadable place", C.XY_1000, '[{"point_2d": [750, 250, 1], "attributes": []}]'],
    ["null for one place and part of another", C.XY_1000, '{"point_2d": null, "bbox_2d": [700, 200, 800]}'],
    ["an object that was not found at a place", C.XY_1000, '{"found": false, "point_2d": [750, 250]}'],
    ["a correction", C.XY_1000, '[{"point_2d": [1, 1]}] No, wait: [{"point_2d": [750, 250]}]'],
    ["two corners without a box around them", C.XY_1000, "(700,200),(800,300)"],
    ["a tag without coordinates, of Molmo", C.XY_100, '<point p="75.0, 25.0">cube</point>'],
    ["three numbers, of Florence-2", C.XY_1000, "cube<loc_700><loc_200><loc_800>"],
    ["half a point, of Molmo2", C.MOLMO2_COORDS, '<points coords="1 1 750">cube</points>'],
    ["an odd list, of DeepSeek-VL2", C.XY_1000, "<|ref|>cube<|/ref|><|det|>[[533, 132, 457]]<|/det|>"],
  ])("with %s is refused", async (_, c, says) => {
    expect(await only(says, c)).toMatchObject({ failure: "MALFORMED_ANSWER" });
  });

  it("has confidences from 0 to 1, also of percent and text", async () => {
    const says = (score: unknown) => JSON.stringify([{ point_2d: [750, 250], score }]);
    const scores = [0.9, "0.9", 90, "90%", -1, 1e9, "high"];
    const server = await startChatServer(scores.map(says).join("\n"));
    const seen = observed({ frames: [{ camera: "front", data: await picture }] });
    const target = targetAt(server.endpoint, { profile: create(WireProfileSchema, { coordinates: C.XY_1000 }) });
    const { points } = await wire.ground(target, groundInput(seen, "it"), framesOf(seen), callWith());
    expect(points.map(({ confidence }) => confidence)).toEqual([0.9, 0.9, 0.9, 0.9, 1, 1, 1]);
    await server.close();
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
    [
      "OpenAI, in a field of its own,",
      400,
      { error: { message: "Unsupported value: only the default.", param: "seed" } },
    ],
  ])("of the caller that %s refuses are left out, and the answer reports it", async (_, status, error) => {
    const server = await strict((chat) => (chat.seed === undefined ? undefined : { status, error }));
    expect(await found(server.endpoint, C.XY_1000, { seed: 7 })).toMatchObject({
      points: [[0.75, 0.25]],
      note: "the server refuses seed, which was left out",
    });
    await server.close();
  });

  it.each([
    ["vLLM", "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."],
    ["TGI", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048."],
  ])("that do not fit into a small context of %s are left to the server", async (_, message) => {
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
