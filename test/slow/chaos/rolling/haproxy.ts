/** Debian's haproxy before some gateways, as a balancer of connections or of requests. */
import { type ChildProcess, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { installed } from "../../../support/programs.ts";
import { until } from "../jobs/until.ts";

/** Balances connections, which callers keep, or requests. */
export type Mode = "tcp" | "http";

/** A running balancer. */
export interface Haproxy {
  /** Where callers reach it, over HTTP/1.1 and HTTP/2 with prior knowledge. */
  readonly url: string;
  /** How many gateways it sends traffic to. */
  up(): Promise<number>;
  stop(): Promise<void>;
}

/** The program; undefined where it is not installed. */
export const HAPROXY = installed("haproxy");

/** How it looks at a gateway: ten times a second, so that a second is far more than it needs to see that one drains. */
const CHECK = "check inter 100ms fall 2 rise 2";

/** Starts it in `dir` before the gateways that listen on these ports of loopback. */
export async function startHaproxy(
  dir: string,
  mode: Mode,
  port: number,
  gateways: readonly number[],
): Promise<Haproxy> {
  if (HAPROXY === undefined) throw new Error("haproxy is not installed");
  const socket = join(dir, "haproxy.sock");
  const file = join(dir, "haproxy.cfg");
  writeFileSync(file, configOf({ mode, port, gateways, socket }));
  const child: ChildProcess = spawn(HAPROXY, ["-db", "-q", "-f", file], { stdio: ["ignore", "ignore", "pipe"] });
  const orphan = (): void => void child.kill("SIGKILL");
  process.once("exit", orphan);
  let said = "";
  child.stderr!.setEncoding("utf8").on("data", (part: string) => {
    said += part;
  });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const haproxy: Haproxy = {
    url: `http://127.0.0.1:${port}`,
    async up() {
      // One line a server; the backend for gRPC goes by the same checks.
      const lines = (await ask(socket, "show stat")).split("\n").filter((line) => line.startsWith("gateways,g"));
      return lines.filter((line) => line.split(",")[17] === "UP").length;
    },
    async stop() {
      process.off("exit", orphan);
      child.kill("SIGKILL");
      await ended;
    },
  };
  await until(`haproxy: ${said}`, async () => (await haproxy.up().catch(() => 0)) === gateways.length);
  return haproxy;
}

function configOf({
  mode,
  port,
  gateways,
  socket,
}: {
  mode: Mode;
  port: number;
  gateways: readonly number[];
  socket: string;
}): string {
  const servers = (more: (name: string) => string): string =>
    gateways.map((at, i) => `  server g${i} 127.0.0.1:${at} ${more(`g${i}`)}`).join("\n");
  const ready = "  balance roundrobin\n  option httpchk GET /ready\n  http-check expect status 200";
  const grpc = `
  use_backend grpc if { req.hdr(content-type) -m beg application/grpc }
backend grpc
  balance roundrobin
${servers((name) => `proto h2 track gateways/${name}`)}
`;
  return `global
  stats socket ${socket} mode 600 level admin
defaults
  mode ${mode}
  timeout connect 5s
  timeout client 120s
  timeout server 120s
  timeout check 2s
frontend callers
  bind 127.0.0.1:${port}
  default_backend gateways
${mode === "http" ? grpc : ""}
backend gateways
${ready}
${servers(() => CHECK)}
`;
}

/** What its own socket says. */
async function ask(path: string, command: string): Promise<string> {
  const socket = connect(path);
  socket.end(`${command}\n`);
  return text(socket);
}
