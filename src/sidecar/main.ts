/** `npx limber lerobot --listen 127.0.0.1:8081`: LeRobot's server on the robot, in front of a gateway. */
import { parseArgs } from "node:util";
import { readSidecarConfig } from "../config.ts";
import { serveLerobot } from "./lerobot.ts";

const log = (text: string): void => console.error(`limber: ${text}`);

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      listen: { type: "string", default: "127.0.0.1:8080" },
      "action-space": { type: "string" },
      preset: { type: "string" },
      robot: { type: "string" },
    },
  });
  const { gateway, key } = readSidecarConfig();
  const at = values.listen.lastIndexOf(":");
  const host = values.listen.slice(0, at);
  const server = await serveLerobot({
    host,
    port: Number(values.listen.slice(at + 1)),
    gateway,
    key,
    actionSpace: values["action-space"],
    preset: values.preset,
    robotId: values.robot,
    log,
  });
  console.log(`limber lerobot ready ${host}:${server.port}`);
  const close = (): void => void server.close().then(() => process.exit(0));
  process.on("SIGTERM", close);
  process.on("SIGINT", close);
}

/** Says in a line or two why it can't serve. */
function end(thrown: unknown): never {
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  for (const line of text.split("\n")) log(line);
  if (/EADDRINUSE/.test(text)) log("the address is in use, possibly by the gateway; choose another one with --listen");
  process.exit(1);
}

main().catch(end);
