/** What a server's status means, in whichever protocol it says so. The words beside it decide where one status has several meanings. */
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";

/** Source: RFC 9110, and what model servers, their proxies and hosted APIs make of it. */
const BY_HTTP_STATUS: Readonly<Record<number, AttemptFailure>> = {
  400: AttemptFailure.INPUT_REJECTED,
  401: AttemptFailure.UPSTREAM_AUTH,
  402: AttemptFailure.UPSTREAM_AUTH, // the owner's account is out of credit
  403: AttemptFailure.UPSTREAM_AUTH,
  407: AttemptFailure.UPSTREAM_AUTH,
  408: AttemptFailure.TIMEOUT,
  409: AttemptFailure.UPSTREAM_BUSY,
  413: AttemptFailure.INPUT_REJECTED,
  414: AttemptFailure.INPUT_REJECTED,
  415: AttemptFailure.INPUT_REJECTED,
  422: AttemptFailure.INPUT_REJECTED,
  425: AttemptFailure.UPSTREAM_BUSY,
  429: AttemptFailure.UPSTREAM_BUSY,
  431: AttemptFailure.INPUT_REJECTED,
  498: AttemptFailure.UPSTREAM_BUSY, // Groq: no capacity for this tier
  502: AttemptFailure.UNREACHABLE,
  503: AttemptFailure.UPSTREAM_BUSY,
  504: AttemptFailure.TIMEOUT,
  520: AttemptFailure.UNREACHABLE, // Cloudflare, for the server behind it
  521: AttemptFailure.UNREACHABLE,
  522: AttemptFailure.UNREACHABLE,
  523: AttemptFailure.UNREACHABLE,
  524: AttemptFailure.TIMEOUT,
  529: AttemptFailure.UPSTREAM_BUSY, // Anthropic: overloaded
  530: AttemptFailure.UNREACHABLE,
};

/** gRPC's numbers; all others are errors of the server's own. Source: https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
const BY_GRPC_STATUS: Readonly<Record<number, AttemptFailure>> = {
  1: AttemptFailure.CONNECTION_LOST, // CANCELLED
  3: AttemptFailure.INPUT_REJECTED, // INVALID_ARGUMENT
  4: AttemptFailure.TIMEOUT, // DEADLINE_EXCEEDED
  7: AttemptFailure.UPSTREAM_AUTH, // PERMISSION_DENIED
  8: AttemptFailure.UPSTREAM_BUSY, // RESOURCE_EXHAUSTED
  11: AttemptFailure.INPUT_REJECTED, // OUT_OF_RANGE
  14: AttemptFailure.UNREACHABLE, // UNAVAILABLE
  16: AttemptFailure.UPSTREAM_AUTH, // UNAUTHENTICATED
};

/** Source: RFC 6455, section 7.4.1, and the registry it opens. Above 4400 frameworks write HTTP's own. */
const BY_CLOSE_CODE: Readonly<Record<number, AttemptFailure>> = {
  1009: AttemptFailure.INPUT_REJECTED, // message too big
  1011: AttemptFailure.UPSTREAM_ERROR, // internal error
  1012: AttemptFailure.UNREACHABLE, // service restart
  1013: AttemptFailure.UPSTREAM_BUSY, // try again later
  1014: AttemptFailure.UNREACHABLE, // bad gateway
};

const HTTP_IN_CLOSE_CODES = { from: 4_400, to: 4_599 } as const;

/** The server's own answer, which it may not send. In the words of gRPC's C core, Go and Node. */
const ANSWER_TOO_LARGE =
  /\b(?:sent message|trying to send(?: a)? message|send(?:ing)? message|response)\b.{0,40}\b(?:larger|too large|exceeds?)\b/i;
/** A message that is too large for the server, in the words of gRPC's C core, Go, Java, .NET and tonic, and of HTTP's frameworks. */
const MESSAGE_TOO_LARGE =
  /(?:message|payload|request|body|entity|content|file|image|input|prompt)[\w\s-]{0,30}(?:larger than|too (?:large|big|long)|exceeds?|exceeded)|(?:exceeds?|exceeded)[\w\s]{0,30}(?:message|payload|request|body|content)[\w\s-]{0,20}(?:size|length|limit)|PayloadTooLarge|context[_ ]length[_ ]exceeded/i;
