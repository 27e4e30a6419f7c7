/** Limits for WebSocket messages, beside their size. */

/**
 * The maximum number of pieces of an unfinished message, as socket reads and as fragments. `ws` removes each from the front of an array, and
 * allows 262,144 reads, which block the event loop for 100 s; this limit blocks it for 0.1 s.
 */
export const WEBSOCKET_PIECES = { maxBufferedChunks: 32_768, maxFragments: 16_384 } as const;
