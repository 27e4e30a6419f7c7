/** What the commands of `limber evaluate` share: options, calls of the gateway, and the stream of an evaluation. */
import { addressUnder } from "../src/codecs/base-address.ts";

/** The command can't be carried out as it was given. */
export class Misuse extends Error {}

/** The gateway refused, or can't be reached. */
export class Refused extends Error {}

/** An episode, as far as the commands read it. */
export interface Episode {
  readonly index: number;
  readonly seed: number;
  readonly status: string;
  readonly success: boolean;
  readonly termination: string;
  readonly return: number;
  readonly progress: number;
  readonly steps: number;
}

/** An evaluation, as far as the commands read it. */
export interface Evaluation {
  readonly id: string;
  readonly status: string;
  readonly scenario: { readonly digest: string };
  readonly policy: { readonly offering_id?: string };
  readonly per_episode: readonly Episode[];
  readonly estimate?: { readonly episodes_usd: number; readonly policy_calls_usd: number; readonly total_usd: number };
  readonly usage?: { readonly cost_usd?: number; readonly policy_cost_usd?: number };
  readonly scores?: unknown;
  readonly error?: { readonly code?: string; readonly message?: string };
}

/** A whole number in an option. */
export function whole(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,10}$/.test(text)) throw new Misuse(`--${name} must be a whole number, not ${text}`);
  return Number(text);
}

/** The fields of `--json`. */
export function fieldsOf(json = "{}"): object {
  let fields: unknown;
  try {
    fields = JSON.parse(json);
  } catch {
    throw new Misuse("--json must be JSON");
  }
  if (typeof fields !== "object" || fields === null || Array.isArray(fields))
    throw new Misuse("--json must be an object");
  return fields;
}

/** The gateway of `--url` and `--key`, or of the environment. `ask` throws `Refused`. */
export function gatewayOf({
  url = process.env.LIMBER_URL ?? "http://127.0.0.1:8080",
  key = process.env.LIMBER_KEY,
}: {
  readonly url?: string;
  readonly key?: string;
}) {
  if (!URL.canParse(url)) throw new Misuse(`--url must be an address, not ${url}`);
  if (!key) throw new Misuse("an API key is needed: LIMBER_KEY in the environment, or --key");
  const ask = async (path: string, init: RequestInit = {}): Promise<Response> => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const answer = await fetch(addressUnder(url, path), { ...init, headers }).catch(() => {
      throw new Refused(`no gateway answers at ${url}`);
    });
    if (answer.ok) return answer;
    const said = (await answer.json().catch(() => ({}))) as { error?: { message?: string } };
    throw new Refused(said.error?.message ?? `HTTP ${answer.status}`);
  };
  return { url, ask };
}

/** The bytes of a response. Throws the error of `lost` if the connection is lost. */
export async function* bytesOf({ body }: Response, lost: () => Error): AsyncGenerator<Uint8Array> {
  try {
    yield* body ?? [];
  } catch {
    throw lost();
  }
}

const streamLost = (): Error => new Refused("the connection to the gateway was lost; the evaluation continues there");

/** Prints each episode of a stream of server-sent events; resolves with the evaluation as it ended. Throws `Refused`. */
export async function followed(answer: Response): Promise<Evaluation> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of bytesOf(answer, streamLost)) {
    rest += decoder.decode(bytes, { stream: true });
    const events = rest.split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      const name = /^event: (\S+)/m.exec(event)?.[1];
      const data = /^data: (.*)$/m.exec(event)?.[1];
      if (data === undefined) continue;
      if (name === "episode") {
        const { index, termination, steps } = JSON.parse(data) as Episode;
        console.log(`  episode ${index}  ${termination}  ${steps} steps`);
      }
      if (name === "done") return JSON.parse(data) as Evaluation;
      if (name === "error")
        throw new Refused((JSON.parse(data) as { error?: { message?: string } }).error?.message ?? data);
    }
  }
  throw new Refused("the gateway ended the stream before the evaluation was over");
}
