/**
 * Reads JSON as models write it: in fences and prose, with single or curly quotes, Python's constants, tuples, comments, unquoted keys and
 * trailing commas, and truncated anywhere. Incomplete parts are left out: half a list of numbers is never a shorter list.
 */

/** An object of a model's JSON. */
export type JsonItem = Readonly<Record<string, unknown>>;

/** The contents of a text. */
interface JsonText {
  /** The complete lists and objects in order. */
  readonly roots: readonly unknown[];
  /** Whether the text is one value and nothing else, apart from a fence. */
  readonly isAlone: boolean;
}

const MAX_DEPTH = 12;
const MAX_ITEMS = 2_000;
/** Brackets that can end incomplete, as in prose; nothing is searched after them. */
const MAX_BROKEN = 100;
const WORDS: Readonly<Record<string, unknown>> = {
  true: true,
  false: false,
  null: null,
  True: true,
  False: false,
  None: null,
  undefined: null,
  NaN: null,
};
const QUOTES: Readonly<Record<string, string>> = { '"': '"', "'": "'", "“": "”", "‘": "’", "`": "`" };
const CLOSERS: Readonly<Record<string, string>> = { "[": "]", "{": "}", "(": ")" };
const NUMBER = /[+-]?(?:\d{1,17}(?:\.\d{0,17})?|\.\d{1,17})(?:[eE][+-]?\d{1,3})?/y;
const WORD = /[A-Za-z_$][\w$-]{0,63}/y;
const SPACE = /(?:\s|\/\/[^\n]*(?:\n|$)|\/\*[\s\S]{0,400}?\*\/|#[^\n]*(?:\n|$))*/y;
/** Ends of a quotation with quotes inside: `'the robot's cup'`, `"the "big" cup"`. A missing comma or a comment can follow. */
const AFTER_STRING = /\s*(?:[,:}\])"'“‘#]|\/[/*]|$)/y;

/** The readable part of an incomplete value. */
class Broken {
  readonly whole: unknown[];
  constructor(whole: unknown[]) {
    this.whole = whole;
  }
}

/** Reads a text from left to right, each character once. */
class Reader {
  readonly #text: string;
  at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Reads the list or object that begins here. */
  container(depth: number): unknown {
    const opener = this.#text[this.at++]!;
    const closer = CLOSERS[opener]!;
    const isObject = opener === "{";
    const list: unknown[] = [];
    const object: Record<string, unknown> = {};
    // A list of numbers beside an incomplete key is not a place by itself.
    const kept = (values: readonly unknown[]): unknown[] =>
      isObject ? values.flatMap(objectsIn) : values.filter(isContainer);
    const whole = (more: readonly unknown[] = []): Broken =>
      new Broken([...kept(isObject ? Object.values(object) : list), ...kept(more)]);
    for (let count = 0; ; count++) {
      this.#skip(SPACE);
      const letter = this.#text[this.at];
      if (letter === closer) {
        this.at++;
        return isObject ? object : list;
      }
      if (letter === ",") {
        this.at++;
        continue;
      }
      if (letter === undefined || depth > MAX_DEPTH || count > 4 * MAX_ITEMS) return whole();
      const key = isObject ? this.#key() : "";
      if (key === undefined) return whole();
      const value = this.#value(depth);
      if (value instanceof Broken) return whole(value.whole);
      if (isObject) Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
      else list.push(value);
    }
  }

  #key(): string | undefined {
    const letter = this.#text[this.at]!;
    const key = QUOTES[letter] === undefined ? this.#take(WORD) : this.#string();
    this.#skip(SPACE);
    if (key === undefined || this.#text[this.at] !== ":") return undefined;
    this.at++;
    this.#skip(SPACE);
    return key;
  }

