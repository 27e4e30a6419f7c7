"""One exception class for each reason of `reason.proto`. Made by `generate.py`."""

from limber import _refusal as family


class MissingApiKey(family.AuthenticationError):
    """The call carries no `Authorization: Bearer` key."""

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
    """The key's time is over."""

    code = "key_expired"
    status = 401
    retryable = False


class AdminTokenRequired(family.AuthenticationError):
    """An administrative call came without the admin token."""

    code = "admin_token_required"
    status = 401
    retryable = False


class InvalidAdminToken(family.PermissionRefused):
    """The admin token is wrong."""

    code = "invalid_admin_token"
    status = 403
    retryable = False


class ScopeDenied(family.PermissionRefused):
    """The key's scopes do not cover this contract, or the key would give away more than it has: `details.exceeds` names in what."""

    code = "scope_denied"
    status = 403
    retryable = False


class PermissionDenied(family.PermissionRefused):
    """The key does not hold the permission that this call needs, or that it would give away."""

    code = "permission_denied"
    status = 403
    retryable = False


class ModelNotInScope(family.PermissionRefused):
    """The key may not use the model that was named."""

    code = "model_not_in_scope"
    status = 403
    retryable = False


class InvalidClient(family.AuthenticationError):
    """The OAuth client is not known, or its secret is wrong."""

    code = "invalid_client"
    status = 401
    retryable = False


class InvalidGrant(family.ValidationError):
    """The code is unknown, used, over, or not this client's; or what was sent with it does not fit it."""

    code = "invalid_grant"
    status = 400
    retryable = False


class UnsupportedGrantType(family.ValidationError):
    """Only `authorization_code` is exchanged here."""

    code = "unsupported_grant_type"
    status = 400
    retryable = False


class InvalidScope(family.ValidationError):
    """A scope is beyond what the client was registered for, or beyond what the consenting key may do."""

    code = "invalid_scope"
    status = 400
    retryable = False


class InvalidFilter(family.ValidationError):
    """A filter cannot be read, is too deep, or speaks of attributes that there are not."""

    code = "invalid_filter"
    status = 400
    retryable = False


class InvalidPath(family.ValidationError):
    """The path of a change cannot be read, or leads to no attribute."""

    code = "invalid_path"
    status = 400
    retryable = False


class NoTarget(family.ValidationError):
    """The path of a change leads to no value of this resource."""

    code = "no_target"
    status = 400
    retryable = False


class InvalidValue(family.ValidationError):
    """A value is missing, or not one that the attribute takes."""

    code = "invalid_value"
    status = 400
    retryable = False


class NotMutable(family.ValidationError):
    """The attribute is not for callers to change."""

    code = "not_mutable"
    status = 400
    retryable = False


class VersionMismatch(family.ConflictError):
    """The resource has another version than `If-Match` asks for."""

    code = "version_mismatch"
    status = 412
    retryable = False


class InsufficientCredits(family.BillingError):
    """The balance does not cover the dearest way the call could go."""

    code = "insufficient_credits"
    status = 402
    retryable = False


class KeyBudgetExhausted(family.BillingError):
    """The key's budget does not cover the dearest way the call could go."""

    code = "key_budget_exhausted"
    status = 402
    retryable = False


class WorkspaceBudgetExhausted(family.BillingError):
    """The budget of the key's workspace does not cover the dearest way the call could go."""

    code = "workspace_budget_exhausted"
    status = 402
    retryable = False


class BillingUnavailable(family.BillingError):
    """No payment processor is set up here: the operator adds credit."""

    code = "billing_unavailable"
    status = 501
    retryable = False


class ProcessorUnavailable(family.BillingError):
    """The payment processor does not answer at the moment; nothing was changed."""

    code = "processor_unavailable"
    status = 503
    retryable = True


class InvalidSignature(family.ValidationError):
    """A message that claims to be the payment processor's is not signed by it, or was signed too long ago."""

    code = "invalid_signature"
    status = 400
    retryable = False


class RateLimitExceeded(family.RateLimitError):
    """Too many requests on this key."""

    code = "rate_limit_exceeded"
    status = 429
    retryable = True


class ConcurrencyLimitExceeded(family.RateLimitError):
    """Too many requests at once on this key."""

    code = "concurrency_limit_exceeded"
    status = 429
    retryable = True


class TooManyFailedCalls(family.RateLimitError):
    """Too many calls of this key or its organisation failed at every model that was asked, by what their input may have caused."""

    code = "too_many_failed_calls"
    status = 429
    retryable = True


class MalformedBody(family.ValidationError):
    """The body is not JSON, or not the message that the call takes."""

    code = "malformed_body"
    status = 400
    retryable = False


