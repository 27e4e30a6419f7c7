/** A receiver of posts that answers with bytes of a test's own: what no HTTP server would say can be said. */
import { type AddressInfo, createServer, type Socket } from "node:net";

/** One post as it came. */
export interface RawPost {
  readonly path: string;
  /** Its header `webhook-id`. */
  readonly id: string;
  readonly body: string;
  /** The connection it came by, counted from 0. */
  readonly connection: number;
  readonly socket: Socket;
}

/** The server. */
export interface RawReceiver {
  readonly url: string;
  readonly posts: readonly RawPost[];
  /** Answers what comes from now on; `undefined` says nothing. */
  answer(answering: (post: RawPost) => string | undefined): void;
  close(): Promise<void>;
}

/** A good answer in its plainest form. */
export const TAKEN = "HTTP/1.1 204 No Content\r\n\r\n";

/** Starts it; it answers with `TAKEN`. */
export async function startRawReceiver(): Promise<RawReceiver> {
  const posts: RawPost[] = [];
  const sockets = new Set<Socket>();
  let answering: (post: RawPost) => string | undefined = () => TAKEN;
  let connections = 0;
  const server = createServer((socket) => {
    const connection = connections++;
    let bytes = Buffer.alloc(0);
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
    socket.on("data", (chunk) => {
      bytes = Buffer.concat([bytes, chunk]);
      for (;;) {
        const end = bytes.indexOf("\r\n\r\n");
        const head = bytes.toString("latin1", 0, end);
        const over = end + 4 + Number(/content-length: (\d+)/i.exec(head)?.[1]);
        if (end < 0 || bytes.length < over) return;
        const post = {
          path: head.split(" ")[1]!,
          id: /webhook-id: (.*)/.exec(head)?.[1] ?? "",
          body: bytes.toString("utf8", end + 4, over),
          connection,
          socket,
        };
        bytes = bytes.subarray(over);
        posts.push(post);
        const answer = answering(post);
        if (answer !== undefined && socket.writable) socket.write(answer, "latin1");
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // a TCP server's address is never a string
  return {
    url: `http://127.0.0.1:${port}`,
    posts,
    answer: (next) => {
      answering = next;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}
