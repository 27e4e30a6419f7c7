from limber._gen.limber.v1 import robot_pb2 as _robot_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Event(_message.Message):
    __slots__ = ("id", "api_version", "created_at", "org_id", "workspace_id", "key_created", "offering_verified", "offering_rejected", "offering_suspended", "offering_removed", "provider_reviewed", "offering_degraded", "offering_paused", "offering_resumed", "offering_changed", "provider_share_changed", "provider_paid", "payment_succeeded", "payment_failed", "topup_failed", "balance_low", "balance_exhausted", "key_expiring", "budget_threshold", "request_failed", "batch_completed", "batch_failed", "batch_cancelled", "batch_expired", "evaluation_completed", "evaluation_failed", "evaluation_cancelled", "member_added", "member_removed", "key_revoked", "offering_circuit_opened", "offering_circuit_closed", "session_pin_lost", "route_fallback_used", "model_deprecated", "robot_stopped", "webhook_disabled", "ping")
    ID_FIELD_NUMBER: _ClassVar[int]
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_CREATED_FIELD_NUMBER: _ClassVar[int]
    OFFERING_VERIFIED_FIELD_NUMBER: _ClassVar[int]
    OFFERING_REJECTED_FIELD_NUMBER: _ClassVar[int]
    OFFERING_SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    OFFERING_REMOVED_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_REVIEWED_FIELD_NUMBER: _ClassVar[int]
    OFFERING_DEGRADED_FIELD_NUMBER: _ClassVar[int]
    OFFERING_PAUSED_FIELD_NUMBER: _ClassVar[int]
    OFFERING_RESUMED_FIELD_NUMBER: _ClassVar[int]
    OFFERING_CHANGED_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_SHARE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_PAID_FIELD_NUMBER: _ClassVar[int]
    PAYMENT_SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    PAYMENT_FAILED_FIELD_NUMBER: _ClassVar[int]
    TOPUP_FAILED_FIELD_NUMBER: _ClassVar[int]
    BALANCE_LOW_FIELD_NUMBER: _ClassVar[int]
    BALANCE_EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    KEY_EXPIRING_FIELD_NUMBER: _ClassVar[int]
    BUDGET_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FAILED_FIELD_NUMBER: _ClassVar[int]
    BATCH_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    BATCH_FAILED_FIELD_NUMBER: _ClassVar[int]
    BATCH_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    BATCH_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FAILED_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ADDED_FIELD_NUMBER: _ClassVar[int]
    MEMBER_REMOVED_FIELD_NUMBER: _ClassVar[int]
    KEY_REVOKED_FIELD_NUMBER: _ClassVar[int]
    OFFERING_CIRCUIT_OPENED_FIELD_NUMBER: _ClassVar[int]
    OFFERING_CIRCUIT_CLOSED_FIELD_NUMBER: _ClassVar[int]
    SESSION_PIN_LOST_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FALLBACK_USED_FIELD_NUMBER: _ClassVar[int]
    MODEL_DEPRECATED_FIELD_NUMBER: _ClassVar[int]
    ROBOT_STOPPED_FIELD_NUMBER: _ClassVar[int]
    WEBHOOK_DISABLED_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    id: str
    api_version: str
    created_at: int
    org_id: str
    workspace_id: str
    key_created: KeyCreated
    offering_verified: OfferingVerified
    offering_rejected: OfferingRejected
    offering_suspended: OfferingSuspended
    offering_removed: OfferingRemoved
    provider_reviewed: ProviderReviewed
    offering_degraded: OfferingDegraded
    offering_paused: OfferingPaused
    offering_resumed: OfferingResumed
    offering_changed: OfferingChanged
    provider_share_changed: ProviderShareChanged
    provider_paid: ProviderPaid
    payment_succeeded: PaymentSucceeded
    payment_failed: PaymentFailed
    topup_failed: TopupFailed
    balance_low: BalanceLow
    balance_exhausted: BalanceExhausted
    key_expiring: KeyExpiring
    budget_threshold: BudgetThreshold
    request_failed: RequestFailed
    batch_completed: BatchCompleted
    batch_failed: BatchFailed
    batch_cancelled: BatchCancelled
    batch_expired: BatchExpired
    evaluation_completed: EvaluationCompleted
    evaluation_failed: EvaluationFailed
    evaluation_cancelled: EvaluationCancelled
    member_added: MemberAdded
    member_removed: MemberRemoved
    key_revoked: KeyRevoked
    offering_circuit_opened: OfferingCircuitOpened
    offering_circuit_closed: OfferingCircuitClosed
    session_pin_lost: SessionPinLost
    route_fallback_used: RouteFallbackUsed
    model_deprecated: ModelDeprecated
    robot_stopped: RobotStopped
    webhook_disabled: WebhookDisabled
    ping: Ping
    def __init__(self, id: _Optional[str] = ..., api_version: _Optional[str] = ..., created_at: _Optional[int] = ..., org_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., key_created: _Optional[_Union[KeyCreated, _Mapping]] = ..., offering_verified: _Optional[_Union[OfferingVerified, _Mapping]] = ..., offering_rejected: _Optional[_Union[OfferingRejected, _Mapping]] = ..., offering_suspended: _Optional[_Union[OfferingSuspended, _Mapping]] = ..., offering_removed: _Optional[_Union[OfferingRemoved, _Mapping]] = ..., provider_reviewed: _Optional[_Union[ProviderReviewed, _Mapping]] = ..., offering_degraded: _Optional[_Union[OfferingDegraded, _Mapping]] = ..., offering_paused: _Optional[_Union[OfferingPaused, _Mapping]] = ..., offering_resumed: _Optional[_Union[OfferingResumed, _Mapping]] = ..., offering_changed: _Optional[_Union[OfferingChanged, _Mapping]] = ..., provider_share_changed: _Optional[_Union[ProviderShareChanged, _Mapping]] = ..., provider_paid: _Optional[_Union[ProviderPaid, _Mapping]] = ..., payment_succeeded: _Optional[_Union[PaymentSucceeded, _Mapping]] = ..., payment_failed: _Optional[_Union[PaymentFailed, _Mapping]] = ..., topup_failed: _Optional[_Union[TopupFailed, _Mapping]] = ..., balance_low: _Optional[_Union[BalanceLow, _Mapping]] = ..., balance_exhausted: _Optional[_Union[BalanceExhausted, _Mapping]] = ..., key_expiring: _Optional[_Union[KeyExpiring, _Mapping]] = ..., budget_threshold: _Optional[_Union[BudgetThreshold, _Mapping]] = ..., request_failed: _Optional[_Union[RequestFailed, _Mapping]] = ..., batch_completed: _Optional[_Union[BatchCompleted, _Mapping]] = ..., batch_failed: _Optional[_Union[BatchFailed, _Mapping]] = ..., batch_cancelled: _Optional[_Union[BatchCancelled, _Mapping]] = ..., batch_expired: _Optional[_Union[BatchExpired, _Mapping]] = ..., evaluation_completed: _Optional[_Union[EvaluationCompleted, _Mapping]] = ..., evaluation_failed: _Optional[_Union[EvaluationFailed, _Mapping]] = ..., evaluation_cancelled: _Optional[_Union[EvaluationCancelled, _Mapping]] = ..., member_added: _Optional[_Union[MemberAdded, _Mapping]] = ..., member_removed: _Optional[_Union[MemberRemoved, _Mapping]] = ..., key_revoked: _Optional[_Union[KeyRevoked, _Mapping]] = ..., offering_circuit_opened: _Optional[_Union[OfferingCircuitOpened, _Mapping]] = ..., offering_circuit_closed: _Optional[_Union[OfferingCircuitClosed, _Mapping]] = ..., session_pin_lost: _Optional[_Union[SessionPinLost, _Mapping]] = ..., route_fallback_used: _Optional[_Union[RouteFallbackUsed, _Mapping]] = ..., model_deprecated: _Optional[_Union[ModelDeprecated, _Mapping]] = ..., robot_stopped: _Optional[_Union[RobotStopped, _Mapping]] = ..., webhook_disabled: _Optional[_Union[WebhookDisabled, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ...) -> None: ...

class KeyCreated(_message.Message):
    __slots__ = ("key_id",)
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    def __init__(self, key_id: _Optional[str] = ...) -> None: ...

class KeyRevoked(_message.Message):
    __slots__ = ("key_id",)
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    def __init__(self, key_id: _Optional[str] = ...) -> None: ...

class KeyExpiring(_message.Message):
    __slots__ = ("key_id", "expires_at")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    expires_at: int
    def __init__(self, key_id: _Optional[str] = ..., expires_at: _Optional[int] = ...) -> None: ...

class BudgetThreshold(_message.Message):
    __slots__ = ("scope", "subject", "percent", "limit_usd", "used_usd", "resets_at")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_USD_FIELD_NUMBER: _ClassVar[int]
    USED_USD_FIELD_NUMBER: _ClassVar[int]
    RESETS_AT_FIELD_NUMBER: _ClassVar[int]
    scope: str
    subject: str
    percent: int
    limit_usd: float
    used_usd: float
    resets_at: int
    def __init__(self, scope: _Optional[str] = ..., subject: _Optional[str] = ..., percent: _Optional[int] = ..., limit_usd: _Optional[float] = ..., used_usd: _Optional[float] = ..., resets_at: _Optional[int] = ...) -> None: ...

class RequestFailed(_message.Message):
    __slots__ = ("request_id", "contract", "model", "code", "key_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    contract: str
    model: str
    code: str
    key_id: str
    def __init__(self, request_id: _Optional[str] = ..., contract: _Optional[str] = ..., model: _Optional[str] = ..., code: _Optional[str] = ..., key_id: _Optional[str] = ...) -> None: ...

class ProviderReviewed(_message.Message):
    __slots__ = ("provider", "standing", "note")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    provider: str
    standing: str
    note: str
    def __init__(self, provider: _Optional[str] = ..., standing: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class OfferingChanged(_message.Message):
    __slots__ = ("offering_id", "changed")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    changed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, offering_id: _Optional[str] = ..., changed: _Optional[_Iterable[str]] = ...) -> None: ...

class ProviderShareChanged(_message.Message):
    __slots__ = ("provider", "share_percent")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    SHARE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    provider: str
    share_percent: float
    def __init__(self, provider: _Optional[str] = ..., share_percent: _Optional[float] = ...) -> None: ...

class ProviderPaid(_message.Message):
    __slots__ = ("provider", "payout_id", "amount_usd")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    PAYOUT_ID_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_USD_FIELD_NUMBER: _ClassVar[int]
    provider: str
    payout_id: str
    amount_usd: float
    def __init__(self, provider: _Optional[str] = ..., payout_id: _Optional[str] = ..., amount_usd: _Optional[float] = ...) -> None: ...

class OfferingVerified(_message.Message):
    __slots__ = ("offering_id", "report_id")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    report_id: str
    def __init__(self, offering_id: _Optional[str] = ..., report_id: _Optional[str] = ...) -> None: ...

class OfferingRejected(_message.Message):
    __slots__ = ("offering_id", "report_id")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    report_id: str
    def __init__(self, offering_id: _Optional[str] = ..., report_id: _Optional[str] = ...) -> None: ...

class PaymentSucceeded(_message.Message):
    __slots__ = ("payment_id", "amount_usd")
    PAYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_USD_FIELD_NUMBER: _ClassVar[int]
    payment_id: str
    amount_usd: float
    def __init__(self, payment_id: _Optional[str] = ..., amount_usd: _Optional[float] = ...) -> None: ...

class PaymentFailed(_message.Message):
    __slots__ = ("payment_id", "status")
    PAYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    payment_id: str
    status: str
    def __init__(self, payment_id: _Optional[str] = ..., status: _Optional[str] = ...) -> None: ...

class TopupFailed(_message.Message):
    __slots__ = ("reason", "payment_id", "amount_usd", "declines", "turned_off")
    REASON_FIELD_NUMBER: _ClassVar[int]
    PAYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_USD_FIELD_NUMBER: _ClassVar[int]
    DECLINES_FIELD_NUMBER: _ClassVar[int]
    TURNED_OFF_FIELD_NUMBER: _ClassVar[int]
    reason: str
    payment_id: str
    amount_usd: float
    declines: int
    turned_off: bool
    def __init__(self, reason: _Optional[str] = ..., payment_id: _Optional[str] = ..., amount_usd: _Optional[float] = ..., declines: _Optional[int] = ..., turned_off: _Optional[bool] = ...) -> None: ...

class BalanceLow(_message.Message):
    __slots__ = ("balance_usd", "threshold_usd")
    BALANCE_USD_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_USD_FIELD_NUMBER: _ClassVar[int]
    balance_usd: float
    threshold_usd: float
    def __init__(self, balance_usd: _Optional[float] = ..., threshold_usd: _Optional[float] = ...) -> None: ...

class BalanceExhausted(_message.Message):
    __slots__ = ("balance_usd",)
    BALANCE_USD_FIELD_NUMBER: _ClassVar[int]
    balance_usd: float
    def __init__(self, balance_usd: _Optional[float] = ...) -> None: ...

class MemberAdded(_message.Message):
    __slots__ = ("user_id", "role")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    role: str
    def __init__(self, user_id: _Optional[str] = ..., role: _Optional[str] = ...) -> None: ...

class MemberRemoved(_message.Message):
    __slots__ = ("user_id",)
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    def __init__(self, user_id: _Optional[str] = ...) -> None: ...

class OfferingCircuitOpened(_message.Message):
    __slots__ = ("offering_id", "model", "provider")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    model: str
    provider: str
    def __init__(self, offering_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ...) -> None: ...

class OfferingCircuitClosed(_message.Message):
    __slots__ = ("offering_id", "model", "provider")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    model: str
    provider: str
    def __init__(self, offering_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ...) -> None: ...

class SessionPinLost(_message.Message):
    __slots__ = ("session_id", "from_model", "from_provider", "model", "provider")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_MODEL_FIELD_NUMBER: _ClassVar[int]
    FROM_PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    from_model: str
    from_provider: str
    model: str
    provider: str
    def __init__(self, session_id: _Optional[str] = ..., from_model: _Optional[str] = ..., from_provider: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ...) -> None: ...

class RouteFallbackUsed(_message.Message):
    __slots__ = ("request_id", "model", "provider", "offering_id", "failed_offering_ids")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    FAILED_OFFERING_IDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    provider: str
    offering_id: str
    failed_offering_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., offering_id: _Optional[str] = ..., failed_offering_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ModelDeprecated(_message.Message):
    __slots__ = ("model", "sunset_at")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SUNSET_AT_FIELD_NUMBER: _ClassVar[int]
    model: str
    sunset_at: int
    def __init__(self, model: _Optional[str] = ..., sunset_at: _Optional[int] = ...) -> None: ...

class RobotStopped(_message.Message):
    __slots__ = ("stop_id", "scope", "subject")
    STOP_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    stop_id: str
    scope: _robot_pb2.StopScope
    subject: str
    def __init__(self, stop_id: _Optional[str] = ..., scope: _Optional[_Union[_robot_pb2.StopScope, str]] = ..., subject: _Optional[str] = ...) -> None: ...

class BatchCompleted(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class BatchFailed(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class BatchCancelled(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class BatchExpired(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class EvaluationCompleted(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class EvaluationFailed(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class EvaluationCancelled(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class OfferingSuspended(_message.Message):
    __slots__ = ("offering_id", "report_id")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    report_id: str
    def __init__(self, offering_id: _Optional[str] = ..., report_id: _Optional[str] = ...) -> None: ...

class OfferingDegraded(_message.Message):
    __slots__ = ("offering_id", "report_id")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    report_id: str
    def __init__(self, offering_id: _Optional[str] = ..., report_id: _Optional[str] = ...) -> None: ...

class OfferingPaused(_message.Message):
    __slots__ = ("offering_id",)
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    def __init__(self, offering_id: _Optional[str] = ...) -> None: ...

class OfferingResumed(_message.Message):
    __slots__ = ("offering_id",)
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    def __init__(self, offering_id: _Optional[str] = ...) -> None: ...

class OfferingRemoved(_message.Message):
    __slots__ = ("offering_id",)
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    def __init__(self, offering_id: _Optional[str] = ...) -> None: ...

class WebhookDisabled(_message.Message):
    __slots__ = ("hook_id", "reason")
    HOOK_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    hook_id: str
    reason: str
    def __init__(self, hook_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("hook_id",)
    HOOK_ID_FIELD_NUMBER: _ClassVar[int]
    hook_id: str
    def __init__(self, hook_id: _Optional[str] = ...) -> None: ...
