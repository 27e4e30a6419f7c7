/** Patches of one colour: which pixels hang together, and what shape they have. */

/** A 1 for every pixel that belongs, row by row. */
export interface Mask {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** A connected patch. The box is in pixels with right and bottom exclusive; (x, y) is a member pixel's centre near the middle. */
export interface Blob {
  readonly area: number;
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
  readonly x: number;
  readonly y: number;
  /** Area over the area of the smallest turned rectangle around it: 1 for a rectangle, 0.79 for a disc, 0.5 for a triangle. */
  readonly fill: number;
  /** Short side over long side of that rectangle. */
  readonly aspect: number;
  /** Area squared over 2π times its second moment: 1 for a disc, 0.95 for a square, less for anything else. */
  readonly roundness: number;
  /** How much its radius varies around the centre, over the mean radius: 0 for a disc, 0.04 for a hexagon, 0.1 for a square. */
  readonly raggedness: number;
  /** Its outermost pixels, as indices into the mask. */
  readonly rim: Int32Array;
  /** Whether it touches the edge of the picture. */
  readonly cut: boolean;
}

/** The mask after filling gaps and dropping specks: a pixel stays where at least 5 of its 3 by 3 square are set. */
export function smooth(mask: Mask): Mask {
  const { width, height } = mask;
  const data = new Uint8Array(width * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      let set = 0;
      for (let j = Math.max(0, y - 1); j <= Math.min(height - 1, y + 1); j++) {
        for (let i = Math.max(0, x - 1); i <= Math.min(width - 1, x + 1); i++) set += mask.data[j * width + i]!;
      }
      data[y * width + x] = set >= 5 ? 1 : 0;
    }
  }
  return { width, height, data };
}

/** Every patch of side-connected set pixels with at least `minArea` of them. */
export function findBlobs(mask: Mask, minArea: number): Blob[] {
  const { width, height } = mask;
  const left = mask.data.slice();
  const stack = new Int32Array(width * height);
  const blobs: Blob[] = [];
  for (let start = 0; start < left.length; start++) {
    if (left[start] === 0) continue;
    const members = flood(left, width, height, start, stack);
    if (members.length >= minArea) blobs.push(measure(members, mask));
  }
  return blobs;
}

/** The pixels connected with `start`, which are cleared from `left`; valid until the next call. */
function flood(left: Uint8Array, width: number, height: number, start: number, stack: Int32Array): Int32Array {
  let end = 0;
  const take = (at: number): void => {
    if (left[at] === 0) return;
    left[at] = 0;
    stack[end++] = at;
  };
  take(start);
  for (let next = 0; next < end; next++) {
    const at = stack[next]!;
    const x = at % width;
    if (x > 0) take(at - 1);
    if (x < width - 1) take(at + 1);
    if (at >= width) take(at - width);
    if (at < width * (height - 1)) take(at + width);
  }
  return stack.subarray(0, end);
}

function measure(members: Int32Array, mask: Mask): Blob {
  const { width, height } = mask;
  let sumX = 0;
  let sumY = 0;
  const box = { left: width, top: height, right: 0, bottom: 0 };
  for (const at of members) {
    const x = at % width;
    const y = Math.floor(at / width);
    sumX += x;
    sumY += y;
    box.left = Math.min(box.left, x);
    box.right = Math.max(box.right, x + 1);
    box.top = Math.min(box.top, y);
    box.bottom = Math.max(box.bottom, y + 1);
  }
  const area = members.length;
  const cx = sumX / area;
  const cy = sumY / area;
  let moment = area / 6;
  let nearest = Infinity;
  let middle = members[0]!;
  for (const at of members) {
    const distance = ((at % width) - cx) ** 2 + (Math.floor(at / width) - cy) ** 2;
    moment += distance;
    if (distance < nearest) {
      nearest = distance;
      middle = at;
    }
  }
  const rim = members.filter((at) => isRim(at, mask));
  return {
    area,
    ...box,
    x: (middle % width) + 0.5,
    y: Math.floor(middle / width) + 0.5,
    ...turnedRectangle(rim, width, area),
    roundness: area ** 2 / (2 * Math.PI * moment),
    rim,
    raggedness: radiusSpread(rim, width, cx, cy),
    cut: box.left === 0 || box.top === 0 || box.right === width || box.bottom === height,
  };
}

function isRim(at: number, { width, height, data }: Mask): boolean {
  const x = at % width;
  const inner = x > 0 && x < width - 1 && at >= width && at < width * (height - 1);
  return !(inner && data[at - 1] && data[at + 1] && data[at - width] && data[at + width]);
}

const TURNS = 24;

/** Fill and aspect of the smallest of `TURNS` rectangles around the rim; each pixel counts with its own extent. */
function turnedRectangle(rim: Int32Array, width: number, area: number): { fill: number; aspect: number } {
  let best = { fill: 0, aspect: 1 };
  for (let turn = 0; turn < TURNS; turn++) {
    const angle = (turn * Math.PI) / 2 / TURNS;
    const cos = Math.cos(angle);
    const sin = Math.sin(angle);
    let [minU, maxU, minV, maxV] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const at of rim) {
      const x = at % width;
      const y = Math.floor(at / width);
      const u = x * cos + y * sin;
      const v = y * cos - x * sin;
      minU = Math.min(minU, u);
      maxU = Math.max(maxU, u);
      minV = Math.min(minV, v);
      maxV = Math.max(maxV, v);
    }
    const across = maxU - minU + 1;
    const along = maxV - minV + 1;
    const fill = Math.min(1, area / (across * along));
    if (fill > best.fill) best = { fill, aspect: Math.min(across, along) / Math.max(across, along) };
  }
  return best;
}

function radiusSpread(rim: Int32Array, width: number, cx: number, cy: number): number {
  let sum = 0;
  let squares = 0;
  for (const at of rim) {
    const square = ((at % width) - cx) ** 2 + (Math.floor(at / width) - cy) ** 2;
    sum += Math.sqrt(square);
    squares += square;
  }
  const mean = sum / rim.length;
  return Math.sqrt(Math.max(0, squares / rim.length - mean * mean)) / Math.max(mean, 1);
}
