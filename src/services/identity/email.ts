/** E-mail addresses, read the same way everywhere. An address that two parsers could read differently is invalid. */

/**
 * A plain addr-spec of RFC 5322: one `@`, no quotes, no comments, no display name; letters of any script before the `@` (RFC 6531). Invitations
 * and sign-in take less, by the schema's rule `email`.
 */
const ADDRESS =
  /^[\p{L}\p{M}\p{N}.!#$%&'*+/=?^_`{|}~-]+@([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*)$/iu;

/** Whether a text is a plain e-mail address. */
export const isEmail = (text: string): boolean => ADDRESS.test(text);

/** The domain of an e-mail address, in lower case; empty where the text is no plain address. */
export const domainOf = (email: string): string => ADDRESS.exec(email)?.[1]?.toLowerCase() ?? "";
