/** Verifies a published evaluation: `limber evaluate verify https://gateway/v1/publications/pub_01J… [--live]`. */
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { loadScenarios } from "../src/scenarios/index.ts";
import { faultOfSignature, type PublicJwk, type PublishedDocument, recomputed } from "../src/scenarios/published.ts";
import { bytesOf, Misuse } from "./evaluate-gateway.ts";
import { type LiveOptions, liveAgrees } from "./evaluate-live.ts";

const HELP = `Verifies a published evaluation or comparison without an account: its signature, its digests, its scores, and every episode by replaying the
recorded actions in the same scenario. Controls that need no policy (zeros, random actions) are played again.

  limber evaluate verify URL|FILE [--keys URL|FILE] [--packs FOLDER]
  limber evaluate verify URL|FILE --live [--episodes N] [--policy URL] [--label A] [--yes | --max-usd 5] [options]

  --keys URL|FILE   the gateway's public keys; /.well-known/jwks.json of the address, or of the gateway that a file names
  --packs FOLDER    scenario packs, for a scenario that is not built in
  --live            then calls the policy again on the published seeds through a gateway, and compares the results pair by pair
  --url URL         that gateway; LIMBER_URL, or http://127.0.0.1:8080. Only it gets the key
  --key KEY         an API key of it; better in the environment, as LIMBER_KEY
  --policy URL      the address of the policy's server, which publications don't contain; or another model to compare
  --label NAME      the policy of a comparison
  --episodes N      the first N seeds only
  --max-usd N       the most that the run may cost: calls end before they exceed it
  --yes             starts although the run may cost more than $1
  --json TEXT       any further fields of the evaluation's request, as JSON

Ends with 0 when everything agrees, 1 when something differs or the publication was withdrawn, 2 when the command is wrong, 3 when live results
differ significantly, 4 when it could not check: the document or the keys can't be read, the gateway refused, or a connection was lost.`;

const KEYS_PATH = "/.well-known/jwks.json";
const MOST_BYTES = 64 * 2 ** 20;
const SHOWN = 20;

class Unreadable extends Error {}

const OPTIONS = {
  keys: { type: "string" },
  packs: { type: "string" },
  live: { type: "boolean" },
  url: { type: "string" },
  key: { type: "string" },
  policy: { type: "string" },
  label: { type: "string" },
  episodes: { type: "string" },
  "max-usd": { type: "string" },
  yes: { type: "boolean" },
  json: { type: "string" },
  help: { type: "boolean" },
} as const;

/** Runs the command; resolves with the exit code. */
export async function verifyCommand(args: readonly string[]): Promise<number> {
  let parsed: ReturnType<typeof parse>;
  const parse = () => parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
  try {
    parsed = parse();
  } catch (thrown) {
    console.error(`evaluate verify: ${thrown instanceof Error ? thrown.message : thrown}`);
    return 2;
  }
  const { values, positionals } = parsed;
  const [source] = positionals;
  if (values.help || source === undefined || positionals.length > 1) {
    (values.help ? console.log : console.error)(HELP);
    return values.help ? 0 : 2;
  }
  try {
    return await verified(source, values);
  } catch (thrown) {
    // An unexpected error, too, leaves the document unchecked.
    console.error(`evaluate verify: ${plain(thrown instanceof Error ? thrown.message : String(thrown))}`);
    return thrown instanceof Misuse ? 2 : 4;
  }
}

type Values = LiveOptions & { readonly keys?: string; readonly packs?: string; readonly live?: boolean };

async function verified(source: string, { keys, packs, live, ...options }: Values): Promise<number> {
  const document = await objectAt(source);
  const { comparison } = document as Partial<PublishedDocument>;
  if (live && comparison?.suite !== undefined)
    throw new Misuse(
      "--live does not support a publication of a suite; verify it without --live, and run the suite again with POST /v1/evaluate/compare",
    );
  const keysAt = keys ?? keysOf(source, document);
  const { keys: jwks } = (await objectAt(keysAt)) as { keys?: unknown };
  if (!Array.isArray(jwks)) throw new Unreadable(`${keysAt} is not a JSON Web Key Set`);
  const unsigned = faultOfSignature(document, jwks as PublicJwk[]);
  if (document.object === "publication.withdrawal") {
    const { id, reason } = document as { id?: string; reason?: string };
    if (unsigned === undefined)
      console.log(plain(`${id} was withdrawn by its publisher${reason ? `: ${reason}` : ""}`));
    else console.log(plain(`${id} does not verify: the notice of its withdrawal is not authentic, ${unsigned}`));
    return 1;
  }
  const { scenarios } = await loadScenarios(packs);
  const { problems, replayed, controls } = await recomputed(document, scenarios);
  const all = [...problems, ...(unsigned === undefined ? [] : [unsigned])];
  for (const problem of all.slice(0, SHOWN)) console.error(`  ${plain(problem)}`);
  if (all.length > SHOWN) console.error(`  and ${all.length - SHOWN} more`);
  if (all.length > 0) {
    console.log(`${document.id} does not verify: ${all.length} difference${all.length === 1 ? "" : "s"}`);
    return 1;
  }
  console.log(
    `${document.id} verifies: ${replayed} episodes and ${controls} of controls replayed to the last digit, signed with a key of ${keysAt}`,
  );
  if (!live) return 0;
  return (await liveAgrees(document as unknown as PublishedDocument, options)) ? 0 : 3; // verified above
}

/** Text of a document without control characters, which could forge other output of the terminal. */
const plain = (text: string): string => text.replaceAll(/\p{C}/gu, "�");

/** Where the keys of a document are: at the address that it came from, otherwise at the gateway that it names. */
function keysOf(source: string, document: Readonly<Record<string, unknown>>): string {
  if (isAddress(source)) return new URL(KEYS_PATH, source).href;
  const { url } = (document.gateway ?? {}) as { url?: unknown };
  if (typeof url !== "string" || !isAddress(url)) throw new Unreadable("--keys is needed: the file names no gateway");
  return new URL(KEYS_PATH, url).href;
}

const isAddress = (text: string): boolean => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);

async function objectAt(source: string): Promise<Readonly<Record<string, unknown>>> {
  const text = isAddress(source) ? await fetched(source) : await readFile(source, "utf8").catch(() => undefined);
  if (text === undefined) throw new Unreadable(`${source} can't be read`);
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  } catch {}
  throw new Unreadable(`${source} is not a JSON object`);
}

async function fetched(address: string): Promise<string> {
  const answer = await fetch(address).catch(() => undefined);
  if (!answer?.ok) throw new Unreadable(`${address} ${answer ? `returned HTTP ${answer.status}` : "can't be reached"}`);
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of bytesOf(answer, () => new Unreadable(`the connection to ${address} was lost`))) {
    size += chunk.length;
    if (size > MOST_BYTES) throw new Unreadable(`${address} returned more than ${MOST_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}
