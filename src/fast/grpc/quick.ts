/** Methods whose messages nearly always have one plain form, which is read and written in one pass. */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import { type ActStreamResponse, InferenceService } from "../../../gen/limber/v1/inference_service_pb.ts";
import { seenRequest } from "../protobuf/loop.ts";
import { framedChunk } from "./loop-chunk.ts";

/** The plain form of a method's messages; undefined where a message has another. */
export interface Quick {
  /** The message, which keeps every rule of the schema. */
  read(bytes: Buffer): Message | undefined;
  /** The message behind gRPC's prefix. */
  write(message: Message): Buffer | undefined;
}

/** By method. */
export const QUICK: ReadonlyMap<DescMethod, Quick> = new Map([
  [
    InferenceService.method.actStream,
    {
      read: seenRequest,
      // Sound: the method's output is no other message.
      write: (message) => framedChunk(message as ActStreamResponse),
    },
  ],
]);
