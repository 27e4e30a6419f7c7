/** Where the red thing of a picture is: what a model that looks would find. */
import sharp from "sharp";

/** The centre of all that is red, between 0 and 1, in steps of one of so many parts; undefined where nothing is. */
export async function centreOfRed(picture: Uint8Array, parts = 100): Promise<{ x: number; y: number } | undefined> {
  const { data, info } = await sharp(picture).removeAlpha().raw().toBuffer({ resolveWithObject: true });
  let [count, x, y] = [0, 0, 0];
  for (let i = 0; i < data.length; i += 3) {
    if (data[i]! < 180 || data[i + 1]! > 80) continue;
    count++;
    x += (i / 3) % info.width;
    y += Math.floor(i / 3 / info.width);
  }
  const part = (sum: number, side: number): number => Math.round((parts * sum) / count / side) / parts;
  return count === 0 ? undefined : { x: part(x, info.width), y: part(y, info.height) };
}
