/** More connections than there are slots, by strangers who never send a request: clients with keys keep getting in. */
import type { Socket } from "node:net";
import { GREETING, READY } from "../../../src/codecs/zmtp.ts";
import { FLAG, FRAME, frame, HELLO, PREFACE } from "../../support/wire-client.ts";
import { type Attack, type AttackContext, attackerAddress, dial, spread, turns } from "./attack.ts";

/** Beyond the 10,000 connections of a port, and the 1,000 of that for GR00T. */
const CONNECTIONS = { calls: 10_200, gr00t: 1_200 } as const;
const WIDTH = 64;
const REFILLS = 8;
/** The good client is answered so often on every road, new connections among them, while the strangers stay. */
const ANSWERS = 40;
const DRIP_MS = 500;

/** A complete greeting of HTTP/2: such a connection may rest for minutes. */
const GREETED = Buffer.concat([HELLO, frame(FRAME.settings, FLAG.ack, 0)]);

/** What strangers say, and then never a request. `drips` comes byte by byte. */
const STRANGERS: Readonly<Record<string, { readonly says?: Buffer; readonly drips?: Buffer }>> = {
  "are idle": {},
  "have sent half a head": { says: Buffer.from("POST /v1/act HTTP/1.1\r\nHost: a\r\nX-") },
  "send a slow preface": { drips: PREFACE },
  "have opened HTTP/2 and are idle": { says: GREETED },
};

/** A stranger's way to hold a connection. */
type Stranger = (typeof STRANGERS)[string];

/** Opens connections, and opens others for those that are closed, until the good client has been served for a while. */
async function siege(
  context: AttackContext,
  { says, drips }: Stranger,
  to: { readonly port: number; readonly count: number; readonly address: () => string },
): Promise<void> {
  const sockets = new Set<Socket>();
  let dripped = 0;
  const drip =
    drips &&
    setInterval(() => {
      const at = dripped++ % drips.length;
      for (const socket of sockets) if (socket.writable) socket.write(drips.subarray(at, at + 1));
    }, DRIP_MS);
  const begin = async (): Promise<void> => {
    const socket = await dial(to.port, to.address());
    context.count("connections");
    if (socket.destroyed) return;
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    socket.on("data", () => undefined).on("end", () => socket.destroy());
    if (says !== undefined) socket.write(says);
  };
  await spread(context, Array.from({ length: to.count }), WIDTH, begin);
  let isOver = false;
  const refill = async (): Promise<void> => {
    while (!isOver && !context.isOver()) {
      if (sockets.size < to.count) await begin();
      await turns(1);
    }
  };
  const refills = Array.from({ length: REFILLS }, refill);
  await context.good.progress(ANSWERS);
  context.count("open at the end", sockets.size);
  isOver = true;
  await Promise.all(refills);
  clearInterval(drip);
  for (const socket of sockets) socket.resetAndDestroy();
}

const at = ({ target }: AttackContext) => ({ port: target.port, count: CONNECTIONS.calls });
const one = (): string => "127.0.0.1";

/** Every kind of stranger, before a handshake of TLS too; the kind that may stay longest from many addresses too. */
export const slotAttacks = (): Attack[] => [
  ...Object.entries(STRANGERS).map(([kind, stranger]) => ({
    name: `${CONNECTIONS.calls} connections of one address that ${kind}`,
    run: (context: AttackContext) => siege(context, stranger, { ...at(context), address: one }),
  })),
  {
    name: `${CONNECTIONS.calls} connections of many addresses that have opened HTTP/2 and are idle`,
    run: (context) => siege(context, { says: GREETED }, { ...at(context), address: attackerAddress }),
  },
  {
    name: `${CONNECTIONS.calls} connections of one address that never begin their handshake of TLS`,
    place: "tls",
    run: (context) => siege(context, {}, { ...at(context), address: one }),
  },
  {
    name: `${CONNECTIONS.gr00t} connections of one address that greet GR00T's port and are idle`,
    run: (context) =>
      siege(
        context,
        { says: Buffer.concat([GREETING, READY]) },
        { port: context.target.gr00tPort, count: CONNECTIONS.gr00t, address: one },
      ),
  },
];
