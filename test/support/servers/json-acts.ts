/** Servers of ours that act over HTTP with plain lists in JSON: Dexbotic's, which takes a form, and Tether's. */
import { type HttpActServer, type HttpSpeech, JSON_BOMB, NOT_TEXT, startHttpServer } from "./http.ts";

type Steps = readonly (readonly number[])[];

/** A part of a form: its headers in one text, and its bytes. */
export interface FormPart {
  readonly name: string;
  readonly head: string;
  readonly data: Buffer;
}

/** The parts of a form, in order. */
export function partsOfForm(body: Buffer, contentType = ""): FormPart[] {
  const boundary = Buffer.from(`--${/boundary=(.+)$/.exec(contentType)?.[1] ?? ""}`);
  const parts: FormPart[] = [];
  for (let at = body.indexOf(boundary); at >= 0; ) {
    const from = at + boundary.length + 2;
    const next = body.indexOf(boundary, from);
    if (next < 0) break;
    const end = body.indexOf("\r\n\r\n", from);
    const head = body.toString("utf8", from, end);
    parts.push({ name: /name="([^"]*)"/.exec(head)?.[1] ?? "", head, data: body.subarray(end + 4, next - 2) });
    at = next;
  }
  return parts;
}

const odd = (key: string): HttpSpeech["odd"] => {
  const body = (value: unknown) => ({ body: JSON.stringify({ [key]: value }) });
  const batch = [
    [
      [1, 1],
      [1, 1],
    ],
    [
      [1, 1],
      [1, 1],
    ],
  ];
  return {
    bomb: JSON_BOMB,
    text: NOT_TEXT,
    batch: body(batch),
    objects: body([{ x: 1 }, { x: 2 }]),
    short: body([[1, 2], [3]]),
  };
};

/** Dexbotic's server, as Flask answers: what goes wrong is a page, and a route is not read but posted to. `batch` is its answer to everything. */
export const startDexboticServer = (batch?: unknown): Promise<HttpActServer> =>
  startHttpServer({
    path: "/process_frame",
    read: (body, headers) => {
      const parts = partsOfForm(body, headers["content-type"]);
      const text = (name: string) => parts.find((part) => part.name === name)?.data.toString();
      return { instruction: text("text") ?? "", proprio: JSON.parse(text("states") ?? "[]"), headers };
    },
    answer: (steps: Steps) => ({ body: JSON.stringify({ response: batch ?? steps }) }),
    error: () => ({ body: "<title>500 Internal Server Error</title>", status: 500, type: "text/html" }),
    odd: odd("response"),
    others: { "GET /process_frame": () => ({ body: "<title>405 Method Not Allowed</title>", status: 405 }) },
  });

/** Tether's server: what goes wrong is `error` with status 200. */
export const startTetherServer = (more: object = {}): Promise<HttpActServer> =>
  startHttpServer({
    path: "/act",
    read: (body, headers) => {
      const { instruction, state = [] } = JSON.parse(body.toString());
      return { instruction, proprio: state, headers };
    },
    answer: (steps: Steps) => ({
      body: JSON.stringify({ actions: steps, num_actions: steps.length, latency_ms: 2.5, ...more }),
    }),
    error: (text) => ({ body: JSON.stringify({ error: text }) }),
    odd: odd("actions"),
    others: { "GET /health": () => ({ body: '{"status":"ok","state":"ready"}' }) },
  });
