/** An act as Dexbotic's server takes it: a form with the instruction, its pictures in order as files, and the state as a list in JSON. */
import { arrayOf, fileOf, type ObservationPart } from "../payload/observe.ts";
import type { Profile } from "../payload/profile.ts";

/** A form, and the boundary between its parts. */
export interface DexboticForm {
  readonly body: Buffer;
  readonly contentType: string;
}

/** The form of one act; `boundary` must not occur in a file, so it holds chance. */
export async function encodeAct(
  { instructionKey, constants }: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
  boundary: string,
): Promise<DexboticForm> {
  const texts = [
    [instructionKey, instruction] as const,
    ...parts.flatMap((part) => (part.kind === "proprio" ? stateOf(part) : [])),
    ...constants.map(({ key, value }) => [key, String(value)] as const),
  ];
  const fields = texts.map(([name, value]) => Buffer.from(`${head(boundary, name)}\r\n\r\n${value}\r\n`));
  const files = await Promise.all(
    parts.map(async (part, i) => {
      if (part.kind === "proprio") return [];
      const { bytes, format } = await fileOf(part);
      const says = `; filename="${i}.${format}"\r\ncontent-type: image/${format}\r\n\r\n`;
      return [Buffer.from(`${head(boundary, part.key)}${says}`), bytes, Buffer.from("\r\n")];
    }),
  );
  const body = Buffer.concat([...fields, ...files.flat(), Buffer.from(`--${boundary}--\r\n`)]);
  return { body, contentType: `multipart/form-data; boundary=${boundary}` };
}

/** A robot that tells no state sends none: the server has one of its own then. */
function stateOf(part: ObservationPart): (readonly [string, string])[] {
  const numbers = arrayOf(part).toFloat64();
  return numbers.length === 0 ? [] : [[part.key, JSON.stringify([...numbers])]];
}

/** Names are ours or the offering's; quotes and line ends would end them. */
const head = (boundary: string, name: string): string =>
  `--${boundary}\r\ncontent-disposition: form-data; name="${name.replace(/["\r\n]/g, "_")}"`;
