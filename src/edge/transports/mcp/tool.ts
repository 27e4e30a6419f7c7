/** A tool as `gen/tools.json` has it. */

/** What `tools/list` shows of a tool, and the RPC behind it. */
export interface ToolFacts {
  readonly name: string;
  /** Such as `limber.v1.InferenceService/Act`. */
  readonly rpc: `${string}/${string}`;
  readonly description: string;
  /** JSON Schema of what it takes. */
  readonly inputSchema: Readonly<Record<string, unknown>>;
  /** The protocol's hints: whether it changes something, and what. */
  readonly annotations: Readonly<Record<string, unknown>>;
}
