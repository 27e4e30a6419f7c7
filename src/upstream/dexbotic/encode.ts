/** An act as Dexbotic's server takes it: a form with the instruction, its pictures in order as files, and the state as a list in JSON. */
import { arrayOf, fileOf, type ObservationPart } from "../payload/observe.ts";
import { instructionIn, type Profile } from "../payload/profile.ts";

/** A form, and the boundary between its parts. */
export interface DexboticForm {
  readonly body: Buffer;
  readonly contentType: string;
}

/** The form of one act; `boundary` must not occur in a file, so it holds chance. */
export async function encodeAct(
  profile: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
  boundary: string,
): Promise<DexboticForm> {
  const texts = [
    ...instructionIn(profile, instruction),
    ...parts.flatMap((part) => (part.kind === "proprio" ? [stateOf(part)] : [])),
    ...profile.constants.map(({ key, value }) => [key, String(value)] as const),
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

const stateOf = (part: ObservationPart): readonly [string, string] => [
  part.key,
  JSON.stringify([...arrayOf(part).toFloat64()]),
];

/** Names are ours or the offering's; quotes and line ends would end them. */
const head = (boundary: string, name: string): string =>
  `--${boundary}\r\ncontent-disposition: form-data; name="${name.replace(/["\r\n]/g, "_")}"`;
