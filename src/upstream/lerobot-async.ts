/**
 * LeRobot's asynchronous inference: gRPC with pickles, or with JSON and safetensors, for one robot at a time, because the server has one queue
 * for all of its clients. The policy is the offering's, never the caller's.
 */
import { createHash } from "node:crypto";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { NumberType, ServerDialect } from "../../gen/limber/v1/supply_pb.ts";
import { now } from "../clock.ts";
import { frameMessage } from "../codecs/grpc.ts";
import { AttemptFailure, episodeOf, UpstreamFailure } from "../contracts/contract.ts";
import { type LerobotDialect, PICKLES, TENSORS } from "./lerobot-async/messages.ts";
import { partsOf } from "./payload/observe.ts";
import { Profiles, picture, plainProfile, readsOf, values } from "./payload/profile.ts";
import { Exclusive, type ServerLeases } from "./transport/exclusive.ts";
import { malformed } from "./transport/failures.ts";
import { GRPC_SCHEMES, GrpcClient } from "./transport/grpc.ts";
import { type Address, type ServerReach, Servers, type UpstreamServer } from "./transport/servers.ts";
import type { CallOptions, Wire } from "./wire.ts";

const MOTORS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"];

/** Frames are named by LeRobot's camera names, and each motor has one number under its own name. */
const PROFILES = new Profiles(plainProfile({ instructionKey: "task" }), {
  "lerobot/so101": plainProfile({
    frames: [
      picture("front", "front", { width: 640, height: 480 }),
      picture("wrist", "wrist", { width: 640, height: 480 }),
    ],
    proprio: MOTORS.map((name, i) => values(i, i + 1, `${name}.pos`, NumberType.F4)),
    proprioDim: MOTORS.length,
    instructionKey: "task",
  }),
});

/** Opens the wire; connections are made on first use. */
export function lerobotAsync(reach: ServerReach, leases: ServerLeases): Wire {
  const servers = new Servers(reach, GRPC_SCHEMES, (address) => new Leased(address, new GrpcClient(address), leases));
  return {
    id: "lerobot-async",
    schemes: Object.keys(GRPC_SCHEMES),
    profiles: PROFILES.names,
    dialects: [ServerDialect.LEROBOT_SAFETENSORS],
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    faultOf(profile) {
      const { proprio, constants } = PROFILES.of(profile);
      const has = new Set(constants.map(({ key }) => key));
      if (!has.has("policy_type") || !has.has("pretrained_name_or_path"))
        return {
          field: "constants",
          text: "must name `policy_type` and `pretrained_name_or_path`, which the server loads",
        };
      if (proprio.length === 0) return { field: "proprio", text: "is required: one entry per motor, under its name" };
      const wide = proprio.findIndex(({ start, end }) => end !== start + 1);
      return wide < 0 ? undefined : { field: `proprio.${wide}.end`, text: "must be start + 1: a motor has one number" };
    },
    probes: [
      {
        name: "silent_without_observation",
        required: false,
        async look(target, call) {
          const said = await servers.of(target).unasked(call);
          if (said === 0) return "the server returns no actions without an observation";
          throw new Error("the server has actions that were not requested: is another robot connected to it?");
        },
      },
    ],
    async act(target, input, frames, call) {
      const profile = PROFILES.of(target.profile);
      const dialect: LerobotDialect = profile.dialect === ServerDialect.LEROBOT_SAFETENSORS ? TENSORS : PICKLES;
      const parts = await partsOf(profile, input, frames);
      const { chunk, timestep } = await servers
        .of(target)
        .act(
          { session: input.sessionId ?? "", episode: episodeOf(input) ?? "" },
          encodeSetup(dialect.writeSetup(profile)),
          (step, timestamp) => encodeObservation(dialect.writeObservation(parts, input.instruction, step, timestamp)),
          call,
        );
      return dialect.readChunk(chunk, timestep, input.horizon);
    },
    async health(target, call) {
      await servers.of(target).ready(call);
    },
    async close() {
      servers.close();
    },
  };
}

/** The distance between timesteps, longer than any chunk, so that no step is matched with an earlier prediction. */
const TIMESTEP = 10_000;
const MAX_TIMESTEPS = 100_000;

type LerobotMethod = "Ready" | "SendPolicyInstructions" | "SendObservations" | "GetActions";

/** One server under its lease. */
class Leased implements UpstreamServer {
  readonly #calls: GrpcClient;
  readonly #lease: Exclusive;

