/** Which numbers a provider's answer may carry, whatever its wire. Each test is false for NaN, infinities, and values that no server can mean. */

const MAX_GPU_SECONDS = 86_400;
const MAX_STEP_MS = 60_000;
const MAX_TOKENS = 10_000_000;
const MAX_SIDE = 16_384;
/** Frames of the longest prediction, each a minute after the one before. */
const MAX_FRAME_MS = 256 * MAX_STEP_MS;
/** Robots and model servers read actions as 32-bit floats, which hold no number from here on. */
const ACTION_LIMIT = 2 ** 128;

/** Accelerator time of one answer, in seconds; 0 where the server did not measure it. */
export const isGpuSeconds = (value: number): boolean => value >= 0 && value <= MAX_GPU_SECONDS;

/** Time between steps in whole milliseconds; 0 where the server did not say. */
export const isStepMs = (value: number): boolean => Number.isInteger(value) && value >= 0 && value <= MAX_STEP_MS;

/** One number of an action, in any unit. */
export const isActionValue = (value: number): boolean => value > -ACTION_LIMIT && value < ACTION_LIMIT;

/** When a predicted frame is, in milliseconds after the last observation. */
export const isFrameMs = (value: number): boolean => value >= 0 && value <= MAX_FRAME_MS;

/** A side of a picture, in pixels. */
export const isSide = (value: number): boolean => Number.isInteger(value) && value >= 1 && value <= MAX_SIDE;

/** Tokens that a model read or wrote. */
export const isTokenCount = (value: number): boolean => Number.isInteger(value) && value >= 0 && value <= MAX_TOKENS;

/** A coordinate in shares of a picture, a confidence, a probability. */
export const isShare = (value: number): boolean => value >= 0 && value <= 1;

/** The place of an entry in a list of `length`. */
export const isIndex = (value: number, length: number): boolean =>
  Number.isInteger(value) && value >= 0 && value < length;
