/** What a server of the protocol is asked over HTTP. */

import type { OipModelName, OipTransport } from "../oip/wire.ts";
import { malformed } from "../transport/failures.ts";
import { type HttpAnswer, HttpServers, isObject, readJson } from "../transport/http.ts";
import type { ServerReach } from "../transport/servers.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";
import { readInfer, readMetadata } from "./decode.ts";
import { encodeInfer } from "./encode.ts";

const LENGTH_HEADER = "inference-header-content-length";
const MAX_WORDS = 1 << 20;
const MAX_SERVERS = 1_024;
/** The paths that owners may have pasted with the address. */
const OPERATIONS = ["", "/infer", "/ready"]
  .flatMap((verb) => [`/v2/models/*${verb}`, `/v2/models/*/versions/*${verb}`])
  .concat("/v2/health/ready");

/** The protocol over HTTP/1.1; tensors go raw to servers that list the extension `binary_tensor_data`. */
export function restTransport(reach: ServerReach): OipTransport {
  const servers = new HttpServers(reach, OPERATIONS);
  /** Whether each server reads raw tensors. */
  const binary = new Map<string, boolean>();

  const ask = (target: UpstreamTarget, path: string, call: CallOptions): Promise<HttpAnswer> =>
    servers.askFor(target, { method: "GET", path, call, maxBytes: MAX_WORDS });

  const readsBinary = async (target: UpstreamTarget, call: CallOptions): Promise<boolean> => {
    const known = binary.get(target.endpoint);
    if (known !== undefined) return known;
    const said = readJson((await ask(target, "/v2", call)).body);
    const reads = isObject(said) && Array.isArray(said.extensions) && said.extensions.includes("binary_tensor_data");
    if (binary.size >= MAX_SERVERS) binary.clear();
    binary.set(target.endpoint, reads);
    return reads;
  };

  return {
    async serverReady(target, call) {
      await ask(target, "/v2/health/ready", call);
    },
    async modelReady(target, model, call) {
      const { body } = await ask(target, `${pathOf(model)}/ready`, call);
      // KServe answers so in the body, Triton by the status alone.
      if (body.length > 0 && isObject(readJson(body)) && (readJson(body) as { ready?: unknown }).ready === false)
        throw malformed("the model is not ready");
    },
    async metadata(target, model, call) {
      return readMetadata((await ask(target, pathOf(model), call)).body);
    },
    async infer(target, model, request, call) {
      const { body, jsonBytes } = encodeInfer(request, call.requestId, await readsBinary(target, call));
      const answer = await servers.askFor(target, {
        method: "POST",
        path: `${pathOf(model)}/infer`,
        headers: {
          "content-type": jsonBytes === undefined ? "application/json" : "application/octet-stream",
          ...(jsonBytes !== undefined && { [LENGTH_HEADER]: String(jsonBytes) }),
        },
        body,
        call,
      });
      const length = answer.headers[LENGTH_HEADER];
      return readInfer(answer.body, call.requestId, length === undefined ? undefined : Number(length));
    },
    close: () => servers.close(),
  };
}

const pathOf = ({ name, version }: OipModelName): string => {
  const model = `/v2/models/${encodeURIComponent(name)}`;
  return version === "" ? model : `${model}/versions/${encodeURIComponent(version)}`;
};
