/** The documentation, which `docs.ts` reads when the console is built. */
declare module "virtual:docs" {
  /** Every page: its path, title and sections. */
  export const index: readonly {
    readonly path: string;
    readonly title: string;
    readonly headings: readonly string[];
  }[];
  /** Loads the text of each page, by path. */
  export const texts: Readonly<Record<string, () => Promise<{ readonly default: string }>>>;
}
