"""One exception class for each reason of `reason.proto`. Made by `generate.py`."""

from limber import _refusal as family


class MissingApiKey(family.AuthenticationError):
    """The call has no `Authorization: Bearer` key."""

    code = "missing_api_key"
    status = 401
    retryable = False


class InvalidApiKey(family.AuthenticationError):
    """The key is malformed or unknown."""

    code = "invalid_api_key"
    status = 401
    retryable = False


class KeyDisabled(family.AuthenticationError):
    """The key was disabled."""

    code = "key_disabled"
    status = 401
    retryable = False


class KeyExpired(family.AuthenticationError):
    """The key has expired."""

    code = "key_expired"
    status = 401
    retryable = False


class AdminTokenRequired(family.AuthenticationError):
    """An administrative call has no admin token."""

    code = "admin_token_required"
    status = 401
    retryable = False


class InvalidAdminToken(family.PermissionRefused):
    """The admin token is invalid."""

    code = "invalid_admin_token"
    status = 403
    retryable = False


class ScopeDenied(family.PermissionRefused):
    """The key's scopes do not include this contract, or the call would grant more authority than the key has; see `details.exceeds`."""

    code = "scope_denied"
    status = 403
    retryable = False


class PermissionDenied(family.PermissionRefused):
    """The key does not have the permission that this call needs or would grant."""

    code = "permission_denied"
    status = 403
    retryable = False


class ModelNotInScope(family.PermissionRefused):
    """The key is not allowed to use the requested model."""

    code = "model_not_in_scope"
    status = 403
    retryable = False


class InvalidClient(family.AuthenticationError):
    """The OAuth client is unknown or its secret is wrong."""

    code = "invalid_client"
    status = 401
    retryable = False


class InvalidGrant(family.ValidationError):
    """The authorization code is unknown, used, expired or issued to another client, or the parameters do not match it."""

    code = "invalid_grant"
    status = 400
    retryable = False


class UnsupportedGrantType(family.ValidationError):
    """The grant type is not supported; use `authorization_code`."""

    code = "unsupported_grant_type"
    status = 400
    retryable = False


class InvalidScope(family.ValidationError):
    """A scope exceeds the client's registration or the authority of the consenting key."""

    code = "invalid_scope"
    status = 400
    retryable = False


class InvalidFilter(family.ValidationError):
    """The SCIM filter is invalid, too deep, or uses unknown attributes."""

    code = "invalid_filter"
    status = 400
    retryable = False


class InvalidPath(family.ValidationError):
    """The SCIM path is invalid or does not match an attribute."""

    code = "invalid_path"
    status = 400
    retryable = False


class NoTarget(family.ValidationError):
    """The SCIM path matches no value of this resource."""

    code = "no_target"
    status = 400
    retryable = False


class InvalidValue(family.ValidationError):
    """A value is missing or not valid for its attribute."""

    code = "invalid_value"
    status = 400
    retryable = False


class NotMutable(family.ValidationError):
    """The attribute is read-only."""

    code = "not_mutable"
    status = 400
    retryable = False


class VersionMismatch(family.ConflictError):
    """The version of the resource does not match `If-Match`."""

    code = "version_mismatch"
    status = 412
    retryable = False


class InsufficientCredits(family.BillingError):
    """The balance does not cover the highest possible cost of the call."""

    code = "insufficient_credits"
    status = 402
    retryable = False


class KeyBudgetExhausted(family.BillingError):
    """The key's budget does not cover the highest possible cost of the call."""

    code = "key_budget_exhausted"
    status = 402
    retryable = False


class WorkspaceBudgetExhausted(family.BillingError):
    """The workspace's budget does not cover the highest possible cost of the call."""

    code = "workspace_budget_exhausted"
    status = 402
    retryable = False


class BillingUnavailable(family.BillingError):
    """No payment processor is configured; the operator adds credit."""

    code = "billing_unavailable"
    status = 501
    retryable = False


