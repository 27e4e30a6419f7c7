/** What the probe shows and says. */
/** Where the red square is. */
export const SQUARE = { x: 0.75, y: 0.25 };
/** Where it is when it has to be found anew. */
export const ELSEWHERE = { x: 0.3, y: 0.6 };
/** What a robot is to do about it. */
export const INSTRUCTION = "reach the red square";
/** Calls by which a figure is more than chance. */
export const WARM_CALLS = 3;
