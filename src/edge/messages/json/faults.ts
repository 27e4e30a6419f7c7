/** What is wrong with a request, collected on the way instead of thrown at the first find. */

/** One fault: the path of the field from the message that is being read, the broken rule by pydantic's name, a sentence. */
export interface Fault {
  readonly path: (string | number)[];
  readonly type: string;
  readonly message: string;
}

/** The most faults that one answer lists: enough for any honest request, and a bound for the others. */
export const MAX_FAULTS = 1000;

/** Path segments come from the caller where a key is unknown; longer ones are cut. */
const MAX_SEGMENT = 128;

/** A list of faults whose paths grow as the reading functions return. */
export class Faults {
  readonly list: Fault[] = [];

  /** Notes a fault of the value at hand, or of its member `key`; always returns undefined, which stands for no value. */
  add(type: string, message: string, key?: string | number): undefined {
    if (this.list.length < MAX_FAULTS) this.list.push({ path: key === undefined ? [] : [cut(key)], type, message });
  }

  /** Puts `key` before the paths of all faults from number `first` on: they were found inside it. */
  inside(key: string | number, first: number): void {
    for (let i = first; i < this.list.length; i++) this.list[i]?.path.unshift(cut(key));
  }

  /** There is room for more, so that details are worth computing. */
  get open(): boolean {
    return this.list.length < MAX_FAULTS;
  }
}

const cut = (key: string | number): string | number =>
  typeof key === "string" && key.length > MAX_SEGMENT ? `${key.slice(0, MAX_SEGMENT)}…` : key;
