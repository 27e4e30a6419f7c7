/**
 * The gateway's own sample images, which need no upload: a frame's `url` may be one of these paths, and the same path shows the image in a
 * browser. Nothing is fetched for it, so the guard of user-given addresses does not apply.
 */

/** A gray image of 224 by 224 pixels with a red square: PNG in base64, by path. */
const SAMPLES: Readonly<Record<string, string>> = {
  "/samples/red-square.png":
    "iVBORw0KGgoAAAANSUhEUgAAAOAAAADgAgMAAABnQ4JyAAAABlBMVEWAgIDcFBRXj2TCAAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAM0lEQVRo3u3LIQEAMAgAMAwNef8qdxgCINj8IgAAYMjXShRFURRFUTwSAQAAAAAAANjzAbOppRBG9S4VAAAAAElFTkSuQmCC",
};

/** The encoded images, by path. */
export const samplePictures: ReadonlyMap<string, Buffer> = new Map(
  Object.entries(SAMPLES).map(([path, base64]) => [path, Buffer.from(base64, "base64")]),
);

const LONGEST = Math.max(...Object.keys(SAMPLES).map(({ length }) => length));

/** The encoded image of a frame's `url`; undefined if it does not name a sample. */
export const samplePicture = (url: string): Buffer | undefined =>
  url.length > LONGEST ? undefined : samplePictures.get(url); // a data URL of megabytes would be hashed
