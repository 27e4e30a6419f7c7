/** `fetch` for libraries that bring their own protocol over HTTP: through the guard of addresses, without redirects, and of a bounded answer. */
import { type Dispatcher, fetch } from "undici";
import { FetchFailed } from "./guard.ts";

/** A request as libraries make it. */
export interface GuardedRequest {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | URLSearchParams | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * The whole answer. `agent` is from `guardedAgent`; the text of the address is judged before, by `checkUrl`. Rejects with `FetchFailed` where
 * it is longer than `maxBytes`, unpacked, or as `fetch` does.
 */
export async function guardedFetch(
  address: string,
  { method, headers, body, signal }: GuardedRequest,
  { agent, maxBytes }: { agent: Dispatcher; maxBytes: number },
): Promise<Response> {
  const answer = await fetch(address, {
    method,
    headers,
    redirect: "manual",
    dispatcher: agent,
    ...(body !== undefined && { body }),
    ...(signal && { signal }),
  });
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of answer.body ?? []) {
    size += chunk.length;
    if (size > maxBytes) throw new FetchFailed("too_large");
    chunks.push(chunk);
  }
  const { status } = answer;
  return new Response(WITHOUT_BODY.has(status) ? null : Buffer.concat(chunks), {
    status,
    headers: [...answer.headers],
  });
}

const WITHOUT_BODY = new Set([101, 204, 205, 304]);