class ProcessorUnavailable(family.BillingError):
    """The payment processor does not respond; nothing was changed."""

    code = "processor_unavailable"
    status = 503
    retryable = True


class InvalidSignature(family.ValidationError):
    """The signature of a payment webhook is invalid or too old."""

    code = "invalid_signature"
    status = 400
    retryable = False


class RateLimitExceeded(family.RateLimitError):
    """The key exceeded its rate limit."""

    code = "rate_limit_exceeded"
    status = 429
    retryable = True


class ConcurrencyLimitExceeded(family.RateLimitError):
    """The key has too many concurrent requests."""

    code = "concurrency_limit_exceeded"
    status = 429
    retryable = True


class TooManyFailedCalls(family.RateLimitError):
    """Too many calls of this key or organization failed at every model, probably because of their input."""

    code = "too_many_failed_calls"
    status = 429
    retryable = True


class MalformedBody(family.ValidationError):
    """The body is not valid JSON or does not match the request message."""

    code = "malformed_body"
    status = 400
    retryable = False


class ValidationFailed(family.ValidationError):
    """One or more fields are invalid; `detail` lists each with its path."""

    code = "validation_failed"
    status = 422
    retryable = False


class ActionSpaceMismatch(family.ValidationError):
    """The requested model does not emit the requested action space."""

    code = "action_space_mismatch"
    status = 422
    retryable = False


class ConflictingPreferences(family.ValidationError):
    """The request sets two preferences that exclude each other."""

    code = "conflicting_preferences"
    status = 422
    retryable = False


class IdempotencyUnsupported(family.ValidationError):
    """Streams cannot be replayed, so they do not accept an idempotency key."""

    code = "idempotency_unsupported"
    status = 422
    retryable = False


class StreamUnsupported(family.ValidationError):
    """`stream` was set on a transport that does not stream this call."""

    code = "stream_unsupported"
    status = 422
    retryable = False


class FrameRefused(family.ValidationError):
    """A frame could not be fetched or decoded."""

    code = "frame_refused"
    status = 422
    retryable = False


class AddressRefused(family.ValidationError):
    """The request contains an address that the gateway must not connect to."""

    code = "address_refused"
    status = 422
    retryable = False


class PayloadTooLarge(family.ValidationError):
    """The body exceeds the size limit."""

    code = "payload_too_large"
    status = 413
    retryable = False


class UnsupportedMediaType(family.ValidationError):
    """The content type of the body is not supported by this call."""

    code = "unsupported_media_type"
    status = 415
    retryable = False


class MalformedRequest(family.ValidationError):
    """The bytes received are not a valid HTTP request."""

    code = "malformed_request"
    status = 400
    retryable = False


class RequestTimeout(family.OutOfTime):
    """The request did not arrive in time."""

    code = "request_timeout"
    status = 408
    retryable = False


class ExpectationFailed(family.ValidationError):
    """The `Expect` header is not `100-continue`."""

    code = "expectation_failed"
    status = 417
    retryable = False


class HeadersTooLarge(family.ValidationError):
    """The request line and headers exceed the size limit."""

    code = "headers_too_large"
    status = 431
    retryable = False


class TransferCodingUnsupported(family.ValidationError):
    """The transfer coding is not `chunked`."""

    code = "transfer_coding_unsupported"
    status = 501
    retryable = False


class MethodNotImplemented(family.ValidationError):
    """The server does not implement this HTTP method."""

    code = "method_not_implemented"
    status = 501
    retryable = False


class HttpVersionUnsupported(family.ValidationError):
    """The HTTP version is not 1.0, 1.1 or 2."""

    code = "http_version_unsupported"
    status = 505
    retryable = False


class NotFound(family.NotFoundError):
    """The path or resource does not exist."""

    code = "not_found"
    status = 404
    retryable = False


class ModelNotFound(family.NotFoundError):
    """The model or alias does not exist."""

    code = "model_not_found"
    status = 404
    retryable = False


