/** Robots that lose their connection and come back: what they go on with, and what they are told. */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { type ClientHttp2Session, connect } from "node:http2";
import type { AddressInfo } from "node:net";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { frameMessage } from "../../src/codecs/grpc.ts";
import { type LerobotServer, serveLerobot } from "../../src/sidecar/lerobot.ts";
import { eventually } from "../support/eventually.ts";

const sample = (name: string): Buffer => readFileSync(new URL(`../golden/wire-samples/${name}`, import.meta.url));
const bytes = (field: number, data: Uint8Array, state = 0): Uint8Array => {
  const writer = new BinaryWriter();
  if (state > 0) writer.tag(1, WireType.Varint).int32(state);
  return writer.tag(field, WireType.LengthDelimited).bytes(data).finish();
};
const SETUP = bytes(1, sample("lerobot_policy_setup.pkl"));
const OBSERVATION = bytes(2, sample("lerobot_observation.pkl"), 3);
const NOTHING = new Uint8Array();
const FAILED_PRECONDITION = "9";

interface AskedAct {
  readonly model: string;
  readonly episode: number;
  readonly provider: { readonly session_id: string };
}

let gateway: Server;
let server: LerobotServer;
const acts: AskedAct[] = [];
const said: string[] = [];
const robots: ClientHttp2Session[] = [];

beforeEach(async () => {
  acts.length = said.length = 0;
  gateway = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    if (request.url === "/v1/act") acts.push(JSON.parse(Buffer.concat(chunks).toString()));
    response.end(JSON.stringify({ action_spaces: ["joint_pos_7"], action: { steps: [[1, 2, 3]], dt_ms: 33 } }));
  });
  gateway.listen(0, "127.0.0.1");
  await once(gateway, "listening");
  const url = `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`;
  server = await serveLerobot({
    host: "127.0.0.1",
    port: 0,
    gateway: url,
    key: "k",
    log: (text) => void said.push(text),
  });
});
afterEach(async () => {
  for (const robot of robots.splice(0)) robot.destroy();
  await server.close();
  gateway.closeAllConnections();
  gateway.close();
});

function robot(): ClientHttp2Session {
  const session = connect(`http://127.0.0.1:${server.port}`);
  session.on("error", () => undefined);
  robots.push(session);
  return session;
}

async function call(session: ClientHttp2Session, method: string, message: Uint8Array) {
  const stream = session.request({ ":method": "POST", ":path": `/transport.AsyncInference/${method}`, te: "trailers" });
  const chunks: Buffer[] = [];
  let status = "";
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  stream.on("trailers", (trailers) => {
    status = String(trailers["grpc-status"]);
  });
  stream.end(frameMessage(message));
  await once(stream, "close");
  return { status, answer: Buffer.concat(chunks).subarray(5) };
}
const handshake = async (session: ClientHttp2Session): Promise<void> => {
  await call(session, "Ready", NOTHING);
  await call(session, "SendPolicyInstructions", SETUP);
};
/** One round without a handshake: the statuses of its two calls, and whether actions came. */
const round = async (session: ClientHttp2Session) => {
  const sent = await call(session, "SendObservations", OBSERVATION);
  const got = await call(session, "GetActions", NOTHING);
  return { statuses: [sent.status, got.status], hasActions: got.answer.length > 10 };
};
const SERVED = { statuses: ["0", "0"], hasActions: true };
const REFUSED = { statuses: [FAILED_PRECONDITION, FAILED_PRECONDITION], hasActions: false };

describe("huggingface/lerobot: a client whose gRPC channel reconnects by itself", () => {
  it("resumes with its setup, in its own session, at every reconnect", async () => {
    const first = robot();
    await handshake(first);
    expect(await round(first)).toEqual(SERVED);
    first.destroy();
    const second = robot();
    expect(await round(second)).toEqual(SERVED);
    second.destroy();
    expect(await round(robot())).toEqual(SERVED);
    expect(new Set(acts.map(({ model }) => model)).size).toBe(1);
    expect(new Set(acts.map(({ provider }) => provider.session_id)).size).toBe(3);
    expect(said.filter((text) => text.includes("returned without a handshake"))).toHaveLength(2);
  });

  it("gets one setup for concurrent calls", async () => {
    const first = robot();
    await handshake(first);
    first.destroy();
    const again = robot();
    const calls = await Promise.all([call(again, "GetActions", NOTHING), call(again, "SendObservations", OBSERVATION)]);
    expect(calls.map(({ status }) => status)).toEqual(["0", "0"]);
    expect(said.filter((text) => text.includes("returned without a handshake"))).toHaveLength(1);
  });

  it("is refused with an error without a setup, and served after its handshake", async () => {
    const stranger = robot();
    expect(await round(stranger)).toEqual(REFUSED);
    expect(said).toEqual([expect.stringContaining("call Ready and SendPolicyInstructions first")]);
    await handshake(stranger);
    expect(await round(stranger)).toEqual(SERVED);
  });

  it("never takes over from a client that is still connected", async () => {
    const first = robot();
    await handshake(first);
    expect(await round(robot())).toEqual(REFUSED);
    expect(await round(first)).toEqual(SERVED);
  });

  it("is refused if it could be either of two lost ones, and if another client was set up since", async () => {
    const [first, second] = [robot(), robot()];
    await handshake(first);
    await handshake(second);
    first.destroy();
    second.destroy();
    expect(await round(robot())).toEqual(REFUSED);
    await handshake(robot());
    expect(await round(robot())).toEqual(REFUSED);
    await eventually(() => expect(said.some((text) => text.includes("several clients"))).toBe(true));
  });
});
