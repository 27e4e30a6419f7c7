/**
 * One robot at a time: LeRobot's server keeps one queue for whoever asks, so a call has the server for itself, and a session has it until it
 * has been silent for a while. The lease is this replica's own: the server can't be told of others.
 */
import { now, steadyNow } from "../../ambient.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { GrpcCalls } from "../grpc.ts";
import type { Address, Server } from "../servers.ts";
import { Turns } from "../turns.ts";
import type { CallOptions } from "../wire.ts";
import { readActions } from "./decode.ts";
import { encodeNothing } from "./encode.ts";

const LEASE_MS = 30_000;
/** Further apart than any chunk is long, so that no step is taken for one that was predicted before. */
const TIMESTEP = 10_000;
const MAX_TIMESTEP = 2 ** 30;

type Method = "Ready" | "SendPolicyInstructions" | "SendObservations" | "GetActions";

/** One server, and who has it. */
export class Leased implements Server {
  readonly #calls: GrpcCalls;
  readonly #turns = new Turns();
  #holder: string | undefined;
  #heldUntil = 0;
  /** The setup that the server has loaded, as far as we know. */
  #loaded: string | undefined;
  #timestep = 0;

  constructor(address: Address) {
    this.#calls = new GrpcCalls(address);
  }

  get idle(): boolean {
    return this.#calls.idle && this.#turns.free;
  }

  /** One observation and the pickled chunk that answers it. Rejects with an UpstreamFailure: `UPSTREAM_BUSY` while another session has the server. */
  act(
    session: string,
    setup: Buffer,
    observe: (timestep: number, timestamp: number) => Buffer,
    call: CallOptions,
  ): Promise<{ pickle: Buffer; timestep: number }> {
    return this.#turns.run(call.signal, async () => {
      this.#lease(session);
      try {
        await this.#prepare(session, setup, call);
        this.#timestep = this.#timestep >= MAX_TIMESTEP ? 0 : this.#timestep + TIMESTEP;
        const timestep = this.#timestep;
        await this.#ask("SendObservations", observe(timestep, now() / 1_000), call);
        for (let tries = 0; tries < 2; tries++) {
          const pickle = readActions(await this.#ask("GetActions", encodeNothing(), call));
          if (pickle.length > 0) return { pickle, timestep };
        }
        throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the server has no actions: did its policy fail?");
      } catch (error) {
        // A server that was started anew has no policy, and nothing tells so but a failure.
        this.#loaded = undefined;
        throw error;
      } finally {
        this.#heldUntil = steadyNow() + LEASE_MS;
      }
    });
  }

  /** Resolves when the server answers; its queue is empty then. */
  ready(call: CallOptions): Promise<void> {
    return this.#turns.run(call.signal, async () => {
      await this.#ask("Ready", encodeNothing(), call);
    });
  }

  /** How many bytes of actions the server has right after its queue was emptied: none, when nobody else talks to it. */
  unasked(call: CallOptions): Promise<number> {
    return this.#turns.run(call.signal, async () => {
      await this.#ask("Ready", encodeNothing(), call);
      return readActions(await this.#ask("GetActions", encodeNothing(), call)).length;
    });
  }

  close(): void {
    this.#calls.close();
  }

  #lease(session: string): void {
    if (this.#holder !== undefined && this.#holder !== session && steadyNow() < this.#heldUntil)
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "the server serves another session");
  }

  async #prepare(session: string, setup: Buffer, call: CallOptions): Promise<void> {
    const key = setup.toString("latin1");
    if (this.#holder === session && this.#loaded === key) return;
    await this.#ask("Ready", encodeNothing(), call);
    if (this.#loaded !== key) await this.#ask("SendPolicyInstructions", setup, call);
    this.#loaded = key;
    this.#holder = session;
  }

  #ask(method: Method, message: Buffer, call: CallOptions): Promise<Buffer> {
    return this.#calls.unary({ ...call, path: `/transport.AsyncInference/${method}` }, message);
  }
}