class PresetNotFound(family.NotFoundError):
    """The preset does not exist in this organization."""

    code = "preset_not_found"
    status = 404
    retryable = False


class MethodNotAllowed(family.NotFoundError):
    """The path does not support this method."""

    code = "method_not_allowed"
    status = 405
    retryable = False


class NoLiveDeployment(family.RoutingError):
    """The model or alias exists, but has no live offering."""

    code = "no_live_deployment"
    status = 409
    retryable = False


class NoRouteAvailable(family.RoutingError):
    """No offering satisfies the constraints; `details.dropped` lists each with its reason."""

    code = "no_route_available"
    status = 409
    retryable = False


class IdempotencyConflict(family.ConflictError):
    """The idempotency key was used with a different body."""

    code = "idempotency_conflict"
    status = 409
    retryable = False


class IdempotencyInProgress(family.ConflictError):
    """The first call with this idempotency key is still running."""

    code = "idempotency_in_progress"
    status = 409
    retryable = True


class AlreadyExists(family.ConflictError):
    """A resource with this name already exists."""

    code = "already_exists"
    status = 409
    retryable = False


class SessionTakenOver(family.ConflictError):
    """A newer stream of the same session took over this control loop."""

    code = "session_taken_over"
    status = 409
    retryable = False


class KeyNarrowed(family.ConflictError):
    """The key's authority was reduced; open a new stream."""

    code = "key_narrowed"
    status = 409
    retryable = True


class WorkspaceInUse(family.ConflictError):
    """The workspace has active keys; revoke them first, or delete it with `force`."""

    code = "workspace_in_use"
    status = 409
    retryable = False


class RobotStopped(family.ConflictError):
    """An emergency stop is active; no actions are sent until it is released."""

    code = "robot_stopped"
    status = 409
    retryable = False


class OfferingNotLive(family.ConflictError):
    """Only routable offerings can be paused, and only paused ones resumed."""

    code = "offering_not_live"
    status = 409
    retryable = False


class OfferingNotVerifiable(family.ConflictError):
    """Rejected and removed offerings cannot be verified, so register them again. If the server was busy, retry when it is free."""

    code = "offering_not_verifiable"
    status = 409
    retryable = False


class LastOwner(family.ConflictError):
    """The organization would be left without an owner; make another member an owner first."""

    code = "last_owner"
    status = 409
    retryable = False


class InvalidInvite(family.NotFoundError):
    """The invite is unknown, already accepted or expired."""

    code = "invalid_invite"
    status = 404
    retryable = False


class MemberNotActive(family.ConflictError):
    """The member has not accepted the invite or is deactivated."""

    code = "member_not_active"
    status = 409
    retryable = False


class AllAttemptsFailed(family.UpstreamError):
    """Every offering of the plan was tried and failed; `route.attempts` lists the failures."""

    code = "all_attempts_failed"
    status = 502
    retryable = True


class InputContract(family.ValidationError):
    """The input matches no eligible offering, by their declared input contracts or by their answers. `details.violations` lists each field at fault, and `details.needed` what the offerings declare. A retry of the same request fails again."""

    code = "input_contract"
    status = 422
    retryable = False


class DeadlineExceeded(family.OutOfTime):
    """The deadline passed, or no offering could finish in the remaining time."""

    code = "deadline_exceeded"
    status = 504
    retryable = True


class CapacityExhausted(family.ServerError):
    """The circuit breakers of all eligible offerings are open."""

    code = "capacity_exhausted"
    status = 503
    retryable = True


class Overloaded(family.ServerError):
    """This instance is overloaded. Nothing ran and nothing was charged; retry after `retry_after`."""

    code = "overloaded"
    status = 503
    retryable = True


class NotReady(family.ServerError):
    """This instance is not ready for traffic."""

    code = "not_ready"
    status = 503
    retryable = True