class ValidationFailed(family.ValidationError):
    """One or more fields are wrong; `detail` lists each with its path."""

    code = "validation_failed"
    status = 422
    retryable = False


class ActionSpaceMismatch(family.ValidationError):
    """The model that was named does not emit the action space that was asked for."""

    code = "action_space_mismatch"
    status = 422
    retryable = False


class ConflictingPreferences(family.ValidationError):
    """Two preferences that exclude each other were sent."""

    code = "conflicting_preferences"
    status = 422
    retryable = False


class IdempotencyUnsupported(family.ValidationError):
    """A stream cannot be replayed, so it takes no idempotency key."""

    code = "idempotency_unsupported"
    status = 422
    retryable = False


class StreamUnsupported(family.ValidationError):
    """`stream` was asked for on a transport that answers this call whole."""

    code = "stream_unsupported"
    status = 422
    retryable = False


class FrameRefused(family.ValidationError):
    """A frame could not be fetched, or is no picture that can be read."""

    code = "frame_refused"
    status = 422
    retryable = False


class AddressRefused(family.ValidationError):
    """An address that the gateway must not dial was given."""

    code = "address_refused"
    status = 422
    retryable = False


class PayloadTooLarge(family.ValidationError):
    """The body is larger than the limit."""

    code = "payload_too_large"
    status = 413
    retryable = False


class UnsupportedMediaType(family.ValidationError):
    """The body's content type is not one that this call takes."""

    code = "unsupported_media_type"
    status = 415
    retryable = False


class MalformedRequest(family.ValidationError):
    """The bytes are not a valid HTTP request."""

    code = "malformed_request"
    status = 400
    retryable = False


class RequestTimeout(family.OutOfTime):
    """The request did not arrive in time."""

    code = "request_timeout"
    status = 408
    retryable = False


class ExpectationFailed(family.ValidationError):
    """The request expects something other than `100-continue`."""

    code = "expectation_failed"
    status = 417
    retryable = False


class HeadersTooLarge(family.ValidationError):
    """The request line and headers are larger than the limit."""

    code = "headers_too_large"
    status = 431
    retryable = False


class TransferCodingUnsupported(family.ValidationError):
    """The transfer coding is another than `chunked`."""

    code = "transfer_coding_unsupported"
    status = 501
    retryable = False


class MethodNotImplemented(family.ValidationError):
    """The HTTP method is not one that this server knows."""

    code = "method_not_implemented"
    status = 501
    retryable = False


class HttpVersionUnsupported(family.ValidationError):
    """The HTTP version is another than 1.0, 1.1 and 2."""

    code = "http_version_unsupported"
    status = 505
    retryable = False


class NotFound(family.NotFoundError):
    """There is no such path, or the thing named does not exist here."""

    code = "not_found"
    status = 404
    retryable = False


class ModelNotFound(family.NotFoundError):
    """No model or alias bears this name."""

    code = "model_not_found"
    status = 404
    retryable = False


class PresetNotFound(family.NotFoundError):
    """The organisation has no preset of this name."""

    code = "preset_not_found"
    status = 404
    retryable = False


class MethodNotAllowed(family.NotFoundError):
    """The path exists and does not take this method."""

    code = "method_not_allowed"
    status = 405
    retryable = False


class NoLiveDeployment(family.RoutingError):
    """The model or alias is known and nothing live serves it."""

    code = "no_live_deployment"
    status = 409
    retryable = False


class NoRouteAvailable(family.RoutingError):
    """The constraints leave no offering; `details.dropped` names each and why."""

    code = "no_route_available"
    status = 409
    retryable = False


class IdempotencyConflict(family.ConflictError):
    """The idempotency key was used with another body."""

    code = "idempotency_conflict"
    status = 409
    retryable = False


class IdempotencyInProgress(family.ConflictError):
    """The first call with this idempotency key still runs."""

    code = "idempotency_in_progress"
    status = 409
    retryable = True


class AlreadyExists(family.ConflictError):
    """A thing of this name exists already."""

    code = "already_exists"
    status = 409
    retryable = False


class SessionTakenOver(family.ConflictError):
    """Another stream of the same session was opened: the loop goes on there."""

    code = "session_taken_over"
    status = 409
    retryable = False


class KeyNarrowed(family.ConflictError):
    """The key may do less than when the stream was opened: another one, opened now, goes on with what it still may."""

    code = "key_narrowed"
    status = 409
    retryable = True


class WorkspaceInUse(family.ConflictError):
    """The workspace has keys that work; revoke them first, or delete it with `force`."""

    code = "workspace_in_use"
    status = 409
    retryable = False


