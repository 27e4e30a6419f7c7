/** Waiting for facts that come about by themselves. */
import { vi } from "vitest";

/** Far more than any machine needs: how soon a fact comes about is for benchmarks to say. */
const PATIENCE = { timeout: 60_000, interval: 20 };

/** What `fact` answers once it no longer throws; rejects with what it threw last when it never stops. Work that takes long has a `timeout` of its own, in ms. */
export const eventually = <T>(
  fact: () => T | Promise<T>,
  own: { timeout?: number; interval?: number } = {},
): Promise<T> => vi.waitFor(fact, { ...PATIENCE, ...own });