class StoreUnavailable(family.ServerError):
    """The gateway cannot read or write its own state; nothing was charged."""

    code = "store_unavailable"
    status = 503
    retryable = True


class ClientClosedRequest(family.OutOfTime):
    """The caller disconnected before the response was ready."""

    code = "client_closed_request"
    status = 499
    retryable = False


class InternalError(family.ServerError):
    """Internal error; include the request id when you report it."""

    code = "internal_error"
    status = 500
    retryable = True


class DataGone(family.NotFoundError):
    """The data was already fetched or has expired; the organization has zero data retention."""

    code = "data_gone"
    status = 410
    retryable = False


class TooMany(family.ConflictError):
    """The organization has reached its limit for this kind of resource; remove one first."""

    code = "too_many"
    status = 409
    retryable = False


class PresetInUse(family.ConflictError):
    """The preset is the default of the organization or of a workspace; choose another default first."""

    code = "preset_in_use"
    status = 409
    retryable = False


class JobFinished(family.ConflictError):
    """The job has ended and cannot be canceled."""

    code = "job_finished"
    status = 409
    retryable = False


class NotPublishable(family.ConflictError):
    """The evaluation or comparison cannot be published; the message names the cause."""

    code = "not_publishable"
    status = 409
    retryable = False


class ScenarioNotRunnable(family.ConflictError):
    """The scenario is only listed in the catalog and needs an external harness to run."""

    code = "scenario_not_runnable"
    status = 409
    retryable = False


class ImmutableField(family.ValidationError):
    """Probed fields of an offering cannot be changed; declare a new offering."""

    code = "immutable_field"
    status = 422
    retryable = False


class OfferingLive(family.ConflictError):
    """Calls are routed to the offering; withdraw it with `force=true`."""

    code = "offering_live"
    status = 409
    retryable = False


class WebhookDisabled(family.ConflictError):
    """The webhook is disabled; nothing is sent to it."""

    code = "webhook_disabled"
    status = 409
    retryable = False


class BroadcastTestFailed(family.ValidationError):
    """The broadcast target rejected a test span and was not saved."""

    code = "broadcast_test_failed"
    status = 422
    retryable = False


class ClaimLost(family.ConflictError):
    """The runner's claim has expired, and another runner may hold the evaluation. Nothing of this call was kept; claim an evaluation again."""

    code = "claim_lost"
    status = 409
    retryable = False


class EpisodesMissing(family.ConflictError):
    """Some episodes of the evaluation have not been reported."""

    code = "episodes_missing"
    status = 409
    retryable = False


class EpisodeReported(family.ConflictError):
    """The episode was already reported with a different result."""

    code = "episode_reported"
    status = 409
    retryable = False


class BodyMemoryExhausted(family.ServerError):
    """The memory for request bodies is used up."""

    code = "body_memory_exhausted"
    status = 503
    retryable = True


class BodyMemoryLimitExceeded(family.RateLimitError):
    """The key's running calls have used up the key's share of body memory."""

    code = "body_memory_limit_exceeded"
    status = 429
    retryable = True


class OrgNotEmpty(family.ConflictError):
    """The organization still has credit, a commitment, jobs, pending payments or live offerings."""

    code = "org_not_empty"
    status = 409
    retryable = False


class SessionEnded(family.AuthenticationError):
    """The session is unknown or expired, or its member can no longer sign in."""

    code = "session_ended"
    status = 401
    retryable = False


class CrossOrigin(family.PermissionRefused):
    """A request with a session cookie may come from another site's page."""

    code = "cross_origin"
    status = 403
    retryable = False


class BrowserNeeded(family.ValidationError):
    """Sign-in needs a browser over REST or Connect, on an encrypted or loopback connection."""

    code = "browser_needed"
    status = 422
    retryable = False


class InvalidSignIn(family.AuthenticationError):
    """The sign-in link or invite is invalid, already used or expired."""

    code = "invalid_sign_in"
    status = 401
    retryable = False


