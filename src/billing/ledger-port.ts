/** What a till needs of a ledger. The store fulfils it; `I` and `S` are the store's records of a promise and of its end. */

/** Takes credit into a lease: `need` at least, `asked` for the calls that wait, up to `want` while there is plenty. In micro-dollars. */
export interface Take {
  kind: "take";
  /** Names the ledger's row, so that a repeated batch is recognised. */
  entry: string;
  lease: string;
  org: string;
  key: string;
  /** The UTC day whose budget it counts against, `YYYY-MM-DD`. */
  day: string;
  need: number;
  asked: number;
  want: number;
}

/** Returns `amount` micro-dollars of a lease; `answers` a recall, even with nothing. */
export interface Return {
  kind: "return";
  entry: string;
  lease: string;
  org: string;
  amount: number;
  answers: boolean;
}

/** Ends a lease: whatever is left of it is returned. */
export interface End {
  kind: "end";
  entry: string;
  lease: string;
  org: string;
}

/** Credit that moves into or out of a lease. */
export type Move = Take | Return | End;

/** What is committed together. A batch of one number is applied once, however often it is sent. */
export interface Batch<I, S> {
  number: number;
  intents: I[];
  settlements: { lease: string | null; record: S }[];
  /** The batches whose intents have all ended with this one. */
  over: number[];
  moves: Move[];
}

/** A take that succeeded. */
export interface Grant {
  entry: string;
  grantedMicro: number;
}

/** A take that did not. */
export interface Short {
  entry: string;
  short: "org_credits" | "workspace_budget" | "key_budget";
  /** Of a key's budget: the key whose it is, which is the payer's own or one that it descends from. */
  holder: string | null;
  /** What is there. */
  roomMicro: number;
  /** When the budget is renewed, in unix seconds. */
  resetsAt: number | null;
  /** Leases of other tills hold credit that would count. */
  heldElsewhere: boolean;
  /** Other tills were asked for it and have not answered yet. */
  recalled: boolean;
}

/** How a batch ended: committed, written by a till that was fenced (nothing was applied), or refused for what is in it (likewise). */
export type BatchOutcome =
  | { kind: "done"; takes: (Grant | Short)[]; recalled: string[] }
  | { kind: "fenced" }
  | { kind: "refused"; cause: unknown };

/** A ledger. */
export interface LedgerPort<I, S> {
  /** Opens a till, after recovering what its replica's earlier ones left; answers its name. */
  open(): Promise<string>;
  /** Commits a batch. Rejects when it isn't known whether it was; then the same batch is sent again. */
  commit(till: string, batch: Batch<I, S>): Promise<BatchOutcome>;
  /** Asks the other tills for what is idle in their leases of an organisation, or of one key of it and its descendants. */
  recall(till: string, orgId: string, keyId: string | null): Promise<void>;
  /** Recovers what dead tills left. */
  recover(): Promise<void>;
  /** Hears of recalls and of returned credit, by organisation, until the returned function is called. */
  listen(heard: { wanted(orgId: string): void; returned(orgId: string): void }): () => void;
}
