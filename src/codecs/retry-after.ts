/** The retry time that a server requests: the header `Retry-After`, in seconds or as a date (RFC 9110, sections 5.6.7 and 10.2.3). */

/** Longer times are not believed. */
const LONGEST_MS = 86_400_000;
const SECONDS = /^\d{1,18}(?:\.\d{1,9})?(?:e\d{1,2})?$/i;
/** Three forms: `Thu, 26 Nov 2026 12:15:00 GMT`, `Thursday, 26-Nov-26 12:15:00 GMT`, `Thu Nov 26 12:15:00 2026`. */
const DATE = /^(?:\w{3,9}, )?(\d{1,2})[ -](\w{3})[ -](\d{2}|\d{4}) (\d{2}):(\d{2}):(\d{2})(?: (?:GMT|UTC|[+-]0000))?$/i;
const ASCTIME = /^\w{3} (\w{3}) {1,2}(\d{1,2}) (\d{2}):(\d{2}):(\d{2}) (\d{4})$/i;
const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/** Returns milliseconds from `nowMs` of the wall clock, at most a day; undefined for a past time and for other formats. */
export function retryAfterMs(header: unknown, nowMs: number): number | undefined {
  const text = String((Array.isArray(header) ? header[0] : header) ?? "").trim();
  const waitMs = SECONDS.test(text) ? 1_000 * Number(text) : (dateIn(text, nowMs) ?? Number.NaN) - nowMs;
  return waitMs >= 0 ? Math.min(waitMs, LONGEST_MS) : undefined;
}

function dateIn(text: string, nowMs: number): number | undefined {
  const [, day, month, year, ...clock] = DATE.exec(text) ?? [];
  if (day !== undefined) return timeOf(fullYear(Number(year), nowMs), month, day, clock);
  const [, name, date, hour, minute, second, full] = ASCTIME.exec(text) ?? [];
  return name === undefined ? undefined : timeOf(Number(full), name, date, [hour, minute, second]);
}

/** A two-digit year more than 50 years in the future is of the past century. */
function fullYear(year: number, nowMs: number): number {
  if (year >= 100) return year;
  const thisYear = new Date(nowMs).getUTCFullYear();
  const near = Math.floor(thisYear / 100) * 100 + year;
  return near > thisYear + 50 ? near - 100 : near;
}

function timeOf(
  year: number,
  month = "",
  day: string | undefined,
  clock: readonly (string | undefined)[],
): number | undefined {
  const at = MONTHS.indexOf(month.toLowerCase());
  const [hour, minute, second] = clock.map(Number);
  return at < 0 ? undefined : Date.UTC(year, at, Number(day), hour, minute, second);
}
