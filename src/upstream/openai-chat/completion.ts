/**
 * The answer of a chat completions server: its text without reasoning, its finish reason, and its tokens. Sources: the API references of OpenAI,
 * Gemini, Mistral, DeepSeek, Anthropic, OpenRouter and Zhipu, and the servers of vLLM, SGLang, llama.cpp, Ollama, TGI and MLX.
 */
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { failureOfStatus, malformed, ownerText } from "../transport/failures.ts";
import { errorIn, isObject, readJson } from "../transport/http.ts";

/** A completion's text, end and token count. */
export interface Completion {
  readonly text: string;
  /** Whether the model was cut off, for example by the token limit. */
  readonly isCut: boolean;
  /** Absent if the server does not count tokens. */
  readonly inputTokens: number | undefined;
  readonly outputTokens: number | undefined;
}

/** Far above the number of tokens allowed per answer. */
const MAX_TEXT = 256 * 1024;
/** More tokens than any model accepts. */
const MOST_TOKENS = 100_000_000;

/** Regular finish reasons of all makers. Tool calls are not among them, because no tools are offered. */
const BY_ITSELF: ReadonlySet<string> = new Set([
  ...[
    "stop",
    "eos",
    "eos_token",
    "end_turn",
    "stop_sequence",
    "finish_reason_stop",
    "complete",
    "completed",
    "stop_token",
    "end",
  ],
]);
/** Finish reasons of withheld answers. */
const WITHHELD =
  /content_filter|content-filter|safety|refusal|refuse|recitation|blocklist|prohibited|spii|sensitive|moderation|guardrail|language|image_safety/;
const BUSY = /insufficient_system_resource|overloaded|capacity|rate_limit/;

/**
 * Returns the text of a completion without its reasoning; `limit` is the token limit of the request. Throws an UpstreamFailure if the server
 * returned none, or withheld it.
 */
export function readCompletion(body: Buffer, limit: number): Completion {
  const answer = readJson(body);
  if (!isObject(answer)) throw malformed("the response is not an object");
  const choice: unknown = Array.isArray(answer.choices) ? answer.choices[0] : undefined;
  // Proxies report failures with a status of 200.
  const failed = isObject(choice) && choice.error ? choice : answer;
  if (failed.error || !isObject(choice)) throw errorOf(failed, answer);
  const message = isObject(choice.message) ? choice.message : {};
  const whole = textOf(message.content ?? choice.text) ?? "";
  if (whole.length > MAX_TEXT) throw new UpstreamFailure(AttemptFailure.ANSWER_TOO_LARGE, "the response is too long");
  const usage = isObject(answer.usage) ? answer.usage : {};
  const outputTokens = countOf(usage.completion_tokens ?? usage.output_tokens);
  const inputTokens = countOf(usage.prompt_tokens ?? usage.input_tokens);
  const reason = String(choice.finish_reason ?? choice.stop_reason ?? choice.native_finish_reason ?? "").toLowerCase();
  if (typeof message.refusal === "string" && message.refusal !== "") throw withheld("the model refused");
  if (WITHHELD.test(reason)) throw withheld(`the server withheld the response: ${ownerText(reason)}`);
  if (BUSY.test(reason))
    throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, `the response ended with ${ownerText(reason)}`);
  // An unknown finish reason is not treated as a regular end.
  const isCut = reason === "" ? (outputTokens ?? 0) >= limit : !BY_ITSELF.has(reason);
  const { text, isWhole } = withoutThoughts(whole);
  if (text.trim() === "" && (isCut || !isWhole || whole.trim() !== "" || hasThought(message, usage)))
    throw isCut
      ? new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, cutBecause(reason, outputTokens ?? limit))
      : malformed(ALL_THOUGHT);
  if (!isObject(choice.message) && choice.text === undefined) throw malformed("the response has no text");
  if (message.content === null && text === "") throw malformed("the response has no text");
  return { text, isCut, inputTokens, outputTokens };
}

/** The text for the owner if an answer was cut off before any content. */
export const cutBecause = (reason: string, tokens: number): string =>
  `the answer was cut off (${ownerText(reason) || "no reason given"}, ${tokens} tokens): the model may have spent its limit on reasoning; turn reasoning off, or raise max_tokens in profile.constants`;
const ALL_THOUGHT = "the response contains only reasoning; turn reasoning off, or set the server's reasoning parser";

const withheld = (text: string): UpstreamFailure => new UpstreamFailure(AttemptFailure.INPUT_REJECTED, text);

/** The failure that an answer without choices reports. */
function errorOf(
  failed: Readonly<Record<string, unknown>>,
  answer: Readonly<Record<string, unknown>>,
): UpstreamFailure {
  const { said, status } = errorIn(failed.error ? failed : answer);
  if (said === "" && status === undefined) return malformed("the response has no choices");
  return failureOfStatus(status ?? 500, said);
}

/** Returns a text, or the text parts of a list, without reasoning. */
function textOf(content: unknown): string | undefined {
  if (typeof content === "string") return content;
  if (content === null || content === undefined) return undefined;
  if (!Array.isArray(content)) return JSON.stringify(content); // JSON that a server has parsed
  if (content.length > 0 && !content.some((part) => isObject(part) && typeof part.type === "string"))
    return content.every((part) => typeof part === "string") ? content.join("") : JSON.stringify(content);
  return content
    .map((part: unknown) => (isObject(part) && typeof part.text === "string" && !isThought(part.type) ? part.text : ""))
    .join("");
}

const isThought = (type: unknown): boolean => typeof type === "string" && /think|thought|reason/.test(type);

/** Returns a token count; undefined without one. Throws an UpstreamFailure for an invalid count. */
function countOf(value: unknown): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) <= MOST_TOKENS) return Number(value);
  throw malformed("the response's token count is not a valid number");
}

/** Whether the model's reasoning is separate from its answer. */
function hasThought(message: Readonly<Record<string, unknown>>, usage: Readonly<Record<string, unknown>>): boolean {
  const texts = [message.reasoning_content, message.reasoning, message.thinking, message.thought];
  if (texts.some((text) => text !== undefined && text !== null && text !== "")) return true;
  const details = usage.completion_tokens_details;
  return isObject(details) && Number(details.reasoning_tokens ?? 0) > 0;
}

/** The reasoning tags of model families, from start to end. */
const THOUGHTS: readonly (readonly [begin: string, end: string])[] = [
  ["<think>", "</think>"],
  ["<thinking>", "</thinking>"],
  ["<thought>", "</thought>"],
  ["<reasoning>", "</reasoning>"],
  ["<seed:think>", "</seed:think>"],
  ["[THINK]", "[/THINK]"],
  ["◁think▷", "◁/think▷"],
  ["<|channel|>analysis", "<|channel|>final<|message|>"],
];

/** Returns the text after the last end of reasoning; unfinished reasoning has no answer. */
function withoutThoughts(whole: string): { text: string; isWhole: boolean } {
  let text = whole;
  for (const [begin, end] of THOUGHTS) {
    const at = text.lastIndexOf(end);
    if (at >= 0) text = text.slice(at + end.length);
    else if (text.trimStart().startsWith(begin)) return { text: "", isWhole: false };
  }
  return { text, isWhole: true };
}