/** Words that make "exceeds" a matter of rates. */
const RATE = /\b(?:rate|quota|per (?:minute|second|day|hour)|too many|queue|concurren\w*|requests? limit)\b/i;
const OUT_OF_MEMORY = /out of memory|\boom\b|cuda error|cannot allocate/i;
const BUSY =
  /\b(?:queue|overloaded|overload|too many (?:requests|concurrent)|at capacity|rate.?limit\w*|backlog|server is busy|try again later)\b/i;
/** The owner's account or key, where the status says otherwise. Gemini answers 400 for a wrong key, OpenAI 429 for an account without credit. */
const NOT_ALLOWED =
  /insufficient[_ ](?:quota|balance|credits?)|billing_hard_limit|credit balance is too low|api[_ ]key[_ ](?:not valid|invalid)|invalid[_ ]api[_ ]key|API_KEY_INVALID|incorrect api key/i;

/** What the words beside a status say that the status itself doesn't; undefined where they say nothing. */
function meantBy(said: string): AttemptFailure | undefined {
  if (said === "") return undefined;
  if (NOT_ALLOWED.test(said)) return AttemptFailure.UPSTREAM_AUTH;
  if (OUT_OF_MEMORY.test(said)) return AttemptFailure.UPSTREAM_ERROR;
  if (ANSWER_TOO_LARGE.test(said)) return AttemptFailure.ANSWER_TOO_LARGE;
  if (MESSAGE_TOO_LARGE.test(said) && !RATE.test(said)) return AttemptFailure.INPUT_REJECTED;
  return undefined;
}

/** Statuses that are nothing but their own meaning. */
const PLAIN_HTTP: ReadonlySet<number> = new Set([401, 403, 404, 408, 502, 504]);

/** The failure that a status of HTTP means. `said` is for the owner, cut down by `ownerText`. */
export function failureOfStatus(status: number, said = ""): UpstreamFailure {
  const meant = PLAIN_HTTP.has(status) ? undefined : meantBy(said);
  const failure = meant ?? BY_HTTP_STATUS[status] ?? AttemptFailure.UPSTREAM_ERROR;
  return new UpstreamFailure(failure, said === "" ? `answered HTTP ${status}` : advised(meant, said));
}

/** Statuses of gRPC that say why only in words: UNKNOWN, RESOURCE_EXHAUSTED, OUT_OF_RANGE, INTERNAL, UNAVAILABLE. */
const LOOSE_GRPC: ReadonlySet<number> = new Set([2, 8, 11, 13, 14]);

/** The failure that a status of gRPC means. */
export function failureOfGrpc(status: number, message: string, said: string): UpstreamFailure {
  const meant = LOOSE_GRPC.has(status) ? (meantBy(message) ?? busyUnavailable(status, message)) : undefined;
  const failure = meant ?? BY_GRPC_STATUS[status] ?? AttemptFailure.UPSTREAM_ERROR;
  return new UpstreamFailure(failure, advised(meant, said));
}

/** Triton refuses what its queue has no room for as unavailable. */
const busyUnavailable = (status: number, message: string): AttemptFailure | undefined =>
  status === 14 && BUSY.test(message) ? AttemptFailure.UPSTREAM_BUSY : undefined;

/** The failure that a close code of WebSocket means. */
export function failureOfClose(code: number): UpstreamFailure {
  const http =
    code >= HTTP_IN_CLOSE_CODES.from && code <= HTTP_IN_CLOSE_CODES.to ? BY_HTTP_STATUS[code - 4_000] : undefined;
  return new UpstreamFailure(BY_CLOSE_CODE[code] ?? http ?? AttemptFailure.CONNECTION_LOST, `closed with ${code}`);
}

const SIZES = /(\d{6,12})\D{1,12}(\d{6,12})/;
const LIMIT = /(?:limit|max(?:imum)?|size)\D{0,12}(\d{6,12})/i;
const inMiB = (bytes: number): string => `${Math.round((bytes / 2 ** 20) * 10) / 10} MiB`;

/** What the owner of a server reads that takes no message of this size. */
function advised(meant: AttemptFailure | undefined, said: string): string {
  if (meant !== AttemptFailure.INPUT_REJECTED) return said;
  const sizes = SIZES.exec(said)?.slice(1).map(Number) ?? [];
  const limit = sizes.length > 0 ? Math.min(...sizes) : Number(LIMIT.exec(said)?.[1] ?? 0);
  const takes =
    limit > 0 ? `the server takes messages of ${inMiB(limit)} at most` : "the message is too large for the server";
  return `${takes}; raise its limit or declare smaller pictures: ${said}`;
}
