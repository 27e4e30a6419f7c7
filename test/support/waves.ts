/** Many calls, so many at one time: fewer than make a gateway refuse calls for overload, however slow the machine is. */

const AT_ONCE = 100;

/** What `count` calls of `call` answer, in the order in which they were made. */
export async function inWaves<T>(count: number, call: (index: number) => Promise<T>): Promise<T[]> {
  const answers: T[] = [];
  while (answers.length < count) {
    const wave = Array.from({ length: Math.min(AT_ONCE, count - answers.length) }, (_, i) => call(answers.length + i));
    answers.push(...(await Promise.all(wave)));
  }
  return answers;
}
