from google.protobuf import struct_pb2 as _struct_pb2
from limber._gen.limber.v1 import account_pb2 as _account_pb2
from limber._gen.limber.v1 import action_pb2 as _action_pb2
from limber._gen.limber.v1 import credential_pb2 as _credential_pb2
from limber._gen.limber.v1 import preferences_pb2 as _preferences_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateOrgRequest(_message.Message):
    __slots__ = ("name", "email")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EMAIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    email: str
    def __init__(self, name: _Optional[str] = ..., email: _Optional[str] = ...) -> None: ...

class CreateOrgResponse(_message.Message):
    __slots__ = ("org",)
    ORG_FIELD_NUMBER: _ClassVar[int]
    org: _account_pb2.Org
    def __init__(self, org: _Optional[_Union[_account_pb2.Org, _Mapping]] = ...) -> None: ...

class DeleteOrgRequest(_message.Message):
    __slots__ = ("org_id", "confirm", "force")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    confirm: str
    force: bool
    def __init__(self, org_id: _Optional[str] = ..., confirm: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteOrgResponse(_message.Message):
    __slots__ = ("org", "forfeited_usd")
    ORG_FIELD_NUMBER: _ClassVar[int]
    FORFEITED_USD_FIELD_NUMBER: _ClassVar[int]
    org: _account_pb2.Org
    forfeited_usd: float
    def __init__(self, org: _Optional[_Union[_account_pb2.Org, _Mapping]] = ..., forfeited_usd: _Optional[float] = ...) -> None: ...

class ExportOrgRequest(_message.Message):
    __slots__ = ("org_id",)
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    def __init__(self, org_id: _Optional[str] = ...) -> None: ...

class ExportOrgResponse(_message.Message):
    __slots__ = ("export",)
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    export: _account_pb2.OrgExport
    def __init__(self, export: _Optional[_Union[_account_pb2.OrgExport, _Mapping]] = ...) -> None: ...

class GetOrgExportRequest(_message.Message):
    __slots__ = ("org_id", "job_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    job_id: str
    def __init__(self, org_id: _Optional[str] = ..., job_id: _Optional[str] = ...) -> None: ...

class GetOrgExportResponse(_message.Message):
    __slots__ = ("export",)
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    export: _account_pb2.OrgExport
    def __init__(self, export: _Optional[_Union[_account_pb2.OrgExport, _Mapping]] = ...) -> None: ...

class DownloadOrgExportRequest(_message.Message):
    __slots__ = ("org_id", "job_id", "file")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    job_id: str
    file: str
    def __init__(self, org_id: _Optional[str] = ..., job_id: _Optional[str] = ..., file: _Optional[str] = ...) -> None: ...

class DownloadOrgExportResponse(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: _struct_pb2.Struct
    def __init__(self, record: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class CreateKeyRequest(_message.Message):
    __slots__ = ("org_id", "name", "scopes", "models", "budget", "rate_limit", "environment", "expires_at", "role", "user_id", "workspace_id", "robot_id", "bounds", "trust", "require_signed")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_SIGNED_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    name: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    models: _containers.RepeatedScalarFieldContainer[str]
    budget: NewKeyBudget
    rate_limit: _account_pb2.RateLimit
    environment: _account_pb2.Environment
    expires_at: int
    role: str
    user_id: str
    workspace_id: str
    robot_id: str
    bounds: _action_pb2.SafetyBounds
    trust: _preferences_pb2.SupplyTrust
    require_signed: bool
    def __init__(self, org_id: _Optional[str] = ..., name: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., models: _Optional[_Iterable[str]] = ..., budget: _Optional[_Union[NewKeyBudget, _Mapping]] = ..., rate_limit: _Optional[_Union[_account_pb2.RateLimit, _Mapping]] = ..., environment: _Optional[_Union[_account_pb2.Environment, str]] = ..., expires_at: _Optional[int] = ..., role: _Optional[str] = ..., user_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., robot_id: _Optional[str] = ..., bounds: _Optional[_Union[_action_pb2.SafetyBounds, _Mapping]] = ..., trust: _Optional[_Union[_preferences_pb2.SupplyTrust, str]] = ..., require_signed: _Optional[bool] = ...) -> None: ...

class NewKeyBudget(_message.Message):
    __slots__ = ("limit_usd", "interval")
    LIMIT_USD_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    limit_usd: float
    interval: _account_pb2.BudgetInterval
    def __init__(self, limit_usd: _Optional[float] = ..., interval: _Optional[_Union[_account_pb2.BudgetInterval, str]] = ...) -> None: ...

class CreateKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _account_pb2.Key
    def __init__(self, key: _Optional[_Union[_account_pb2.Key, _Mapping]] = ...) -> None: ...

class ListKeysRequest(_message.Message):
    __slots__ = ("org_id", "limit", "cursor", "workspace_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    limit: int
    cursor: str
    workspace_id: str
    def __init__(self, org_id: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ..., workspace_id: _Optional[str] = ...) -> None: ...

class ListKeysResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_account_pb2.Key]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_account_pb2.Key, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class GetOrgKeyRequest(_message.Message):
    __slots__ = ("org_id", "key_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    key_id: str
    def __init__(self, org_id: _Optional[str] = ..., key_id: _Optional[str] = ...) -> None: ...

class GetOrgKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _account_pb2.Key
    def __init__(self, key: _Optional[_Union[_account_pb2.Key, _Mapping]] = ...) -> None: ...

class UpdateKeyRequest(_message.Message):
    __slots__ = ("org_id", "key_id", "name", "disabled", "scopes", "models", "budget", "rate_limit", "environment", "expires_at", "robot_id", "trust", "require_signed", "clear")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_SIGNED_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    key_id: str
    name: str
    disabled: bool
    scopes: _account_pb2.ScopeList
    models: _account_pb2.ModelList
    budget: NewKeyBudget
    rate_limit: _account_pb2.RateLimit
    environment: _account_pb2.Environment
    expires_at: int
    robot_id: str
    trust: _preferences_pb2.SupplyTrust
    require_signed: bool
    clear: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, org_id: _Optional[str] = ..., key_id: _Optional[str] = ..., name: _Optional[str] = ..., disabled: _Optional[bool] = ..., scopes: _Optional[_Union[_account_pb2.ScopeList, _Mapping]] = ..., models: _Optional[_Union[_account_pb2.ModelList, _Mapping]] = ..., budget: _Optional[_Union[NewKeyBudget, _Mapping]] = ..., rate_limit: _Optional[_Union[_account_pb2.RateLimit, _Mapping]] = ..., environment: _Optional[_Union[_account_pb2.Environment, str]] = ..., expires_at: _Optional[int] = ..., robot_id: _Optional[str] = ..., trust: _Optional[_Union[_preferences_pb2.SupplyTrust, str]] = ..., require_signed: _Optional[bool] = ..., clear: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _account_pb2.Key
    def __init__(self, key: _Optional[_Union[_account_pb2.Key, _Mapping]] = ...) -> None: ...

class DeleteKeyRequest(_message.Message):
    __slots__ = ("org_id", "key_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    key_id: str
    def __init__(self, org_id: _Optional[str] = ..., key_id: _Optional[str] = ...) -> None: ...

class DeleteKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _account_pb2.Key
    def __init__(self, key: _Optional[_Union[_account_pb2.Key, _Mapping]] = ...) -> None: ...

class RotateKeyRequest(_message.Message):
    __slots__ = ("org_id", "key_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    key_id: str
    def __init__(self, org_id: _Optional[str] = ..., key_id: _Optional[str] = ...) -> None: ...

class RotateKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _account_pb2.Key
    def __init__(self, key: _Optional[_Union[_account_pb2.Key, _Mapping]] = ...) -> None: ...

class SetCommitmentRequest(_message.Message):
    __slots__ = ("org_id", "min_monthly_usd", "starts_on")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_MONTHLY_USD_FIELD_NUMBER: _ClassVar[int]
    STARTS_ON_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    min_monthly_usd: float
    starts_on: str
    def __init__(self, org_id: _Optional[str] = ..., min_monthly_usd: _Optional[float] = ..., starts_on: _Optional[str] = ...) -> None: ...

class SetCommitmentResponse(_message.Message):
    __slots__ = ("org_id", "min_monthly_usd", "used_usd", "period_start", "period_end", "due_usd", "prorated")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_MONTHLY_USD_FIELD_NUMBER: _ClassVar[int]
    USED_USD_FIELD_NUMBER: _ClassVar[int]
    PERIOD_START_FIELD_NUMBER: _ClassVar[int]
    PERIOD_END_FIELD_NUMBER: _ClassVar[int]
    DUE_USD_FIELD_NUMBER: _ClassVar[int]
    PRORATED_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    min_monthly_usd: float
    used_usd: float
    period_start: int
    period_end: int
    due_usd: float
    prorated: bool
    def __init__(self, org_id: _Optional[str] = ..., min_monthly_usd: _Optional[float] = ..., used_usd: _Optional[float] = ..., period_start: _Optional[int] = ..., period_end: _Optional[int] = ..., due_usd: _Optional[float] = ..., prorated: _Optional[bool] = ...) -> None: ...

class SetHardwareKeysRequest(_message.Message):
    __slots__ = ("org_id", "allowed")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    allowed: bool
    def __init__(self, org_id: _Optional[str] = ..., allowed: _Optional[bool] = ...) -> None: ...

class SetHardwareKeysResponse(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _account_pb2.Settings
    def __init__(self, settings: _Optional[_Union[_account_pb2.Settings, _Mapping]] = ...) -> None: ...

class GetSettingsRequest(_message.Message):
    __slots__ = ("org_id",)
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    def __init__(self, org_id: _Optional[str] = ...) -> None: ...

class GetSettingsResponse(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _account_pb2.Settings
    def __init__(self, settings: _Optional[_Union[_account_pb2.Settings, _Mapping]] = ...) -> None: ...

class UpdateSettingsRequest(_message.Message):
    __slots__ = ("org_id", "retention_days", "zdr", "cache_sharing", "byok_mode", "default_preset", "allowed_regions", "max_hedge_ratio", "trust", "require_signed", "self_registered_apps", "clear")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
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
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    retention_days: int
    zdr: bool
    cache_sharing: bool
    byok_mode: _credential_pb2.ByokMode
    default_preset: str
    allowed_regions: _account_pb2.RegionList
    max_hedge_ratio: float
    trust: _preferences_pb2.SupplyTrust
    require_signed: bool
    self_registered_apps: _account_pb2.AppPolicy
    clear: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, org_id: _Optional[str] = ..., retention_days: _Optional[int] = ..., zdr: _Optional[bool] = ..., cache_sharing: _Optional[bool] = ..., byok_mode: _Optional[_Union[_credential_pb2.ByokMode, str]] = ..., default_preset: _Optional[str] = ..., allowed_regions: _Optional[_Union[_account_pb2.RegionList, _Mapping]] = ..., max_hedge_ratio: _Optional[float] = ..., trust: _Optional[_Union[_preferences_pb2.SupplyTrust, str]] = ..., require_signed: _Optional[bool] = ..., self_registered_apps: _Optional[_Union[_account_pb2.AppPolicy, str]] = ..., clear: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateSettingsResponse(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _account_pb2.Settings
    def __init__(self, settings: _Optional[_Union[_account_pb2.Settings, _Mapping]] = ...) -> None: ...

class AddCreditsRequest(_message.Message):
    __slots__ = ("org_id", "amount_usd", "reason", "idempotency_key")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_USD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    amount_usd: float
    reason: str
    idempotency_key: str
    def __init__(self, org_id: _Optional[str] = ..., amount_usd: _Optional[float] = ..., reason: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class AddCreditsResponse(_message.Message):
    __slots__ = ("org_id", "balance_usd", "entry_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    BALANCE_USD_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    balance_usd: float
    entry_id: str
    def __init__(self, org_id: _Optional[str] = ..., balance_usd: _Optional[float] = ..., entry_id: _Optional[str] = ...) -> None: ...

class GetKeyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _account_pb2.Key
    def __init__(self, key: _Optional[_Union[_account_pb2.Key, _Mapping]] = ...) -> None: ...

class ListUsageRequest(_message.Message):
    __slots__ = ("limit", "cursor", "key_id", "workspace_id", "model", "provider", "contract", "since", "until", "request_id")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    limit: int
    cursor: str
    key_id: str
    workspace_id: str
    model: str
    provider: str
    contract: str
    since: int
    until: int
    request_id: str
    def __init__(self, limit: _Optional[int] = ..., cursor: _Optional[str] = ..., key_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., contract: _Optional[str] = ..., since: _Optional[int] = ..., until: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class GetUsageMarginRequest(_message.Message):
    __slots__ = ("org_id", "limit", "since", "until")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    limit: int
    since: int
    until: int
    def __init__(self, org_id: _Optional[str] = ..., limit: _Optional[int] = ..., since: _Optional[int] = ..., until: _Optional[int] = ...) -> None: ...

class GetUsageMarginResponse(_message.Message):
    __slots__ = ("object", "organisations", "models", "totals", "reconciliation", "assumed_scaledown_requests", "uncharged_idle_usd", "unmetered_requests")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ORGANISATIONS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    RECONCILIATION_FIELD_NUMBER: _ClassVar[int]
    ASSUMED_SCALEDOWN_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    UNCHARGED_IDLE_USD_FIELD_NUMBER: _ClassVar[int]
    UNMETERED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    object: str
    organisations: _containers.RepeatedCompositeFieldContainer[_account_pb2.Margin]
    models: _containers.RepeatedCompositeFieldContainer[_account_pb2.Margin]
    totals: _account_pb2.Margin
    reconciliation: _account_pb2.MarginReconciliation
    assumed_scaledown_requests: float
    uncharged_idle_usd: float
    unmetered_requests: float
    def __init__(self, object: _Optional[str] = ..., organisations: _Optional[_Iterable[_Union[_account_pb2.Margin, _Mapping]]] = ..., models: _Optional[_Iterable[_Union[_account_pb2.Margin, _Mapping]]] = ..., totals: _Optional[_Union[_account_pb2.Margin, _Mapping]] = ..., reconciliation: _Optional[_Union[_account_pb2.MarginReconciliation, _Mapping]] = ..., assumed_scaledown_requests: _Optional[float] = ..., uncharged_idle_usd: _Optional[float] = ..., unmetered_requests: _Optional[float] = ...) -> None: ...

class ListUsageResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor", "totals", "archived_until")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_account_pb2.UsageRecord]
    has_more: bool
    next_cursor: str
    totals: _account_pb2.UsageTotals
    archived_until: int
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_account_pb2.UsageRecord, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ..., totals: _Optional[_Union[_account_pb2.UsageTotals, _Mapping]] = ..., archived_until: _Optional[int] = ...) -> None: ...
