/**
 * The retry time that a server requests: the header `Retry-After`, in seconds or as a date (RFC 9110, sections 5.6.7 and 10.2.3), and the same with
 * units, with a zone, or in the text of an error.
 */

/** Longer times are not believed. */
const LONGEST_MS = 86_400_000;
const SECONDS = /^\d{1,18}(?:\.\d{1,9})?(?:e\d{1,2})?$/i;
/** `30s`, `500ms`, `1m30s`, `7.66 seconds`. */
const WITH_UNITS =
  /^(?:(\d{1,9}) ?h(?:ours?)? ?)?(?:(\d{1,9}) ?m(?:in(?:utes?)?)? ?)?(?:(\d{1,9}(?:\.\d{1,9})?) ?s(?:ec(?:onds?)?)? ?)?(?:(\d{1,9}(?:\.\d{1,9})?) ?ms)?$/i;
/** A time in the text of an error, of OpenAI, Azure, Groq, Gemini and Replicate: "Please try again in 7.66s." */
const IN_TEXT =
  /\b(?:try again|retry(?:ing)?|available) (?:in|after) ((?:\d[\d.]{0,12} ?(?:ms|h|m|s)[a-z]{0,7} ?){1,3})/i;
/** Three forms: `Thu, 26 Nov 2026 12:15:00 GMT`, `Thursday, 26-Nov-26 12:15:00 GMT`, `Thu Nov 26 12:15:00 2026`. */
const DATE =
  /^(?:\w{3,9}, )?(\d{1,2})[ -](\w{3})[ -](\d{2}|\d{4}) (\d{2}):(\d{2}):(\d{2})(?: (?:GMT|UTC|Z|([+-])(\d{2})(\d{2})))?$/i;
/** ISO 8601 with a zone, such as `2026-11-26T12:15:00Z`. */
const ISO = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/;
const ASCTIME = /^\w{3} (\w{3}) {1,2}(\d{1,2}) (\d{2}):(\d{2}):(\d{2}) (\d{4})$/i;
const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/** Returns milliseconds from `nowMs` of the wall clock, at most a day; undefined for a past time and for other formats. */
export function retryAfterMs(header: unknown, nowMs: number): number | undefined {
  const text = String((Array.isArray(header) ? header[0] : header) ?? "").trim();
  const waitMs = SECONDS.test(text)
    ? 1_000 * Number(text)
    : (timeWithUnits(text) ?? (dateIn(text, nowMs) ?? Number.NaN) - nowMs);
  return waitMs >= 0 ? Math.min(waitMs, LONGEST_MS) : undefined;
}

/** Returns the retry time in milliseconds that an error's text states; undefined without one. */
export function retryInText(text: string): number | undefined {
  const time = timeWithUnits((IN_TEXT.exec(text)?.[1] ?? "").trim());
  return time === undefined ? undefined : Math.min(time, LONGEST_MS);
}

function timeWithUnits(text: string): number | undefined {
  const parts = text === "" ? null : WITH_UNITS.exec(text);
  if (parts === null) return undefined;
  const [hours = 0, minutes = 0, seconds = 0, thousandths = 0] = parts.slice(1).map((part) => Number(part ?? 0));
  return ((hours * 60 + minutes) * 60 + seconds) * 1_000 + thousandths;
}

function dateIn(text: string, nowMs: number): number | undefined {
  if (ISO.test(text)) return Date.parse(text);
  const [, day, month, year, hours, minutes, seconds, sign, ...zone] = DATE.exec(text) ?? [];
  if (day !== undefined) {
    const [east = 0, minutesEast = 0] = zone.map((part) => Number(part ?? 0));
    const offsetMs = (east * 60 + minutesEast) * 60_000 * (sign === "-" ? -1 : 1);
    const at = timeOf(fullYear(Number(year), nowMs), month, day, [hours, minutes, seconds]);
    return at === undefined ? undefined : at - offsetMs;
  }
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
