/** One class for each reason of `reason.proto`. Made by `npm run gen`. */
import { AuthenticationError, BillingError, ConflictError, NotFoundError, OutOfTime, PermissionRefused, RateLimitError, RoutingError, ServerError, UpstreamError, ValidationError, type RefusedClass } from "../refused.ts";

/** The call carries no `Authorization: Bearer` key. */
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

/** The key's time is over. */
export class KeyExpired extends AuthenticationError {
  static override readonly code: string = "key_expired";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** An administrative call came without the admin token. */
export class AdminTokenRequired extends AuthenticationError {
  static override readonly code: string = "admin_token_required";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** The admin token is wrong. */
export class InvalidAdminToken extends PermissionRefused {
  static override readonly code: string = "invalid_admin_token";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The key's scopes do not cover this contract, or the key would give away more than it has: `details.exceeds` names in what. */
export class ScopeDenied extends PermissionRefused {
  static override readonly code: string = "scope_denied";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The key does not hold the permission that this call needs, or that it would give away. */
export class PermissionDenied extends PermissionRefused {
  static override readonly code: string = "permission_denied";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The key may not use the model that was named. */
export class ModelNotInScope extends PermissionRefused {
  static override readonly code: string = "model_not_in_scope";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The OAuth client is not known, or its secret is wrong. */
export class InvalidClient extends AuthenticationError {
  static override readonly code: string = "invalid_client";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** The code is unknown, used, over, or not this client's; or what was sent with it does not fit it. */
export class InvalidGrant extends ValidationError {
  static override readonly code: string = "invalid_grant";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** Only `authorization_code` is exchanged here. */
export class UnsupportedGrantType extends ValidationError {
  static override readonly code: string = "unsupported_grant_type";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** A scope is beyond what the client was registered for, or beyond what the consenting key may do. */
export class InvalidScope extends ValidationError {
  static override readonly code: string = "invalid_scope";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** A filter cannot be read, is too deep, or speaks of attributes that there are not. */
export class InvalidFilter extends ValidationError {
  static override readonly code: string = "invalid_filter";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The path of a change cannot be read, or leads to no attribute. */
export class InvalidPath extends ValidationError {
  static override readonly code: string = "invalid_path";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The path of a change leads to no value of this resource. */
export class NoTarget extends ValidationError {
  static override readonly code: string = "no_target";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** A value is missing, or not one that the attribute takes. */
export class InvalidValue extends ValidationError {
  static override readonly code: string = "invalid_value";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The attribute is not for callers to change. */
export class NotMutable extends ValidationError {
  static override readonly code: string = "not_mutable";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** The resource has another version than `If-Match` asks for. */
export class VersionMismatch extends ConflictError {
  static override readonly code: string = "version_mismatch";
  static override readonly status: number = 412;
  static override readonly retryable: boolean = false;
}

/** The balance does not cover the dearest way the call could go. */
export class InsufficientCredits extends BillingError {
  static override readonly code: string = "insufficient_credits";
  static override readonly status: number = 402;
  static override readonly retryable: boolean = false;
}

/** The key's budget does not cover the dearest way the call could go. */
export class KeyBudgetExhausted extends BillingError {
  static override readonly code: string = "key_budget_exhausted";
  static override readonly status: number = 402;
  static override readonly retryable: boolean = false;
}

/** The budget of the key's workspace does not cover the dearest way the call could go. */
export class WorkspaceBudgetExhausted extends BillingError {
  static override readonly code: string = "workspace_budget_exhausted";
  static override readonly status: number = 402;
  static override readonly retryable: boolean = false;
}

/** No payment processor is set up here: the operator adds credit. */
export class BillingUnavailable extends BillingError {
  static override readonly code: string = "billing_unavailable";
  static override readonly status: number = 501;
  static override readonly retryable: boolean = false;
}

/** The payment processor does not answer at the moment; nothing was changed. */
export class ProcessorUnavailable extends BillingError {
  static override readonly code: string = "processor_unavailable";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** A message that claims to be the payment processor's is not signed by it, or was signed too long ago. */
export class InvalidSignature extends ValidationError {
  static override readonly code: string = "invalid_signature";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** Too many requests on this key. */
export class RateLimitExceeded extends RateLimitError {
  static override readonly code: string = "rate_limit_exceeded";
  static override readonly status: number = 429;
  static override readonly retryable: boolean = true;
}

/** Too many requests at once on this key. */
export class ConcurrencyLimitExceeded extends RateLimitError {
  static override readonly code: string = "concurrency_limit_exceeded";
  static override readonly status: number = 429;
  static override readonly retryable: boolean = true;
}

/** Too many calls of this key or its organisation failed at every model that was asked, by what their input may have caused. */
export class TooManyFailedCalls extends RateLimitError {
  static override readonly code: string = "too_many_failed_calls";
  static override readonly status: number = 429;
  static override readonly retryable: boolean = true;
}

/** The body is not JSON, or not the message that the call takes. */
export class MalformedBody extends ValidationError {
  static override readonly code: string = "malformed_body";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** One or more fields are wrong; `detail` lists each with its path. */
export class ValidationFailed extends ValidationError {
  static override readonly code: string = "validation_failed";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The model that was named does not emit the action space that was asked for. */
export class ActionSpaceMismatch extends ValidationError {
  static override readonly code: string = "action_space_mismatch";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** Two preferences that exclude each other were sent. */
export class ConflictingPreferences extends ValidationError {
  static override readonly code: string = "conflicting_preferences";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** A stream cannot be replayed, so it takes no idempotency key. */
export class IdempotencyUnsupported extends ValidationError {
  static override readonly code: string = "idempotency_unsupported";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** `stream` was asked for on a transport that answers this call whole. */
export class StreamUnsupported extends ValidationError {
  static override readonly code: string = "stream_unsupported";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** A frame could not be fetched, or is no picture that can be read. */
export class FrameRefused extends ValidationError {
  static override readonly code: string = "frame_refused";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** An address that the gateway must not dial was given. */
export class AddressRefused extends ValidationError {
  static override readonly code: string = "address_refused";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The body is larger than the limit. */
export class PayloadTooLarge extends ValidationError {
  static override readonly code: string = "payload_too_large";
  static override readonly status: number = 413;
  static override readonly retryable: boolean = false;
}

/** The body's content type is not one that this call takes. */
export class UnsupportedMediaType extends ValidationError {
  static override readonly code: string = "unsupported_media_type";
  static override readonly status: number = 415;
  static override readonly retryable: boolean = false;
}

/** The bytes are not a valid HTTP request. */
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

/** The request expects something other than `100-continue`. */
export class ExpectationFailed extends ValidationError {
  static override readonly code: string = "expectation_failed";
  static override readonly status: number = 417;
  static override readonly retryable: boolean = false;
}

/** The request line and headers are larger than the limit. */
export class HeadersTooLarge extends ValidationError {
  static override readonly code: string = "headers_too_large";
  static override readonly status: number = 431;
  static override readonly retryable: boolean = false;
}

/** The transfer coding is another than `chunked`. */
export class TransferCodingUnsupported extends ValidationError {
  static override readonly code: string = "transfer_coding_unsupported";
  static override readonly status: number = 501;
  static override readonly retryable: boolean = false;
}

/** The HTTP method is not one that this server knows. */
export class MethodNotImplemented extends ValidationError {
  static override readonly code: string = "method_not_implemented";
  static override readonly status: number = 501;
  static override readonly retryable: boolean = false;
}

/** The HTTP version is another than 1.0, 1.1 and 2. */
export class HttpVersionUnsupported extends ValidationError {
  static override readonly code: string = "http_version_unsupported";
  static override readonly status: number = 505;
  static override readonly retryable: boolean = false;
}

/** There is no such path, or the thing named does not exist here. */
export class NotFound extends NotFoundError {
  static override readonly code: string = "not_found";
  static override readonly status: number = 404;
  static override readonly retryable: boolean = false;
}

/** No model or alias bears this name. */
export class ModelNotFound extends NotFoundError {
  static override readonly code: string = "model_not_found";
  static override readonly status: number = 404;
  static override readonly retryable: boolean = false;
}

/** The organisation has no preset of this name. */
export class PresetNotFound extends NotFoundError {
  static override readonly code: string = "preset_not_found";
  static override readonly status: number = 404;
  static override readonly retryable: boolean = false;
}

/** The path exists and does not take this method. */
export class MethodNotAllowed extends NotFoundError {
  static override readonly code: string = "method_not_allowed";
  static override readonly status: number = 405;
  static override readonly retryable: boolean = false;
}

/** The model or alias is known and nothing live serves it. */
export class NoLiveDeployment extends RoutingError {
  static override readonly code: string = "no_live_deployment";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The constraints leave no offering; `details.dropped` names each and why. */
export class NoRouteAvailable extends RoutingError {
  static override readonly code: string = "no_route_available";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The idempotency key was used with another body. */
export class IdempotencyConflict extends ConflictError {
  static override readonly code: string = "idempotency_conflict";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The first call with this idempotency key still runs. */
export class IdempotencyInProgress extends ConflictError {
  static override readonly code: string = "idempotency_in_progress";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = true;
}

/** A thing of this name exists already. */
export class AlreadyExists extends ConflictError {
  static override readonly code: string = "already_exists";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** Another stream of the same session was opened: the loop goes on there. */
export class SessionTakenOver extends ConflictError {
  static override readonly code: string = "session_taken_over";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The key may do less than when the stream was opened: another one, opened now, goes on with what it still may. */
export class KeyNarrowed extends ConflictError {
  static override readonly code: string = "key_narrowed";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = true;
}

/** The workspace has keys that work; revoke them first, or delete it with `force`. */
export class WorkspaceInUse extends ConflictError {
  static override readonly code: string = "workspace_in_use";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** An emergency stop stands: no actions until it is released. */
export class RobotStopped extends ConflictError {
  static override readonly code: string = "robot_stopped";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** Only an offering that calls are routed to can be paused, and only a paused one resumed. */
export class OfferingNotLive extends ConflictError {
  static override readonly code: string = "offering_not_live";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** A rejected or removed offering cannot be verified: register it again. One whose server was busy can be when it is free. */
export class OfferingNotVerifiable extends ConflictError {
  static override readonly code: string = "offering_not_verifiable";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The organisation would be left without an owner; make somebody else the owner first. */
export class LastOwner extends ConflictError {
  static override readonly code: string = "last_owner";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The invite is not known, was accepted, or its time is over. */
export class InvalidInvite extends NotFoundError {
  static override readonly code: string = "invalid_invite";
  static override readonly status: number = 404;
  static override readonly retryable: boolean = false;
}

/** The member has not accepted the invite, or was deactivated. */
export class MemberNotActive extends ConflictError {
  static override readonly code: string = "member_not_active";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** Every offering of the plan was tried and failed; `route.attempts` says how. */
export class AllAttemptsFailed extends UpstreamError {
  static override readonly code: string = "all_attempts_failed";
  static override readonly status: number = 502;
  static override readonly retryable: boolean = true;
}

/** The observations, the instruction or the goal are not what any offering that may serve reads: by what these declare, so that none was asked, and `details.violations` names each field that is missing or too much; or by what those that were asked answered. `details.needed` says what they read, as far as they declared it. The same request fails again. */
export class InputContract extends ValidationError {
  static override readonly code: string = "input_contract";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** Time ran out, or no step of the plan could finish in what was left of it. */
export class DeadlineExceeded extends OutOfTime {
  static override readonly code: string = "deadline_exceeded";
  static override readonly status: number = 504;
  static override readonly retryable: boolean = true;
}

/** Every offering that could serve is resting after failures. */
export class CapacityExhausted extends ServerError {
  static override readonly code: string = "capacity_exhausted";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** More calls arrive than this instance can serve: nothing was done and nothing was charged; call again after `retry_after`. */
export class Overloaded extends ServerError {
  static override readonly code: string = "overloaded";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** The instance should not receive traffic now. */
export class NotReady extends ServerError {
  static override readonly code: string = "not_ready";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** The gateway's own state cannot be read or written at the moment; nothing was charged. */
export class StoreUnavailable extends ServerError {
  static override readonly code: string = "store_unavailable";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** The caller went away before the answer was there. */
export class ClientClosedRequest extends OutOfTime {
  static override readonly code: string = "client_closed_request";
  static override readonly status: number = 499;
  static override readonly retryable: boolean = false;
}

/** The gateway's fault; the request id finds it in the log. */
export class InternalError extends ServerError {
  static override readonly code: string = "internal_error";
  static override readonly status: number = 500;
  static override readonly retryable: boolean = true;
}

/** It was fetched, or its time is over: the organisation retains no data. */
export class DataGone extends NotFoundError {
  static override readonly code: string = "data_gone";
  static override readonly status: number = 410;
  static override readonly retryable: boolean = false;
}

/** There are as many of these as an organisation may have; remove one first. */
export class TooMany extends ConflictError {
  static override readonly code: string = "too_many";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The preset is the default of the organisation or of a workspace; name another one in its settings first. */
export class PresetInUse extends ConflictError {
  static override readonly code: string = "preset_in_use";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The job has ended: there is nothing to call off. */
export class JobFinished extends ConflictError {
  static override readonly code: string = "job_finished";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The scenario is catalogued, and needs an outside harness to be run. */
export class ScenarioNotRunnable extends ConflictError {
  static override readonly code: string = "scenario_not_runnable";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** What was probed of an offering never changes; declare it again, and have that probed. */
export class ImmutableField extends ValidationError {
  static override readonly code: string = "immutable_field";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** Calls are routed to the offering: withdraw it with `force=true`. */
export class OfferingLive extends ConflictError {
  static override readonly code: string = "offering_live";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The webhook is disabled: nothing is sent to it. */
export class WebhookDisabled extends ConflictError {
  static override readonly code: string = "webhook_disabled";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The target of spans did not take a test span, and was not saved. */
export class BroadcastTestFailed extends ValidationError {
  static override readonly code: string = "broadcast_test_failed";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The runner's time with the evaluation was over, and it may be another's now; nothing of this call is kept. Take one anew. */
export class ClaimLost extends ConflictError {
  static override readonly code: string = "claim_lost";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** Episodes of the evaluation have not been reported yet. */
export class EpisodesMissing extends ConflictError {
  static override readonly code: string = "episodes_missing";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The episode was reported before, and came to something else then. */
export class EpisodeReported extends ConflictError {
  static override readonly code: string = "episode_reported";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** All bodies that the gateway reads and works on at the moment have taken the memory that it gives them. */
export class BodyMemoryExhausted extends ServerError {
  static override readonly code: string = "body_memory_exhausted";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** The bodies of this key's running calls have taken the memory that the gateway gives one key. */
export class BodyMemoryLimitExceeded extends RateLimitError {
  static override readonly code: string = "body_memory_limit_exceeded";
  static override readonly status: number = 429;
  static override readonly retryable: boolean = true;
}

/** The organisation still has what would be lost with it: credit, a commitment, jobs, pending payments or live offerings. */
export class OrgNotEmpty extends ConflictError {
  static override readonly code: string = "org_not_empty";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The session is not known, its time is over, or its member may not sign in any more. */
export class SessionEnded extends AuthenticationError {
  static override readonly code: string = "session_ended";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** A session's cookie came with a request that another site's page may have sent. */
export class CrossOrigin extends PermissionRefused {
  static override readonly code: string = "cross_origin";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The caller is no browser that can keep a session: it speaks neither REST nor Connect, or its connection is neither encrypted nor on loopback. */
export class BrowserNeeded extends ValidationError {
  static override readonly code: string = "browser_needed";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The link or the invite is not known, was used, or its time is over. */
export class InvalidSignIn extends AuthenticationError {
  static override readonly code: string = "invalid_sign_in";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** No identity provider signs this e-mail domain in. */
export class NoIssuer extends NotFoundError {
  static override readonly code: string = "no_issuer";
  static override readonly status: number = 404;
  static override readonly retryable: boolean = false;
}

/** The identity provider did not answer, or not as OpenID Connect says. */
export class IssuerFailed extends UpstreamError {
  static override readonly code: string = "issuer_failed";
  static override readonly status: number = 422;
  static override readonly retryable: boolean = false;
}

/** The sign-in did not begin at this browser, took too long, or was called off. */
export class SignInInterrupted extends AuthenticationError {
  static override readonly code: string = "sign_in_interrupted";
  static override readonly status: number = 401;
  static override readonly retryable: boolean = false;
}

/** What the identity provider says of the person makes nobody a member: no verified e-mail of a domain of the organisation, no member of it, or one that was deactivated. */
export class SignInRefused extends PermissionRefused {
  static override readonly code: string = "sign_in_refused";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The e-mail domain is not one that the operator verified for this organisation, or it is another's. */
export class DomainNotVerified extends ConflictError {
  static override readonly code: string = "domain_not_verified";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** An address that an application takes codes at is none that codes may go to. */
export class InvalidRedirectUri extends ValidationError {
  static override readonly code: string = "invalid_redirect_uri";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** An application asks to be registered for what there is not here. */
export class InvalidClientMetadata extends ValidationError {
  static override readonly code: string = "invalid_client_metadata";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** A key is asked for that is for another server. */
export class InvalidTarget extends ValidationError {
  static override readonly code: string = "invalid_target";
  static override readonly status: number = 400;
  static override readonly retryable: boolean = false;
}

/** No mail is sent: the operator has named no mail server. */
export class MailUnavailable extends ServerError {
  static override readonly code: string = "mail_unavailable";
  static override readonly status: number = 501;
  static override readonly retryable: boolean = false;
}

/** The mail server did not take a mail. */
export class MailFailed extends UpstreamError {
  static override readonly code: string = "mail_failed";
  static override readonly status: number = 502;
  static override readonly retryable: boolean = true;
}

/** The key that makes this one descends from as many keys as one may. */
export class KeyLineTooLong extends ConflictError {
  static override readonly code: string = "key_line_too_long";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The cursor is older than events are kept: some behind it may be forgotten. Begin anew without one. */
export class CursorExpired extends ConflictError {
  static override readonly code: string = "cursor_expired";
  static override readonly status: number = 410;
  static override readonly retryable: boolean = false;
}

/** No person has armed this robot for this key, or not for this model or for so long; or what was armed has ended. */
export class RobotNotArmed extends PermissionRefused {
  static override readonly code: string = "robot_not_armed";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** Another run moves this robot. */
export class RobotBusy extends ConflictError {
  static override readonly code: string = "robot_busy";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The robot does not attend, so that nothing could move it. */
export class RobotAbsent extends ConflictError {
  static override readonly code: string = "robot_absent";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** Automatic top-up needs a payment method that is stored first. */
export class PaymentMethodMissing extends BillingError {
  static override readonly code: string = "payment_method_missing";
  static override readonly status: number = 409;
  static override readonly retryable: boolean = false;
}

/** The organisation lets its members consent to no application that registered itself. */
export class AppNotAllowed extends PermissionRefused {
  static override readonly code: string = "app_not_allowed";
  static override readonly status: number = 403;
  static override readonly retryable: boolean = false;
}

/** The gateway's store is damaged, and could not be loaded: an operator has to restore it. */
export class StateUnloaded extends ServerError {
  static override readonly code: string = "state_unloaded";
  static override readonly status: number = 503;
  static override readonly retryable: boolean = true;
}

/** The class of each reason by its code. */
export const BY_CODE: ReadonlyMap<string, RefusedClass> = new Map<string, RefusedClass>(
  [MissingApiKey, InvalidApiKey, KeyDisabled, KeyExpired, AdminTokenRequired, InvalidAdminToken, ScopeDenied, PermissionDenied, ModelNotInScope, InvalidClient, InvalidGrant, UnsupportedGrantType, InvalidScope, InvalidFilter, InvalidPath, NoTarget, InvalidValue, NotMutable, VersionMismatch, InsufficientCredits, KeyBudgetExhausted, WorkspaceBudgetExhausted, BillingUnavailable, ProcessorUnavailable, InvalidSignature, RateLimitExceeded, ConcurrencyLimitExceeded, TooManyFailedCalls, MalformedBody, ValidationFailed, ActionSpaceMismatch, ConflictingPreferences, IdempotencyUnsupported, StreamUnsupported, FrameRefused, AddressRefused, PayloadTooLarge, UnsupportedMediaType, MalformedRequest, RequestTimeout, ExpectationFailed, HeadersTooLarge, TransferCodingUnsupported, MethodNotImplemented, HttpVersionUnsupported, NotFound, ModelNotFound, PresetNotFound, MethodNotAllowed, NoLiveDeployment, NoRouteAvailable, IdempotencyConflict, IdempotencyInProgress, AlreadyExists, SessionTakenOver, KeyNarrowed, WorkspaceInUse, RobotStopped, OfferingNotLive, OfferingNotVerifiable, LastOwner, InvalidInvite, MemberNotActive, AllAttemptsFailed, InputContract, DeadlineExceeded, CapacityExhausted, Overloaded, NotReady, StoreUnavailable, ClientClosedRequest, InternalError, DataGone, TooMany, PresetInUse, JobFinished, ScenarioNotRunnable, ImmutableField, OfferingLive, WebhookDisabled, BroadcastTestFailed, ClaimLost, EpisodesMissing, EpisodeReported, BodyMemoryExhausted, BodyMemoryLimitExceeded, OrgNotEmpty, SessionEnded, CrossOrigin, BrowserNeeded, InvalidSignIn, NoIssuer, IssuerFailed, SignInInterrupted, SignInRefused, DomainNotVerified, InvalidRedirectUri, InvalidClientMetadata, InvalidTarget, MailUnavailable, MailFailed, KeyLineTooLong, CursorExpired, RobotNotArmed, RobotBusy, RobotAbsent, PaymentMethodMissing, AppNotAllowed, StateUnloaded].map((each) => [each.code, each]),
);
