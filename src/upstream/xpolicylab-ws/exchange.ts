/**
 * Connections to XPolicyLab's policy servers: openpi's, but the client says hello first. A server has one policy with one state for all of its
 * clients, so that one robot at a time has it, and an episode is begun by a reset.
 * Source: XPolicyLab/XPolicyLab, client_server/ws/model_server.py and protocol/ at 7198143.
 */
import type { MsgpackBudget } from "../../codecs/python/msgpack.ts";
import { newId } from "../../ids.ts";
import { OpenpiPool } from "../openpi-ws/exchange.ts";
import { Exclusive } from "../transport/exclusive.ts";
import type { ServerLeases } from "../transport/leases.ts";
import type { Address, UpstreamServer } from "../transport/servers.ts";
import type { CallOptions } from "../wire.ts";
import { readHello, readReset, type XPolicyHello } from "./decode.ts";
import { encodeHello, encodeReset, type XPolicyIds } from "./encode.ts";

/** All calls share one connection: the server is held by one of them at a time. */
const ONE = "";

/** One observation, and how its answer is read. */
export interface XPolicyCall<T> {
  readonly encode: (ids: XPolicyIds, room: MsgpackBudget) => Buffer;
  readonly read: (frame: Buffer, messageId: string) => T;
}

/** One server under its lease. */
export class XPolicyServer implements UpstreamServer {
  readonly #pool: OpenpiPool<XPolicyHello>;
  readonly #lease: Exclusive;

  constructor(address: Address, leases: ServerLeases) {
    this.#pool = new OpenpiPool(address, { hello: encodeHello(), read: readHello, tellsEpisodes: true });
    this.#lease = new Exclusive(address, leases);
  }

  get idle(): boolean {
    return this.#pool.idle && this.#lease.free;
  }

  /** What the server says of itself. Rejects with an UpstreamFailure. */
  hello({ signal }: CallOptions): Promise<XPolicyHello> {
    return this.#pool.metadata(signal);
  }

  /**
   * The answer to one observation, in an episode of a session, or of its own where there is none; after a failure the episode begins again. Rejects
   * with an UpstreamFailure: `UPSTREAM_BUSY` while another session has the server.
   */
  infer<T>(
    { session, episode }: { session: string; episode: string },
    { encode, read }: XPolicyCall<T>,
    call: CallOptions,
  ): Promise<T> {
    return this.#lease.has(session, call, async ({ session: before, setup = "" }) => {
      const [count = "0", ...last] = setup.split(" ");
      const goesOn = session !== "" && before === session && setup !== "" && last.join(" ") === episode;
      const trialId = episode === "" ? call.requestId : episode;
      const ids = { messageId: newId("req"), trialId, step: goesOn ? Number(count) : 0 };
      const frame = await this.#pool.exchange(ONE, {
        async admit(_, ask) {
          if (goesOn) return;
          const messageId = newId("req");
          readReset(await ask(encodeReset({ ...ids, messageId })), messageId);
        },
        encode: async (_, room) => encode(ids, room),
        opening: undefined,
        signal: call.signal,
      });
      return { answer: read(frame, ids.messageId), setup: `${ids.step + 1} ${episode}` };
    });
  }

  close(): void {
    this.#pool.close();
  }
}
