/** The page that signs a person in by a token. */

/** The address of the page; the token stands behind the `#`, which browsers send to no server and name to no other page. */
export const signInLink = (home: string, token: string): string => `${home}/sign-in#token=${token}`;
