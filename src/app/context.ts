/** What every subsystem of a process is opened with. */
import type { Logger } from "pino";
import type { Config } from "../config.ts";
import type { Closers } from "./closers.ts";
import type { ParentLink } from "./processes/child.ts";

/** The process that subsystems are opened for. */
export interface AppContext {
  readonly config: Config;
  readonly log: Logger;
  /** Names this process among all. */
  readonly replica: string;
  /** A subsystem adds here what ends it; what was opened last closes first. */
  readonly closers: Closers;
  /** The process that accepts the connections of this one; undefined for a process that stands alone. */
  readonly parent: ParentLink | undefined;
}
