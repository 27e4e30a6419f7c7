/** What is said of an address or a port that can't be listened at. */
import { ConfigError } from "../config.ts";

/** Why nothing can listen at an address, by the error's code. */
const PORT_FAULTS: Readonly<Record<string, string>> = {
  EADDRINUSE: "something else listens there",
  EACCES: "this account may not listen there",
};
const HOST_FAULTS: Readonly<Record<string, string>> = {
  EADDRNOTAVAIL: "this machine has no such address",
  ENOTFOUND: "no address has this name",
  EAI_AGAIN: "the name servers do not answer",
  EINVAL: "it is no address of this machine",
};

/** Listens; what the system refuses is thrown as a `ConfigError` that names the setting. */
export async function naming<T>(
  at: { setting: string; host: string; port: number },
  listen: () => Promise<T>,
): Promise<T> {
  try {
    return await listen();
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
    const ofHost = HOST_FAULTS[code];
    if (ofHost !== undefined) throw new ConfigError([`HOST ${at.host} can't be listened at: ${ofHost}`]);
    const ofPort = PORT_FAULTS[code];
    if (ofPort !== undefined)
      throw new ConfigError([`${at.setting} ${at.port} on ${at.host} can't be listened at: ${ofPort}`]);
    throw cause;
  }
}
