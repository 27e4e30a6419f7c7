/** Servers of ours that act over HTTP with numpy arrays in JSON: OpenVLA's and Isaac-GR00T's. */
import { type HttpActServer, type HttpSpeech, JSON_BOMB, NOT_TEXT, startHttpServer } from "./http.ts";

type Steps = readonly (readonly number[])[];

/** An array as json_numpy writes it. */
export const jsonArray = (dtype: string, shape: readonly number[], data: Buffer): object => ({
  __numpy__: data.toString("base64"),
  dtype,
  shape,
});

const f8 = (values: readonly number[], shape: readonly number[] = [values.length]): object =>
  jsonArray("<f8", shape, Buffer.from(Float64Array.from(values).buffer));

const doubles = (array: { __numpy__: string }, count: number): number[] => {
  const bytes = Buffer.from(array.__numpy__, "base64");
  return [
    ...(bytes.length === 8 * count
      ? new Float64Array(new Uint8Array(bytes).buffer)
      : new Float32Array(new Uint8Array(bytes).buffer)),
  ];
};

const odd = (actions: (array: unknown) => unknown): HttpSpeech["odd"] => ({
  bomb: JSON_BOMB,
  text: NOT_TEXT,
  batch: { body: JSON.stringify(actions(f8(Array(8).fill(1), [2, 2, 2]))) },
  objects: { body: JSON.stringify(actions([{ x: 1 }, { x: 2 }])) },
  short: { body: JSON.stringify(actions(jsonArray("<f8", [2, 2], Buffer.alloc(8)))) },
});

/** OpenVLA-OFT's server: a list of rows, and the text "error" with status 200 for whatever goes wrong. */
export const startOpenvlaServer = (): Promise<HttpActServer> =>
  startHttpServer({
    path: "/act",
    read: (body, headers) => {
      const { instruction, state } = JSON.parse(body.toString());
      return { instruction, proprio: state === undefined ? [] : doubles(state, 3), headers };
    },
    answer: (steps: Steps) => ({ body: JSON.stringify(steps.map((step) => f8(step))) }),
    error: () => ({ body: '"error"' }),
    odd: odd((array) => array),
    others: { "GET /docs": () => ({ body: "<html></html>", type: "text/html" }) },
  });

/** Isaac-GR00T's HTTP server of N1.5. */
export const startGr00tHttpServer = (): Promise<HttpActServer> =>
  startHttpServer({
    path: "/act",
    read: (body, headers) => {
      const { observation } = JSON.parse(body.toString());
      const state = observation["state.base"];
      return {
        instruction: observation["annotation.task"]?.[0] ?? "",
        proprio: state === undefined ? [] : doubles(state, 3),
        headers,
      };
    },
    answer: (steps: Steps) => ({
      body: JSON.stringify({ "action.base": f8(steps.flat(), [steps.length, steps[0]?.length ?? 0]) }),
    }),
    error: (text) => ({ body: JSON.stringify({ detail: `Internal server error: ${text}` }), status: 500 }),
    odd: odd((array) => ({ "action.base": array })),
    others: { "GET /health": () => ({ body: '{"status":"healthy","model":"GR00T"}' }) },
  });
