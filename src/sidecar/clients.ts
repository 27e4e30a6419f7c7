/** The connections of LeRobot's clients, and which of them a client has lost that comes back without a handshake. */
import type { Http2Session } from "node:http2";
import { after } from "../clock.ts";

/** A client that has made no handshake on its connection, where none of an earlier one can stand for it. */
export class NotSetUp extends Error {
  override readonly name = "NotSetUp";
  /** Whether the connection has not been notified yet. */
  readonly isFirst: boolean;

  constructor(message: string, isFirst: boolean) {
    super(message);
    this.isFirst = isFirst;
  }
}

/** What is known of a connection's client. */
interface LerobotClient {
  readonly isSetUp: boolean;
}

/** How long a connection may take to answer a ping before it counts as lost. */
const PING_MS = 1_000;
/** How long a client waits between a refusal that asks for a handshake and its next request. */
const PAUSE_MS = 100;
/** Lost connections that are remembered. */
const MOST_LOST = 16;

/** Clients by their connections. */
export class LerobotClients<C extends LerobotClient> {
  readonly #open = new Map<Http2Session, C>();
  /** Where each client comes from: one returns from the same machine. */
  readonly #addresses = new WeakMap<C, string>();
  /** Clients that were set up, have lost their connections, and did not come back. */
  #lost: C[] = [];
  readonly #told = new WeakSet<C>();

  /** A connection was made. */
  opened(session: Http2Session, client: C): void {
    this.#open.set(session, client);
    this.#addresses.set(client, session.socket?.remoteAddress ?? "");
    session.once("close", () => this.#close(session));
  }

  /** The client of a connection. */
  of(session: Http2Session): C | undefined {
    return this.#open.get(session);
  }

  /** Records a handshake; lost clients of the same machine are no longer expected back. */
  supersede(client: C): void {
    this.#lost = this.#lost.filter((each) => !this.#isNear(each, client));
  }

  /** The one client that was set up, and whose connection this client has lost. Rejects with NotSetUp where there is none, or more than one. */
  async lostBy(client: C): Promise<C> {
    await this.#closeDead(client);
    const lost = this.#lost.filter((each) => this.#isNear(each, client));
    const [only] = lost;
    if (only !== undefined && lost.length === 1) {
      this.#lost = this.#lost.filter((each) => each !== only);
      return only;
    }
    const isFirst = !this.#told.has(client);
    this.#told.add(client);
    await new Promise<void>((resolve) => void after(PAUSE_MS, resolve));
    const why = lost.length === 0 ? "no client was set up here before" : "several clients lost their connections";
    throw new NotSetUp(`call Ready and SendPolicyInstructions first: ${why}`, isFirst);
  }

  /** Ends connections that do not answer: of a broken network only one side may know. */
  async #closeDead(client: C): Promise<void> {
    const others = [...this.#open].filter(([, each]) => each !== client && each.isSetUp && this.#isNear(each, client));
    await Promise.all(
      others.map(async ([session]) => {
        if (await isAlive(session)) return;
        this.#close(session);
        session.destroy();
      }),
    );
  }

  #close(session: Http2Session): void {
    const client = this.#open.get(session);
    this.#open.delete(session);
    if (!client?.isSetUp) return;
    this.#lost = [...this.#lost, client].slice(-MOST_LOST);
  }

  #isNear(one: C, other: C): boolean {
    return this.#addresses.get(one) === this.#addresses.get(other);
  }
}

/** Whether the peer of a connection answers a ping. */
function isAlive(session: Http2Session): Promise<boolean> {
  if (session.destroyed || session.closed) return Promise.resolve(false);
  return new Promise((resolve) => {
    const forget = after(PING_MS, () => resolve(false));
    // Not sent where others are under way: then it is not known to be dead.
    const isSent = session.ping((error) => {
      forget();
      resolve(error === null);
    });
    if (isSent) return;
    forget();
    resolve(!session.destroyed);
  });
}