class NoIssuer(family.NotFoundError):
    """No identity provider is configured for this e-mail domain."""

    code = "no_issuer"
    status = 404
    retryable = False


class IssuerFailed(family.UpstreamError):
    """The identity provider did not respond, or violated OpenID Connect."""

    code = "issuer_failed"
    status = 422
    retryable = False


class SignInInterrupted(family.AuthenticationError):
    """The sign-in was started in another browser, timed out or was canceled."""

    code = "sign_in_interrupted"
    status = 401
    retryable = False


class SignInRefused(family.PermissionRefused):
    """The identity provider's user is not an active member: no verified e-mail in the organization's domains, no membership, or deactivated."""

    code = "sign_in_refused"
    status = 403
    retryable = False


class DomainNotVerified(family.ConflictError):
    """The operator has not verified the e-mail domain for this organization, or another organization uses it."""

    code = "domain_not_verified"
    status = 409
    retryable = False


class InvalidRedirectUri(family.ValidationError):
    """A redirect URI of the application is not allowed."""

    code = "invalid_redirect_uri"
    status = 400
    retryable = False


class InvalidClientMetadata(family.ValidationError):
    """The application's registration requests unsupported features."""

    code = "invalid_client_metadata"
    status = 400
    retryable = False


class InvalidTarget(family.ValidationError):
    """The requested resource is another server."""

    code = "invalid_target"
    status = 400
    retryable = False


class MailUnavailable(family.ServerError):
    """Mail is not configured on this gateway."""

    code = "mail_unavailable"
    status = 501
    retryable = False


class MailFailed(family.UpstreamError):
    """The mail server did not accept a message."""

    code = "mail_failed"
    status = 502
    retryable = True


class KeyLineTooLong(family.ConflictError):
    """The calling key has reached the maximum depth of key descent and cannot create keys."""

    code = "key_line_too_long"
    status = 409
    retryable = False


class CursorExpired(family.ConflictError):
    """The cursor is older than the event retention, so events may be missing; start again without a cursor."""

    code = "cursor_expired"
    status = 410
    retryable = False


class RobotNotArmed(family.PermissionRefused):
    """The robot is not armed for this key, model or duration, or the arming has ended."""

    code = "robot_not_armed"
    status = 403
    retryable = False


class RobotBusy(family.ConflictError):
    """Another run is moving this robot."""

    code = "robot_busy"
    status = 409
    retryable = False


class RobotAbsent(family.ConflictError):
    """The robot is not connected, so nothing can move it."""

    code = "robot_absent"
    status = 409
    retryable = False


class PaymentMethodMissing(family.BillingError):
    """Automatic top-up needs a stored payment method."""

    code = "payment_method_missing"
    status = 409
    retryable = False


class AppNotAllowed(family.PermissionRefused):
    """The organization does not allow applications that registered themselves."""

    code = "app_not_allowed"
    status = 403
    retryable = False


class StateUnloaded(family.ServerError):
    """The gateway's stored state is damaged and cannot be loaded; an operator must restore it."""

    code = "state_unloaded"
    status = 503
    retryable = True