class RobotStopped(family.ConflictError):
    """An emergency stop stands: no actions until it is released."""

    code = "robot_stopped"
    status = 409
    retryable = False


class OfferingNotLive(family.ConflictError):
    """Only an offering that calls are routed to can be paused, and only a paused one resumed."""

    code = "offering_not_live"
    status = 409
    retryable = False


class OfferingNotVerifiable(family.ConflictError):
    """A rejected or removed offering cannot be verified: register it again. One whose server was busy can be when it is free."""

    code = "offering_not_verifiable"
    status = 409
    retryable = False


class LastOwner(family.ConflictError):
    """The organisation would be left without an owner; make somebody else the owner first."""

    code = "last_owner"
    status = 409
    retryable = False


class InvalidInvite(family.NotFoundError):
    """The invite is not known, was accepted, or its time is over."""

    code = "invalid_invite"
    status = 404
    retryable = False


class MemberNotActive(family.ConflictError):
    """The member has not accepted the invite, or was deactivated."""

    code = "member_not_active"
    status = 409
    retryable = False


class AllAttemptsFailed(family.UpstreamError):
    """Every offering of the plan was tried and failed; `route.attempts` says how."""

    code = "all_attempts_failed"
    status = 502
    retryable = True


class InputContract(family.ValidationError):
    """The observations, the instruction or the goal are not what any offering that may serve reads: by what these declare, so that none was asked, and `details.violations` names each field that is missing or too much; or by what those that were asked answered. `details.needed` says what they read, as far as they declared it. The same request fails again."""

    code = "input_contract"
    status = 422
    retryable = False


class DeadlineExceeded(family.OutOfTime):
    """Time ran out, or no step of the plan could finish in what was left of it."""

    code = "deadline_exceeded"
    status = 504
    retryable = True


class CapacityExhausted(family.ServerError):
    """Every offering that could serve is resting after failures."""

    code = "capacity_exhausted"
    status = 503
    retryable = True


class Overloaded(family.ServerError):
    """More calls arrive than this instance can serve: nothing was done and nothing was charged; call again after `retry_after`."""

    code = "overloaded"
    status = 503
    retryable = True


class NotReady(family.ServerError):
    """The instance should not receive traffic now."""

    code = "not_ready"
    status = 503
    retryable = True


class StoreUnavailable(family.ServerError):
    """The gateway's own state cannot be read or written at the moment; nothing was charged."""

    code = "store_unavailable"
    status = 503
    retryable = True


class ClientClosedRequest(family.OutOfTime):
    """The caller went away before the answer was there."""

    code = "client_closed_request"
    status = 499
    retryable = False


class InternalError(family.ServerError):
    """The gateway's fault; the request id finds it in the log."""

    code = "internal_error"
    status = 500
    retryable = True


class DataGone(family.NotFoundError):
    """It was fetched, or its time is over: the organisation retains no data."""

    code = "data_gone"
    status = 410
    retryable = False


class TooMany(family.ConflictError):
    """There are as many of these as an organisation may have; remove one first."""

    code = "too_many"
    status = 409
    retryable = False


class PresetInUse(family.ConflictError):
    """The preset is the default of the organisation or of a workspace; name another one in its settings first."""

    code = "preset_in_use"
    status = 409
    retryable = False


class JobFinished(family.ConflictError):
    """The job has ended: there is nothing to call off."""

    code = "job_finished"
    status = 409
    retryable = False


class ScenarioNotRunnable(family.ConflictError):
    """The scenario is catalogued, and needs an outside harness to be run."""

    code = "scenario_not_runnable"
    status = 409
    retryable = False


class ImmutableField(family.ValidationError):
    """What was probed of an offering never changes; declare it again, and have that probed."""

    code = "immutable_field"
    status = 422
    retryable = False


class OfferingLive(family.ConflictError):
    """Calls are routed to the offering: withdraw it with `force=true`."""

    code = "offering_live"
    status = 409
    retryable = False


class WebhookDisabled(family.ConflictError):
    """The webhook is disabled: nothing is sent to it."""

    code = "webhook_disabled"
    status = 409
    retryable = False


class BroadcastTestFailed(family.ValidationError):
    """The target of spans did not take a test span, and was not saved."""

    code = "broadcast_test_failed"
    status = 422
    retryable = False


class ClaimLost(family.ConflictError):
    """The runner's time with the evaluation was over, and it may be another's now; nothing of this call is kept. Take one anew."""

    code = "claim_lost"
    status = 409
    retryable = False


class EpisodesMissing(family.ConflictError):
    """Episodes of the evaluation have not been reported yet."""

    code = "episodes_missing"
    status = 409
    retryable = False


