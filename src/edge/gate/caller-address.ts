/** From which address a call comes, as limits count it that nobody's key bears. */
import { BlockList, isIP } from "node:net";

/** Proxies of the operator's own, by address. */
export type Proxies = BlockList;

/** Proxies from addresses and networks, such as `10.0.0.1` and `10.0.0.0/8`. Throws for what is neither. */
export function proxiesOf(words: readonly string[]): Proxies {
  const list = new BlockList();
  for (const word of words) {
    const [address = "", prefix] = word.split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    list.addSubnet(address, prefix === undefined ? (family === "ipv6" ? 128 : 32) : Number(prefix), family);
  }
  return list;
}

/**
 * The address that a call is counted by: the one that connected, or, where that is a trusted proxy, the last one in `X-Forwarded-For`
 * that none of them is. What stands before it was written by the caller. A host with one address of IPv6 has all of its /64.
 */
export function callerAddress(connected: string, forwarded: string | undefined, proxies: Proxies): string {
  const hops = [...(forwarded ?? "").split(",").map((hop) => hop.trim()), connected].map(plainAddress);
  let at = hops.length - 1;
  while (at > 0 && isTrusted(hops[at] ?? "", proxies) && isIP(hops[at - 1] ?? "") !== 0) at--;
  return householdOf(hops[at] ?? "");
}

/** What an address that connected is charged as, where it costs more than it asks; undefined for a trusted proxy, which all callers share. */
export function chargedAs(connected: string, proxies: Proxies): string | undefined {
  const address = plainAddress(connected);
  return isTrusted(address, proxies) ? undefined : householdOf(address);
}

const plainAddress = (address: string): string => address.replace(/^::ffff:(?=\d+\.)/i, "").replace(/%.*$/, "");

function isTrusted(address: string, proxies: Proxies): boolean {
  const family = isIP(address);
  return family !== 0 && proxies.check(address, family === 6 ? "ipv6" : "ipv4");
}

function householdOf(address: string): string {
  if (!address.includes(":")) return address;
  const [head = "", tail] = address.split("::");
  const first = head.split(":").filter(Boolean);
  const last = (tail ?? "").split(":").filter(Boolean);
  const whole = [...first, ...Array(Math.max(0, 8 - first.length - last.length)).fill("0"), ...last];
  return whole.slice(0, 4).join(":");
}
