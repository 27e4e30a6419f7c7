/** A server of chat completions that says as it's told. */
import { type HttpActServer, type HttpSpeech, JSON_BOMB, NOT_TEXT, startHttpServer } from "./http.ts";

/** One chat as it came. */
export interface Chat {
  readonly model: string;
  readonly seed?: number;
  readonly temperature?: number;
  readonly max_tokens: number;
  readonly messages: readonly { content: { type: string; text?: string; image_url?: { url: string } }[] }[];
  readonly [key: string]: unknown;
}

/** A completion with this text; what is given wins over the usual. */
export const completion = (text: string, more: object = {}): string =>
  JSON.stringify({
    id: "chatcmpl-1",
    object: "chat.completion",
    choices: [{ index: 0, message: { role: "assistant", content: text }, finish_reason: "stop" }],
    usage: { prompt_tokens: 300, completion_tokens: 20, total_tokens: 320 },
    ...more,
  });

/** Says these texts in turn, the last one again and again; a function sees the chat. */
export async function startChatServer(
  says: string | ((chat: Chat) => string | Promise<string>),
  { models = ["test/model"] }: { models?: readonly string[] } = {},
): Promise<HttpActServer & { readonly chats: () => Chat[] }> {
  const speech: HttpSpeech = {
    path: "/v1/chat/completions",
    base: "/v1",
    read: (body, headers) => ({ instruction: body.toString(), proprio: [], headers }),
    answer: () => ({ body: "" }),
    error: (text) => ({ body: JSON.stringify({ error: { message: text, type: "server_error" } }), status: 500 }),
    odd: {
      bomb: JSON_BOMB,
      text: NOT_TEXT,
      batch: { body: "{}" },
      objects: { body: "[]" },
      short: { body: '{"choices":[' },
    },
    others: { "GET /v1/models": () => ({ body: JSON.stringify({ data: models.map((id) => ({ id })) }) }) },
  };
  const server: HttpActServer = await startHttpServer({
    ...speech,
    answer: async () => {
      const chat = JSON.parse(server.requests.at(-1)!.toString()) as Chat;
      const said = typeof says === "string" ? says : await says(chat);
      return { body: said.startsWith("{") && said.includes('"choices"') ? said : completion(said) };
    },
  });
  server.behave({ kind: "steps", steps: [] });
  return { ...server, chats: () => server.requests.map((body) => JSON.parse(body.toString()) as Chat) };
}

/** Numbers as places in thousandths: twenty-five above minus ten each. */
const PLACES = { from: -10, per: 25 } as const;

/** The numbers that a place between 0 and 1 holds. */
export const numberAt = (place: number): number => Math.round(((place * 1_000) / PLACES.per + PLACES.from) * 1e6) / 1e6;

/** A model that finds the first two numbers of each step as a point, in the convention of thousandths. */
export function startPointingServer(): Promise<HttpActServer> {
  const points = (steps: readonly (readonly number[])[]): string =>
    JSON.stringify(
      steps.map((step) => ({ point_2d: step.map((value) => (value - PLACES.from) * PLACES.per), label: "it" })),
    );
  return startHttpServer({
    path: "/v1/chat/completions",
    base: "/v1",
    read: (body, headers) => {
      const { messages } = JSON.parse(body.toString()) as Chat;
      const prompt = messages[0]?.content.find(({ type }) => type === "text")?.text ?? "";
      return { instruction: /call \d+|go on/.exec(prompt)?.[0] ?? "", proprio: [], headers };
    },
    answer: (steps) => ({ body: completion(points(steps)) }),
    error: (text) => ({ body: JSON.stringify({ error: { message: text, type: "server_error" } }), status: 500 }),
    odd: {
      bomb: { body: completion(JSON_BOMB.body.toString()) },
      text: NOT_TEXT,
      batch: { body: completion('[{"point_2d": [[[1, 2], [3, 4]]]}]') },
      objects: { body: completion('[{"point_2d": [{}, {}]}]') },
      short: { body: '{"choices":[' },
    },
    others: { "GET /v1/models": () => ({ body: '{"data":[{"id":"test/model"}]}' }) },
  });
}
