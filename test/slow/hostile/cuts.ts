/** Connections that end where no good one does: cut at every byte of every conversation, in every manner in which a connection can end. */
import type { Socket } from "node:net";
import { type Attack, type AttackContext, closeOf, dial, spread, turns } from "./attack.ts";
import { type Script, scriptsOf } from "./scripts.ts";
import type { Target } from "./target.ts";

/** How a connection ends after the bytes before the cut; `heard` tells whether anything was answered. */
type Manner = (socket: Socket, heard: Promise<unknown>, context: AttackContext) => Promise<void>;

/** Turns of this process's loop that give the gateway time to read, where no answer comes. */
const A_WHILE = 40;
/** Readers of nothing that stay at once. */
const MOST_DEAF = 48;

export const MANNERS: Readonly<Record<string, Manner>> = {
  "is reset at once": async (socket) => void socket.resetAndDestroy(),
  "is reset a turn later": async (socket) => {
    await turns(2);
    socket.resetAndDestroy();
  },
  "is reset at the first byte of an answer": async (socket, heard) => {
    await Promise.race([heard, turns(A_WHILE)]);
    socket.resetAndDestroy();
  },
  "is ended on both sides": async (socket) => {
    socket.end();
    socket.destroy();
  },
  "is ended on one side": async (socket, heard) => {
    socket.end();
    const closed = closeOf(socket);
    await Promise.race([heard, closed, turns(A_WHILE)]);
    socket.destroy();
  },
  "is never read": async (socket, _heard, context) => {
    const deaf = deafOf(context);
    deaf.push(socket);
    if (deaf.length > MOST_DEAF) deaf.shift()?.resetAndDestroy();
  },
};

const waitingOf = new WeakMap<AttackContext, Socket[]>();

/** Who doesn't read in this context, the oldest first. */
export function deafOf(context: AttackContext): Socket[] {
  const known = waitingOf.get(context) ?? [];
  waitingOf.set(context, known);
  return known;
}

/** One connection that is cut. */
interface Cut {
  readonly bytes: Buffer;
  readonly manner: string;
}

/** The bytes of a conversation of so many requests. */
export const bytesOf = ({ prelude, requests }: Script, count: number): readonly Buffer[] => [
  ...prelude,
  ...requests.slice(0, count).flat(),
];

/** Where the parts of a conversation end, and a byte before and behind: there are the states that code forgets. */
function marksOf(parts: readonly Buffer[]): readonly number[] {
  const ends = parts.map((_, i) => parts.slice(0, i + 1).reduce((sum, { length }) => sum + length, 0));
  const last = ends.at(-1) ?? 0;
  return [...new Set(ends.flatMap((end) => [end - 1, end, end + 1]))].filter((at) => at >= 0 && at <= last);
}

/** How often each mark is cut, how many other places are, and how many connections live at once. */
const SHORT = { atMarks: 3, elsewhere: 4 } as const;
const WHOLE = { atMarks: 25, elsewhere: Number.POSITIVE_INFINITY } as const;
const WIDTH = 24;

function cutsOf(context: AttackContext, script: Script): Cut[] {
  const { atMarks, elsewhere } = context.whole ? WHOLE : SHORT;
  const cuts: Cut[] = [];
  for (const count of [1, script.requests.length]) {
    const parts = bytesOf(script, count);
    const bytes = Buffer.concat(parts);
    const marks = marksOf(parts);
    for (const manner of Object.keys(MANNERS)) {
      for (const at of marks)
        for (let time = 0; time < atMarks; time++) cuts.push({ bytes: bytes.subarray(0, at), manner });
      const others =
        elsewhere === Number.POSITIVE_INFINITY
          ? Array.from({ length: bytes.length }, (_, at) => at)
          : Array.from({ length: elsewhere }, () => context.roll(bytes.length));
      for (const at of others) cuts.push({ bytes: bytes.subarray(0, at), manner });
    }
  }
  return cuts;
}

async function cut(context: AttackContext, script: Script, { bytes, manner }: Cut): Promise<void> {
  const socket = await dial(script.port);
  context.count("connections");
  if (socket.destroyed) return;
  const heard = new Promise((resolve) => socket.once("readable", resolve).once("close", resolve));
  if (manner === "is never read") socket.pause().removeAllListeners("readable");
  if (bytes.length > 0) await new Promise<void>((resolve) => socket.write(bytes, () => resolve()));
  await MANNERS[manner]!(socket, heard, context);
}

/** A conversation that nobody cuts is answered: what is cut elsewhere is sound. */
async function isAnswered(context: AttackContext, script: Script): Promise<void> {
  const socket = await dial(script.port);
  const chunks: Buffer[] = [];
  const text = (): string => Buffer.concat(chunks).toString("latin1");
  const closed = closeOf(socket);
  const answered = new Promise<void>((resolve) => {
    socket.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      if (script.sound.test(text())) resolve();
    });
  });
  socket.on("end", () => socket.end());
  socket.write(Buffer.concat(bytesOf(script, script.requests.length)));
  await Promise.race([answered, closed, context.good.progress(100)]);
  if (!script.sound.test(text()) && !context.isOver())
    context.find(`${script.name}: a sound conversation was answered ${JSON.stringify(text().slice(0, 400))}`);
  socket.destroy();
}

/** The transports, by the names of their conversations. */
export const TRANSPORTS: readonly string[] = scriptsOf({ port: 0, gr00tPort: 0, bad: { key: "" } } as Target).map(
  ({ name }) => name,
);

/** One attack for each transport. */
export const cutAttacks = (names: readonly string[]): Attack[] =>
  names.map((name) => ({
    name: `connections that are cut: ${name}`,
    async run(context) {
      const script = scriptsOf(context.target).find((each) => each.name === name)!;
      await isAnswered(context, script);
      await spread(context, cutsOf(context, script), WIDTH, (each) => cut(context, script, each));
      for (const socket of deafOf(context)) socket.resetAndDestroy();
    },
  }));
