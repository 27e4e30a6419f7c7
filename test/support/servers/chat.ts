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
