/** What a server of LeRobot's remote inference is told. */
import { now } from "../../clock.ts";
import { encodeRemote, RemotePicture, type RemoteValue } from "../../codecs/python/lerobot-remote.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import { newId } from "../../ids.ts";
import { arrayOf, type ObservationPart, rejected } from "../payload/observe.ts";
import type { RemoteServer } from "./decode.ts";

/** The first message of a connection. */
export const encodeDescribe = (): Buffer =>
  encodeRemote({ type: "describe", instance: "", session: "", generation: 0, request: newId("req") });

/** Asks for the server's one session: its own contract is said again, for the offering was declared by it. */
export const encodeOpen = (server: RemoteServer, request: string): Buffer =>
  encodeRemote(
    { type: "open", instance: server.instance, session: "", generation: 0, request },
    {
      expected_artifact: server.artifact,
      features: server.said.features,
      action_feature: server.said.action,
      semantics: server.semantics,
      action_interval: server.interval,
      mode: "chunk",
      encoding: "raw",
    },
  );

/** `reset` begins an episode, `close` ends the session. */
export const encodeControl = (
  { instance, session, generation }: RemoteServer,
  operation: "reset" | "close",
  request: string,
): Buffer => encodeRemote({ type: "control", instance, session, generation, request }, { operation });

/** One observation under the server's own names. Throws an UpstreamFailure where a part is not of the shape that the server wants. */
export function encodeObservation(
  server: RemoteServer,
  parts: readonly ObservationPart[],
  task: string,
  request: string,
): Buffer {
  const { instance, session, generation, sequence, artifact, features } = server;
  const byName = new Map(parts.map((part) => [part.key, part]));
  const shown = features.map(({ name, shape }): [string, RemoteValue] => {
    const part = byName.get(name);
    if (part === undefined) throw rejected(`the server wants ${name}, and nothing is shown under that name`);
    const { dtype, data } = arrayOf(part);
    const [height = 0, width = 0] = shape;
    if (part.kind === "frame") return [name, new RemotePicture(height, width, "raw", data)];
    return [name, new NdArray(dtype, shape, data)];
  });
  return encodeRemote(
    { type: "observation", instance, session, generation, request },
    {
      sequence,
      artifact_identity: artifact,
      observation_id: request,
      capture_time: now() / 1_000,
      task,
      task_version: 0,
      features: new Map(shown),
      delay: 0,
      model_continuation: null,
      canonical_continuation: null,
      cursor: 0,
    },
  );
}
