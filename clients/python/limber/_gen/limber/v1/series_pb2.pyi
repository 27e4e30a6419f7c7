from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SeriesDimension(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERIES_DIMENSION_UNSPECIFIED: _ClassVar[SeriesDimension]
    SERIES_DIMENSION_MODEL: _ClassVar[SeriesDimension]
    SERIES_DIMENSION_PROVIDER: _ClassVar[SeriesDimension]
    SERIES_DIMENSION_KEY: _ClassVar[SeriesDimension]
    SERIES_DIMENSION_WORKSPACE: _ClassVar[SeriesDimension]
    SERIES_DIMENSION_ROBOT: _ClassVar[SeriesDimension]
    SERIES_DIMENSION_CONTRACT: _ClassVar[SeriesDimension]
SERIES_DIMENSION_UNSPECIFIED: SeriesDimension
SERIES_DIMENSION_MODEL: SeriesDimension
SERIES_DIMENSION_PROVIDER: SeriesDimension
SERIES_DIMENSION_KEY: SeriesDimension
SERIES_DIMENSION_WORKSPACE: SeriesDimension
SERIES_DIMENSION_ROBOT: SeriesDimension
SERIES_DIMENSION_CONTRACT: SeriesDimension

class SeriesFigures(_message.Message):
    __slots__ = ("calls", "failed", "failures", "holds", "cost_usd", "latency_p50_ms", "latency_p95_ms", "latency_p99_ms")
    class FailuresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class HoldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CALLS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P50_MS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P95_MS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P99_MS_FIELD_NUMBER: _ClassVar[int]
    calls: int
    failed: int
    failures: _containers.ScalarMap[str, int]
    holds: _containers.ScalarMap[str, int]
    cost_usd: float
    latency_p50_ms: float
    latency_p95_ms: float
    latency_p99_ms: float
    def __init__(self, calls: _Optional[int] = ..., failed: _Optional[int] = ..., failures: _Optional[_Mapping[str, int]] = ..., holds: _Optional[_Mapping[str, int]] = ..., cost_usd: _Optional[float] = ..., latency_p50_ms: _Optional[float] = ..., latency_p95_ms: _Optional[float] = ..., latency_p99_ms: _Optional[float] = ...) -> None: ...

class SeriesPoint(_message.Message):
    __slots__ = ("at", "figures")
    AT_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    at: int
    figures: SeriesFigures
    def __init__(self, at: _Optional[int] = ..., figures: _Optional[_Union[SeriesFigures, _Mapping]] = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("name", "other", "total", "points")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    other: bool
    total: SeriesFigures
    points: _containers.RepeatedCompositeFieldContainer[SeriesPoint]
    def __init__(self, name: _Optional[str] = ..., other: _Optional[bool] = ..., total: _Optional[_Union[SeriesFigures, _Mapping]] = ..., points: _Optional[_Iterable[_Union[SeriesPoint, _Mapping]]] = ...) -> None: ...
