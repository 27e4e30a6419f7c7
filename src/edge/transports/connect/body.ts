/**
 * The bodies of requests on their way to Connect, which would read, unpack and decode whatever comes: read to their limit, unpacked
 * to their limit and counted before anything is made of them. Connect gets plain messages.
 */
import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import type { DescMethod } from "@bufbuild/protobuf";
import type { ConnectError } from "@connectrpc/connect";
import type { UniversalServerRequest } from "@connectrpc/connect/protocol";
import { CodecError } from "../../../codecs/error.ts";
import { frameMessage, MessageReader } from "../../../codecs/grpc.ts";
import { Refusal } from "../../../errors.ts";
import { inSlices } from "../../../slices.ts";
import { UNCOUNTED_BYTES } from "../../body-memory.ts";
import { assertBounded, boundsOf, GatheredBody, tooLarge } from "../../messages/bounds.ts";
import { COUNTED_BYTES, countingJson } from "../../messages/json-text.ts";
import { type Coding, codingOf } from "../grpc/compression.ts";
import { refusalOfFrames } from "../grpc/status.ts";

/** What the reading of a body asks of the call that it belongs to. */
export interface BodyReader {
  readonly method: DescMethod;
  /** Holds memory for so many bytes, in place of what was held before; throws the refusal where there is none. */
  hold(bytes: number): void;
  /** Throws where the call is over already: what Connect says of its body then would reach the caller as it is. */
  assertOpen(): void;
  /** Ends the call with a refusal, as the error that Connect writes. */
  refused(refusal: Refusal): ConnectError;
}

type Raw = IncomingMessage | Http2ServerRequest;

/** The request with a body that is read within the bounds of its method; nothing is read until Connect asks. */
export function boundedRequest(request: UniversalServerRequest, raw: Raw, reader: BodyReader): UniversalServerRequest {
  if (request.method !== "POST") return request;
  const type = request.header.get("content-type") ?? "";
  const isJson = /json/i.test(type);
  if (/^application\/(?:grpc|connect)/i.test(type)) {
    const named = request.header.get(/^application\/grpc/i.test(type) ? "grpc-encoding" : "connect-content-encoding");
    return { ...request, body: whole(raw, reader, envelopes(raw, reader, isJson, codingOf(named ?? ""))) };
  }
  const named = request.header.get("content-encoding");
  const coding = codingOf(named ?? "");
  const header = new Headers(request.header);
  // Of what Connect is given neither is true any more; the answer is packed as if they were there.
  header.delete("content-length");
  if (coding !== undefined) {
    header.delete("content-encoding");
    if (!header.get("accept-encoding")) header.set("accept-encoding", coding.name);
  }
  return { ...request, header, body: whole(raw, reader, oneMessage(raw, reader, isJson, coding)) };
}

/** The parts of a body. Where it is given up, what still comes is read and dropped: a connection closed on unread bytes is reset. */
async function* whole(raw: Raw, reader: BodyReader, parts: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    for await (const part of parts) {
      reader.assertOpen();
      yield part;
    }
  } catch (thrown) {
    const { bytes } = boundsOf(reader.method);
    const refusal = thrown instanceof CodecError ? refusalOfFrames(thrown, bytes) : thrown;
    throw refusal instanceof Refusal ? reader.refused(refusal) : refusal;
  } finally {
    if (!raw.readableEnded) raw.resume();
  }
}

const chunksOf = (raw: Raw): AsyncIterable<Buffer> => raw.iterator({ destroyOnReturn: false });

async function* oneMessage(
  raw: Raw,
  { method, hold }: BodyReader,
  isJson: boolean,
  coding: Coding | undefined,
): AsyncGenerator<Uint8Array> {
  const { bytes: most } = boundsOf(method);
  const declared = Number(raw.headers["content-length"] ?? 0);
  if (declared > most) throw tooLarge(most);
  hold(declared);
  const body = new GatheredBody(most);
  let size = 0;
  for await (const chunk of chunksOf(raw)) {
    size += chunk.length;
    if (size > most) throw tooLarge(most);
    hold(Math.max(size, declared));
    body.add(chunk);
  }
  const sent = body.bytes();
  const bytes = coding === undefined ? sent : await coding.decompress(sent, most, (more) => hold(size + more));
  await assertCounted(method, bytes, isJson);
  yield bytes;
}

async function* envelopes(
  raw: Raw,
  { method, hold }: BodyReader,
  isJson: boolean,
  coding: Coding | undefined,
): AsyncGenerator<Uint8Array> {
  const { bytes: most } = boundsOf(method);
  const isConversation = method.methodKind === "bidi_streaming";
  const come: { message: Buffer; compressed: boolean; flag: number }[] = [];
  // What came before is worked on until the next message is heard.
  let heard = 0;
  const reader = new MessageReader(
    most,
    (message, compressed, flag) => void come.push({ message, compressed, flag }),
    "ignored",
    (bytes) => hold(bytes + heard),
  );
  for await (const chunk of chunksOf(raw)) {
    reader.push(chunk);
    for (const { message, compressed, flag } of come.splice(0)) {
      const isUnpacked = compressed && coding !== undefined;
      const bytes = isUnpacked
        ? await coding.decompress(message, most, (more) => hold(message.length + more + heard))
        : message;
      if (!compressed || isUnpacked) await assertCounted(method, bytes, isJson);
      const frame = frameMessage(bytes);
      frame[0] = isUnpacked ? flag & ~1 : flag;
      yield frame;
      if (!isConversation) continue;
      heard = bytes.length > UNCOUNTED_BYTES ? bytes.length : 0;
      hold(heard);
    }
  }
  reader.end();
}

async function assertCounted(method: DescMethod, bytes: Buffer, isJson: boolean): Promise<void> {
  const bounds = boundsOf(method);
  if (!isJson) assertBounded(method.input, bytes, bounds);
  else if (bytes.length > COUNTED_BYTES) await inSlices(countingJson(bytes, { desc: method.input, bounds }));
}