  #value(depth: number): unknown {
    const letter = this.#text[this.at];
    if (letter === undefined) return new Broken([]);
    if (CLOSERS[letter] !== undefined) return this.container(depth + 1);
    if (QUOTES[letter] !== undefined) return this.#string() ?? new Broken([]);
    const number = this.#take(NUMBER);
    // A number at the end of the text may be truncated.
    if (number !== undefined) return this.at < this.#text.length ? Number(number) : new Broken([]);
    const word = this.#take(WORD);
    return word !== undefined && Object.hasOwn(WORDS, word) ? WORDS[word] : new Broken([]);
  }

  #string(): string | undefined {
    const closer = QUOTES[this.#text[this.at]!]!;
    let text = "";
    for (this.at++; this.at < this.#text.length; this.at++) {
      const letter = this.#text[this.at]!;
      if (letter === "\\") text += escaped(this.#text[++this.at] ?? "");
      else if (letter !== closer) text += letter;
      else {
        AFTER_STRING.lastIndex = this.at + 1;
        if (!AFTER_STRING.test(this.#text)) text += letter;
        else {
          this.at++;
          return text;
        }
      }
    }
    return undefined;
  }

  #take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.#text)?.[0];
    if (found === undefined || found === "") return undefined;
    this.at += found.length;
    return found;
  }

  #skip(pattern: RegExp): void {
    this.#take(pattern);
  }
}

const escaped = (letter: string): string => ({ n: "\n", t: "\t", r: "\r" })[letter] ?? letter;
const isContainer = (value: unknown): boolean => typeof value === "object" && value !== null;
const objectsIn = (value: unknown): unknown[] =>
  Array.isArray(value) ? value.flatMap(objectsIn) : isContainer(value) ? [value] : [];
