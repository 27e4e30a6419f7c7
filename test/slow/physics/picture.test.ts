/** Pictures of scenarios: what has a colour of its own, of a material or of a texture is seen in it, and what only collides is not. */
import { expect, it } from "vitest";
import { World } from "../../../src/scenarios/engine.ts";
import { takePicture } from "../../../src/scenarios/picture.ts";

/** The colour of the one pixel of a camera that looks straight down on a thing. */
async function seen(geom: string): Promise<number[]> {
  const world = await World.of(`<mujoco><size memory="1M"/>
    <asset>
      <texture name="checks" type="2d" builtin="checker" rgb1="1 0 0" rgb2="0 0 1" width="64" height="64"/>
      <texture name="leaf" type="cube" builtin="flat" rgb1="0 1 0" rgb2="0 1 0" width="8" height="8"/>
      <material name="sea" rgba="0 0 1 1"/><material name="checked" texture="checks"/>
      <material name="dark-leaf" texture="leaf" rgba=".5 .5 .5 1"/>
    </asset>
    <worldbody><camera name="down" pos="0 0 2"/><geom type="box" size="1 1 .1" rgba="1 1 1 1"/>${geom}</worldbody></mujoco>`);
  try {
    return Array.from(takePicture(world, { name: "down", width: 1, height: 1 }).rgb);
  } finally {
    world.close();
  }
}

const box = (facts: string): string => `<geom type="box" size=".5 .5 .1" pos="0 0 .5" ${facts}/>`;

it.each([
  ["its own color", 'rgba="1 0 0 1"', [1, 0, 0]],
  ["its material's color", 'material="sea"', [0, 0, 1]],
  ["its own color before its material's", 'material="sea" rgba="1 1 0 1"', [1, 1, 0]],
  ["the mean of its texture", 'material="checked"', [0.5, 0, 0.5]],
  ["the texture tinted by its material", 'material="dark-leaf"', [0, 0.5, 0]],
  ["gray without any color", "", [0.5, 0.5, 0.5]],
  ["nothing of a transparent object", 'rgba="1 0 0 0"', [1, 1, 1]],
  ["nothing of an object that only collides", 'rgba="1 0 0 1" group="3"', [1, 1, 1]],
])("a rendered picture shows %s", async (_, facts, colour) => {
  const rgb = await seen(box(facts));
  const [white] = await seen("");
  for (const [i, part] of colour.entries()) expect(Math.abs(rgb[i]! - white! * part)).toBeLessThanOrEqual(2);
});
