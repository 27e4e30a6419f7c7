/** What a credit leaser needs of a ledger. The store fulfils it; `I` and `S` are the store's records of a promise and of its end. */

/** Takes credit into a lease: `need` at least, `asked` for the calls that wait, up to `want` while there is plenty. In micro-dollars. */
export interface CreditTake {
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
export interface CreditReturn {
  kind: "return";
  entry: string;
  lease: string;
  org: string;
  amount: number;
  answers: boolean;
}

/** Ends a lease: whatever is left of it is returned. */
export interface LeaseEnd {
  kind: "end";
  entry: string;
  lease: string;
  org: string;
}

/** Credit that moves into or out of a lease. */
export type CreditMove = CreditTake | CreditReturn | LeaseEnd;

/** What is committed together. A batch of one number is applied once, however often it is sent. */
export interface CommitBatch<I, S> {
  number: number;
  intents: I[];
  settlements: { lease: string | null; record: S }[];
  /** The batches whose intents have all ended with this one. */
  over: number[];
  moves: CreditMove[];
}

/** A take that succeeded. */
export interface CreditGrant {
  entry: string;
  grantedMicro: number;
}

/** A take that did not. */
export interface CreditShortage {
  entry: string;
  short: "org_credits" | "workspace_budget" | "key_budget";
  /** Of a key's budget: the key that has it, which is the payer's own or one that it descends from. */
  holder: string | null;
  /** What is there. */
  roomMicro: number;
  /** When the budget is renewed, in unix seconds. */
  resetsAt: number | null;
  /** Leases of other credit leasers hold credit that would count. */
  heldElsewhere: boolean;
  /** Other credit leasers were asked for it and have not answered yet. */
  recalled: boolean;
}

/** How a batch ended: committed, written by a credit leaser that was fenced (nothing was applied), or refused for what is in it (likewise). */
export type CommitOutcome =
  | { kind: "done"; takes: (CreditGrant | CreditShortage)[]; recalled: string[] }
  | { kind: "fenced" }
  | { kind: "refused"; cause: unknown };

/** A ledger. */
export interface LedgerPort<I, S> {
  /** Opens a credit leaser, after recovering what its replica's earlier ones left; answers its name. */
  open(): Promise<string>;
  /** Commits a batch. Rejects when it isn't known whether it was; then the same batch is sent again. */
  commit(leaser: string, batch: CommitBatch<I, S>): Promise<CommitOutcome>;
  /** Asks the other credit leasers for what is idle in their leases of an organisation, or of one key of it and its descendants. */
  recall(leaser: string, orgId: string, keyId: string | null): Promise<void>;
  /** Recovers what dead credit leasers left. */
  recover(): Promise<void>;
  /** Hears of recalls and of returned credit, by organisation, until the returned function is called. */
  listen(heard: { wanted(orgId: string): void; returned(orgId: string): void }): () => void;
}
