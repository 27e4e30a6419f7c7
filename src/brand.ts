/** The product names that a fork changes, each defined once. */

/** The product's name, lower case, as it appears in log lines and realm strings. */
export const BRAND = "limber";

/** The prefix of every router alias. */
export const ALIAS_PREFIX = "service/";

/** The header with the operator's token. */
export const ADMIN_HEADER = "x-service-admin-token";

/** The domain of `google.rpc.ErrorInfo` in every refusal over gRPC and Connect. */
export const ERROR_DOMAIN = "limber.dev";

/** The prefix of every API key, which lets secret scanners find one. */
export const KEY_PREFIX = "lmb_sk_";

/** The prefix of every member invite. */
export const INVITE_PREFIX = "lmb_inv_";

/** The prefix of every OAuth code. */
export const CODE_PREFIX = "lmb_code_";

/** The prefix of every OAuth client secret. */
export const CLIENT_SECRET_PREFIX = "lmb_cs_";

/** The prefix of every session secret. */
export const SESSION_PREFIX = "lmb_ses_";

/** The prefix of every one-time sign-in token. */
export const SIGN_IN_PREFIX = "lmb_in_";

/** The name of the session cookie; `__Host-` precedes it on encrypted connections. */
export const SESSION_COOKIE = "limber_session";

/** The name of the cookie that identifies a sign-in on its return from an identity provider. */
export const SIGN_IN_COOKIE = "limber_sign_in";

/** The version of the API description. */
export const API_VERSION = "0.1.0";
