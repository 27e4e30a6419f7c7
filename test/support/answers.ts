/** The latest REST answers of the running test, which are printed when it fails. */
const MOST = 3;
const MOST_TEXT = 2_000;

let answers: string[] = [];

/** Remembers an answer. */
export function rememberAnswer(request: string, status: number, text: string): void {
  answers.push(`${request} returned ${status}: ${text.slice(0, MOST_TEXT)}`);
  if (answers.length > MOST) answers.shift();
}

/** Returns the latest answers, oldest first. */
export const answersOfTest = (): readonly string[] => answers;

/** Starts a new test. */
export function forgetAnswers(): void {
  answers = [];
}
