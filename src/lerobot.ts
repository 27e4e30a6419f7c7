/** `npm run lerobot -- --listen 127.0.0.1:8080`: LeRobot's server on the robot, in front of a gateway. */
import { parseArgs } from "node:util";
import { readSidecarConfig } from "./config.ts";
import { serveLerobot } from "./sidecar/lerobot.ts";

const { values } = parseArgs({
  options: {
    listen: { type: "string", default: "127.0.0.1:8080" },
    "action-space": { type: "string" },
    preset: { type: "string" },
  },
});
const { gateway, key } = readSidecarConfig();
const at = values.listen.lastIndexOf(":");
const server = await serveLerobot({
  host: values.listen.slice(0, at),
  port: Number(values.listen.slice(at + 1)),
  gateway,
  key,
  actionSpace: values["action-space"],
  preset: values.preset,
  log: (text) => console.error(`limber: ${text}`),
});
console.log(`limber lerobot ready ${values.listen.slice(0, at)}:${server.port}`);
const close = (): void => void server.close().then(() => process.exit(0));
process.on("SIGTERM", close);
process.on("SIGINT", close);
