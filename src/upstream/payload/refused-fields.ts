/**
 * Fields that a server refuses, although others of its protocol take them: newer models of OpenAI take no `max_tokens` and no `temperature`,
 * Mistral no `seed`, TGI no temperature of 0. A server that names such a field in its refusal is asked again without it, and never with it again.
 */

/** What is known of one server and model: fields to leave out, or by what to replace them. */
type Lessons = ReadonlyMap<string, string | undefined>;

const MAX_SERVERS = 1_024;
const NONE: Lessons = new Map();
/** Refusals that speak of the limit of tokens without its name. */
const NO_ROOM = /context (?:length|window)|maximum (?:number of )?tokens/i;

/** The refusals of the servers of one wire. */
export class RefusedFields {
  readonly #byServer = new Map<string, Lessons>();

  /** A body as this server takes it. */
  apply(server: string, body: Readonly<Record<string, unknown>>): Record<string, unknown> {
    const lessons = this.#byServer.get(server) ?? NONE;
    const entries = Object.entries(body).flatMap(([field, value]) => {
      if (!lessons.has(field)) return [[field, value] as const];
      const other = lessons.get(field);
      return other === undefined || body[other] !== undefined || lessons.has(other) ? [] : [[other, value] as const];
    });
    return Object.fromEntries(entries);
  }

  /** Learns from a refusal of a body; whether the next body will be another. `optional` are the fields that may be left out. */
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

  /** Which of these fields a server refuses. */
  refused(server: string, fields: readonly string[]): string[] {
    const lessons = this.#byServer.get(server) ?? NONE;
    return fields.filter((field) => lessons.has(field) && lessons.get(field) === undefined);
  }
}

const LIMITS = ["max_completion_tokens", "max_tokens"] as const;
