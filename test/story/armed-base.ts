/**
 * The base of `base-nav`, attending at a gateway until an agent has driven it: `LIMBER_KEY=… node test/story/armed-base.ts URL NAME`. It prints
 * a line of JSON when it attends, with a picture of where to go, and one with the record of its episode. For agents in other languages.
 */
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import { attendBase } from "../support/armed-base.ts";

const [url, name] = process.argv.slice(2);
const { LIMBER_KEY: key } = process.env;
if (url === undefined || name === undefined || key === undefined)
  throw new Error("LIMBER_KEY=… node test/story/armed-base.ts URL NAME");

const base = await attendBase({ url }, key, name);
await base.attends;
const picture = `data:image/png;base64,${(await redSquare(0.7, 0.3)).toString("base64")}`;
console.log(JSON.stringify({ attends: name, picture }));
const { success, termination, policyCalls } = await base.drive();
console.log(JSON.stringify({ success, termination, policyCalls }));
// It attends on, so that it is the agent that ends its run.
process.stdin.once("end", () => base.leave()).resume();
