/** Connections under TLS that end at any byte: within the handshake, within a record, behind it. */

import { writeFileSync } from "node:fs";
import type { Socket } from "node:net";
import { join } from "node:path";
import { Duplex } from "node:stream";
import { connect as connectTls, getCACertificates, setDefaultCACertificates, type TLSSocket } from "node:tls";
import { scratchDir } from "../../support/gateway.ts";
import { selfSigned } from "../../support/wire-client.ts";
import { type Attack, type AttackContext, dial, spread } from "./attack.ts";
import { bytesOf, deafOf, MANNERS } from "./cuts.ts";
import { type Script, scriptsOf } from "./scripts.ts";

/** The conversations that are cut, and what the client says to speak. */
const SPOKEN: Readonly<Record<string, string>> = {
  "REST act, keyless, in the lane": "http/1.1",
  "REST act in the lane": "http/1.1",
  "act as server-sent events": "http/1.1",
  "gRPC Act": "h2",
  "gRPC ActStream": "h2",
  "openpi over WebSocket": "http/1.1",
};
/** Places of a sample, for each manner. */
const SAMPLE = 12;
/** TLS costs both sides many times what a bare connection does. */
const WIDTH = 12;
/** Every so many bytes of a conversation, when all of it is tried: one place of each, from the seed. */
const STRIDE = 8;

/** The settings of a gateway with a certificate, which this process trusts from now on. */
export function tlsSettings(): Readonly<Record<string, string>> {
  const { cert, key } = selfSigned();
  const { path } = scratchDir();
  const files = { TLS_CERT: join(path, "cert.pem"), TLS_KEY: join(path, "key.pem") };
  writeFileSync(files.TLS_CERT, cert);
  writeFileSync(files.TLS_KEY, key);
  setDefaultCACertificates([...getCACertificates(), cert]);
  return files;
}

/** A connection whose client's bytes pass up to a place, and no further. */
class CutWire extends Duplex {
  /** Resolves once as many have passed. */
  readonly spent: Promise<void>;
  passed = 0;
  readonly #socket: Socket;
  readonly #most: number;
  #told = (): void => {};

  constructor(socket: Socket, most: number) {
    super();
    this.#socket = socket;
    this.#most = most;
    this.spent = new Promise((resolve) => (this.#told = resolve));
    if (most === 0) this.#told();
    socket.on("data", (chunk: Buffer) => void this.push(chunk));
    socket.once("end", () => void this.push(null)).once("close", () => this.destroy());
    this.on("error", () => undefined);
  }

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    const part = chunk.subarray(0, this.#most - this.passed);
    this.passed += part.length;
    this.#socket.write(part, () => {
      if (this.passed >= this.#most) this.#told();
      // What lies behind the cut is taken and dropped.
      done();
    });
  }
}

interface Conversation {
  readonly raw: Socket;
  readonly wire: CutWire;
  readonly tls: TLSSocket;
}

/** Begins a conversation; of its ciphertext `most` bytes leave. */
async function begin(script: Script, most: number): Promise<Conversation> {
  const raw = await dial(script.port);
  const wire = new CutWire(raw, most);
  const tls = connectTls({ socket: wire, servername: "localhost", ALPNProtocols: [SPOKEN[script.name]!] });
  tls.on("error", () => undefined);
  tls.write(Buffer.concat(bytesOf(script, script.requests.length)));
  return { raw, wire, tls };
}

/** The length of a whole conversation, that is answered as it should be. */
async function lengthOf(context: AttackContext, script: Script): Promise<number> {
  const { raw, wire, tls } = await begin(script, Number.POSITIVE_INFINITY);
  let text = "";
  const answered = new Promise<void>((resolve) => {
    tls.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
      if (script.sound.test(text)) resolve();
    });
    raw.once("close", () => resolve());
  });
  await Promise.race([answered, context.good.progress(100)]);
  if (!script.sound.test(text) && !context.isOver())
    context.find(`${script.name}: a sound conversation under TLS was answered ${JSON.stringify(text.slice(0, 400))}`);
  raw.destroy();
  return wire.passed;
}

async function cut(context: AttackContext, script: Script, at: number, manner: string): Promise<void> {
  const { raw, wire, tls } = await begin(script, at);
  context.count("connections");
  const heard = new Promise((resolve) => tls.once("data", resolve).once("close", resolve));
  // A gateway that has ended its side gets no more; this side stands half open, and closes by itself never.
  await Promise.race([wire.spent, new Promise((resolve) => raw.once("end", resolve).once("close", resolve))]);
  if (manner === "is never read") raw.pause();
  await MANNERS[manner]!(raw, heard, context);
}

/** One attack for each conversation. */
export const tlsAttacks = (): Attack[] =>
  Object.keys(SPOKEN).map((name) => ({
    name: `connections that are cut under TLS: ${name}`,
    place: "tls",
    async run(context) {
      const script = scriptsOf(context.target).find((each) => each.name === name)!;
      const length = await lengthOf(context, script);
      const places = (): number[] =>
        context.whole
          ? Array.from({ length: Math.ceil(length / STRIDE) }, (_, nth) =>
              Math.min(nth * STRIDE + context.roll(STRIDE), length),
            )
          : Array.from({ length: SAMPLE }, () => context.roll(length));
      const cuts = Object.keys(MANNERS).flatMap((manner) => places().map((at) => ({ at, manner })));
      await spread(context, cuts, WIDTH, ({ at, manner }) => cut(context, script, at, manner));
      for (const socket of deafOf(context)) socket.resetAndDestroy();
    },
  }));
