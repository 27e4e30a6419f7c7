/** Several listeners on one port, and what happens to connections that wait in the kernel while the gateway sheds load. */
import { createServer, type Server } from "node:net";
import { steadyNow } from "../../clock.ts";

/**
 * libuv accepts one connection per listener and event loop turn, and Linux distributes connections among listeners (`SO_REUSEPORT`). With a
 * single one, a health check would wait behind hundreds of new connections. With many more, new connections would take most of an overloaded CPU.
 */
const LISTENERS = 31;
/**
 * While the gateway sheds load, a listener whose queue was not empty for this long is replaced by a new one, and the kernel resets what waited
 * at the old one. That costs about a twentieth of a connection that is accepted, and the clients know at once.
 */
const STANDING_MS = 800;

interface Listener {
  server: Server;
  /** Whether it accepted a connection in this turn. */
  hasAccepted: boolean;
  /** Since when it accepted one in every turn; undefined if its queue was empty. */
  standingSince: number | undefined;
}

/** Listeners beside a server's own on the same port. */
export class MoreListeners {
  readonly #accept: (socket: unknown) => void;
  readonly #isShedding: () => boolean;
  readonly #listeners: Listener[] = [];
  /** All that have open connections, those that were replaced included. */
  readonly #open = new Set<Promise<unknown>>();
  #at = { host: "", port: 0 };
  #isWatching = false;
  #isClosed = false;

  /** `accept` gets each connection, `isShedding` tells whether the gateway refuses calls. */
  constructor(accept: (socket: unknown) => void, isShedding: () => boolean) {
    this.#accept = accept;
    this.#isShedding = isShedding;
  }

  /** Listens on the address that the server listens on. */
  async open(host: string, port: number): Promise<void> {
    this.#at = { host, port };
    for (let i = 0; i < LISTENERS; i++) {
      const listener: Listener = { server: this.#create(() => listener), hasAccepted: false, standingSince: undefined };
      this.#listeners.push(listener);
    }
    await Promise.all(this.#listeners.map(({ server }) => this.#listen(server)));
  }

  /** Accepts nothing more; resolves when every accepted connection has ended. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const { server } of this.#listeners) this.#end(server);
    await Promise.all(this.#open);
  }

  #create(listener: () => Listener): Server {
    return createServer({ allowHalfOpen: true, noDelay: true, keepAlive: true }, (socket) => {
      const accepting = listener();
      accepting.hasAccepted = true;
      if (!this.#isWatching) setImmediate(this.#endTurn);
      this.#isWatching = true;
      this.#accept(socket);
    });
  }

  #listen(server: Server): Promise<void> {
    return new Promise((resolve, reject) => {
      server.once("error", reject);
      // An error while accepting a connection belongs to no call.
      server.on("listening", () => server.on("error", () => undefined));
      server.listen({ ...this.#at, reusePort: true, exclusive: true }, resolve);
    });
  }

  #end(server: Server): void {
    const ended = new Promise((resolve) => server.close(resolve));
    this.#open.add(ended);
    void ended.then(() => this.#open.delete(ended));
  }

  /** Continues in the next turn if connections were accepted in this one, for that turn to show which queues are empty. */
  readonly #endTurn = (): void => {
    const at = steadyNow();
    const isShedding = this.#isShedding();
    this.#isWatching = false;
    for (const listener of this.#listeners) {
      if (!listener.hasAccepted) listener.standingSince = undefined;
      else {
        this.#isWatching = true;
        listener.standingSince ??= at;
        if (isShedding && at - listener.standingSince >= STANDING_MS) void this.#replace(listener);
      }
      listener.hasAccepted = false;
    }
    if (this.#isWatching) setImmediate(this.#endTurn);
  };

  async #replace(listener: Listener): Promise<void> {
    listener.standingSince = undefined;
    const old = listener.server;
    const next = this.#create(() => listener);
    try {
      await this.#listen(next);
    } catch {
      return; // for example without a free file descriptor: the old one continues
    }
    if (this.#isClosed) {
      next.close();
      return;
    }
    listener.server = next;
    this.#end(old);
  }
}