#: Each class by the word of its reason.
BY_CODE: dict[str, type[family.Refused]] = {
    "missing_api_key": MissingApiKey,
    "invalid_api_key": InvalidApiKey,
    "key_disabled": KeyDisabled,
    "key_expired": KeyExpired,
    "admin_token_required": AdminTokenRequired,
    "invalid_admin_token": InvalidAdminToken,
    "scope_denied": ScopeDenied,
    "permission_denied": PermissionDenied,
    "model_not_in_scope": ModelNotInScope,
    "invalid_client": InvalidClient,
    "invalid_grant": InvalidGrant,
    "unsupported_grant_type": UnsupportedGrantType,
    "invalid_scope": InvalidScope,
    "invalid_filter": InvalidFilter,
    "invalid_path": InvalidPath,
    "no_target": NoTarget,
    "invalid_value": InvalidValue,
    "not_mutable": NotMutable,
    "version_mismatch": VersionMismatch,
    "insufficient_credits": InsufficientCredits,
    "key_budget_exhausted": KeyBudgetExhausted,
    "workspace_budget_exhausted": WorkspaceBudgetExhausted,
    "billing_unavailable": BillingUnavailable,
    "processor_unavailable": ProcessorUnavailable,
    "invalid_signature": InvalidSignature,
    "rate_limit_exceeded": RateLimitExceeded,
    "concurrency_limit_exceeded": ConcurrencyLimitExceeded,
    "too_many_failed_calls": TooManyFailedCalls,
    "malformed_body": MalformedBody,
    "validation_failed": ValidationFailed,
    "action_space_mismatch": ActionSpaceMismatch,
    "conflicting_preferences": ConflictingPreferences,
    "idempotency_unsupported": IdempotencyUnsupported,
    "stream_unsupported": StreamUnsupported,
    "frame_refused": FrameRefused,
    "address_refused": AddressRefused,
    "payload_too_large": PayloadTooLarge,
    "unsupported_media_type": UnsupportedMediaType,
    "malformed_request": MalformedRequest,
    "request_timeout": RequestTimeout,
    "expectation_failed": ExpectationFailed,
    "headers_too_large": HeadersTooLarge,
    "transfer_coding_unsupported": TransferCodingUnsupported,
    "method_not_implemented": MethodNotImplemented,
    "http_version_unsupported": HttpVersionUnsupported,
    "not_found": NotFound,
    "model_not_found": ModelNotFound,
    "preset_not_found": PresetNotFound,
    "method_not_allowed": MethodNotAllowed,
    "no_live_deployment": NoLiveDeployment,
    "no_route_available": NoRouteAvailable,
    "idempotency_conflict": IdempotencyConflict,
    "idempotency_in_progress": IdempotencyInProgress,
    "already_exists": AlreadyExists,
    "session_taken_over": SessionTakenOver,
    "key_narrowed": KeyNarrowed,
    "workspace_in_use": WorkspaceInUse,
    "robot_stopped": RobotStopped,
    "offering_not_live": OfferingNotLive,
    "offering_not_verifiable": OfferingNotVerifiable,
    "last_owner": LastOwner,
    "invalid_invite": InvalidInvite,
    "member_not_active": MemberNotActive,
    "all_attempts_failed": AllAttemptsFailed,
    "input_contract": InputContract,
    "deadline_exceeded": DeadlineExceeded,
    "capacity_exhausted": CapacityExhausted,
    "overloaded": Overloaded,
    "not_ready": NotReady,
    "store_unavailable": StoreUnavailable,
    "client_closed_request": ClientClosedRequest,
    "internal_error": InternalError,
    "data_gone": DataGone,
    "too_many": TooMany,
    "preset_in_use": PresetInUse,
    "job_finished": JobFinished,
    "not_publishable": NotPublishable,
    "scenario_not_runnable": ScenarioNotRunnable,
    "immutable_field": ImmutableField,
    "offering_live": OfferingLive,
    "webhook_disabled": WebhookDisabled,
    "broadcast_test_failed": BroadcastTestFailed,
    "claim_lost": ClaimLost,
    "episodes_missing": EpisodesMissing,
    "episode_reported": EpisodeReported,
    "body_memory_exhausted": BodyMemoryExhausted,
    "body_memory_limit_exceeded": BodyMemoryLimitExceeded,
    "org_not_empty": OrgNotEmpty,
    "session_ended": SessionEnded,
    "cross_origin": CrossOrigin,
    "browser_needed": BrowserNeeded,
    "invalid_sign_in": InvalidSignIn,
    "no_issuer": NoIssuer,
    "issuer_failed": IssuerFailed,
    "sign_in_interrupted": SignInInterrupted,
    "sign_in_refused": SignInRefused,
    "domain_not_verified": DomainNotVerified,
    "invalid_redirect_uri": InvalidRedirectUri,
    "invalid_client_metadata": InvalidClientMetadata,
    "invalid_target": InvalidTarget,
    "mail_unavailable": MailUnavailable,
    "mail_failed": MailFailed,
    "key_line_too_long": KeyLineTooLong,
    "cursor_expired": CursorExpired,
    "robot_not_armed": RobotNotArmed,
    "robot_busy": RobotBusy,
    "robot_absent": RobotAbsent,
    "payment_method_missing": PaymentMethodMissing,
    "app_not_allowed": AppNotAllowed,
    "state_unloaded": StateUnloaded,
}

