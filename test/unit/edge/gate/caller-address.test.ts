/** Which address a call is counted by. */

import { describe, expect, it } from "vitest";
import { callerAddress, proxiesOf } from "../../../../src/edge/gate/authenticate.ts";

const PROXIES = proxiesOf(["10.0.0.0/8", "192.0.2.7", "fd00::/8"]);

describe("the caller's address for limits", () => {
  it.each([
    ["203.0.113.9", undefined, "203.0.113.9"],
    ["203.0.113.9", "198.51.100.1", "203.0.113.9"],
    ["10.1.2.3", "198.51.100.1", "198.51.100.1"],
    ["::ffff:10.1.2.3", "198.51.100.1", "198.51.100.1"],
    ["fd00::1", "198.51.100.1", "198.51.100.1"],
    ["10.1.2.3", "1.1.1.1, 198.51.100.1", "198.51.100.1"],
    ["10.1.2.3", "1.1.1.1, 198.51.100.1, 192.0.2.7, 10.9.9.9", "198.51.100.1"],
    ["192.0.2.8", "198.51.100.1", "192.0.2.8"],
    ["10.1.2.3", undefined, "10.1.2.3"],
    ["10.1.2.3", "", "10.1.2.3"],
    ["10.1.2.3", "unknown", "10.1.2.3"],
    ["10.1.2.3", "198.51.100.1, garbage", "10.1.2.3"],
    ["10.1.2.3", "10.4.4.4", "10.4.4.4"],
    ["10.1.2.3", "2001:db8:1:2:3::4", "2001:db8:1:2"],
    ["2001:db8::1", undefined, "2001:db8:0:0"],
    ["fe80::1%eth0", undefined, "fe80:0:0:0"],
    ["", undefined, ""],
  ])("of %s that forwards for %s is %s", (connected, forwarded, counted) => {
    expect(callerAddress(connected, forwarded, PROXIES)).toBe(counted);
  });
});
