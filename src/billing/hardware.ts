/** What accelerators cost: the basis of wake-ups and of the margin report where a provider declares nothing. */

/** An accelerator. */
export interface Hardware {
  readonly name: string;
  /** What a second of it costs, in nano-dollars. */
  readonly nanoPerSecond: number;
}

/** US dollars an hour, on demand: this project's own estimates, for offerings whose provider declares no cost. */
const USD_PER_HOUR: readonly (readonly [name: string, usd: number])[] = [
  ["CPU", 0.05],
  ["Jetson-Orin-Nano", 0.05],
  ["Jetson-AGX-Orin", 0.1],
  ["Jetson-AGX-Thor", 0.2],
  ["T4", 0.6],
  ["RTX-3090", 0.45],
  ["RTX-4090", 0.7],
  ["RTX-5090", 0.9],
  ["RTX-A6000", 0.8],
  ["RTX-6000-Ada", 1],
  ["RTX-PRO-6000", 1.9],
  ["L4", 0.8],
  ["A10", 1.1],
  ["A10G", 1.1],
  ["L40", 1.5],
  ["L40S", 1.95],
  ["V100", 1.2],
  ["A100-40GB", 2.1],
  ["A100-80GB", 2.5],
  ["H100", 3.95],
  ["GH200", 3.5],
  ["H200", 4.55],
  ["B200", 6.25],
  ["B300", 7.5],
  ["GB200", 8],
  ["MI250X", 2.2],
  ["MI300X", 3.5],
  ["MI325X", 4],
  ["TPU-v4", 3.2],
  ["TPU-v5e", 1.2],
  ["TPU-v5p", 4.2],
  ["TPU-v6e", 2.7],
];

/** Every known accelerator, cheapest first. */
export const HARDWARE: readonly Hardware[] = USD_PER_HOUR.map(([name, usd]) => ({
  name,
  nanoPerSecond: Math.round((usd * 1e9) / 3600),
})).sort((a, b) => a.nanoPerSecond - b.nanoPerSecond);

/** Capitals and separators make no difference. */
const plain = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, "");

const BY_NAME = new Map(HARDWARE.map((hardware) => [plain(hardware.name), hardware]));
const DEAREST = HARDWARE.at(-1)?.nanoPerSecond ?? 0;

/** The accelerator that a name means, however it is written; undefined for an unknown one. */
export const hardwareOf = (name: string): Hardware | undefined => BY_NAME.get(plain(name));

/** What a second of an accelerator costs, in nano-dollars; an unknown one costs as much as the most expensive one. */
export const secondOf = (name: string): number => hardwareOf(name)?.nanoPerSecond ?? DEAREST;
