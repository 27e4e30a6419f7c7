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
  /** The finish reason in lower case; empty without one. */
  readonly reason: string;
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
  "stop",
  "eos",
  "eos_token",
  "stopped_eos",
  "end_turn",
  "stop_sequence",
  "stop_str",
  "stop_token",
  "complete",
  "completed",
  "normal",
  "end",
]);
/** Finish reasons of a parsed tool call. Beside a text without a call they are regular. */
const CALLED: ReadonlySet<string> = new Set(["tool_calls", "tool_use", "function_call"]);
/** Texts for no finish reason. */
const NO_REASON: ReadonlySet<string> = new Set(["none", "null", "unspecified"]);
/** Finish reasons of withheld answers. */
const WITHHELD =
  /content_filter|content-filter|safety|refusal|refuse|recitation|blocklist|prohibited|spii|sensitive|moderation|guardrail|language|image_safety|toxic/;
const BUSY = /insufficient_system_resource|overloaded|capacity|rate_limit/;
const FAILED = /^(?:error|failed|failure|exception)$|_error$/;

/**
 * Returns the text of a completion without its reasoning; `limit` is the token limit of the request. Throws an UpstreamFailure if the server
 * returned none, or withheld it.
 */
export function readCompletion(body: Buffer, limit: number): Completion {
  const answer = readJson(body);
  if (!isObject(answer)) throw malformed("the response is not an object");
  const choice: unknown = Array.isArray(answer.choices) ? answer.choices[0] : undefined;
  // Proxies report failures with a status of 200.
  const failed = isObject(choice) && isError(choice.error) ? choice : answer;
  if (isError(failed.error) || !isObject(choice)) throw errorOf(failed, answer);
  const message = isObject(choice.message) ? choice.message : {};
  const content = message.content ?? choice.text;
  const whole = withoutEndTokens(textOf(content) ?? "");
  if (whole.length > MAX_TEXT) throw new UpstreamFailure(AttemptFailure.ANSWER_TOO_LARGE, "the response is too long");
  const usage = isObject(answer.usage) ? answer.usage : {};
  const outputTokens = countOf(usage.completion_tokens ?? usage.output_tokens);
  const inputTokens = countOf(usage.prompt_tokens ?? usage.input_tokens);
  const reason = reasonOf(choice);
  if (refusesIn(message, content)) throw withheld("the model refused");
  if (WITHHELD.test(reason)) throw withheld(`the server withheld the response: ${ownerText(reason)}`);
  if (BUSY.test(reason))
    throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, `the response ended with ${ownerText(reason)}`);
  if (FAILED.test(reason))
    throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, `the response ended with ${ownerText(reason)}`);
  const { text, isWhole } = withoutThoughts(whole);
  const isBlank = text.trim() === "";
  const called = calledTool(message);
  if (isBlank && called !== undefined)
    throw malformed(
      `the model called the tool ${ownerText(called)} instead of answering; turn the server's tool call parser off`,
    );
  if (isBlank && isFiltered(choice, answer)) throw withheld("the server's content filter withheld the response");
  // An unknown finish reason is not treated as a regular end.
  const isRegular = BY_ITSELF.has(reason) || (CALLED.has(reason) && called === undefined);
  const isCut = reason === "" ? (outputTokens ?? 0) >= limit : !isRegular;
  if (isBlank && (isCut || !isWhole || whole.trim() !== "" || hasThought(message, usage)))
    throw isCut
      ? new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, cutBecause(reason, outputTokens ?? limit))
      : malformed(ALL_THOUGHT);
  if (isBlank && (content === null || content === undefined)) throw malformed("the response has no text");
  return { text, isCut, reason, inputTokens, outputTokens };
}

/** Tokens that servers leave at an answer's end if they don't skip special tokens. */
const END_TOKEN =
  /(?:<\/s>|<eos>|<end_of_turn>|<\|(?:im_end|endoftext|eot_id|end|return|end_of_text|end_of_sentence|user|observation)\|>|<｜end▁of▁sentence｜>)$/;
/** Longer than any of them, in characters. */
const MOST_TOKEN = 32;

function withoutEndTokens(text: string): string {
  let end = text.trimEnd();
  for (let at = END_TOKEN.exec(end.slice(-MOST_TOKEN)); at !== null; at = END_TOKEN.exec(end.slice(-MOST_TOKEN)))
    end = end.slice(0, -at[0].length).trimEnd();
  return end;
}

