/** What an OpenAI-compatible server is asked over HTTP. Source: the OpenAI API reference, and vLLM's and SGLang's servers. */

import { type Completion, readCompletion } from "../payload/completion.ts";
import type { RefusedFields } from "../payload/refused-fields.ts";
import { type HttpServers, isObject, readJson, statusFailure } from "../transport/http.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";
import type { ChatQuestion } from "./encode.ts";

/** A completion of 2,048 tokens, with all that servers put around it. */
const MAX_ANSWER_BYTES = 4 * 2 ** 20;
const MAX_MODELS = 10_000;

/** How often one question is asked without a field that the server refused. */
const MOST_LESSONS = 4;

/** Completes one chat, without the fields that the server refuses. Rejects with an UpstreamFailure. */
export async function complete(
  servers: HttpServers,
  target: UpstreamTarget,
  { body, optional, limit }: ChatQuestion,
  refused: RefusedFields,
  call: CallOptions,
): Promise<Completion> {
  const server = serverOf(target);
  const headers = { "content-type": "application/json" };
  for (let lessons = 0; ; lessons++) {
    const taken = refused.apply(server, body);
    const answer = await servers.ask(target, {
      method: "POST",
      path: "/v1/chat/completions",
      headers,
      body: JSON.stringify(taken),
      call,
      maxBytes: MAX_ANSWER_BYTES,
    });
    if (answer.status >= 200 && answer.status < 300) return readCompletion(answer.body, limit);
    const failure = statusFailure(answer);
    const isRefused = answer.status === 400 || answer.status === 422;
    if (!isRefused || lessons >= MOST_LESSONS || !refused.learn(server, taken, failure.message, optional))
      throw failure;
  }
}

/** A server's models differ in what they refuse. */
export const serverOf = ({ endpoint, model, profile }: UpstreamTarget): string =>
  `${endpoint} ${profile?.serverModel ?? model}`;

/**
 * The names of the models that a server serves; undefined where it answers and has no such list, as some hosted ones don't. Rejects with an
 * UpstreamFailure.
 */
export async function modelsOf(
  servers: HttpServers,
  target: UpstreamTarget,
  call: CallOptions,
): Promise<string[] | undefined> {
  const answer = await servers.ask(target, { method: "GET", path: "/v1/models", call, maxBytes: MAX_LIST_BYTES });
  if (NO_LIST.has(answer.status)) return undefined;
  if (answer.status >= 300) throw statusFailure(answer);
  const list = readJson(answer.body);
  // OpenAI's list; Together's is bare, and Ollama's and Google's own are of `models` with names.
  const data = isObject(list) ? (list.data ?? list.models) : list;
  if (!Array.isArray(data)) return [];
  return data
    .slice(0, MAX_MODELS)
    .map((model: unknown) => (isObject(model) ? (model.id ?? model.name) : model))
    .filter((id) => typeof id === "string");
}

/** Not found, not allowed, gone, not implemented. */
const NO_LIST: ReadonlySet<number> = new Set([404, 405, 410, 501]);
const MAX_LIST_BYTES = 16 * 2 ** 20;

/** A name as lists and calls spell it differently: Google lists `models/…`, and Ollama `…:latest`. */
const plainName = (name: string): string =>
  name
    .replace(/^models\//, "")
    .replace(/:latest$/, "")
    .toLowerCase();

/** The name by which a list has a model; undefined where it doesn't. */
export const listedAs = (names: readonly string[], wanted: string): string | undefined =>
  names.includes(wanted) ? wanted : names.find((name) => plainName(name) === plainName(wanted));