__all__ = [
    "ActionSpaceMismatch",
    "AddressRefused",
    "AdminTokenRequired",
    "AllAttemptsFailed",
    "AlreadyExists",
    "AppNotAllowed",
    "BY_CODE",
    "BillingUnavailable",
    "BodyMemoryExhausted",
    "BodyMemoryLimitExceeded",
    "BroadcastTestFailed",
    "BrowserNeeded",
    "CapacityExhausted",
    "ClaimLost",
    "ClientClosedRequest",
    "ConcurrencyLimitExceeded",
    "ConflictingPreferences",
    "CrossOrigin",
    "CursorExpired",
    "DataGone",
    "DeadlineExceeded",
    "DomainNotVerified",
    "EpisodeReported",
    "EpisodesMissing",
    "ExpectationFailed",
    "FrameRefused",
    "HeadersTooLarge",
    "HttpVersionUnsupported",
    "IdempotencyConflict",
    "IdempotencyInProgress",
    "IdempotencyUnsupported",
    "ImmutableField",
    "InputContract",
    "InsufficientCredits",
    "InternalError",
    "InvalidAdminToken",
    "InvalidApiKey",
    "InvalidClient",
    "InvalidClientMetadata",
    "InvalidFilter",
    "InvalidGrant",
    "InvalidInvite",
    "InvalidPath",
    "InvalidRedirectUri",
    "InvalidScope",
    "InvalidSignIn",
    "InvalidSignature",
    "InvalidTarget",
    "InvalidValue",
    "IssuerFailed",
    "JobFinished",
    "KeyBudgetExhausted",
    "KeyDisabled",
    "KeyExpired",
    "KeyLineTooLong",
    "KeyNarrowed",
    "LastOwner",
    "MailFailed",
    "MailUnavailable",
    "MalformedBody",
    "MalformedRequest",
    "MemberNotActive",
    "MethodNotAllowed",
    "MethodNotImplemented",
    "MissingApiKey",
    "ModelNotFound",
    "ModelNotInScope",
    "NoIssuer",
    "NoLiveDeployment",
    "NoRouteAvailable",
    "NoTarget",
    "NotFound",
    "NotMutable",
    "NotPublishable",
    "NotReady",
    "OfferingLive",
    "OfferingNotLive",
    "OfferingNotVerifiable",
    "OrgNotEmpty",
    "Overloaded",
    "PayloadTooLarge",
    "PaymentMethodMissing",
    "PermissionDenied",
    "PresetInUse",
    "PresetNotFound",
    "ProcessorUnavailable",
    "RateLimitExceeded",
    "RequestTimeout",
    "RobotAbsent",
    "RobotBusy",
    "RobotNotArmed",
    "RobotStopped",
    "ScenarioNotRunnable",
    "ScopeDenied",
    "SessionEnded",
    "SessionTakenOver",
    "SignInInterrupted",
    "SignInRefused",
    "StateUnloaded",
    "StoreUnavailable",
    "StreamUnsupported",
    "TooMany",
    "TooManyFailedCalls",
    "TransferCodingUnsupported",
    "UnsupportedGrantType",
    "UnsupportedMediaType",
    "ValidationFailed",
    "VersionMismatch",
    "WebhookDisabled",
    "WorkspaceBudgetExhausted",
    "WorkspaceInUse",
]
