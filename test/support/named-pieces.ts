/**
 * Files that say themselves which pieces of the fast layer their gateways have, or that start gateways of their own: a run without the fast
 * layer would repeat them as they are, so `npm run test:plain` leaves them out. In one of them no gateway can be opened with the run's pieces.
 */
export const NAMES_ITS_PIECES: readonly string[] = [
  "test/edge/bodies.test.ts",
  "test/slow/memory/body-memory.test.ts",
  "test/nightly/fast/fast-http1.test.ts",
  "test/edge/grpc-behaviour.test.ts",
  "test/edge/grpc.test.ts",
  "test/edge/late-body.test.ts",
  "test/edge/pipelining.test.ts",
  "test/slow/process/resets.test.ts",
  "test/nightly/fast/switches.test.ts",
  "test/edge/unread.test.ts",
];
