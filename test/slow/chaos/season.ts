/** `npm run chaos season [ITEMS] [EPISODES]`: a batch, an evaluation of every scenario, a kill in the middle of each, and who heard of it. */
import { tell } from "./findings.ts";
import { liveThrough } from "./season/season.ts";

const items = Number(process.argv[2] ?? 200);
const episodes = Number(process.argv[3] ?? 50);
if (!Number.isSafeInteger(items) || items < 1 || !Number.isSafeInteger(episodes) || episodes < 1) {
  console.error("usage: npm run chaos season [ITEMS] [EPISODES]");
  process.exit(2);
}
const { wrong, ...figures } = await liveThrough({ items, episodes, progress: (line) => console.log(line) });
process.exit(tell("season", items, figures, wrong));
