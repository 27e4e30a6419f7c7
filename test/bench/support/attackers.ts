/** Those who abuse a port, in a process of their own: `slow PORT COUNT` dribbles heads, `reset PORT COUNT` opens and resets streams. */
import { constants } from "node:http2";
import { connect } from "node:net";
import { FRAME, frame, HELLO, request, uint32 } from "../../support/wire-client.ts";

const [kind, port, count] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const DRIBBLE_MS = 2_000;
const AT_ONCE = 500;

const FLOOD = Buffer.concat(
  Array.from({ length: 500 }, (_, i) => {
    const stream = 2 * i + 1;
    return Buffer.concat([
      request(stream, "/v1/act", { method: "POST", end: false }),
      frame(FRAME.reset, 0, stream, uint32(constants.NGHTTP2_CANCEL)),
    ]);
  }),
);

let opened = 0;
let closed = 0;

/** One that is closed after it was slow; a later one takes no place of it. */
function slow(): void {
  const socket = connect(port, "127.0.0.1", () => {
    opened++;
    socket.write("POST /v1/act HTTP/1.1\r\n");
    const dribble = setInterval(() => socket.writable && socket.write("x"), DRIBBLE_MS);
    socket.once("close", () => clearInterval(dribble));
  });
  socket.on("error", () => undefined).resume();
  socket.once("close", () => closed++);
}

/** One that floods, is closed, and comes again at once. */
function reset(): void {
  const socket = connect(port, "127.0.0.1", () => {
    opened++;
    socket.write(Buffer.concat([HELLO, FLOOD]));
  });
  socket.on("error", () => undefined).resume();
  socket.once("close", () => {
    closed++;
    reset();
  });
}

for (let i = 0; i < count; i++) {
  if (kind === "slow") slow();
  else reset();
  if (i % AT_ONCE === AT_ONCE - 1) await new Promise((resolve) => setTimeout(resolve, 50));
}
console.log("ready");
setInterval(() => console.log(JSON.stringify({ opened, closed })), 500);
process.on("SIGTERM", () => process.exit(0));
