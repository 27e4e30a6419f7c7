/** Reads the environment, opens the house, closes it on SIGTERM or Ctrl-C. */
import { openHouse } from "./app.ts";
import { tuneCollector } from "./collector.ts";
import { ConfigError, readConfig } from "./config.ts";
import { redSquare } from "./upstream/pictures/test-picture.ts";

/** How long calls that run have to end when the house closes. */
const PATIENCE_MS = 10_000;

async function main(): Promise<void> {
  tuneCollector();
  const config = readConfig();
  const house = await openHouse(config);

  // Before anybody is told that it is ready, and may end it.
  let closing = false;
  const close = (): void => {
    if (closing) process.exit(1); // asked twice: at once
    closing = true;
    house.close(PATIENCE_MS).then(
      () => process.exit(0),
      (thrown) => end(thrown),
    );
  };
  process.on("SIGTERM", close);
  process.on("SIGINT", close);

  console.log(`limber ready${house.url === undefined ? "" : ` ${house.url}`}`);
  if (house.demo && house.url) {
    if (config.adminToken === undefined) console.log(`SERVICE_ADMIN_TOKEN=${house.demo.adminToken}`);
    console.log(`LIMBER_KEY=${house.demo.key}`);
    if (house.demo.natsUrl !== undefined) console.log(`NATS_URL=${house.demo.natsUrl}`);
    console.log(`\nTry it:\n${await firstCall(house.url, house.demo.key)}\n`);
  }
}

/** A curl command that works as pasted, with a picture in it. */
async function firstCall(url: string, key: string): Promise<string> {
  const picture = (await redSquare(0.7, 0.3, 64)).toString("base64");
  const body = {
    model: "service/auto",
    instruction: "reach the red square",
    observations: [{ frames: [{ camera: "wrist", url: `data:image/png;base64,${picture}` }] }],
  };
  return `curl -s ${url}/v1/act -H 'authorization: Bearer ${key}' -H 'content-type: application/json' -d '${JSON.stringify(body)}'`;
}

function end(thrown: unknown): never {
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  for (const line of text.split("\n")) console.error(`limber: ${line}`);
  if (!(thrown instanceof ConfigError) && process.argv.includes("--trace") && thrown instanceof Error)
    console.error(thrown.stack);
  process.exit(1);
}

// What is written down of a crash holds no environment, where secrets are, and nothing of an error but its message.
process.report.excludeEnv = true;
process.on("unhandledRejection", end);
process.on("uncaughtException", end);
main().catch(end);
