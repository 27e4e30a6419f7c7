from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOG_KIND_UNSPECIFIED: _ClassVar[LogKind]
    LOG_KIND_PREDICT: _ClassVar[LogKind]
    LOG_KIND_ACT: _ClassVar[LogKind]
    LOG_KIND_GROUND: _ClassVar[LogKind]
    LOG_KIND_EVALUATE: _ClassVar[LogKind]
    LOG_KIND_SUPPLY: _ClassVar[LogKind]
    LOG_KIND_PAYMENT: _ClassVar[LogKind]
    LOG_KIND_ADMIN: _ClassVar[LogKind]
    LOG_KIND_BATCH: _ClassVar[LogKind]
    LOG_KIND_PREVIEW: _ClassVar[LogKind]
LOG_KIND_UNSPECIFIED: LogKind
LOG_KIND_PREDICT: LogKind
LOG_KIND_ACT: LogKind
LOG_KIND_GROUND: LogKind
LOG_KIND_EVALUATE: LogKind
LOG_KIND_SUPPLY: LogKind
LOG_KIND_PAYMENT: LogKind
LOG_KIND_ADMIN: LogKind
LOG_KIND_BATCH: LogKind
LOG_KIND_PREVIEW: LogKind

class LogRecord(_message.Message):
    __slots__ = ("id", "ts", "kind", "org_id", "workspace_id", "key_id", "session_id", "request_id", "model_requested", "model", "provider", "offering_id", "region", "precision", "status", "http_status", "error_code", "attempts", "fallback_used", "hedged", "hedge_cost_usd", "simulated", "byok", "latency_ms", "unit", "units", "cost_usd", "preset", "deadline_ms", "metadata", "stream_id", "action", "subject", "user_id", "robot_id", "trace_id", "queue_ms", "upstream_ms", "cold_start", "gpu_seconds", "preference", "input_bytes", "observation_age_ms", "deadline_missed", "preview", "contract", "batch_id", "holds", "plan", "chunks", "age_p50_ms", "age_p99_ms", "error_message")
    class HoldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_USED_FIELD_NUMBER: _ClassVar[int]
    HEDGED_FIELD_NUMBER: _ClassVar[int]
    HEDGE_COST_USD_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    BYOK_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_MS_FIELD_NUMBER: _ClassVar[int]
    COLD_START_FIELD_NUMBER: _ClassVar[int]
    GPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREFERENCE_FIELD_NUMBER: _ClassVar[int]
    INPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MISSED_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    AGE_P50_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_P99_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    ts: int
    kind: LogKind
    org_id: str
    workspace_id: str
    key_id: str
    session_id: str
    request_id: str
    model_requested: str
    model: str
    provider: str
    offering_id: str
    region: str
    precision: str
    status: str
    http_status: int
    error_code: str
    attempts: _containers.RepeatedCompositeFieldContainer[LogAttempt]
    fallback_used: bool
    hedged: bool
    hedge_cost_usd: float
    simulated: bool
    byok: bool
    latency_ms: float
    unit: str
    units: int
    cost_usd: float
    preset: str
    deadline_ms: int
    metadata: _struct_pb2.Struct
    stream_id: str
    action: str
    subject: str
    user_id: str
    robot_id: str
    trace_id: str
    queue_ms: float
    upstream_ms: float
    cold_start: bool
    gpu_seconds: float
    preference: str
    input_bytes: int
    observation_age_ms: float
    deadline_missed: bool
    preview: bool
    contract: str
    batch_id: str
    holds: _containers.ScalarMap[str, int]
    plan: LoggedPlan
    chunks: int
    age_p50_ms: float
    age_p99_ms: float
    error_message: str
    def __init__(self, id: _Optional[str] = ..., ts: _Optional[int] = ..., kind: _Optional[_Union[LogKind, str]] = ..., org_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., key_id: _Optional[str] = ..., session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., model_requested: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., offering_id: _Optional[str] = ..., region: _Optional[str] = ..., precision: _Optional[str] = ..., status: _Optional[str] = ..., http_status: _Optional[int] = ..., error_code: _Optional[str] = ..., attempts: _Optional[_Iterable[_Union[LogAttempt, _Mapping]]] = ..., fallback_used: _Optional[bool] = ..., hedged: _Optional[bool] = ..., hedge_cost_usd: _Optional[float] = ..., simulated: _Optional[bool] = ..., byok: _Optional[bool] = ..., latency_ms: _Optional[float] = ..., unit: _Optional[str] = ..., units: _Optional[int] = ..., cost_usd: _Optional[float] = ..., preset: _Optional[str] = ..., deadline_ms: _Optional[int] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., stream_id: _Optional[str] = ..., action: _Optional[str] = ..., subject: _Optional[str] = ..., user_id: _Optional[str] = ..., robot_id: _Optional[str] = ..., trace_id: _Optional[str] = ..., queue_ms: _Optional[float] = ..., upstream_ms: _Optional[float] = ..., cold_start: _Optional[bool] = ..., gpu_seconds: _Optional[float] = ..., preference: _Optional[str] = ..., input_bytes: _Optional[int] = ..., observation_age_ms: _Optional[float] = ..., deadline_missed: _Optional[bool] = ..., preview: _Optional[bool] = ..., contract: _Optional[str] = ..., batch_id: _Optional[str] = ..., holds: _Optional[_Mapping[str, int]] = ..., plan: _Optional[_Union[LoggedPlan, _Mapping]] = ..., chunks: _Optional[int] = ..., age_p50_ms: _Optional[float] = ..., age_p99_ms: _Optional[float] = ..., error_message: _Optional[str] = ...) -> None: ...

class LoggedPlan(_message.Message):
    __slots__ = ("considered", "ranks", "drops", "dropped")
    class DropsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CONSIDERED_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    DROPS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    considered: int
    ranks: _containers.RepeatedCompositeFieldContainer[LoggedOffering]
    drops: _containers.ScalarMap[str, int]
    dropped: _containers.RepeatedCompositeFieldContainer[LoggedOffering]
    def __init__(self, considered: _Optional[int] = ..., ranks: _Optional[_Iterable[_Union[LoggedOffering, _Mapping]]] = ..., drops: _Optional[_Mapping[str, int]] = ..., dropped: _Optional[_Iterable[_Union[LoggedOffering, _Mapping]]] = ...) -> None: ...

class LoggedOffering(_message.Message):
    __slots__ = ("offering_id", "model", "provider", "reason")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    model: str
    provider: str
    reason: str
    def __init__(self, offering_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class LogAttempt(_message.Message):
    __slots__ = ("offering_id", "status", "reason", "latency_ms", "count")
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    offering_id: str
    status: str
    reason: str
    latency_ms: float
    count: int
    def __init__(self, offering_id: _Optional[str] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., latency_ms: _Optional[float] = ..., count: _Optional[int] = ...) -> None: ...
