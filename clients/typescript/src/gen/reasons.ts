/** One class for each reason of `reason.proto`. Made by `npm run gen`. */
import { AuthenticationError, BillingError, ConflictError, NotFoundError, OutOfTime, PermissionRefused, RateLimitError, RoutingError, ServerError, UpstreamError, ValidationError, type RefusedClass } from "../refused.ts";

/** The call has no `Authorization: Bearer` key. */
export class MissingApiKey extends AuthenticationError {
  static override readonly code: string = "missing_api_key";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** The key is malformed or unknown. */
export class InvalidApiKey extends AuthenticationError {
  static override readonly code: string = "invalid_api_key";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** The key was disabled. */
export class KeyDisabled extends AuthenticationError {
  static override readonly code: string = "key_disabled";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** The key has expired. */
export class KeyExpired extends AuthenticationError {
  static override readonly code: string = "key_expired";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** An administrative call has no admin token. */
export class AdminTokenRequired extends AuthenticationError {
  static override readonly code: string = "admin_token_required";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** The admin token is invalid. */
export class InvalidAdminToken extends PermissionRefused {
  static override readonly code: string = "invalid_admin_token";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The key's scopes do not include this contract, or the call would grant more authority than the key has; see `details.exceeds`. */
export class ScopeDenied extends PermissionRefused {
  static override readonly code: string = "scope_denied";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The key does not have the permission that this call needs or would grant. */
export class PermissionDenied extends PermissionRefused {
  static override readonly code: string = "permission_denied";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The key is not allowed to use the requested model. */
export class ModelNotInScope extends PermissionRefused {
  static override readonly code: string = "model_not_in_scope";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The OAuth client is unknown or its secret is wrong. */
export class InvalidClient extends AuthenticationError {
  static override readonly code: string = "invalid_client";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** The authorization code is unknown, used, expired or issued to another client, or the parameters do not match it. */
export class InvalidGrant extends ValidationError {
  static override readonly code: string = "invalid_grant";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The grant type is not supported; use `authorization_code`. */
export class UnsupportedGrantType extends ValidationError {
  static override readonly code: string = "unsupported_grant_type";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** A scope exceeds the client's registration or the authority of the consenting key. */
export class InvalidScope extends ValidationError {
  static override readonly code: string = "invalid_scope";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The SCIM filter is invalid, too deep, or uses unknown attributes. */
export class InvalidFilter extends ValidationError {
  static override readonly code: string = "invalid_filter";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The SCIM path is invalid or does not match an attribute. */
export class InvalidPath extends ValidationError {
  static override readonly code: string = "invalid_path";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The SCIM path matches no value of this resource. */
export class NoTarget extends ValidationError {
  static override readonly code: string = "no_target";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** A value is missing or not valid for its attribute. */
export class InvalidValue extends ValidationError {
  static override readonly code: string = "invalid_value";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The attribute is read-only. */
export class NotMutable extends ValidationError {
  static override readonly code: string = "not_mutable";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The version of the resource does not match `If-Match`. */
export class VersionMismatch extends ConflictError {
  static override readonly code: string = "version_mismatch";
  static override readonly status: number = 412;
  static override readonly retryable: boolean = false;
}

/** The balance does not cover the highest possible cost of the call. */
export class InsufficientCredits extends BillingError {
  static override readonly code: string = "insufficient_credits";
  static override readonly status: number = 402;
  static override readonly retryable: boolean = false;
}

/** The key's budget does not cover the highest possible cost of the call. */
export class KeyBudgetExhausted extends BillingError {
  static override readonly code: string = "key_budget_exhausted";
  static override readonly status: number = 402;
  static override readonly retryable: boolean = false;
}

/** The workspace's budget does not cover the highest possible cost of the call. */
export class WorkspaceBudgetExhausted extends BillingError {
  static override readonly code: string = "workspace_budget_exhausted";
  static override readonly status: number = 402;
  static override readonly retryable: boolean = false;
}

/** No payment processor is configured; the operator adds credit. */
export class BillingUnavailable extends BillingError {
  static override readonly code: string = "billing_unavailable";
  static override readonly status: number = 501;
  static override readonly retryable: boolean = false;
}

/** The payment processor does not respond; nothing was changed. */
export class ProcessorUnavailable extends BillingError {
  static override readonly code: string = "processor_unavailable";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** The signature of a payment webhook is invalid or too old. */
export class InvalidSignature extends ValidationError {
  static override readonly code: string = "invalid_signature";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The key exceeded its rate limit. */
export class RateLimitExceeded extends RateLimitError {
  static override readonly code: string = "rate_limit_exceeded";
  static override readonly status: number = 429;
  static override readonly retryable: boolean = true;
}

/** The key has too many concurrent requests. */
export class ConcurrencyLimitExceeded extends RateLimitError {
  static override readonly code: string = "concurrency_limit_exceeded";
  static override readonly status: number = 429;
  static override readonly retryable: boolean = true;
}

/** Too many calls of this key or organization failed at every model, probably because of their input. */
export class TooManyFailedCalls extends RateLimitError {
  static override readonly code: string = "too_many_failed_calls";
  static override readonly status: number = 429;
  static override readonly retryable: boolean = true;
}

/** The body is not valid JSON or does not match the request message. */
export class MalformedBody extends ValidationError {
  static override readonly code: string = "malformed_body";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** One or more fields are invalid; `detail` lists each with its path. */
export class ValidationFailed extends ValidationError {
  static override readonly code: string = "validation_failed";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The requested model does not emit the requested action space. */
export class ActionSpaceMismatch extends ValidationError {
  static override readonly code: string = "action_space_mismatch";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The request sets two preferences that exclude each other. */
export class ConflictingPreferences extends ValidationError {
  static override readonly code: string = "conflicting_preferences";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** Streams cannot be replayed, so they do not accept an idempotency key. */
export class IdempotencyUnsupported extends ValidationError {
  static override readonly code: string = "idempotency_unsupported";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** `stream` was set on a transport that does not stream this call. */
export class StreamUnsupported extends ValidationError {
  static override readonly code: string = "stream_unsupported";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** A frame could not be fetched or decoded. */
export class FrameRefused extends ValidationError {
  static override readonly code: string = "frame_refused";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The request contains an address that the gateway must not connect to. */
export class AddressRefused extends ValidationError {
  static override readonly code: string = "address_refused";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The body exceeds the size limit. */
export class PayloadTooLarge extends ValidationError {
  static override readonly code: string = "payload_too_large";
  static override readonly status: number = 413;
  static override readonly retryable: boolean = false;
}

/** The content type of the body is not supported by this call. */
export class UnsupportedMediaType extends ValidationError {
  static override readonly code: string = "unsupported_media_type";
  static override readonly status: number = 415;
  static override readonly retryable: boolean = false;
}

/** The bytes received are not a valid HTTP request. */
export class MalformedRequest extends ValidationError {
  static override readonly code: string = "malformed_request";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The request did not arrive in time. */
export class RequestTimeout extends OutOfTime {
  static override readonly code: string = "request_timeout";
  static override readonly status: number = 408;
  static override readonly retryable: boolean = false;
}

/** The `Expect` header is not `100-continue`. */
export class ExpectationFailed extends ValidationError {
  static override readonly code: string = "expectation_failed";
  static override readonly status: number = 417;
  static override readonly retryable: boolean = false;
}

/** The request line and headers exceed the size limit. */
export class HeadersTooLarge extends ValidationError {
  static override readonly code: string = "headers_too_large";
  static override readonly status: number = 431;
  static override readonly retryable: boolean = false;
}

/** The transfer coding is not `chunked`. */
export class TransferCodingUnsupported extends ValidationError {
  static override readonly code: string = "transfer_coding_unsupported";
  static override readonly status: number = 501;
  static override readonly retryable: boolean = false;
}

/** The server does not implement this HTTP method. */
export class MethodNotImplemented extends ValidationError {
  static override readonly code: string = "method_not_implemented";
  static override readonly status: number = 501;
  static override readonly retryable: boolean = false;
}

/** The HTTP version is not 1.0, 1.1 or 2. */
export class HttpVersionUnsupported extends ValidationError {
  static override readonly code: string = "http_version_unsupported";
  static override readonly status: number = 505;
  static override readonly retryable: boolean = false;
}

/** The path or resource does not exist. */
export class NotFound extends NotFoundError {
  static override readonly code: string = "not_found";
  static override readonly status: number = 404;
  static override readonly retryable: boolean = false;
}

/** The model or alias does not exist. */
export class ModelNotFound extends NotFoundError {
  static override readonly code: string = "model_not_found";
  static override readonly status: number = 404;
  static override readonly retryable: boolean = false;
}

/** The preset does not exist in this organization. */
export class PresetNotFound extends NotFoundError {
  static override readonly code: string = "preset_not_found";
  static override readonly status: number = 404;
  static override readonly retryable: boolean = false;
}

/** The path does not support this method. */
export class MethodNotAllowed extends NotFoundError {
  static override readonly code: string = "method_not_allowed";
  static override readonly status: number = 405;
  static override readonly retryable: boolean = false;
}

/** The model or alias exists, but has no live offering. */
export class NoLiveDeployment extends RoutingError {
  static override readonly code: string = "no_live_deployment";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** No offering satisfies the constraints; `details.dropped` lists each with its reason. */
export class NoRouteAvailable extends RoutingError {
  static override readonly code: string = "no_route_available";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The idempotency key was used with a different body. */
export class IdempotencyConflict extends ConflictError {
  static override readonly code: string = "idempotency_conflict";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The first call with this idempotency key is still running. */
export class IdempotencyInProgress extends ConflictError {
  static override readonly code: string = "idempotency_in_progress";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = true;
}

/** A resource with this name already exists. */
export class AlreadyExists extends ConflictError {
  static override readonly code: string = "already_exists";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** A newer stream of the same session took over this control loop. */
export class SessionTakenOver extends ConflictError {
  static override readonly code: string = "session_taken_over";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The key's authority was reduced; open a new stream. */
export class KeyNarrowed extends ConflictError {
  static override readonly code: string = "key_narrowed";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = true;
}

/** The workspace has active keys; revoke them first, or delete it with `force`. */
export class WorkspaceInUse extends ConflictError {
  static override readonly code: string = "workspace_in_use";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** An emergency stop is active; no actions are sent until it is released. */
export class RobotStopped extends ConflictError {
  static override readonly code: string = "robot_stopped";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** Only routable offerings can be paused, and only paused ones resumed. */
export class OfferingNotLive extends ConflictError {
  static override readonly code: string = "offering_not_live";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** Rejected and removed offerings cannot be verified, so register them again. If the server was busy, retry when it is free. */
export class OfferingNotVerifiable extends ConflictError {
  static override readonly code: string = "offering_not_verifiable";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The organization would be left without an owner; make another member an owner first. */
export class LastOwner extends ConflictError {
  static override readonly code: string = "last_owner";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The invite is unknown, already accepted or expired. */
export class InvalidInvite extends NotFoundError {
  static override readonly code: string = "invalid_invite";
  static override readonly status: number = 404;
  static override readonly retryable: boolean = false;
}

/** The member has not accepted the invite or is deactivated. */
export class MemberNotActive extends ConflictError {
  static override readonly code: string = "member_not_active";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** Every offering of the plan was tried and failed; `route.attempts` lists the failures. */
export class AllAttemptsFailed extends UpstreamError {
  static override readonly code: string = "all_attempts_failed";
  static override readonly status: number = 502;
  static override readonly retryable: boolean = true;
}

/** The input matches no eligible offering, by their declared input contracts or by their answers. `details.violations` lists each field at fault, and `details.needed` what the offerings declare. A retry of the same request fails again. */
export class InputContract extends ValidationError {
  static override readonly code: string = "input_contract";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The deadline passed, or no offering could finish in the remaining time. */
export class DeadlineExceeded extends OutOfTime {
  static override readonly code: string = "deadline_exceeded";
  static override readonly status: number = 504;
  static override readonly retryable: boolean = true;
}

/** The circuit breakers of all eligible offerings are open. */
export class CapacityExhausted extends ServerError {
  static override readonly code: string = "capacity_exhausted";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** This instance is overloaded. Nothing ran and nothing was charged; retry after `retry_after`. */
export class Overloaded extends ServerError {
  static override readonly code: string = "overloaded";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** This instance is not ready for traffic. */
export class NotReady extends ServerError {
  static override readonly code: string = "not_ready";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** The gateway cannot read or write its own state; nothing was charged. */
export class StoreUnavailable extends ServerError {
  static override readonly code: string = "store_unavailable";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** The caller disconnected before the response was ready. */
export class ClientClosedRequest extends OutOfTime {
  static override readonly code: string = "client_closed_request";
  static override readonly status: number = 499;
  static override readonly retryable: boolean = false;
}

/** Internal error; include the request id when you report it. */
export class InternalError extends ServerError {
  static override readonly code: string = "internal_error";
  static override readonly status: number = 500;
  static override readonly retryable: boolean = true;
}

/** The data was already fetched or has expired; the organization has zero data retention. */
export class DataGone extends NotFoundError {
  static override readonly code: string = "data_gone";
  static override readonly status: number = 410;
  static override readonly retryable: boolean = false;
}

/** The organization has reached its limit for this kind of resource; remove one first. */
export class TooMany extends ConflictError {
  static override readonly code: string = "too_many";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The preset is the default of the organization or of a workspace; choose another default first. */
export class PresetInUse extends ConflictError {
  static override readonly code: string = "preset_in_use";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The job has ended and cannot be canceled. */
export class JobFinished extends ConflictError {
  static override readonly code: string = "job_finished";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The evaluation or comparison cannot be published; the message names the cause. */
export class NotPublishable extends ConflictError {
  static override readonly code: string = "not_publishable";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The scenario is only listed in the catalog and needs an external harness to run. */
export class ScenarioNotRunnable extends ConflictError {
  static override readonly code: string = "scenario_not_runnable";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** Probed fields of an offering cannot be changed; declare a new offering. */
export class ImmutableField extends ValidationError {
  static override readonly code: string = "immutable_field";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** Calls are routed to the offering; withdraw it with `force=true`. */
export class OfferingLive extends ConflictError {
  static override readonly code: string = "offering_live";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The webhook is disabled; nothing is sent to it. */
export class WebhookDisabled extends ConflictError {
  static override readonly code: string = "webhook_disabled";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The broadcast target rejected a test span and was not saved. */
export class BroadcastTestFailed extends ValidationError {
  static override readonly code: string = "broadcast_test_failed";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The runner's claim has expired, and another runner may hold the evaluation. Nothing of this call was kept; claim an evaluation again. */
export class ClaimLost extends ConflictError {
  static override readonly code: string = "claim_lost";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** Some episodes of the evaluation have not been reported. */
export class EpisodesMissing extends ConflictError {
  static override readonly code: string = "episodes_missing";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The episode was already reported with a different result. */
export class EpisodeReported extends ConflictError {
  static override readonly code: string = "episode_reported";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The memory for request bodies is used up. */
export class BodyMemoryExhausted extends ServerError {
  static override readonly code: string = "body_memory_exhausted";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** The key's running calls have used up the key's share of body memory. */
export class BodyMemoryLimitExceeded extends RateLimitError {
  static override readonly code: string = "body_memory_limit_exceeded";
  static override readonly status: number = 429;
  static override readonly retryable: boolean = true;
}

/** The organization still has credit, a commitment, jobs, pending payments or live offerings. */
export class OrgNotEmpty extends ConflictError {
  static override readonly code: string = "org_not_empty";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The session is unknown or expired, or its member can no longer sign in. */
export class SessionEnded extends AuthenticationError {
  static override readonly code: string = "session_ended";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** A request with a session cookie may come from another site's page. */
export class CrossOrigin extends PermissionRefused {
  static override readonly code: string = "cross_origin";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** Sign-in needs a browser over REST or Connect, on an encrypted or loopback connection. */
export class BrowserNeeded extends ValidationError {
  static override readonly code: string = "browser_needed";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The sign-in link or invite is invalid, already used or expired. */
export class InvalidSignIn extends AuthenticationError {
  static override readonly code: string = "invalid_sign_in";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** No identity provider is configured for this e-mail domain. */
export class NoIssuer extends NotFoundError {
  static override readonly code: string = "no_issuer";
  static override readonly status: number = 404;
  static override readonly retryable: boolean = false;
}

/** The identity provider did not respond, or violated OpenID Connect. */
export class IssuerFailed extends UpstreamError {
  static override readonly code: string = "issuer_failed";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The sign-in was started in another browser, timed out or was canceled. */
export class SignInInterrupted extends AuthenticationError {
  static override readonly code: string = "sign_in_interrupted";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** The identity provider's user is not an active member: no verified e-mail in the organization's domains, no membership, or deactivated. */
export class SignInRefused extends PermissionRefused {
  static override readonly code: string = "sign_in_refused";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The operator has not verified the e-mail domain for this organization, or another organization uses it. */
export class DomainNotVerified extends ConflictError {
  static override readonly code: string = "domain_not_verified";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** A redirect URI of the application is not allowed. */
export class InvalidRedirectUri extends ValidationError {
  static override readonly code: string = "invalid_redirect_uri";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The application's registration requests unsupported features. */
export class InvalidClientMetadata extends ValidationError {
  static override readonly code: string = "invalid_client_metadata";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The requested resource is another server. */
export class InvalidTarget extends ValidationError {
  static override readonly code: string = "invalid_target";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** Mail is not configured on this gateway. */
export class MailUnavailable extends ServerError {
  static override readonly code: string = "mail_unavailable";
  static override readonly status: number = 501;
  static override readonly retryable: boolean = false;
}

/** The mail server did not accept a message. */
export class MailFailed extends UpstreamError {
  static override readonly code: string = "mail_failed";
  static override readonly status: number = 502;
  static override readonly retryable: boolean = true;
}

/** The calling key has reached the maximum depth of key descent and cannot create keys. */
export class KeyLineTooLong extends ConflictError {
  static override readonly code: string = "key_line_too_long";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The cursor is older than the event retention, so events may be missing; start again without a cursor. */
export class CursorExpired extends ConflictError {
  static override readonly code: string = "cursor_expired";
  static override readonly status: number = 410;
  static override readonly retryable: boolean = false;
}

/** The robot is not armed for this key, model or duration, or the arming has ended. */
export class RobotNotArmed extends PermissionRefused {
  static override readonly code: string = "robot_not_armed";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** Another run is moving this robot. */
export class RobotBusy extends ConflictError {
  static override readonly code: string = "robot_busy";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The robot is not connected, so nothing can move it. */
export class RobotAbsent extends ConflictError {
  static override readonly code: string = "robot_absent";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** Automatic top-up needs a stored payment method. */
export class PaymentMethodMissing extends BillingError {
  static override readonly code: string = "payment_method_missing";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The organization does not allow applications that registered themselves. */
export class AppNotAllowed extends PermissionRefused {
  static override readonly code: string = "app_not_allowed";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The gateway's stored state is damaged and cannot be loaded; an operator must restore it. */
export class StateUnloaded extends ServerError {
  static override readonly code: string = "state_unloaded";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** The class of each reason by its code. */
export const BY_CODE: ReadonlyMap<string, RefusedClass> = new Map<string, RefusedClass>(
  [MissingApiKey, InvalidApiKey, KeyDisabled, KeyExpired, AdminTokenRequired, InvalidAdminToken, ScopeDenied, PermissionDenied, ModelNotInScope, InvalidClient, InvalidGrant, UnsupportedGrantType, InvalidScope, InvalidFilter, InvalidPath, NoTarget, InvalidValue, NotMutable, VersionMismatch, InsufficientCredits, KeyBudgetExhausted, WorkspaceBudgetExhausted, BillingUnavailable, ProcessorUnavailable, InvalidSignature, RateLimitExceeded, ConcurrencyLimitExceeded, TooManyFailedCalls, MalformedBody, ValidationFailed, ActionSpaceMismatch, ConflictingPreferences, IdempotencyUnsupported, StreamUnsupported, FrameRefused, AddressRefused, PayloadTooLarge, UnsupportedMediaType, MalformedRequest, RequestTimeout, ExpectationFailed, HeadersTooLarge, TransferCodingUnsupported, MethodNotImplemented, HttpVersionUnsupported, NotFound, ModelNotFound, PresetNotFound, MethodNotAllowed, NoLiveDeployment, NoRouteAvailable, IdempotencyConflict, IdempotencyInProgress, AlreadyExists, SessionTakenOver, KeyNarrowed, WorkspaceInUse, RobotStopped, OfferingNotLive, OfferingNotVerifiable, LastOwner, InvalidInvite, MemberNotActive, AllAttemptsFailed, InputContract, DeadlineExceeded, CapacityExhausted, Overloaded, NotReady, StoreUnavailable, ClientClosedRequest, InternalError, DataGone, TooMany, PresetInUse, JobFinished, NotPublishable, ScenarioNotRunnable, ImmutableField, OfferingLive, WebhookDisabled, BroadcastTestFailed, ClaimLost, EpisodesMissing, EpisodeReported, BodyMemoryExhausted, BodyMemoryLimitExceeded, OrgNotEmpty, SessionEnded, CrossOrigin, BrowserNeeded, InvalidSignIn, NoIssuer, IssuerFailed, SignInInterrupted, SignInRefused, DomainNotVerified, InvalidRedirectUri, InvalidClientMetadata, InvalidTarget, MailUnavailable, MailFailed, KeyLineTooLong, CursorExpired, RobotNotArmed, RobotBusy, RobotAbsent, PaymentMethodMissing, AppNotAllowed, StateUnloaded].map((each) => [each.code, each]),
);
