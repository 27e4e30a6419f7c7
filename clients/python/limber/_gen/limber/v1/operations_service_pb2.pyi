from limber._gen.limber.v1 import route_pb2 as _route_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BreakerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BREAKER_STATE_UNSPECIFIED: _ClassVar[BreakerState]
    BREAKER_STATE_CLOSED: _ClassVar[BreakerState]
    BREAKER_STATE_OPEN: _ClassVar[BreakerState]
    BREAKER_STATE_HALF_OPEN: _ClassVar[BreakerState]
    BREAKER_STATE_FORCED_OPEN: _ClassVar[BreakerState]
    BREAKER_STATE_FORCED_CLOSED: _ClassVar[BreakerState]

class HealthTier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HEALTH_TIER_UNSPECIFIED: _ClassVar[HealthTier]
    HEALTH_TIER_HEALTHY: _ClassVar[HealthTier]
    HEALTH_TIER_DEGRADED: _ClassVar[HealthTier]
    HEALTH_TIER_DOWN: _ClassVar[HealthTier]
BREAKER_STATE_UNSPECIFIED: BreakerState
BREAKER_STATE_CLOSED: BreakerState
BREAKER_STATE_OPEN: BreakerState
BREAKER_STATE_HALF_OPEN: BreakerState
BREAKER_STATE_FORCED_OPEN: BreakerState
BREAKER_STATE_FORCED_CLOSED: BreakerState
HEALTH_TIER_UNSPECIFIED: HealthTier
HEALTH_TIER_HEALTHY: HealthTier
HEALTH_TIER_DEGRADED: HealthTier
HEALTH_TIER_DOWN: HealthTier

class GetHealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetHealthResponse(_message.Message):
    __slots__ = ("status", "inference", "version", "detail")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    status: str
    inference: str
    version: str
    detail: HealthDetail
    def __init__(self, status: _Optional[str] = ..., inference: _Optional[str] = ..., version: _Optional[str] = ..., detail: _Optional[_Union[HealthDetail, _Mapping]] = ...) -> None: ...

class HealthDetail(_message.Message):
    __slots__ = ("live_offerings", "uptime_s", "warnings", "upstreams", "film_encoder")
    LIVE_OFFERINGS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    UPSTREAMS_FIELD_NUMBER: _ClassVar[int]
    FILM_ENCODER_FIELD_NUMBER: _ClassVar[int]
    live_offerings: int
    uptime_s: float
    warnings: _containers.RepeatedScalarFieldContainer[str]
    upstreams: _containers.RepeatedScalarFieldContainer[str]
    film_encoder: str
    def __init__(self, live_offerings: _Optional[int] = ..., uptime_s: _Optional[float] = ..., warnings: _Optional[_Iterable[str]] = ..., upstreams: _Optional[_Iterable[str]] = ..., film_encoder: _Optional[str] = ...) -> None: ...

class GetReadinessRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetReadinessResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: str
    def __init__(self, status: _Optional[str] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("status", "providers", "jobs", "cache")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    status: HealthTier
    providers: _containers.RepeatedCompositeFieldContainer[ProviderStatus]
    jobs: JobsStatus
    cache: CacheStatus
    def __init__(self, status: _Optional[_Union[HealthTier, str]] = ..., providers: _Optional[_Iterable[_Union[ProviderStatus, _Mapping]]] = ..., jobs: _Optional[_Union[JobsStatus, _Mapping]] = ..., cache: _Optional[_Union[CacheStatus, _Mapping]] = ...) -> None: ...

class GetPlatformRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPlatformResponse(_message.Message):
    __slots__ = ("replicas", "uptime_s", "features", "limits", "regions")
    class FeaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bool
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bool] = ...) -> None: ...
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    replicas: int
    uptime_s: float
    features: _containers.ScalarMap[str, bool]
    limits: _containers.ScalarMap[str, int]
    regions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, replicas: _Optional[int] = ..., uptime_s: _Optional[float] = ..., features: _Optional[_Mapping[str, bool]] = ..., limits: _Optional[_Mapping[str, int]] = ..., regions: _Optional[_Iterable[str]] = ...) -> None: ...

