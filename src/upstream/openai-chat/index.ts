/** Ground over OpenAI-compatible chat completions: vLLM, SGLang, NIM, Gemini and every hosted model that speaks them. */
import { Contract } from "../../contracts/contract.ts";
import { rejected } from "../payload/observe.ts";
import { Profiles, plainProfile } from "../payload/profile.ts";
import { RefusedFields } from "../payload/refused-fields.ts";
import { HTTP_SCHEMES, HttpServers } from "../transport/http.ts";
import type { ServerReach } from "../transport/servers.ts";
import type { UpstreamTarget, Wire } from "../wire.ts";
import { CONVENTIONS, type Convention } from "./conventions.ts";
import { groundAnswerOf, readPlaces } from "./decode.ts";
import { encodeChat, showPicture } from "./encode.ts";
import { complete, listedAs, modelsOf, serverOf } from "./exchange.ts";

const PROFILES = new Profiles(plainProfile({}));

/** Opens the wire; connections are made on first use. */
export function openaiChat(reach: ServerReach): Wire {
  const servers = new HttpServers(reach, ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/models"]);
  const refused = new RefusedFields();
  return {
    id: "openai-chat",
    schemes: Object.keys(HTTP_SCHEMES),
    faultOf(profile, contracts) {
      if (!contracts.includes(Contract.GROUND) || CONVENTIONS[profile?.coordinates ?? 0]) return undefined;
      return { field: "coordinates", text: "is required: how does the model write places in a picture?" };
    },
    probes: [
      {
        name: "model_listed",
        required: false,
        async look(target, call) {
          const wanted = PROFILES.of(target.profile).serverModel ?? target.model;
          const names = await modelsOf(servers, target, call);
          if (names === undefined) return "the server has no list of its models";
          const listed = listedAs(names, wanted);
          if (listed === wanted) return `the server lists ${wanted}`;
          if (listed !== undefined)
            return `the server lists it as ${listed}, and calls name ${wanted}: where those fail, set profile.server_model to ${listed}`;
          const some = names.slice(0, 5).join(", ");
          throw new Error(
            `the server doesn't list ${wanted}: set profile.server_model to the name that it goes by there${some && `, such as ${some}`}`,
          );
        },
      },
    ],
    async ground(target, input, frames, call) {
      const profile = PROFILES.of(target.profile);
      const convention = conventionOf(target);
      const cameras = input.observations[0].frames.map(({ camera }) => camera);
      if (cameras.length === 0) throw rejected("there is no picture to search");
      const questions = convention.manyPictures ? [cameras.map((_, i) => i)] : cameras.map((_, i) => [i]);
      const answers = await Promise.all(
        questions.map(async (indices) => {
          const shown = await Promise.all(indices.map((index) => showPicture(frames, index, convention)));
          const question = encodeChat(profile, target.model, convention, shown, input);
          const completion = await complete(servers, target, question, refused, call);
          const [first = 0] = indices;
          const seenBy = indices.map((index) => cameras[index] ?? "");
          const asked = { convention, seen: shown[0]!, asked: input.instruction };
          return { completion, read: readPlaces(completion, asked, seenBy, first), given: question.given };
        }),
      );
      return groundAnswerOf(
        answers.map(({ read }) => read),
        answers.map(({ completion }) => completion),
        refused.refused(serverOf(target), answers[0]?.given ?? []),
      );
    },
    async health(target, call) {
      await modelsOf(servers, target, call);
    },
    close: () => servers.close(),
  };
}

function conventionOf({ profile }: UpstreamTarget): Convention {
  const convention = CONVENTIONS[profile?.coordinates ?? 0];
  if (convention === undefined) throw rejected("the offering declares no convention of coordinates");
  return convention;
}
