/** Ground over OpenAI-compatible chat completions: vLLM, SGLang, NIM, Gemini and hosted models with this API. */
import sharp from "sharp";
import { pictureTurns } from "../codecs/pictures/turns.ts";
import { Contract, type GroundInput } from "../contracts/contract.ts";
import { httpWire } from "./http-wire.ts";
import { type Completion, readCompletion } from "./openai-chat/completion.ts";
import { CONVENTIONS, type Convention, groundAnswerOf, readPlaces, type ShownPicture } from "./openai-chat/places.ts";
import { rejected } from "./payload/observe.ts";
import { type Profile, Profiles, plainProfile } from "./payload/profile.ts";
import type { FrameSet } from "./pictures/frames.ts";
import {
  type HttpAnswer,
  type HttpServer,
  isObject,
  MAX_STATUS_BYTES,
  readJson,
  statusFailure,
} from "./transport/http.ts";
import type { ServerReach } from "./transport/servers.ts";
import type { UpstreamTarget, Wire } from "./wire.ts";

const PROFILES = new Profiles(plainProfile({}));
const MODELS_PATH = "/v1/models";

/** Opens the wire; connections are made on first use. */
export function openaiChat(reach: ServerReach): Wire {
  const refused = new RefusedFields();
  return httpWire(reach, {
    id: "openai-chat",
    operations: ["/v1/chat/completions", "/v1/completions", "/v1/responses", MODELS_PATH],
    profiles: PROFILES,
    faultOf(profile, contracts) {
      if (!contracts.includes(Contract.GROUND) || CONVENTIONS[profile?.coordinates ?? 0]) return undefined;
      return { field: "coordinates", text: "is required: state how the model writes coordinates in an image" };
    },
    probes: [
      {
        name: "model_listed",
        required: false,
        async look(server, target) {
          const wanted = PROFILES.of(target.profile).serverModel ?? target.model;
          const names = modelsIn(await server.ask({ method: "GET", path: MODELS_PATH, maxBytes: MAX_STATUS_BYTES }));
          if (names === undefined) return "the server does not list its models";
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
    async ground(target, input, frames, server) {
      const profile = PROFILES.of(target.profile);
      const convention = conventionOf(target);
      const cameras = input.observations[0].frames.map(({ camera }) => camera);
      if (cameras.length === 0) throw rejected("the observation contains no image to search");
      const questions = convention.manyPictures ? [cameras.map((_, i) => i)] : cameras.map((_, i) => [i]);
      const answers = await Promise.all(
        questions.map(async (indices) => {
          const shown = await Promise.all(indices.map((index) => showPicture(frames, index, convention)));
          const question = encodeChat(profile, target.model, convention, shown, input);
          const completion = await complete(server, serverOf(target), question, refused);
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
    health: { path: MODELS_PATH, check: modelsIn },
  });
}

function conventionOf({ profile }: UpstreamTarget): Convention {
  const convention = CONVENTIONS[profile?.coordinates ?? 0];
  if (convention === undefined) throw rejected("the offering declares no coordinate convention");
  return convention;
}

/** One image as sent to a model. */
interface Shown extends ShownPicture {
  /** As a `data:` URL, because a server that fetches addresses could be directed anywhere. */
  readonly url: string;
}

/** The default token limit of an answer. */
const MAX_TOKENS = 2_048;
/** Optional fields, which can be left out for a server. */
const OPTIONAL = ["max_completion_tokens", "max_tokens", "temperature", "seed", "stream"] as const;
/** The maximum number of pixels that models of the Qwen2.5 family accept without reducing an image. */
const MAX_PIXELS = 1_280 * 28 * 28;

/** Returns the image in the convention's form: as its camera encoded it, or resized to sides that the model does not change again. */
async function showPicture(frames: FrameSet, index: number, { multipleOf }: Convention): Promise<Shown> {
  const { bytes, format, width, height } = await frames.bytes(index);
  if (multipleOf === undefined) return { url: dataUrl(format, bytes), width, height };
  const size = sizeFor({ width, height }, multipleOf);
  const { data } = await frames.rgb(index, { ...size, fit: "stretch" });
  const work = (): Promise<Buffer> =>
    sharp(data, { raw: { ...size, channels: 3 } })
      .png({ compressionLevel: 1 })
      .toBuffer();
  const png = await pictureTurns.run(frames.asker, size.width * size.height, work);
  return { url: dataUrl("png", png), ...size };
}

/** Returns the nearest size whose sides are multiples, within the pixel budget, and at least one multiple long. */
export function sizeFor({ width, height }: ShownPicture, multipleOf: number): ShownPicture {
  const shrink = Math.min(1, Math.sqrt(MAX_PIXELS / (width * height)));
  const side = (length: number): number => {
    const most = Math.max(1, Math.floor(MAX_PIXELS / multipleOf / multipleOf));
    return multipleOf * Math.min(most, Math.max(1, Math.round((length * shrink) / multipleOf)));
  };
  return { width: side(width), height: side(height) };
}

const dataUrl = (format: string, bytes: Buffer): string => `data:image/${format};base64,${bytes.toString("base64")}`;

/** One request, and its optional fields. */
interface ChatQuestion {
  readonly body: Readonly<Record<string, unknown>>;
  /** Fields that the offering's owner did not declare, so that the gateway can leave them out. */
  readonly optional: readonly string[];
  /** The caller's own parameters. */
  readonly given: readonly string[];
  /** The token limit. */
  readonly limit: number;
}

/** Builds one request about these images. */
function encodeChat(
  { serverModel, constants }: Profile,
  model: string,
  convention: Convention,
  shown: readonly Shown[],
  { instruction, temperature, seed }: GroundInput,
): ChatQuestion {
  const declared = Object.fromEntries(constants.map(({ key, value }) => [key, value]));
  const limits = [declared.max_tokens, declared.max_completion_tokens].map(Number).filter((each) => each > 0);
  const body = {
    model: serverModel ?? model,
    messages: [
      {
        role: "user",
        content: [
          ...shown.map(({ url }) => ({ type: "image_url", image_url: { url } })),
          { type: "text", text: convention.prompt(instruction) },
        ],
      },
    ],
    ...(limits.length === 0 && { max_tokens: MAX_TOKENS }),
    temperature: temperature ?? 0,
    ...(seed !== undefined && { seed }),
    ...declared,
    stream: false,
  };
  return {
    body,
    optional: OPTIONAL.filter((field) => declared[field] === undefined),
    given: [...(temperature === undefined ? [] : ["temperature"]), ...(seed === undefined ? [] : ["seed"])],
    limit: limits[0] ?? MAX_TOKENS,
  };
}

/** Largest response in bytes: far more than 2,048 tokens with any server's envelope. */
const MAX_ANSWER_BYTES = 4 * 2 ** 20;
const MAX_MODELS = 10_000;
/** How often one chat is repeated without a refused field. */
const MOST_LESSONS = 4;

/** Completes one chat, without the fields that the server refuses for the model `name`. Rejects with an UpstreamFailure. */
async function complete(
  server: HttpServer,
  name: string,
  { body, optional, limit }: ChatQuestion,
  refused: RefusedFields,
): Promise<Completion> {
  for (let lessons = 0; ; lessons++) {
    const sent = refused.apply(name, body);
    const request = { path: "/v1/chat/completions", body: JSON.stringify(sent), maxBytes: MAX_ANSWER_BYTES };
    const answer = await server.ask({ method: "POST", ...request });
    if (answer.status >= 200 && answer.status < 300) return readCompletion(answer.body, limit);
    const failure = statusFailure(answer);
    const isRefused = answer.status === 400 || answer.status === 422;
    if (!isRefused || lessons >= MOST_LESSONS || !refused.learn(name, sent, failure.message, optional)) throw failure;
  }
}

/** The key of a server's model, because its models differ in what they refuse. */
const serverOf = ({ endpoint, model, profile }: UpstreamTarget): string =>
  `${endpoint} ${profile?.serverModel ?? model}`;

/** Not found, not allowed, gone, not implemented. */
const NO_LIST: ReadonlySet<number> = new Set([404, 405, 410, 501]);

/** Resolves with the names of a server's models; undefined if it has no list, like some hosted ones. Throws an UpstreamFailure. */
function modelsIn(answer: HttpAnswer): string[] | undefined {
  if (NO_LIST.has(answer.status)) return undefined;
  if (answer.status >= 300) throw statusFailure(answer);
  const list = readJson(answer.body);
  // OpenAI's list. Together's is bare, and Ollama's and Google's own are `models` with names.
  const data = isObject(list) ? (list.data ?? list.models) : list;
  if (!Array.isArray(data)) return [];
  return data
    .slice(0, MAX_MODELS)
    .map((model: unknown) => (isObject(model) ? (model.id ?? model.name) : model))
    .filter((id) => typeof id === "string");
}

/** Names that lists and calls spell differently: Google lists `models/…`, and Ollama `…:latest`. */
const plainName = (name: string): string =>
  name
    .replace(/^models\//, "")
    .replace(/:latest$/, "")
    .toLowerCase();

/** Returns a list's name of a model; undefined if it is not listed. */
const listedAs = (names: readonly string[], wanted: string): string | undefined =>
  names.includes(wanted) ? wanted : names.find((name) => plainName(name) === plainName(wanted));

/** The known field changes of one server and model: fields to leave out or replace. */
type Lessons = ReadonlyMap<string, string | undefined>;

const MAX_SERVERS = 1_024;
const NONE: Lessons = new Map();
/** Refusals that refer to the token limit without its name. */
const NO_ROOM = /context (?:length|window)|maximum (?:number of )?tokens|max_(?:new|output|total)_tokens/i;

/**
 * Fields that some servers refuse: OpenAI's newer models refuse `max_tokens` and `temperature`, Mistral `seed`, TGI a temperature of 0. A chat
 * whose refusal names such a field is repeated without it, and later chats never contain it.
 */
class RefusedFields {
  readonly #byServer = new Map<string, Lessons>();

  /** Returns a body in the form that this server accepts. */
  apply(server: string, body: Readonly<Record<string, unknown>>): Record<string, unknown> {
    const lessons = this.#byServer.get(server) ?? NONE;
    const entries = Object.entries(body).flatMap(([field, value]) => {
      if (!lessons.has(field)) return [[field, value] as const];
      const other = lessons.get(field);
      return other === undefined || body[other] !== undefined || lessons.has(other) ? [] : [[other, value] as const];
    });
    return Object.fromEntries(entries);
  }

  /** Learns from a refusal of a body; returns whether the next body differs. `optional` are the fields that can be left out. */
  learn(server: string, body: Readonly<Record<string, unknown>>, said: string, optional: readonly string[]): boolean {
    const isNamed = (field: string): boolean => new RegExp(`(?<![\\w])${field}(?![\\w])`).test(said);
    const named = optional.filter((field) => body[field] !== undefined && isNamed(field));
    const limit = LIMITS.find((field) => optional.includes(field) && body[field] !== undefined);
    if (named.length === 0 && limit !== undefined && NO_ROOM.test(said)) named.push(limit);
    const [field] = named;
    if (field === undefined) return false;
    const other = field === "max_tokens" && isNamed("max_completion_tokens") ? "max_completion_tokens" : undefined;
    if (!this.#byServer.has(server) && this.#byServer.size >= MAX_SERVERS) this.#byServer.clear();
    this.#byServer.set(server, new Map(this.#byServer.get(server)).set(field, other));
    return true;
  }

  /** Returns which of these fields a server refuses. */
  refused(server: string, fields: readonly string[]): string[] {
    const lessons = this.#byServer.get(server) ?? NONE;
    return fields.filter((field) => lessons.has(field) && lessons.get(field) === undefined);
  }
}

const LIMITS = ["max_completion_tokens", "max_tokens"] as const;