  constructor(address: Address, calls: GrpcClient, leases: ServerLeases) {
    this.#calls = calls;
    this.#lease = new Exclusive(address, leases);
  }

  get idle(): boolean {
    return this.#calls.idle && this.#lease.free;
  }

  /**
   * Sends one observation and resolves with the bytes of the chunk; a session holds the server over all of its episodes. Rejects with an
   * UpstreamFailure: `UPSTREAM_BUSY` while another session holds the server.
   */
  act(
    { session, episode }: { session: string; episode: string },
    setup: Buffer,
    observe: (timestep: number, timestamp: number) => Buffer,
    call: CallOptions,
  ): Promise<{ chunk: Buffer; timestep: number }> {
    const digest = createHash("sha256").update(setup).digest("hex");
    return this.#lease.has(session, call, async ({ epoch, session: before, setup: known = "" }) => {
      const [loaded, last] = known.split(" ");
      const goesOn = before === session && (session === "" || last === episode);
      if (!goesOn || loaded !== digest) await this.#ask("Ready", encodeNothing(), call);
      if (loaded !== digest) await this.#ask("SendPolicyInstructions", setup, call);
      const timestep = (epoch % MAX_TIMESTEPS) * TIMESTEP;
      await this.#ask("SendObservations", observe(timestep, now() / 1_000), call);
      for (let tries = 0; tries < 2; tries++) {
        const chunk = readActions(await this.#ask("GetActions", encodeNothing(), call));
        if (chunk.length > 0) return { answer: { chunk, timestep }, setup: `${digest} ${episode}` };
      }
      throw new UpstreamFailure(
        AttemptFailure.EMPTY_ANSWER,
        "the server returned no actions; check its log for a policy failure",
      );
    });
  }

  /** Resolves when the server answers; its queue is then empty. */
  ready(call: CallOptions): Promise<void> {
    return this.#lease.has("", call, async ({ setup }) => {
      await this.#ask("Ready", encodeNothing(), call);
      return { answer: undefined, setup };
    });
  }

  /** Resolves with the number of action bytes directly after the queue was emptied: zero, unless another client uses it. */
  unasked(call: CallOptions): Promise<number> {
    return this.#lease.has("", call, async ({ setup }) => {
      await this.#ask("Ready", encodeNothing(), call);
      return { answer: readActions(await this.#ask("GetActions", encodeNothing(), call)).length, setup };
    });
  }

  close(): void {
    this.#calls.close();
  }

  #ask(method: LerobotMethod, message: Buffer, call: CallOptions): Promise<Buffer> {
    return this.#calls.unary({ ...call, path: `/transport.AsyncInference/${method}` }, message);
  }
}

const PIECE_BYTES = 2 << 20;
const TRANSFER = { begin: 1, middle: 2, end: 3 } as const;

/** A message without fields. */
const encodeNothing = (): Buffer => frameMessage(new Uint8Array());

/** A setup in a dialect's encoding. */
const encodeSetup = (setup: Buffer): Buffer =>
  frameMessage(new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(setup).finish());

/** An observation in a dialect's encoding, as the messages of its stream. */
function encodeObservation(observation: Buffer): Buffer {
  const count = Math.max(1, Math.ceil(observation.length / PIECE_BYTES));
  return Buffer.concat(
    Array.from({ length: count }, (_, i) => {
      const transfer = i === count - 1 ? TRANSFER.end : i === 0 ? TRANSFER.begin : TRANSFER.middle;
      const writer = new BinaryWriter().tag(1, WireType.Varint).int32(transfer);
      writer.tag(2, WireType.LengthDelimited).bytes(observation.subarray(i * PIECE_BYTES, (i + 1) * PIECE_BYTES));
      return frameMessage(writer.finish());
    }),
  );
}

/** Returns the bytes inside an Actions message; empty if the server has no actions. Throws an UpstreamFailure. */
export function readActions(message: Buffer): Buffer {
  try {
    const reader = new BinaryReader(message);
    let data: Uint8Array = new Uint8Array();
    while (reader.pos < reader.len) {
      const [field, type] = reader.tag();
      if (field === 1 && type === WireType.LengthDelimited) data = reader.bytes();
      else reader.skip(type, field);
    }
    return Buffer.from(data.buffer, data.byteOffset, data.length);
  } catch (error) {
    throw malformed("the message violates the protocol", error);
  }
}
