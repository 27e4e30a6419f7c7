/** Servers whose connections another process accepts and hands over. */
import { mkdtempSync, rmSync } from "node:fs";
import type { Server, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A path where a server can listen that nobody finds: Node starts a server's own watches, and ends them, with its listening alone. */
export async function listenUnseen(listen: (path: string) => Promise<unknown>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "limber-handed-"));
  try {
    await listen(join(folder, "socket"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The same for a server of Node's own. */
export const listenHanded = (server: Server): Promise<void> =>
  listenUnseen(
    (path) =>
      new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen({ path, exclusive: true }, () => {
          server.off("error", reject).on("error", () => undefined);
          resolve();
        });
      }),
  );

/** Gives a server a connection that another process accepted. What comes by a channel between processes has lost how it was to be treated. */
export function hand(server: Server, socket: Socket): void {
  socket.allowHalfOpen = true;
  socket.setNoDelay(true);
  socket.setKeepAlive(true);
  server.emit("connection", socket);
}
