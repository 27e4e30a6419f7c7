/** Figures as text: one spelling of money, time, durations and counts for every page. */

/** US dollars: cents from a dollar on, below it as many of the six decimals as say something. */
export function dollars(usd: number): string {
  const sign = usd < 0 ? "−" : "";
  const size = Math.abs(usd);
  if (size === 0 || size >= 1) return `${sign}$${withThousands(size.toFixed(2))}`;
  const text = size.toFixed(6).replace(/0+$/, "");
  const [, decimals = ""] = text.split(".");
  return `${sign}$0.${decimals.padEnd(2, "0")}`;
}

/** US dollars in at most three digits below a dollar: for rates, which are measured and not exact. */
export function roughDollars(usd: number): string {
  const size = Math.abs(usd);
  if (size === 0 || size >= 1) return dollars(usd);
  const digits = Math.min(6, 2 - Math.floor(Math.log10(size)));
  return dollars(Number(usd.toFixed(digits)));
}

const withThousands = (text: string): string => text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

/** A number and the unit that it is in. */
export interface Figure {
  readonly value: string;
  readonly unit: string;
}

/** A duration given in milliseconds, in the unit in which it has at most four digits. */
export function duration(ms: number): Figure {
  if (!Number.isFinite(ms)) return { value: "–", unit: "" };
  if (ms < 10) return { value: ms.toFixed(1), unit: "ms" };
  if (ms < 10_000) return { value: Math.round(ms).toString(), unit: "ms" };
  if (ms < 120_000) return { value: (ms / 1000).toFixed(1), unit: "s" };
  if (ms < 7_200_000) return { value: Math.round(ms / 60_000).toString(), unit: "min" };
  if (ms < 172_800_000) return { value: Math.round(ms / 3_600_000).toString(), unit: "h" };
  return { value: Math.round(ms / 86_400_000).toString(), unit: "d" };
}

/** A count with its thousands apart. */
export const count = (n: number): string => withThousands(String(Math.round(n)));

/** A share of 1 in per cent; one decimal where whole per cents say too little. */
export const percent = (share: number): string =>
  `${share === 1 || share === 0 ? share * 100 : (share * 100).toFixed(share > 0.99 || share < 0.1 ? 1 : 0)} %`;

/** A number in at most `digits` digits behind the point, without trailing zeros. */
export const plain = (n: number, digits = 4): string => Number(n.toFixed(digits)).toString();

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const LONG = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });

/** A moment in local time: the clock where it is of today, else day and clock. */
export function moment(date: Date, now: Date): string {
  if (date.toDateString() === now.toDateString()) return CLOCK.format(date);
  if (date.getFullYear() === now.getFullYear()) return `${DAY.format(date)} ${CLOCK.format(date).slice(0, 5)}`;
  return LONG.format(date);
}

/** Bytes in the unit in which they have few digits. */
export function bytes(n: number): Figure {
  if (n < 1024) return { value: String(n), unit: "B" };
  if (n < 1 << 20) return { value: (n / 1024).toFixed(1), unit: "kB" };
  return { value: (n / (1 << 20)).toFixed(1), unit: "MB" };
}

/** What is left of a time, given in seconds, as a clock: `4:05`, `1:02:09`. */
export function clock(seconds: number): string {
  const left = Math.max(0, Math.ceil(seconds));
  const two = (n: number): string => String(n).padStart(2, "0");
  const [hours, minutes] = [Math.floor(left / 3600), Math.floor(left / 60) % 60];
  return hours > 0 ? `${hours}:${two(minutes)}:${two(left % 60)}` : `${minutes}:${two(left % 60)}`;
}
