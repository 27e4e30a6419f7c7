/** The names that a fork would change, each written once. */

/** The product's name, lower case, as it appears in log lines and realm strings. */
export const BRAND = "limber";

/** What every router alias starts with. */
export const ALIAS_PREFIX = "service/";

/** The header that carries the operator's token. */
export const ADMIN_HEADER = "x-service-admin-token";

/** The domain of `google.rpc.ErrorInfo` in every refusal over gRPC and Connect. */
export const ERROR_DOMAIN = "limber.dev";

/** What every API key starts with, so that secret scanners can find one. */
export const KEY_PREFIX = "lmb_sk_";

/** What every invite of a member starts with. */
export const INVITE_PREFIX = "lmb_inv_";

/** What every OAuth code starts with. */
export const CODE_PREFIX = "lmb_code_";

/** What the secret of every OAuth client starts with. */
export const CLIENT_SECRET_PREFIX = "lmb_cs_";

/** What the secret of every session starts with. */
export const SESSION_PREFIX = "lmb_ses_";

/** What the token of every one-time sign-in link starts with. */
export const SIGN_IN_PREFIX = "lmb_in_";

/** The name of the session's cookie, ahead of which `__Host-` stands wherever the connection is encrypted. */
export const SESSION_COOKIE = "limber_session";

/** The name of the cookie by which a sign-in that comes back from an identity provider is known again. */
export const SIGN_IN_COOKIE = "limber_sign_in";

/** The version of the interface description. */
export const API_VERSION = "0.1.0";
