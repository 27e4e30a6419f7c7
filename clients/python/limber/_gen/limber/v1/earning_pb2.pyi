from limber._gen.limber.v1 import route_pb2 as _route_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BreakerMove(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BREAKER_MOVE_UNSPECIFIED: _ClassVar[BreakerMove]
    BREAKER_MOVE_OPENED: _ClassVar[BreakerMove]
    BREAKER_MOVE_CLOSED: _ClassVar[BreakerMove]
    BREAKER_MOVE_FORCED_OPEN: _ClassVar[BreakerMove]
    BREAKER_MOVE_FORCED_CLOSED: _ClassVar[BreakerMove]
    BREAKER_MOVE_FREED: _ClassVar[BreakerMove]
BREAKER_MOVE_UNSPECIFIED: BreakerMove
BREAKER_MOVE_OPENED: BreakerMove
BREAKER_MOVE_CLOSED: BreakerMove
BREAKER_MOVE_FORCED_OPEN: BreakerMove
BREAKER_MOVE_FORCED_CLOSED: BreakerMove
BREAKER_MOVE_FREED: BreakerMove

class OfferingDay(_message.Message):
    __slots__ = ("day", "calls", "own_key_calls", "hedges", "units", "attempts", "failed_attempts", "failures", "holds", "p50_ms", "p95_ms", "p99_ms", "uptime", "resting_s")
    DAY_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    OWN_KEY_CALLS_FIELD_NUMBER: _ClassVar[int]
    HEDGES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_FIELD_NUMBER: _ClassVar[int]
    RESTING_S_FIELD_NUMBER: _ClassVar[int]
    day: str
    calls: float
    own_key_calls: float
    hedges: float
    units: _containers.RepeatedCompositeFieldContainer[UnitCount]
    attempts: float
    failed_attempts: float
    failures: _containers.RepeatedCompositeFieldContainer[FailureCount]
    holds: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    uptime: float
    resting_s: float
    def __init__(self, day: _Optional[str] = ..., calls: _Optional[float] = ..., own_key_calls: _Optional[float] = ..., hedges: _Optional[float] = ..., units: _Optional[_Iterable[_Union[UnitCount, _Mapping]]] = ..., attempts: _Optional[float] = ..., failed_attempts: _Optional[float] = ..., failures: _Optional[_Iterable[_Union[FailureCount, _Mapping]]] = ..., holds: _Optional[float] = ..., p50_ms: _Optional[float] = ..., p95_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ..., uptime: _Optional[float] = ..., resting_s: _Optional[float] = ...) -> None: ...

class UnitCount(_message.Message):
    __slots__ = ("unit", "count")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    unit: str
    count: float
    def __init__(self, unit: _Optional[str] = ..., count: _Optional[float] = ...) -> None: ...

class FailureCount(_message.Message):
    __slots__ = ("reason", "count", "said")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SAID_FIELD_NUMBER: _ClassVar[int]
    reason: _route_pb2.AttemptFailure
    count: float
    said: str
    def __init__(self, reason: _Optional[_Union[_route_pb2.AttemptFailure, str]] = ..., count: _Optional[float] = ..., said: _Optional[str] = ...) -> None: ...

class BreakerChange(_message.Message):
    __slots__ = ("at", "move")
    AT_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    at: int
    move: BreakerMove
    def __init__(self, at: _Optional[int] = ..., move: _Optional[_Union[BreakerMove, str]] = ...) -> None: ...

class Earning(_message.Message):
    __slots__ = ("day", "provider", "offering_id", "model", "calls", "own_key_calls", "hedges", "charged_usd", "share_percent", "earned_usd")
    DAY_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    OFFERING_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    OWN_KEY_CALLS_FIELD_NUMBER: _ClassVar[int]
    HEDGES_FIELD_NUMBER: _ClassVar[int]
    CHARGED_USD_FIELD_NUMBER: _ClassVar[int]
    SHARE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    EARNED_USD_FIELD_NUMBER: _ClassVar[int]
    day: str
    provider: str
    offering_id: str
    model: str
    calls: float
    own_key_calls: float
    hedges: float
    charged_usd: float
    share_percent: float
    earned_usd: float
    def __init__(self, day: _Optional[str] = ..., provider: _Optional[str] = ..., offering_id: _Optional[str] = ..., model: _Optional[str] = ..., calls: _Optional[float] = ..., own_key_calls: _Optional[float] = ..., hedges: _Optional[float] = ..., charged_usd: _Optional[float] = ..., share_percent: _Optional[float] = ..., earned_usd: _Optional[float] = ...) -> None: ...

class Statement(_message.Message):
    __slots__ = ("month", "provider", "calls", "own_key_calls", "hedges", "charged_usd", "earned_usd", "paid_usd", "closed", "models")
    MONTH_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    OWN_KEY_CALLS_FIELD_NUMBER: _ClassVar[int]
    HEDGES_FIELD_NUMBER: _ClassVar[int]
    CHARGED_USD_FIELD_NUMBER: _ClassVar[int]
    EARNED_USD_FIELD_NUMBER: _ClassVar[int]
    PAID_USD_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    month: str
    provider: str
    calls: float
    own_key_calls: float
    hedges: float
    charged_usd: float
    earned_usd: float
    paid_usd: float
    closed: bool
    models: _containers.RepeatedCompositeFieldContainer[ModelEarning]
    def __init__(self, month: _Optional[str] = ..., provider: _Optional[str] = ..., calls: _Optional[float] = ..., own_key_calls: _Optional[float] = ..., hedges: _Optional[float] = ..., charged_usd: _Optional[float] = ..., earned_usd: _Optional[float] = ..., paid_usd: _Optional[float] = ..., closed: _Optional[bool] = ..., models: _Optional[_Iterable[_Union[ModelEarning, _Mapping]]] = ...) -> None: ...

class ModelEarning(_message.Message):
    __slots__ = ("model", "calls", "charged_usd", "earned_usd")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CHARGED_USD_FIELD_NUMBER: _ClassVar[int]
    EARNED_USD_FIELD_NUMBER: _ClassVar[int]
    model: str
    calls: float
    charged_usd: float
    earned_usd: float
    def __init__(self, model: _Optional[str] = ..., calls: _Optional[float] = ..., charged_usd: _Optional[float] = ..., earned_usd: _Optional[float] = ...) -> None: ...

class ProviderBalance(_message.Message):
    __slots__ = ("provider", "share_percent", "own_share", "earned_usd", "paid_usd", "owed_usd")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    SHARE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    OWN_SHARE_FIELD_NUMBER: _ClassVar[int]
    EARNED_USD_FIELD_NUMBER: _ClassVar[int]
    PAID_USD_FIELD_NUMBER: _ClassVar[int]
    OWED_USD_FIELD_NUMBER: _ClassVar[int]
    provider: str
    share_percent: float
    own_share: bool
    earned_usd: float
    paid_usd: float
    owed_usd: float
    def __init__(self, provider: _Optional[str] = ..., share_percent: _Optional[float] = ..., own_share: _Optional[bool] = ..., earned_usd: _Optional[float] = ..., paid_usd: _Optional[float] = ..., owed_usd: _Optional[float] = ...) -> None: ...

class Payout(_message.Message):
    __slots__ = ("id", "provider", "amount_usd", "reference", "created")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_USD_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    provider: str
    amount_usd: float
    reference: str
    created: int
    def __init__(self, id: _Optional[str] = ..., provider: _Optional[str] = ..., amount_usd: _Optional[float] = ..., reference: _Optional[str] = ..., created: _Optional[int] = ...) -> None: ...
