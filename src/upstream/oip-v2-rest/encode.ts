/** An inference request as JSON, or as JSON with the tensors' bytes behind it where the server's metadata declare that extension. */
import { arrayOfTensor, rawBytes, type Tensor } from "../oip/tensors.ts";
import type { InferRequest } from "../oip/wire.ts";

/** A body; `jsonBytes` is the length of its JSON where raw tensors follow. */
export interface InferBody {
  readonly body: Buffer;
  readonly jsonBytes: number | undefined;
}

/** The body of one inference. */
export function encodeInfer({ inputs, outputs }: InferRequest, id: string, binary: boolean): InferBody {
  const raw = binary ? inputs.map(({ data }) => (data instanceof Uint8Array ? data : rawBytes(data))) : [];
  const json = Buffer.from(
    JSON.stringify({
      id,
      inputs: inputs.map((tensor, i) => ({
        name: tensor.name,
        shape: tensor.shape,
        datatype: tensor.datatype,
        ...(binary ? { parameters: { binary_data_size: raw[i]!.length } } : { data: listOf(tensor) }),
      })),
      ...(outputs.length > 0 && {
        outputs: outputs.map((name) => ({ name, ...(binary && { parameters: { binary_data: true } }) })),
      }),
    }),
  );
  return binary
    ? { body: Buffer.concat([json, ...raw]), jsonBytes: json.length }
    : { body: json, jsonBytes: undefined };
}

/** The elements, flat. Files can't be told from text in JSON, so they go as base64, which is what servers of pictures read. */
function listOf(tensor: Tensor): (string | number)[] {
  if (tensor.data instanceof Uint8Array) return Array.from(arrayOfTensor(tensor).toFloat64());
  return tensor.data.map((element) => (isText(element) ? element.toString("utf8") : element.toString("base64")));
}

const isText = (element: Buffer): boolean => Buffer.from(element.toString("utf8")).equals(element);
