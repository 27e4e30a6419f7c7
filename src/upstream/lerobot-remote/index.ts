/** LeRobot's remote inference, protocol version 1: the server says what it sees and does, and one session at a time has it. */
import { NumberType, PixelForm, PixelLayout, WireSession } from "../../../gen/limber/v1/supply_pb.ts";
import { episodeOf } from "../../contracts/contract.ts";
import { newId } from "../../ids.ts";
import { askHealth } from "../openpi-ws/exchange.ts";
import { partsOf } from "../payload/observe.ts";
import {
  type FrameSlot,
  type Profile,
  Profiles,
  type ProprioSlot,
  picture,
  plainProfile,
  values,
  wantsOf,
} from "../payload/profile.ts";
import { readsOf } from "../payload/reads.ts";
import { type ServerReach, Servers } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { type RemoteFeature, type RemoteServer, readAction, readReply } from "./decode.ts";
import { encodeObservation } from "./encode.ts";
import { admit, openPool } from "./exchange.ts";

const SCHEMES: Readonly<Record<string, string>> = { "ws:": "ws:", "wss:": "wss:" };

const PROFILES = new Profiles(plainProfile({ instructionKey: "task" }));

/** Calls of no session share the server in turn, each of them an episode. No session of a caller has a name that is empty. */
const NO_SESSION = "";

const IMAGES = "observation.images.";

/** A profile with the server's own names, sizes and types: what it doesn't declare is taken in the server's order. */
function fitted(profile: Profile, { features }: RemoteServer): Profile {
  const isCalled = (key: string) => (feature: RemoteFeature) => feature.name === key || feature.name === IMAGES + key;
  const pictures = features.filter(({ isPicture }) => isPicture);
  const tensors = features.filter(({ isPicture }) => !isPicture);
  const frames = pictures.map((feature): FrameSlot => {
    const { name, shape } = feature;
    const [height = 1, width = 1] = shape;
    const own = name.startsWith(IMAGES) ? name.slice(IMAGES.length) : name;
    const told = profile.frames.find(({ key }) => isCalled(key)(feature)) ?? picture(own, name);
    return { ...told, key: name, height, width, layout: PixelLayout.HWC, form: PixelForm.U1 };
  });
  let start = 0;
  const proprio = tensors.map((feature): ProprioSlot => {
    const { name, shape, dtype } = feature;
    const end = start + shape.reduce((product, length) => product * length, 1);
    const told = profile.proprio.find(({ key }) => isCalled(key)(feature)) ?? values(start, end, name);
    start = end;
    return { ...told, key: name, dtype: dtype === "float64" ? NumberType.F8 : NumberType.F4 };
  });
  return { ...profile, frames, proprio };
}

/** Opens the wire; connections are made on first use. */
export function lerobotRemote(reach: ServerReach): Wire {
  const pools = new Servers(reach, SCHEMES, openPool);
  return {
    id: "lerobot-remote",
    schemes: Object.keys(SCHEMES),
    profiles: PROFILES.names,
    async wants(target, { signal }) {
      return wantsOf(fitted(PROFILES.of(target.profile), await pools.of(target).metadata(signal)));
    },
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    probes: [
      {
        name: "descriptor",
        required: true,
        async look(target, { signal }) {
          const { deployment, artifact, features, action, interval, steps } = await pools.of(target).metadata(signal);
          const odd = features.find(({ isPicture, dtype }) => !isPicture && !/^float(32|64)$/.test(dtype));
          if (odd) throw new Error(`it wants ${odd.name} as ${odd.dtype}, and only floats can be shown`);
          const [dim] = action.shape;
          if (target.actionDim !== undefined && target.actionDim !== dim)
            throw new Error(`it says that an action has ${dim} numbers, and ${target.actionDim} are declared`);
          const names = features.map(({ name }) => name.slice(0, 64)).join(", ");
          const of = `${deployment.slice(0, 64)} serves ${artifact.slice(0, 80)}`;
          return `${of}: ${names}; ${steps} steps of ${dim} numbers, ${Math.round(1_000 * interval)} ms apart`;
        },
      },
    ],
    async act(target, given, frames, { signal }) {
      const profile = PROFILES.of(target.profile);
      const sessionId = profile.session === WireSession.NONE ? undefined : given.sessionId;
      const request = newId("req");
      let asked: RemoteServer | undefined;
      const answer = await pools.of(target).exchange(sessionId ?? NO_SESSION, {
        admit: (server, ask, isFirst) => admit(server, ask, isFirst || sessionId === undefined),
        async encode(server) {
          const parts = await partsOf(fitted(profile, server), given, frames);
          server.sequence += 1;
          asked = server;
          return encodeObservation(server, parts, given.instruction, request);
        },
        opening: undefined,
        episode: episodeOf(given),
        signal,
      });
      const server = asked!; // a request is encoded before it is answered
      try {
        const { instance, session, generation } = server;
        return readAction(
          readReply(answer, "action", { instance, session, generation, request }),
          server,
          given.horizon,
        );
      } catch (error) {
        server.isFaulted = true;
        throw error;
      }
    },
    async health(target, { signal }) {
      await askHealth(pools.addressOf(target), signal);
    },
    async close() {
      pools.close();
    },
  };
}
