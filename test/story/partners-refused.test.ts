/** A lab's model server that isn't what it says is turned away with a report of what to mend. */
import { expect, it } from "vitest";
import { failedChecks, modalities, redOf, type Tree, useLab } from "../support/partners.ts";
import { pack, unpack } from "../support/plain-msgpack.ts";
import { startChatServer } from "../support/servers/chat.ts";
import { startGr00tServer } from "../support/servers/gr00t.ts";

const { app, robot, open, join, openpi } = useLab();

it("warns of a server that acts without a required image, and of one that cannot accept a large one", async () => {
  const blind = await openpi((request) => {
    const observation = unpack(request) as Tree;
    const state = observation.get("observation/state")?.get("data") as unknown as Buffer;
    const values = [...new Float64Array(new Uint8Array(state).buffer)];
    return Array.from({ length: 10 }, () => values.slice(0, 7));
  });
  const acting = await join({
    runtime: "openpi-ws",
    endpoint: blind.endpoint,
    profile: { preset: "openpi/libero" },
    action_spaces: ["ee_delta_6d_grip"],
    max_horizon: 10,
    price_per_action_step: 0.001,
  });
  expect([acting.body.offering.status, failedChecks(acting.body)]).toEqual([
    "live",
    expect.arrayContaining([
      ["missing_camera_refused", expect.stringMatching(/without the picture observation\/image/)],
    ]),
  ]);

  const small = await startChatServer(async (chat) => {
    const url = chat.messages[0]!.content[0]!.image_url!.url;
    if (url.length > 200_000) throw new Error("413");
    const [x, y] = await redOf(chat);
    return `[{"point_2d": [${x}, ${y}], "label": "square"}]`;
  });
  open.push(small);
  const ground = { contracts: ["ground"], action_spaces: [], price_per_1k_tokens: 0.001 };
  const finding = await join({
    runtime: "openai-chat",
    endpoint: small.endpoint,
    ...ground,
    profile: { coordinates: "xy_1000", server_model: "test/model" },
  });
  expect([finding.body.offering.status, failedChecks(finding.body).map(([name]) => name)]).toEqual([
    "live",
    ["large_picture"],
  ]);
});

it.each<[string, () => Promise<object>, [string, RegExp]]>([
  [
    "a policy of another dimension",
    async () => {
      const droid = await openpi(() => Array(10).fill([1, 2, 3, 4, 5, 6, 7, 8]));
      return { runtime: "openpi-ws", endpoint: droid.endpoint };
    },
    ["action_shape", /8 numbers per step; the action space has 7/],
  ],
  [
    "a policy that doesn't look",
    async () => {
      const still = await openpi(() => Array(10).fill([1, 2, 3, 4, 5, 6, 7]));
      return { runtime: "openpi-ws", endpoint: still.endpoint };
    },
    ["answers_differ", /two different observations gave the same actions/],
  ],
  [
    "a policy that loses its numbers",
    async () => {
      const lost = await openpi(() => Array(10).fill([1, 2, 3, 4, 5, 6, Number.NaN]));
      return { runtime: "openpi-ws", endpoint: lost.endpoint };
    },
    ["action_shape", /not finite/],
  ],
  [
    "a server whose metadata say otherwise",
    async () => {
      const metadata = pack(new Map([["policy_server_config", new Map([["action_dim", 8]])]]));
      return { runtime: "openpi-ws", endpoint: (await openpi(() => [[0]], { metadata })).endpoint };
    },
    ["metadata", /8 numbers per step, and 7 are declared/],
  ],
  [
    "another embodiment",
    async () => {
      const server = await startGr00tServer({ config: modalities(["ego_view"], ["left_arm"], ["left_arm"]) });
      open.push(server);
      return { runtime: "gr00t-zmq", endpoint: server.endpoint, profile: { preset: "gr00t/libero" } };
    },
    ["modality_config", /names video image, wrist_image, and the server has ego_view/],
  ],
  [
    "a model of another convention",
    async () => {
      const server = await startChatServer(async (chat) => `[{"point": [${(await redOf(chat)).join(", ")}]}]`);
      open.push(server);
      const ground = { contracts: ["ground"], action_spaces: [], price_per_1k_tokens: 0.001 };
      return { runtime: "openai-chat", endpoint: server.endpoint, ...ground, profile: { coordinates: "yx_1000" } };
    },
    ["square_found", /check the order and unit of coordinates/],
  ],
  [
    "a model that always finds the same place",
    async () => {
      const server = await startChatServer('[{"point_2d": [750, 250], "label": "square"}]');
      open.push(server);
      const ground = { contracts: ["ground"], action_spaces: [], price_per_1k_tokens: 0.001 };
      return { runtime: "openai-chat", endpoint: server.endpoint, ...ground, profile: { coordinates: "xy_1000" } };
    },
    ["answers_differ", /two different observations gave the same places/],
  ],
  [
    "nobody at the address",
    async () => {
      const server = await startGr00tServer();
      await server.close();
      return { runtime: "gr00t-zmq", endpoint: server.endpoint, profile: { preset: "gr00t/libero" } };
    },
    ["reachable", /ECONNREFUSED/],
  ],
])("rejects %s with a report on what to fix", async (_, declare, [check, detail]) => {
  const { model, status, body } = await join({ timeout_s: 5, ...(await declare()) });
  expect([status, body.offering.status]).toEqual([200, "rejected"]);
  expect(failedChecks(body)).toContainEqual([check, expect.stringMatching(detail)]);
  const request = { model, observations: [{}] };
  expect((await app.call("/v1/act", request, { key: robot.key })).status).toBeGreaterThanOrEqual(400);
});