class JobsStatus(_message.Message):
    __slots__ = ("queued", "running", "failed_24h")
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    FAILED_24H_FIELD_NUMBER: _ClassVar[int]
    queued: int
    running: int
    failed_24h: int
    def __init__(self, queued: _Optional[int] = ..., running: _Optional[int] = ..., failed_24h: _Optional[int] = ...) -> None: ...

class CacheStatus(_message.Message):
    __slots__ = ("entries", "hit_rate")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HIT_RATE_FIELD_NUMBER: _ClassVar[int]
    entries: int
    hit_rate: float
    def __init__(self, entries: _Optional[int] = ..., hit_rate: _Optional[float] = ...) -> None: ...

class ProviderStatus(_message.Message):
    __slots__ = ("provider", "status", "offerings")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OFFERINGS_FIELD_NUMBER: _ClassVar[int]
    provider: str
    status: HealthTier
    offerings: _containers.RepeatedCompositeFieldContainer[OfferingStatusRecord]
    def __init__(self, provider: _Optional[str] = ..., status: _Optional[_Union[HealthTier, str]] = ..., offerings: _Optional[_Iterable[_Union[OfferingStatusRecord, _Mapping]]] = ...) -> None: ...

class OfferingStatusRecord(_message.Message):
    __slots__ = ("offering_id", "model", "state", "tier", "failure_rate_5m", "consecutive_failures", "opened_at", "retry_at", "last_error_code", "p50_ms", "p95_ms", "p99_ms", "uptime_5m", "uptime_1d", "uptime_30d")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    FAILURE_RATE_5M_FIELD_NUMBER: _ClassVar[int]
    CONSECUTIVE_FAILURES_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_FIELD_NUMBER: _ClassVar[int]
    RETRY_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_5M_FIELD_NUMBER: _ClassVar[int]
    UPTIME_1D_FIELD_NUMBER: _ClassVar[int]
    UPTIME_30D_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    model: str
    state: BreakerState
    tier: HealthTier
    failure_rate_5m: float
    consecutive_failures: int
    opened_at: int
    retry_at: int
    last_error_code: _route_pb2.AttemptFailure
    p50_ms: float
    p95_ms: float
    p99_ms: float
    uptime_5m: float
    uptime_1d: float
    uptime_30d: float
    def __init__(self, offering_id: _Optional[str] = ..., model: _Optional[str] = ..., state: _Optional[_Union[BreakerState, str]] = ..., tier: _Optional[_Union[HealthTier, str]] = ..., failure_rate_5m: _Optional[float] = ..., consecutive_failures: _Optional[int] = ..., opened_at: _Optional[int] = ..., retry_at: _Optional[int] = ..., last_error_code: _Optional[_Union[_route_pb2.AttemptFailure, str]] = ..., p50_ms: _Optional[float] = ..., p95_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ..., uptime_5m: _Optional[float] = ..., uptime_1d: _Optional[float] = ..., uptime_30d: _Optional[float] = ...) -> None: ...

class ForceCircuitRequest(_message.Message):
    __slots__ = ("offering_id", "state", "reason")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    state: BreakerState
    reason: str
    def __init__(self, offering_id: _Optional[str] = ..., state: _Optional[_Union[BreakerState, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class DeprecateModelRequest(_message.Message):
    __slots__ = ("owner", "name", "sunset_at")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUNSET_AT_FIELD_NUMBER: _ClassVar[int]
    owner: str
    name: str
    sunset_at: int
    def __init__(self, owner: _Optional[str] = ..., name: _Optional[str] = ..., sunset_at: _Optional[int] = ...) -> None: ...

class DeprecateModelResponse(_message.Message):
    __slots__ = ("model", "deprecated_at", "sunset_at", "told")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DEPRECATED_AT_FIELD_NUMBER: _ClassVar[int]
    SUNSET_AT_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    model: str
    deprecated_at: int
    sunset_at: int
    told: int
    def __init__(self, model: _Optional[str] = ..., deprecated_at: _Optional[int] = ..., sunset_at: _Optional[int] = ..., told: _Optional[int] = ...) -> None: ...

class ForceCircuitResponse(_message.Message):
    __slots__ = ("offering_id", "state")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    state: BreakerState
    def __init__(self, offering_id: _Optional[str] = ..., state: _Optional[_Union[BreakerState, str]] = ...) -> None: ...