class EpisodeReported(family.ConflictError):
    """The episode was reported before, and came to something else then."""

    code = "episode_reported"
    status = 409
    retryable = False


class BodyMemoryExhausted(family.ServerError):
    """All bodies that the gateway reads and works on at the moment have taken the memory that it gives them."""

    code = "body_memory_exhausted"
    status = 503
    retryable = True


class BodyMemoryLimitExceeded(family.RateLimitError):
    """The bodies of this key's running calls have taken the memory that the gateway gives one key."""

    code = "body_memory_limit_exceeded"
    status = 429
    retryable = True


class OrgNotEmpty(family.ConflictError):
    """The organisation still has what would be lost with it: credit, a commitment, jobs, pending payments or live offerings."""

    code = "org_not_empty"
    status = 409
    retryable = False


class SessionEnded(family.AuthenticationError):
    """The session is not known, its time is over, or its member may not sign in any more."""

    code = "session_ended"
    status = 401
    retryable = False


class CrossOrigin(family.PermissionRefused):
    """A session's cookie came with a request that another site's page may have sent."""

    code = "cross_origin"
    status = 403
    retryable = False


class BrowserNeeded(family.ValidationError):
    """The caller is no browser that can keep a session: it speaks neither REST nor Connect, or its connection is neither encrypted nor on loopback."""

    code = "browser_needed"
    status = 422
    retryable = False


class InvalidSignIn(family.AuthenticationError):
    """The link or the invite is not known, was used, or its time is over."""

    code = "invalid_sign_in"
    status = 401
    retryable = False


class NoIssuer(family.NotFoundError):
    """No identity provider signs this e-mail domain in."""

    code = "no_issuer"
    status = 404
    retryable = False


class IssuerFailed(family.UpstreamError):
    """The identity provider did not answer, or not as OpenID Connect says."""

    code = "issuer_failed"
    status = 422
    retryable = False


class SignInInterrupted(family.AuthenticationError):
    """The sign-in did not begin at this browser, took too long, or was called off."""

    code = "sign_in_interrupted"
    status = 401
    retryable = False


class SignInRefused(family.PermissionRefused):
    """What the identity provider says of the person makes nobody a member: no verified e-mail of a domain of the organisation, no member of it, or one that was deactivated."""

    code = "sign_in_refused"
    status = 403
    retryable = False


class DomainNotVerified(family.ConflictError):
    """The e-mail domain is not one that the operator verified for this organisation, or it is another's."""

    code = "domain_not_verified"
    status = 409
    retryable = False


class InvalidRedirectUri(family.ValidationError):
    """An address that an application takes codes at is none that codes may go to."""

    code = "invalid_redirect_uri"
    status = 400
    retryable = False


class InvalidClientMetadata(family.ValidationError):
    """An application asks to be registered for what there is not here."""

    code = "invalid_client_metadata"
    status = 400
    retryable = False


class InvalidTarget(family.ValidationError):
    """A key is asked for that is for another server."""

    code = "invalid_target"
    status = 400
    retryable = False


class MailUnavailable(family.ServerError):
    """No mail is sent: the operator has named no mail server."""

    code = "mail_unavailable"
    status = 501
    retryable = False


class MailFailed(family.UpstreamError):
    """The mail server did not take a mail."""

    code = "mail_failed"
    status = 502
    retryable = True


class KeyLineTooLong(family.ConflictError):
    """The key that makes this one descends from as many keys as one may."""

    code = "key_line_too_long"
    status = 409
    retryable = False


class CursorExpired(family.ConflictError):
    """The cursor is older than events are kept: some behind it may be forgotten. Begin anew without one."""

    code = "cursor_expired"
    status = 410
    retryable = False


class RobotNotArmed(family.PermissionRefused):
    """No person has armed this robot for this key, or not for this model or for so long; or what was armed has ended."""

    code = "robot_not_armed"
    status = 403
    retryable = False


class RobotBusy(family.ConflictError):
    """Another run moves this robot."""

    code = "robot_busy"
    status = 409
    retryable = False


class RobotAbsent(family.ConflictError):
    """The robot does not attend, so that nothing could move it."""

    code = "robot_absent"
    status = 409
    retryable = False


class PaymentMethodMissing(family.BillingError):
    """Automatic top-up needs a payment method that is stored first."""

    code = "payment_method_missing"
    status = 409
    retryable = False


class AppNotAllowed(family.PermissionRefused):
    """The organisation lets its members consent to no application that registered itself."""

    code = "app_not_allowed"
    status = 403
    retryable = False


class StateUnloaded(family.ServerError):
    """The gateway's store is damaged, and could not be loaded: an operator has to restore it."""

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
