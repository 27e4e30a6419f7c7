/** What an OpenAI-compatible server is asked over HTTP. Source: the OpenAI API reference, and vLLM's and SGLang's servers. */

import type { Signal } from "../../cancellation.ts";
import { type HttpServers, isObject, readJson } from "../transport/http.ts";
import { type CallOptions, traceOf, type UpstreamTarget } from "../wire.ts";
import { type Completion, readCompletion } from "./decode.ts";

/** A completion of 2,048 tokens, with all that servers put around it. */
const MAX_ANSWER_BYTES = 4 * 2 ** 20;
const MAX_MODELS = 200;

/** Completes one chat. Rejects with an UpstreamFailure. */
export async function complete(
  servers: HttpServers,
  target: UpstreamTarget,
  body: string,
  { signal, requestId, traceparent }: Pick<CallOptions, "signal" | "requestId" | "traceparent">,
): Promise<Completion> {
  const answer = await servers.askFor(target, {
    method: "POST",
    path: "/v1/chat/completions",
    headers: { "content-type": "application/json", "x-request-id": requestId, ...traceOf({ traceparent }) },
    body,
    signal,
    maxBytes: MAX_ANSWER_BYTES,
  });
  return readCompletion(answer.body);
}

/** The names of the models that a server serves. Rejects with an UpstreamFailure. */
export async function modelsOf(servers: HttpServers, target: UpstreamTarget, signal: Signal): Promise<string[]> {
  const { body } = await servers.askFor(target, {
    method: "GET",
    path: "/v1/models",
    signal,
    maxBytes: MAX_ANSWER_BYTES,
  });
  const list = readJson(body);
  const data = isObject(list) ? list.data : undefined;
  if (!Array.isArray(data)) return [];
  return data
    .slice(0, MAX_MODELS)
    .map((model: unknown) => (isObject(model) ? model.id : undefined))
    .filter((id) => typeof id === "string");
}
