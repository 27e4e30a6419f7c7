/** A real nats-server: one that's running elsewhere, or one that a test starts, kills and starts again. */
import { execFileSync, spawn } from "node:child_process";
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { connect, type Msg, type NatsConnection } from "nats";
import { type Event, EventSchema } from "../../gen/limber/v1/event_pb.ts";
import { dial } from "../../src/events/nats/connect.ts";

/** A server that a test owns. Its address stays the same, and so does what its streams hold. */
export interface Nats {
  readonly url: string;
  /** Ends it at once, as a crash would. */
  kill(): Promise<void>;
  /** Starts it again. */
  start(): Promise<void>;
  /** Ends it at once and removes all that its streams held, as a disk that was lost. */
  wipe(): Promise<void>;
  /** Ends it and removes its files. */
  close(): Promise<void>;
}

const CACHE = join(import.meta.dirname, "../../node_modules/.cache/nats-server");
const HOW_TO =
  "These tests need a nats-server: install it (apt-get install nats-server, brew install nats-server) so that it stands on PATH, or set NATS_URL for those that don't stop it";

let found: string | undefined;

/** The path of a nats-server: from PATH or /usr/sbin, else from the system's package, unpacked into the cache. */
export function natsServer(): string {
  const places = [...(process.env.PATH ?? "").split(delimiter), "/usr/sbin", CACHE].map((at) =>
    join(at, "nats-server"),
  );
  found ??= places.find(isProgram) ?? download();
  return found;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Fetches the package with lists and caches of its own, which needs no rights, and unpacks it. */
function download(): string {
  mkdirSync(CACHE, { recursive: true });
  const scratch = mkdtempSync(join(CACHE, "download-"));
  try {
    for (const folder of ["lists/partial", "cache/archives/partial"])
      mkdirSync(join(scratch, folder), { recursive: true });
    const own = ["-qq", "-o", `Dir::State::Lists=${scratch}/lists`, "-o", `Dir::Cache=${scratch}/cache`];
    const run = (program: string, ...args: string[]) => execFileSync(program, args, { cwd: scratch, stdio: "pipe" });
    run("apt-get", ...own, "update");
    run("apt-get", ...own, "download", "nats-server");
    run("dpkg", "-x", readdirSync(scratch).find((name) => name.endsWith(".deb")) ?? "", "unpacked");
    const program = join(CACHE, "nats-server");
    // In one step, because another test file may be doing the same.
    renameSync(join(scratch, "unpacked/usr/sbin/nats-server"), program);
    return program;
  } catch (cause) {
    throw new Error(HOW_TO, { cause });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** A server for tests that leave it alone: the one at `NATS_URL`, else one of their own. */
export async function openNats(): Promise<Pick<Nats, "url" | "close">> {
  const { NATS_URL: url } = process.env;
  return url === undefined ? startNats() : { url, close: async () => {} };
}

/** How a server has JetStream: in a domain, or not at all. */
export interface NatsKind {
  readonly jetstream?: boolean;
  readonly domain?: string;
}

/** Starts a server on a free port of loopback, with JetStream unless told otherwise; `config` is more of its configuration. */
export async function startNats(config = "", { jetstream = true, domain }: NatsKind = {}): Promise<Nats> {
  const folder = mkdtempSync(join(tmpdir(), "limber-nats-"));
  const file = join(folder, "nats.conf");
  const store = `jetstream { store_dir: "${folder}/jetstream"${domain === undefined ? "" : `, domain: ${domain}`} }`;
  writeFileSync(file, `${jetstream ? store : ""}\n${config}`);
  let server = await launch(["-c", file, "-a", "127.0.0.1", "-p", "-1"]);
  const { port } = server;
  const kill = (): Promise<void> => server.kill();
  return {
    url: `nats://127.0.0.1:${port}`,
    kill,
    async start() {
      server = await launch(["-c", file, "-a", "127.0.0.1", "-p", port]);
    },
    async wipe() {
      await kill();
      rmSync(join(folder, "jetstream"), { recursive: true, force: true });
    },
    async close() {
      await kill();
      if (existsSync(folder)) rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A server that runs. */
export interface LaunchedNats {
  readonly port: string;
  /** Its log so far. */
  said(): string;
  /** Ends it at once, as a crash would. */
  kill(): Promise<void>;
}

/** Starts a server and waits until it's ready; it says itself which port it has. */
export async function launch(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<LaunchedNats> {
  const child = spawn(natsServer(), args, { stdio: ["ignore", "ignore", "pipe"], env: { ...process.env, ...env } });
  const orphan = (): void => void child.kill("SIGKILL");
  process.once("exit", orphan);
  let said = "";
  const had = await new Promise<string>((resolve, reject) => {
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said += text;
      const own = /Listening for client connections on \S+:(\d+)/.exec(said)?.[1];
      if (own !== undefined && said.includes("Server is ready")) resolve(own);
    });
    child.once("error", reject);
    child.once("exit", () => {
      process.off("exit", orphan);
      reject(new Error(`nats-server ended: ${said}`));
    });
  });
  return {
    port: had,
    said: () => said,
    async kill() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const gone = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGKILL");
      await gone;
    },
  };
}

/** One event as it came. */
export interface Heard {
  readonly subject: string;
  readonly contentType: string;
  readonly messageId: string;
  readonly event: Event;
}

const heardOf = ({ subject, headers, data }: Msg): Heard => ({
  subject,
  contentType: headers?.get("content-type") ?? "",
  messageId: headers?.get("Nats-Msg-Id") ?? "",
  event: fromBinary(EventSchema, data),
});

/** A subscriber that stays, however often the server comes and goes. */
export interface Subscriber {
  /** Everything that was told since it came. */
  readonly heard: Heard[];
  /** Rejects while it isn't connected. */
  connected(): Promise<void>;
  close(): Promise<void>;
}

/** Listens to `subject` from now on. */
export async function hear(url: string, subject: string, token?: string): Promise<Subscriber> {
  const connection = await connect({
    servers: url,
    ...(token !== undefined && { token }),
    maxReconnectAttempts: -1,
    reconnectTimeWait: 50,
    reconnectJitter: 0,
  });
  const heard: Heard[] = [];
  connection.subscribe(subject, { callback: (_, message) => void heard.push(heardOf(message)) });
  await connection.flush();
  return { heard, connected: () => connection.flush(), close: () => connection.close() };
}

const STREAM = { name: "LIMBER", subjects: ["limber.v1.>"], storage: "file", retention: "limits", num_replicas: 1 };

/** Makes a stream that keeps every event in files, or as `more` of its configuration says. */
export const makeStream = (url: string, more: object = {}): Promise<void> => askStream(url, "CREATE", more);

/** Gives the stream another configuration. */
export const changeStream = (url: string, more: object): Promise<void> => askStream(url, "UPDATE", more);

const askStream = (url: string, what: "CREATE" | "UPDATE", more: object): Promise<void> =>
  withConnection(url, async (connection) => {
    const answer = await connection.request(`$JS.API.STREAM.${what}.LIMBER`, JSON.stringify({ ...STREAM, ...more }));
    const { error } = answer.json<{ error?: { description: string } }>();
    if (error) throw new Error(error.description);
  });

/** The ids of the events that the stream holds, in its order. */
export const streamed = (url: string): Promise<string[]> =>
  withConnection(url, async (connection) => {
    const ask = async (what: string, body = {}) =>
      (await connection.request(`$JS.API.STREAM.${what}.LIMBER`, JSON.stringify(body))).json<StreamAnswer>();
    const { messages = 0 } = (await ask("INFO")).state ?? {};
    const ids: string[] = [];
    for (let seq = 1; seq <= messages; seq++) {
      const { message } = await ask("MSG.GET", { seq });
      ids.push(fromBinary(EventSchema, Buffer.from(message?.data ?? "", "base64")).id);
    }
    return ids;
  });

interface StreamAnswer {
  readonly state?: { messages: number };
  readonly message?: { data: string };
}

async function withConnection<T>(url: string, work: (connection: NatsConnection) => Promise<T>): Promise<T> {
  const connection = await dial(url);
  return work(connection).finally(() => connection.close());
}
