/** Waits for a fact. */
import { setTimeout as rest } from "node:timers/promises";

const STUCK_MS = 90_000;

/** Resolves when it holds; rejects when it doesn't within `mostMs`. */
export async function until(what: string, fact: () => Promise<boolean>, mostMs = STUCK_MS): Promise<void> {
  const end = performance.now() + mostMs;
  while (!(await fact())) {
    if (performance.now() > end) throw new Error(`waited ${mostMs / 1000} s for ${what}`);
    await rest(20);
  }
}
