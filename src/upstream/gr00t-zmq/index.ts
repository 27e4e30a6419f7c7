/** Isaac-GR00T's inference service over ZeroMQ: N1.5, N1.6 and N1.7. */
import { Contract } from "../../../gen/limber/v1/contract_pb.ts";
import { ServerDialect, WireReset } from "../../../gen/limber/v1/supply_pb.ts";
import { type ActAnswer, AttemptFailure, episodeOf, UpstreamFailure } from "../../contracts/contract.ts";
import { partsOf } from "../payload/observe.ts";
import { readsOf } from "../payload/reads.ts";
import { malformed } from "../transport/failures.ts";
import { type ServerReach, Servers } from "../transport/servers.ts";
import type { UpstreamTarget, Wire, WireProbe } from "../wire.ts";
import { readAction, readModalityConfig, readReply } from "./decode.ts";
import { actionData, encodeCall } from "./encode.ts";
import { ZmqChannel } from "./exchange.ts";
import { Histories } from "./history.ts";
import { PROFILES } from "./profiles.ts";
import { flatKeysOf, shownBy } from "./show.ts";
import { type Speech, speechOf, wantsFlat } from "./speech.ts";

const SCHEMES: Readonly<Record<string, string>> = { "tcp:": "tcp:" };

/** Opens the wire; connections are made on first use. */
export function gr00tZmq(reach: ServerReach): Wire {
  const channels = new Servers(reach, SCHEMES, (address) => new ZmqChannel(address));
  const histories = new Histories();
  return {
    id: "gr00t-zmq",
    schemes: Object.keys(SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    layout: ({ profile }) => PROFILES.layout(profile),
    dialects: [ServerDialect.GR00T_N1_5, ServerDialect.GR00T_N1_6, ServerDialect.GR00T_N1_7],
    faultOf(profile, contracts) {
      if (!contracts.includes(Contract.ACT) || PROFILES.of(profile).actionKeys.length > 0) return undefined;
      return { field: "action_keys", text: "is required: which parts of the answer, in which order, are the action?" };
    },
    probes: probesOf(channels),
    async act(target, input, frames, { signal }) {
      const profile = PROFILES.of(target.profile);
      const token = tokenOf(target);
      const parts = await partsOf(profile, input, frames);
      const channel = channels.of(target);
      const speech = await speechOf(channel, { dialect: profile.dialect, token, signal });
      const shown = await shownBy({ target, profile, input, frames, parts, speech, histories });
      const isNew = profile.reset === WireReset.ENDPOINT && input.sessionId !== undefined;
      const answer = await channel.converse(signal, async (send) => {
        if (isNew && channel.begins(episodeOf(input) ?? ""))
          await send(encodeCall("reset", new Map([["options", null]]), token));
        const ask = async ({ layout, arrays }: Speech): Promise<ActAnswer> =>
          readAction(
            await send(encodeCall("get_action", actionData(profile, shown, layout), token, arrays)),
            profile,
            input.horizon,
            target.actionDim,
          );
        try {
          return await ask(speech);
        } catch (thrown) {
          if (speech.layout !== "nested" || !wantsFlat(thrown, flatKeysOf(shown, speech.config))) throw thrown;
          const flat = { ...speech, layout: "flat" } as const;
          const answered = await ask(flat);
          channel.speech = flat;
          return answered;
        }
      });
      return answer;
    },
    async health(target, { signal }) {
      const reply = readReply(
        await channels.of(target).exchange(encodeCall("ping", undefined, tokenOf(target)), signal),
      );
      if (!(reply instanceof Map) || reply.get("status") !== "ok") throw malformed("the answer to a ping is not ok");
    },
    async close() {
      channels.close();
    },
  };
}

const tokenOf = ({ auth }: UpstreamTarget): string => (auth.type === "none" ? "" : auth.secret);

function probesOf(channels: Servers<ZmqChannel>): readonly WireProbe[] {
  return [
    {
      name: "modality_config",
      required: true,
      async look(target, { signal }) {
        const call = encodeCall("get_modality_config", undefined, tokenOf(target));
        const served = readModalityConfig(await channels.of(target).exchange(call, signal));
        const { frames, proprio, actionKeys } = PROFILES.of(target.profile);
        const wanted = {
          video: frames.filter(({ optional }) => !optional).map(({ key }) => key.replace("video.", "")),
          state: proprio.filter(({ optional }) => !optional).map(({ key }) => key.replace("state.", "")),
          action: actionKeys,
        };
        for (const [modality, keys] of Object.entries(wanted)) {
          const has = served[modality as keyof typeof wanted];
          const missing = keys.filter((key) => !has.includes(key.replace(`${modality}.`, "")));
          if (missing.length > 0)
            throw new Error(
              `the profile names ${modality} ${missing.join(", ")}, and the server has ${has.join(", ")}`,
            );
        }
        const film = served.moments.length > 1 ? `, pictures of the moments ${served.moments.join(", ")}` : "";
        return `cameras, state and actions are those of the server, in chunks of ${served.chunk ?? "unknown"} steps${film}`;
      },
    },
    {
      name: "token_enforced",
      required: true,
      async look(target, { signal }) {
        if (target.auth.type === "none") return "no token is declared";
        const call = encodeCall("get_modality_config", undefined, `not-${target.auth.secret.length}-it`);
        const failure = await failureIn(channels.of(target).exchange(call, signal));
        if (failure?.failure === AttemptFailure.UPSTREAM_AUTH) return "a wrong token is refused";
        throw new Error("the server answers to a wrong token: give it the one that is declared, or declare none");
      },
    },
    {
      name: "unknown_endpoint_refused",
      required: false,
      async look(target, { signal }) {
        const call = encodeCall("no_such_endpoint", undefined, tokenOf(target));
        const failure = await failureIn(channels.of(target).exchange(call, signal));
        if (failure?.failure === AttemptFailure.UPSTREAM_ERROR) return "an unknown endpoint is answered by an error";
        throw new Error("an unknown endpoint is not answered by a map with `error`");
      },
    },
  ];
}

/** The failure in an answer; undefined for a good one. Other failures are thrown. */
async function failureIn(exchange: Promise<Buffer>): Promise<UpstreamFailure | undefined> {
  const answer = await exchange;
  try {
    readReply(answer);
    return undefined;
  } catch (error) {
    if (error instanceof UpstreamFailure) return error;
    throw error;
  }
}