/** Returns the finish reason in lower case, without a maker's prefix. SGLang's was an object, and vLLM names a stop token by its number. */
function reasonOf(choice: Readonly<Record<string, unknown>>): string {
  const given = choice.finish_reason ?? choice.stop_reason ?? choice.native_finish_reason;
  const value = isObject(given) ? given.type : typeof given === "number" ? "stop" : given;
  const reason = String(value ?? "")
    .toLowerCase()
    .replace(/^finish_?reason[._]/, "");
  return NO_REASON.has(reason) ? "" : reason;
}

/** Whether an `error` field reports an error; some servers always send an empty one. */
const isError = (value: unknown): boolean => Boolean(value) && !(isObject(value) && Object.keys(value).length === 0);

/** Whether the message is a refusal, as its own field or as a part of its content. */
function refusesIn(message: Readonly<Record<string, unknown>>, content: unknown): boolean {
  if (typeof message.refusal === "string" && message.refusal !== "") return true;
  return Array.isArray(content) && content.some((part) => isObject(part) && part.type === "refusal");
}

/** The name of the first tool that the message calls; undefined without any. */
function calledTool(message: Readonly<Record<string, unknown>>): string | undefined {
  const [first] = Array.isArray(message.tool_calls) ? message.tool_calls : [message.function_call];
  if (!isObject(first)) return undefined;
  const named = isObject(first.function) ? first.function : first;
  return String(named.name ?? "");
}

/** Whether Azure's or Google's filter results report a block. */
function isFiltered(choice: Readonly<Record<string, unknown>>, answer: Readonly<Record<string, unknown>>): boolean {
  const results = isObject(choice.content_filter_results) ? Object.values(choice.content_filter_results) : [];
  const feedback = answer.promptFeedback ?? answer.prompt_feedback;
  return (
    results.some((result) => isObject(result) && result.filtered === true) ||
    (isObject(feedback) && Boolean(feedback.blockReason ?? feedback.block_reason))
  );
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
  const { said, status } = errorIn(isError(failed.error) ? failed : answer);
  if (said === "" && status === undefined) return malformed("the response has no choices");
  return failureOfStatus(status ?? 500, said);
}

/** Returns a text, or the text parts of a list, without reasoning. */
function textOf(content: unknown): string | undefined {
  if (typeof content === "string") return content;
  if (content === null || content === undefined) return undefined;
  if (!Array.isArray(content)) return JSON.stringify(content); // JSON that a server has parsed
  const isOfParts = content.every((part) => isObject(part) && (typeof part.type === "string" || isBarePart(part)));
  if (!isOfParts) return content.every((part) => typeof part === "string") ? content.join("") : JSON.stringify(content);
  return content.map((part) => (isObject(part) && !isThought(part.type) ? textIn(part) : "")).join("");
}

/** A part without a type: only a text. */
const isBarePart = (part: Readonly<Record<string, unknown>>): boolean =>
  typeof part.text === "string" && Object.keys(part).length === 1;

/** The text of one part: a string, or an object with a value. */
function textIn({ text }: Readonly<Record<string, unknown>>): string {
  const value = isObject(text) ? text.value : text;
  return typeof value === "string" ? value : "";
}

const isThought = (type: unknown): boolean => typeof type === "string" && /think|thought|reason/.test(type);

/** Returns a token count; undefined without one. Throws an UpstreamFailure for an invalid count. */
function countOf(value: unknown): number | undefined {
  if (value === undefined || value === null) return undefined;
  const count = typeof value === "string" && /^\d{1,9}$/.test(value) ? Number(value) : value;
  if (Number.isSafeInteger(count) && Number(count) >= 0 && Number(count) <= MOST_TOKENS) return Number(count);
  throw malformed("the response's token count is not a valid number");
}

/** Whether the model's reasoning is separate from its answer. */
function hasThought(message: Readonly<Record<string, unknown>>, usage: Readonly<Record<string, unknown>>): boolean {
  const texts = [
    message.reasoning_content,
    message.reasoning,
    message.reasoning_text,
    message.reasoning_details,
    message.thinking,
    message.thinking_blocks,
    message.thought,
  ];
  if (texts.some((text) => (Array.isArray(text) ? text.length > 0 : Boolean(text)))) return true;
  const details = [usage.completion_tokens_details, usage.output_tokens_details, usage];
  return details.some((each) => isObject(each) && Number(each.reasoning_tokens ?? 0) > 0);
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
