/** Limits for WebSocket messages, beside their size. */

/**
 * The pieces of an unfinished message: as they were read from the socket, and as its sender cut it. `ws` takes each off the front of an array,
 * and allows 262,144 of the former, which holds the event loop for a hundred seconds; these take a tenth of one.
 */
export const WEBSOCKET_PIECES = { maxBufferedChunks: 32_768, maxFragments: 16_384 } as const;
