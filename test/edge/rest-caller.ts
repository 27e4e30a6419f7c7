import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import { ActResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { type HouseOptions, KEY, message, openForTest, type TestGateway } from "./gateway.ts";

/** Opens a gateway for the test that runs, whose RPCs are `rpcs`. */
export const open = (rpcs: HouseOptions["rpcs"] = {}, options: HouseOptions = {}): Promise<TestGateway> =>
  openForTest({ ...options, rpcs });

export const AUTH = { authorization: `Bearer ${KEY}` };
export const SOUND = { model: "o/n", observations: [{ proprio: [1, 2] }] };
export const CHUNK = message(ActResponseSchema, {
  id: "act_1",
  object: "world.action",
  model: "o/n",
  action: { space: "joint_pos_7", steps: [{ values: [1, 2] }, { values: [3, 4] }], dtMs: 20 },
  route: { model: "o/n", provider: "p" },
  usage: { actionSteps: 2 },
});

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: the tests say what is inside
  readonly json: any;
}

export async function post(
  gateway: TestGateway,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const response = await fetch(gateway.base + path, {
    method: "POST",
    headers: { ...AUTH, "content-type": "application/json", ...headers },
    body: typeof body === "string" || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
  });
  return answerOf(response);
}

/** A post over HTTP/2 whose body is still to be sent, on a session of its own. */
export function overHttp2(
  gateway: TestGateway,
  path: string,
): { session: ClientHttp2Session; stream: ClientHttp2Stream } {
  const session = connect(gateway.base);
  const stream = session.request({ ":path": path, ":method": "POST", "content-type": "application/json", ...AUTH });
  return { session, stream };
}

export async function get(gateway: TestGateway, path: string, init: RequestInit = {}): Promise<Answer> {
  return answerOf(await fetch(gateway.base + path, { headers: AUTH, ...init }));
}

export async function answerOf(response: Response): Promise<Answer> {
  const text = await response.text();
  const isJson = response.headers.get("content-type") === "application/json" && text !== "";
  return { status: response.status, headers: response.headers, text, json: isJson ? JSON.parse(text) : undefined };
}