const FENCE = /```[\w+-]{0,10}\s?|~~~[\w+-]{0,10}\s?/g;
/** Tags around an answer: GLM's box, `<answer>`. */
const WRAPPER = /<\/?(?:\|?(?:begin_of_box|end_of_box)\|?|answer|output|result|json|final)>/g;
/** A single tuple of numbers and nothing else. */
const LONE_TUPLE = /^\(\s*[+-]?[\d.]+(?:\s*,\s*[+-]?[\d.]+){1,3}\s*\)\.?$/;
/** Words before a final answer, after which earlier drafts do not count. */
const FINAL = /\bfinal (?:answer|output|result)\b[\s:*]{0,8}/gi;
/** Words by which a model takes back what it wrote before. */
const CORRECTION =
  /\b(?:no,? wait|wait|actually|correction|corrected|sorry|instead|scratch that|let me (?:re|try again|correct|adjust|refine))/i;

/** Returns the JSON in a text; undefined without any, and if the model corrects itself between two values. */
export function jsonIn(text: string): JsonText | undefined {
  let inner = text.replace(FENCE, " ").replace(WRAPPER, " ").trim();
  // JSON inside a JSON string.
  if (/^"\s*[[{]/.test(inner)) inner = unquoted(inner) ?? inner;
  const last = [...inner.matchAll(FINAL)].at(-1);
  const final = last === undefined ? "" : inner.slice(last.index + last[0].length);
  if (final !== "" && isWordForNothing(final)) return { roots: [[]], isAlone: true };
  if (/[[{]/.test(final)) inner = final.trim();
  if (LONE_TUPLE.test(inner)) inner = inner.replace("(", "[").replace(")", "]").replace(/\.$/, "");
  const roots: unknown[] = [];
  let isAlone = /^[[{]/.test(inner);
  const reader = new Reader(inner);
  for (let rest = 0, broken = 0; roots.length < MAX_ITEMS && broken < MAX_BROKEN; rest = reader.at) {
    const next = inner.slice(rest).search(/[[{]/);
    if (next < 0) break;
    const between = rest > 0 ? inner.slice(rest, rest + next) : "";
    if (/[^\s,;]/.test(between)) isAlone = false;
    if (roots.length > 0 && CORRECTION.test(between)) return undefined;
    reader.at = rest + next;
    const value = reader.container(0);
    if (value instanceof Broken) broken++;
    roots.push(...(value instanceof Broken ? value.whole : [value]));
  }
  if (/[^\s,;.]/.test(inner.slice(reader.at))) isAlone = false;
  return roots.length > 0 ? { roots, isAlone } : undefined;
}

function unquoted(text: string): string | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "string" ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Returns every object in some values, outer ones before inner ones. */
export function itemsIn(values: readonly unknown[], into: JsonItem[] = [], depth = 0): JsonItem[] {
  for (const value of values) {
    if (!isContainer(value) || depth > MAX_DEPTH || into.length >= MAX_ITEMS) continue;
    if (!Array.isArray(value)) into.push(value as JsonItem); // a container that is not a list
    itemsIn(Object.values(value as object), into, depth + 1);
  }
  return into;
}

/**
 * Whether a model's sentence states that the requested thing is absent. Such a sentence is a correct, empty response; no other sentence is.
 * A false "nothing" would be a wrong response about what a robot sees, so doubts, refusals and hedged sentences never count as absence.
 * English only.
 */

const PICTURE_WORD = "(?:image|picture|photo|photograph|frame|scene|view|field of view)";
/** Matches the complete answer, without punctuation. */
const WORDS_FOR_NOTHING = new RegExp(
  `^(?:none|null|nil|nothing|n/a|empty|absent|(?:the )?(?:objects? )?not (?:found|present|visible|there|applicable|detected)(?: in (?:the|this) ${PICTURE_WORD})?|not in (?:the|this) ${PICTURE_WORD}|(?:no|0|zero)(?: such)? (?:match(?:es)?|objects?|points?|results?|detections?|instances?)(?: (?:were |was )?(?:found|detected|visible))?|(?:none|nothing) (?:(?:was|were) )?(?:found|visible|detected|present))$`,
);
/** The same in other languages. Their sentences are not evaluated. */
const FOREIGN_WORDS_FOR_NOTHING =
  /^(?:(?:图|圖)(?:片|像)?(?:中|里|裡)?)?(?:无|無|没有|沒有|不存在|(?:未|没有|沒有|无法|無法)(?:找到|检测到|檢測到|发现|發現))(?:任何|该|此|相关|匹配|符合条件|的){0,3}(?:目标|目標|物体|物體|对象|對象|结果|結果|内容)?$|^(?:なし|見つかりません(?:でした)?|ありません|該当なし|없음|없습니다|찾을 수 없습니다|keine|keines|nichts|nichts gefunden|nicht gefunden|nicht vorhanden|aucun|aucune|rien|aucun objet(?: trouvé)?|non trouvé|ninguno|ninguna|nada|no encontrado|ningún objeto|nessuno|nessuna|niente|non trovato|nessun oggetto|nenhum|nenhuma|não encontrado|geen|niets|niet gevonden|нет|ничего|не найдено|ничего не найдено)$/;
/** What precedes a bare answer. */
const LEAD = /^(?:(?:the |my )?(?:final )?(?:answer|result|output|response)(?: is)?\s*:?\s+)/;

/** Words of doubt, refusal and partial visibility; with any of them a text states nothing for certain. */
const HEDGES =
  /\b(?:unclear|uncertain|unsure|sure|way|left|right|top|bottom|middle|cent(?:er|re)|corner|side|can ?not tell|can't tell|hard to (?:tell|say|see)|difficult to|blurr\w*|too (?:dark|small|far)|clearly|exactly|precisely|confiden\w*|certain\w*|maybe|perhaps|might|may be|possibl[ey]|probably|partial\w*|occluded|hidden|behind|obscured|assist|help|polic(?:y|ies)|guidelines?|unfortunately i|as an ai|without (?:more|further|an?))\b/;

/** Words that a sentence can deny without denying that an object is in the image. */
const OTHER_HEADS =
  /\b(?:ways?|doubts?|needs?|questions?|reasons?|problems?|issues?|info(?:rmation)?|context|details?|answers?|possibilit(?:y|ies)|chances?|guarantees?|telling|views?|indications?|images?|pictures?|photos?|photographs?|frames?|attachments?|inputs?|files?|tools?|means|methods?|sense|use|mention|access|ability|evidence|data|resolution|text|people|individuals|others?|another|more|else|additional|second|further|longer)$/;

/** The end of an object's name. */
const AFTER_HEAD =
  /\b(?:in|on|within|at|that|which|who|to|of|from|for|about|where|how|why|when|if|as|i|you|we|can|could|is|are|was|were|be|visible|present|here|shown|found|detected|seen|depicted|matching|exists?)\b/;

const PLACE =
  /\b(?:in|on|within|from|inside|of)(?: (?:the|this|your|that))?(?: \w+)? (?:image|picture|photo|photograph|frame|scene|view|screenshot)s?\b|\b(?:here|visible|present|shown|detected|found|seen|depicted)\b/;

/** Matches the requested object. */
const GENERIC =
  /\b(?:objects?|items?|things?|such|any|anything|it|that|this|they|them|those|these|targets?|instances?|match(?:es|ing)?|one)\b/;

/** Words of an instruction that name no object. */
const EMPTY_WORDS =
  /^(?:the|a|an|of|to|in|on|at|and|or|with|for|all|any|every|each|that|this|is|are|it|its|my|your|find|locate|point|detect|where|please|show|mark)$/;

/** The singular of a word. */
const stem = (word: string): string =>
  EMPTY_WORDS.test(word)
    ? word
    : word
        .replace(/(ss|x|ch|sh|zz|o)es$/, "$1")
        .replace(/([^aeiou])ies$/, "$1y")
        .replace(/([^su])s$/, "$1");
const wordsOf = (text: string): string[] => (text.match(/[\p{L}\p{N}]+/gu) ?? []).map((word) => stem(word));

/** Words that describe an absent object without making it another one. */
const NEUTRAL =
  /^(?:visible|clear|such|matching|obvious|discernible|apparent|identifiable|recognizable|distinct|actual|colo(?:u?)red|colo(?:u?)r|object|item|thing|instance|target|single|present)$/;

const NOT_BE = "(?:is|are|was|were) (?:not|n't|no longer)|(?:isn't|aren't|wasn't|weren't)";
const THERE_IS = "(?:there's|there (?:is|are|was|were|appears? to be|seems? to be))";
const THERE_IS_NOT =
  "there (?:is not|are not|was not|were not|isn't|aren't|wasn't|weren't|(?:does not|do not|doesn't|don't) (?:appear|seem) to be)";

/** Sentences of absence; the first group is the absent object. */
const ABSENCES: RegExp[] = [
  // There is no red cube in the picture; there aren't any; there does not appear to be a cup.
  new RegExp(`^${THERE_IS} (?:no |zero |0 |not any |nothing|none)(.*)$`),
  new RegExp(`^${THERE_IS_NOT} (?:any(?:thing)? ?|an? |one\\b)(.*)$`),
  // The object is not in the image; this isn't visible.
  new RegExp(
    `^(.+?) (?:${NOT_BE})(?: currently)? (?:(?:in|on|within|part of) (?:the|this|your|that) (?:\\w+ )?(?:image|picture|photo|photograph|frame|scene|view|field of view)|in (?:view|frame|sight)\\b|present|visible|shown|found|here|there|depicted|seen|detected)\\b`,
  ),
  // The cube cannot be found; it could not be seen in the picture.
  /^(.+?) (?:cannot|can not|can't|could not|couldn't) be (?:found|seen|located|detected)\b(?! (?:well|because|due|with|by))/,
  /^(.+?) (?:does not|do not|doesn't|don't|did not|didn't) (?:appear|exist)(?: (?:in|on|anywhere|here)\b.*)?$/,
  /^(.+?) (?:is|are) (?:absent|missing)(?: from\b.*)?$/,
  /^(.+?) (?:is|are) out of (?:the )?(?:frame|view|picture|sight)$/,
  // Red cube: not found.
  /^(.+?):? (?:not (?:found|visible|present|detected)|none)(?: in (?:the|this) (?:image|picture|photo|frame|scene|view))?$/,
  // Could not find the red cube.
  /^(?:could not|couldn't|cannot|can not|can't|did not|didn't) (?:see|find|locate|detect|spot)(?: (?:an?|any|the))? (.+)$/,
  // I do not see any red cube; I was unable to find it.
  /^(?:i|we) (?:do not|don't|did not|didn't|cannot|can not|can't|could not|couldn't|am unable to|'m unable to|was unable to|were unable to|am not able to|was not able to) (?:see|find|locate|detect|spot|identify)(?: (?:an?|any|the))? (.+)$/,
  /^(?:i am|i'm|i was|unable|we were)(?: unable)? to (?:see|find|locate|detect|spot)(?: (?:an?|any|the))? (.+)$/,
  /^i (?:see|found|find|detected|detect) (?:no|none)\b(.*)$/,
  // No red cubes are visible; none found; nothing matches.
  /^(?:no|none|nothing)\b(?!,)(.*?)(?:(?: (?:is|are|was|were|can be|could be))? (?:visible|present|found|detected|seen|shown|located|depicted|here|exists?|in (?:the|this) .*|match(?:es)?\b.*)){1,3}$/,
  // The image does not contain any red cube; the picture shows no cube.
  /^(?:the|this|your) (?:\w+ )?(?:image|picture|photo|photograph|frame|scene|view)(?: provided| given| shown)? (?:does not|doesn't) (?:contain|show|include|have|depict|feature)(?: (?:an?|any|the))? (.+)$/,
  /^(?:the|this|your) (?:\w+ )?(?:image|picture|photo|photograph|frame|scene|view) (?:contains|shows|includes|has|depicts) (?:no|none)\b(.*)$/,
];

/** "No red cube" alone. */
const BARE = /^no (.+)$/;
ABSENCES.push(BARE);

/** Words that can follow "nothing" or "none". */
const AT_ONCE = /^(?:matching|like|in|on|within|here|visible|present|found|detected|that (?:match|fit|look)\w*)\b/;
const IMAGE = /\b(?:image|picture|photo|photograph|frame|scene|view|screenshot|front)s?\b/;

const NEGATION = /\b(?:absent|missing|out of|no|not|zero|0|none|nothing|never|cannot|without)\b|n't\b/;
const CONTRAST = /\b(?:but|however|although|though|instead|except|only|besides|other than|(?:apart|aside) from)\b/;
/** A contrast that states that the object is elsewhere: "but there is one in the second image". */
const BUT_PRESENT =
  /\b(?:there (?:is|are)|i (?:see|found|find)) (?:one|some|it|them)\b|\bit (?:is|appears|can)\b|\bit's\b/;
/** Phrases that need a continuation before a negation. */
const BE = /\b(?:is|are|sits?|lies|located|appears?|stands?)\b\s+\S/;

/** Longer texts are essays, whose sentences are not evaluated. */
const MAX_TEXT = 1_000;

/** Returns a text without common wrappers of an answer: fences, quotes, tags, boxes, emphasis. */
const bare = (text: string): string =>
  text
    .replace(/```\w{0,10}|~~~\w{0,10}|<\/?\|?\w{1,20}\|?>|\\boxed|[*_`"“”{}[\]()]/g, " ")
    .replace(/[‘’]/g, "'")
    .replace(/\s+/g, " ")
    .trim()
    .toLowerCase();

/** Whether a text consists only of a phrase such as `none` or `not found`. */
export const isWordForNothing = (text: string): boolean =>
  text.length <= MAX_TEXT &&
  isBareNothing(
    bare(text)
      .replace(LEAD, "")
      .replace(/[.!,;:。！\s]+$/, ""),
  );
const isBareNothing = (words: string): boolean =>
  WORDS_FOR_NOTHING.test(words) || FOREIGN_WORDS_FOR_NOTHING.test(words);

/** Whether a text states that the requested object is not in the image, without contradicting itself. */
export function saysNothing(text: string, asked: string): boolean {
  if (text.length > MAX_TEXT) return false;
  if (isWordForNothing(text)) return true;
  const plain = bare(text);
  if (HEDGES.test(plain)) return false;
  const wanted = wordsOf(asked.toLowerCase()).filter((word) => !EMPTY_WORDS.test(word));
  const sentences = plain.split(/(?<=[.!?])\s+|;\s+/).map((each) => each.replace(/[.!?,:]+$/, "").trim());
  if (sentences.some((sentence) => isPresence(sentence, wanted))) return false;
  return sentences.some((sentence) => isAbsence(sentence, wanted));
}

/** Whether a sentence states the object's location. */
function isPresence(sentence: string, wanted: readonly string[]): boolean {
  const [clause = ""] = sentence.split(NEGATION, 1);
  if (wanted.length === 0 || !BE.test(clause)) return false;
  const words = wordsOf(clause);
  return wanted.every((word) => words.includes(word)) && !CONTRAST.test(clause);
}

const namesIn = (text: string): string[] => wordsOf(text).filter((word) => !EMPTY_WORDS.test(word));
const isNamedIn = (text: string, wanted: readonly string[]): boolean =>
  namesIn(text).some((word) => wanted.includes(word));

/** Reports whether a sentence names a place outside the image, where the object could be. */
function isElsewhere(rest: string, wanted: readonly string[]): boolean {
  const place = /\b(?:in|on|inside|within|at|under|near|behind|by|over|among|beside)\b(.*)$/.exec(rest)?.[1];
  return place !== undefined && !IMAGE.test(place) && !isNamedIn(place, wanted) && namesIn(place).length > 0;
}

function isAbsence(sentence: string, wanted: readonly string[]): boolean {
  const plain = sentence.replace(
    /^(?:(?:no(?=,)|sorry|unfortunately|apologies|i'm sorry|i am sorry|i apologi[sz]e|after (?:\w+ ){1,6}\w+|(?:up)?on (?:\w+ ){0,2}inspection|looking at (?:\w+ ){1,4}\w+|based on (?:\w+ ){1,4}\w+|in (?:the|this) (?:\w+ )?(?:image|picture|photo|scene)|it (?:seems|appears|looks)(?: like| as if)?(?: that)?),? (?:but )?)+/,
    "",
  );
  const contrast = CONTRAST.exec(plain);
  if (contrast && BUT_PRESENT.test(plain.slice(contrast.index))) return false;
  // Another object, but not the requested one.
  const isOfAnother = contrast && !wanted.every((word) => namesIn(plain.slice(0, contrast.index)).includes(word));
  const rest = plain.slice((contrast?.index ?? 0) + (contrast?.[0].length ?? 0)).replace(/^[,\s]+/, "");
  if (isOfAnother && contrast[0] === "but" && !CONTRAST.test(rest) && isAbsence(rest, wanted)) return true;
  const clause = contrast ? plain.slice(0, contrast.index).replace(/[,\s]+$/, "") : plain;
  for (const absence of ABSENCES) {
    const found = absence.exec(clause);
    if (!found) continue;
    const what = (found[1] ?? "").trim();
    const [head = ""] = what.split(AFTER_HEAD, 1).map((each) => each.trim());
    if (OTHER_HEADS.test(head) || isElsewhere(what.slice(head.length), wanted)) return false;
    // "Nothing but a red cube" denies nothing.
    if (head === "" && contrast) return false;
    if (head === "") return what === "" || (what.startsWith("of ") ? isNamedIn(clause, wanted) : AT_ONCE.test(what));
    const words = namesIn(head);
    // Beside another object, only an exact denial of the requested one counts: "no blue cube, but the red one is here" denies no red cube.
    if (contrast || absence === BARE) return words.length > 0 && words.every((word) => wanted.includes(word));
    // With another description it is another object: "no blue cube" denies no red one.
    if (isNamedIn(head, wanted)) return words.every((word) => wanted.includes(word) || NEUTRAL.test(word));
    if (GENERIC.test(head)) return true;
    // Words of another language than the answer's cannot be compared.
    return !wanted.some((word) => /[a-z]/.test(word)) && PLACE.test(clause.slice(found[0].indexOf(what)));
  }
  return false;
}
