from limber._gen.limber.v1 import action_pb2 as _action_pb2
from limber._gen.limber.v1 import credential_pb2 as _credential_pb2
from limber._gen.limber.v1 import job_pb2 as _job_pb2
from limber._gen.limber.v1 import preferences_pb2 as _preferences_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OrgStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORG_STATUS_UNSPECIFIED: _ClassVar[OrgStatus]
    ORG_STATUS_ACTIVE: _ClassVar[OrgStatus]
    ORG_STATUS_SUSPENDED: _ClassVar[OrgStatus]
    ORG_STATUS_DELETED: _ClassVar[OrgStatus]

class Environment(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENVIRONMENT_UNSPECIFIED: _ClassVar[Environment]
    ENVIRONMENT_SIMULATION: _ClassVar[Environment]
    ENVIRONMENT_HARDWARE: _ClassVar[Environment]

class BudgetInterval(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUDGET_INTERVAL_UNSPECIFIED: _ClassVar[BudgetInterval]
    BUDGET_INTERVAL_DAILY: _ClassVar[BudgetInterval]
    BUDGET_INTERVAL_WEEKLY: _ClassVar[BudgetInterval]
    BUDGET_INTERVAL_MONTHLY: _ClassVar[BudgetInterval]
    BUDGET_INTERVAL_LIFETIME: _ClassVar[BudgetInterval]

class UsageStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    USAGE_STATUS_UNSPECIFIED: _ClassVar[UsageStatus]
    USAGE_STATUS_SETTLED: _ClassVar[UsageStatus]
    USAGE_STATUS_UNMETERED: _ClassVar[UsageStatus]

class AppPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APP_POLICY_UNSPECIFIED: _ClassVar[AppPolicy]
    APP_POLICY_ALLOW: _ClassVar[AppPolicy]
    APP_POLICY_DENY: _ClassVar[AppPolicy]
ORG_STATUS_UNSPECIFIED: OrgStatus
ORG_STATUS_ACTIVE: OrgStatus
ORG_STATUS_SUSPENDED: OrgStatus
ORG_STATUS_DELETED: OrgStatus
ENVIRONMENT_UNSPECIFIED: Environment
ENVIRONMENT_SIMULATION: Environment
ENVIRONMENT_HARDWARE: Environment
BUDGET_INTERVAL_UNSPECIFIED: BudgetInterval
BUDGET_INTERVAL_DAILY: BudgetInterval
BUDGET_INTERVAL_WEEKLY: BudgetInterval
BUDGET_INTERVAL_MONTHLY: BudgetInterval
BUDGET_INTERVAL_LIFETIME: BudgetInterval
USAGE_STATUS_UNSPECIFIED: UsageStatus
USAGE_STATUS_SETTLED: UsageStatus
USAGE_STATUS_UNMETERED: UsageStatus
APP_POLICY_UNSPECIFIED: AppPolicy
APP_POLICY_ALLOW: AppPolicy
APP_POLICY_DENY: AppPolicy

class Org(_message.Message):
    __slots__ = ("id", "name", "created", "status", "key")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    created: int
    status: OrgStatus
    key: Key
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., created: _Optional[int] = ..., status: _Optional[_Union[OrgStatus, str]] = ..., key: _Optional[_Union[Key, _Mapping]] = ...) -> None: ...

class OrgExport(_message.Message):
    __slots__ = ("id", "object", "status", "files", "created_at", "completed_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    status: _job_pb2.JobStatus
    files: _containers.RepeatedCompositeFieldContainer[ExportFile]
    created_at: int
    completed_at: int
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., status: _Optional[_Union[_job_pb2.JobStatus, str]] = ..., files: _Optional[_Iterable[_Union[ExportFile, _Mapping]]] = ..., created_at: _Optional[int] = ..., completed_at: _Optional[int] = ...) -> None: ...

class ExportFile(_message.Message):
    __slots__ = ("name", "ready", "records")
    NAME_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    ready: bool
    records: int
    def __init__(self, name: _Optional[str] = ..., ready: _Optional[bool] = ..., records: _Optional[int] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ("id", "key", "name", "prefix", "org_id", "created_at", "expires_at", "disabled", "scopes", "models", "budget", "rate_limit", "role", "usage_usd", "environment", "user_id", "permissions", "workspace_id", "robot_id", "byok_usage_usd", "bounds", "parent_id", "trust", "require_signed")
    ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    USAGE_USD_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    BYOK_USAGE_USD_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_SIGNED_FIELD_NUMBER: _ClassVar[int]
    id: str
    key: str
    name: str
    prefix: str
    org_id: str
    created_at: int
    expires_at: int
    disabled: bool
    scopes: _containers.RepeatedScalarFieldContainer[str]
    models: _containers.RepeatedScalarFieldContainer[str]
    budget: KeyBudget
    rate_limit: RateLimit
    role: str
    usage_usd: Spending
    environment: Environment
    user_id: str
    permissions: _containers.RepeatedScalarFieldContainer[str]
    workspace_id: str
    robot_id: str
    byok_usage_usd: float
    bounds: _action_pb2.SafetyBounds
    parent_id: str
    trust: _preferences_pb2.SupplyTrust
    require_signed: bool
    def __init__(self, id: _Optional[str] = ..., key: _Optional[str] = ..., name: _Optional[str] = ..., prefix: _Optional[str] = ..., org_id: _Optional[str] = ..., created_at: _Optional[int] = ..., expires_at: _Optional[int] = ..., disabled: _Optional[bool] = ..., scopes: _Optional[_Iterable[str]] = ..., models: _Optional[_Iterable[str]] = ..., budget: _Optional[_Union[KeyBudget, _Mapping]] = ..., rate_limit: _Optional[_Union[RateLimit, _Mapping]] = ..., role: _Optional[str] = ..., usage_usd: _Optional[_Union[Spending, _Mapping]] = ..., environment: _Optional[_Union[Environment, str]] = ..., user_id: _Optional[str] = ..., permissions: _Optional[_Iterable[str]] = ..., workspace_id: _Optional[str] = ..., robot_id: _Optional[str] = ..., byok_usage_usd: _Optional[float] = ..., bounds: _Optional[_Union[_action_pb2.SafetyBounds, _Mapping]] = ..., parent_id: _Optional[str] = ..., trust: _Optional[_Union[_preferences_pb2.SupplyTrust, str]] = ..., require_signed: _Optional[bool] = ...) -> None: ...

class KeyBudget(_message.Message):
    __slots__ = ("limit_usd", "interval", "spent_usd", "remaining_usd", "resets_at")
    LIMIT_USD_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    SPENT_USD_FIELD_NUMBER: _ClassVar[int]
    REMAINING_USD_FIELD_NUMBER: _ClassVar[int]
    RESETS_AT_FIELD_NUMBER: _ClassVar[int]
    limit_usd: float
    interval: BudgetInterval
    spent_usd: float
    remaining_usd: float
    resets_at: int
    def __init__(self, limit_usd: _Optional[float] = ..., interval: _Optional[_Union[BudgetInterval, str]] = ..., spent_usd: _Optional[float] = ..., remaining_usd: _Optional[float] = ..., resets_at: _Optional[int] = ...) -> None: ...

class RateLimit(_message.Message):
    __slots__ = ("requests", "window_s", "burst", "concurrency", "streams", "remaining", "reset_at")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    RESET_AT_FIELD_NUMBER: _ClassVar[int]
    requests: int
    window_s: int
    burst: int
    concurrency: int
    streams: int
    remaining: int
    reset_at: int
    def __init__(self, requests: _Optional[int] = ..., window_s: _Optional[int] = ..., burst: _Optional[int] = ..., concurrency: _Optional[int] = ..., streams: _Optional[int] = ..., remaining: _Optional[int] = ..., reset_at: _Optional[int] = ...) -> None: ...

class Spending(_message.Message):
    __slots__ = ("day", "week", "month", "total")
    DAY_FIELD_NUMBER: _ClassVar[int]
    WEEK_FIELD_NUMBER: _ClassVar[int]
    MONTH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    day: float
    week: float
    month: float
    total: float
    def __init__(self, day: _Optional[float] = ..., week: _Optional[float] = ..., month: _Optional[float] = ..., total: _Optional[float] = ...) -> None: ...

class UsageRecord(_message.Message):
    __slots__ = ("id", "request_id", "created", "contract", "model", "provider", "units", "unit", "cost_usd", "wake_up_usd", "hedge_cost_usd", "key_id", "simulated", "status", "byok", "workspace_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    WAKE_UP_USD_FIELD_NUMBER: _ClassVar[int]
    HEDGE_COST_USD_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BYOK_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    request_id: str
    created: int
    contract: str
    model: str
    provider: str
    units: float
    unit: str
    cost_usd: float
    wake_up_usd: float
    hedge_cost_usd: float
    key_id: str
    simulated: bool
    status: UsageStatus
    byok: bool
    workspace_id: str
    def __init__(self, id: _Optional[str] = ..., request_id: _Optional[str] = ..., created: _Optional[int] = ..., contract: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., units: _Optional[float] = ..., unit: _Optional[str] = ..., cost_usd: _Optional[float] = ..., wake_up_usd: _Optional[float] = ..., hedge_cost_usd: _Optional[float] = ..., key_id: _Optional[str] = ..., simulated: _Optional[bool] = ..., status: _Optional[_Union[UsageStatus, str]] = ..., byok: _Optional[bool] = ..., workspace_id: _Optional[str] = ...) -> None: ...

class Margin(_message.Message):
    __slots__ = ("org_id", "model", "requests", "revenue_usd", "modelled_infra_usd", "margin_usd", "margin_ratio", "assumed_scaledown_requests", "uncharged_idle_usd", "unmetered_requests")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    REVENUE_USD_FIELD_NUMBER: _ClassVar[int]
    MODELLED_INFRA_USD_FIELD_NUMBER: _ClassVar[int]
    MARGIN_USD_FIELD_NUMBER: _ClassVar[int]
    MARGIN_RATIO_FIELD_NUMBER: _ClassVar[int]
    ASSUMED_SCALEDOWN_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    UNCHARGED_IDLE_USD_FIELD_NUMBER: _ClassVar[int]
    UNMETERED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    model: str
    requests: float
    revenue_usd: float
    modelled_infra_usd: float
    margin_usd: float
    margin_ratio: float
    assumed_scaledown_requests: float
    uncharged_idle_usd: float
    unmetered_requests: float
    def __init__(self, org_id: _Optional[str] = ..., model: _Optional[str] = ..., requests: _Optional[float] = ..., revenue_usd: _Optional[float] = ..., modelled_infra_usd: _Optional[float] = ..., margin_usd: _Optional[float] = ..., margin_ratio: _Optional[float] = ..., assumed_scaledown_requests: _Optional[float] = ..., uncharged_idle_usd: _Optional[float] = ..., unmetered_requests: _Optional[float] = ...) -> None: ...

class MarginReconciliation(_message.Message):
    __slots__ = ("requests_usd", "ledger_usd", "difference_usd", "modelled_infra_usd", "assumed_scaledown_requests", "uncharged_idle_usd", "unmetered_requests")
    REQUESTS_USD_FIELD_NUMBER: _ClassVar[int]
    LEDGER_USD_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_USD_FIELD_NUMBER: _ClassVar[int]
    MODELLED_INFRA_USD_FIELD_NUMBER: _ClassVar[int]
    ASSUMED_SCALEDOWN_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    UNCHARGED_IDLE_USD_FIELD_NUMBER: _ClassVar[int]
    UNMETERED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests_usd: float
    ledger_usd: float
    difference_usd: float
    modelled_infra_usd: float
    assumed_scaledown_requests: float
    uncharged_idle_usd: float
    unmetered_requests: float
    def __init__(self, requests_usd: _Optional[float] = ..., ledger_usd: _Optional[float] = ..., difference_usd: _Optional[float] = ..., modelled_infra_usd: _Optional[float] = ..., assumed_scaledown_requests: _Optional[float] = ..., uncharged_idle_usd: _Optional[float] = ..., unmetered_requests: _Optional[float] = ...) -> None: ...

class UsageTotals(_message.Message):
    __slots__ = ("requests", "cost_usd")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    requests: float
    cost_usd: float
    def __init__(self, requests: _Optional[float] = ..., cost_usd: _Optional[float] = ...) -> None: ...

class Balance(_message.Message):
    __slots__ = ("org_id", "currency", "granted_usd", "spent_usd", "balance_usd", "held_usd", "available_usd", "byok_usd", "owed_usd", "commitment")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    CURRENCY_FIELD_NUMBER: _ClassVar[int]
    GRANTED_USD_FIELD_NUMBER: _ClassVar[int]
    SPENT_USD_FIELD_NUMBER: _ClassVar[int]
    BALANCE_USD_FIELD_NUMBER: _ClassVar[int]
    HELD_USD_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_USD_FIELD_NUMBER: _ClassVar[int]
    BYOK_USD_FIELD_NUMBER: _ClassVar[int]
    OWED_USD_FIELD_NUMBER: _ClassVar[int]
    COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    currency: str
    granted_usd: float
    spent_usd: float
    balance_usd: float
    held_usd: float
    available_usd: float
    byok_usd: float
    owed_usd: float
    commitment: Commitment
    def __init__(self, org_id: _Optional[str] = ..., currency: _Optional[str] = ..., granted_usd: _Optional[float] = ..., spent_usd: _Optional[float] = ..., balance_usd: _Optional[float] = ..., held_usd: _Optional[float] = ..., available_usd: _Optional[float] = ..., byok_usd: _Optional[float] = ..., owed_usd: _Optional[float] = ..., commitment: _Optional[_Union[Commitment, _Mapping]] = ...) -> None: ...

class Commitment(_message.Message):
    __slots__ = ("min_monthly_usd", "used_usd", "remaining_usd", "period_start", "period_end", "unpaid_fee_usd", "due_usd", "prorated")
    MIN_MONTHLY_USD_FIELD_NUMBER: _ClassVar[int]
    USED_USD_FIELD_NUMBER: _ClassVar[int]
    REMAINING_USD_FIELD_NUMBER: _ClassVar[int]
    PERIOD_START_FIELD_NUMBER: _ClassVar[int]
    PERIOD_END_FIELD_NUMBER: _ClassVar[int]
    UNPAID_FEE_USD_FIELD_NUMBER: _ClassVar[int]
    DUE_USD_FIELD_NUMBER: _ClassVar[int]
    PRORATED_FIELD_NUMBER: _ClassVar[int]
    min_monthly_usd: float
    used_usd: float
    remaining_usd: float
    period_start: int
    period_end: int
    unpaid_fee_usd: float
    due_usd: float
    prorated: bool
    def __init__(self, min_monthly_usd: _Optional[float] = ..., used_usd: _Optional[float] = ..., remaining_usd: _Optional[float] = ..., period_start: _Optional[int] = ..., period_end: _Optional[int] = ..., unpaid_fee_usd: _Optional[float] = ..., due_usd: _Optional[float] = ..., prorated: _Optional[bool] = ...) -> None: ...

class Settings(_message.Message):
    __slots__ = ("retention_days", "zdr", "cache_sharing", "byok_mode", "default_preset", "allowed_regions", "max_hedge_ratio", "trust", "require_signed", "self_registered_apps", "hardware_keys")
    RETENTION_DAYS_FIELD_NUMBER: _ClassVar[int]
    ZDR_FIELD_NUMBER: _ClassVar[int]
    CACHE_SHARING_FIELD_NUMBER: _ClassVar[int]
    BYOK_MODE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_PRESET_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_REGIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_HEDGE_RATIO_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_SIGNED_FIELD_NUMBER: _ClassVar[int]
    SELF_REGISTERED_APPS_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_KEYS_FIELD_NUMBER: _ClassVar[int]
    retention_days: int
    zdr: bool
    cache_sharing: bool
    byok_mode: _credential_pb2.ByokMode
    default_preset: str
    allowed_regions: _containers.RepeatedScalarFieldContainer[str]
    max_hedge_ratio: float
    trust: _preferences_pb2.SupplyTrust
    require_signed: bool
    self_registered_apps: AppPolicy
    hardware_keys: bool
    def __init__(self, retention_days: _Optional[int] = ..., zdr: _Optional[bool] = ..., cache_sharing: _Optional[bool] = ..., byok_mode: _Optional[_Union[_credential_pb2.ByokMode, str]] = ..., default_preset: _Optional[str] = ..., allowed_regions: _Optional[_Iterable[str]] = ..., max_hedge_ratio: _Optional[float] = ..., trust: _Optional[_Union[_preferences_pb2.SupplyTrust, str]] = ..., require_signed: _Optional[bool] = ..., self_registered_apps: _Optional[_Union[AppPolicy, str]] = ..., hardware_keys: _Optional[bool] = ...) -> None: ...

class RegionList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class ScopeList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class ModelList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...
