/**
 * Connections to LeRobot's remote inference, by the carrier beside its server: a WebSocket on which each message is one envelope. A server has
 * one session at a time, and a connection that needs it opens it. Where the connection ends, the carrier closes the session.
 */
import { newId } from "../../ids.ts";
import { OpenpiPool } from "../openpi-ws/exchange.ts";
import type { Address } from "../transport/servers.ts";
import { type RemoteServer, readDescriptor, readReply } from "./decode.ts";
import { encodeControl, encodeDescribe, encodeOpen } from "./encode.ts";

/** Every connection to one server under one credential. */
export const openPool = (address: Address): OpenpiPool<RemoteServer> =>
  new OpenpiPool(address, { hello: encodeDescribe(), read: readDescriptor, tellsEpisodes: true });

/** Asks the server something, and gets its next frame. */
type Ask = (frame: Buffer) => Promise<Buffer>;

/** Opens the server's session where the connection has none; `isNew` begins an episode in one that is open. Rejects with an UpstreamFailure. */
export async function admit(server: RemoteServer, ask: Ask, isNew: boolean): Promise<void> {
  if (server.isFaulted && server.session !== "") {
    // Whatever it answers: a session that failed is gone, or is about to be.
    await ask(encodeControl(server, "close", newId("req")));
    server.session = "";
  }
  if (server.session !== "") {
    if (isNew) await begin(server, ask, server.generation + 1);
    return;
  }
  const request = newId("req");
  const { instance } = server;
  const asked = { instance, session: "", generation: 0, request };
  server.session = readReply(await ask(encodeOpen(server, request)), "accepted", asked).session;
  server.isFaulted = false;
  await begin(server, ask, 0);
}

/** A new episode: the policy forgets, and what was asked before is stale. */
async function begin(server: RemoteServer, ask: Ask, generation: number): Promise<void> {
  server.generation = generation;
  const request = newId("req");
  const { instance, session } = server;
  readReply(await ask(encodeControl(server, "reset", request)), "ack", { instance, session, generation, request });
}
