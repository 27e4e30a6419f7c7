from google.protobuf import struct_pb2 as _struct_pb2
from limber._gen.limber.edge.v1 import options_pb2 as _options_pb2
from limber._gen.limber.v1 import inference_service_pb2 as _inference_service_pb2
from limber._gen.limber.v1 import plan_pb2 as _plan_pb2
from limber._gen.limber.v1 import reason_pb2 as _reason_pb2
from limber._gen.limber.v1 import route_pb2 as _route_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorBody(_message.Message):
    __slots__ = ("error", "detail", "route", "usage")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    error: Error
    detail: _struct_pb2.Value
    route: _route_pb2.Route
    usage: _inference_service_pb2.PredictUsage
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., detail: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., route: _Optional[_Union[_route_pb2.Route, _Mapping]] = ..., usage: _Optional[_Union[_inference_service_pb2.PredictUsage, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "type", "status", "message", "retryable", "retry_after", "param", "source", "request_id", "docs_url", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DOCS_URL_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: _reason_pb2.Reason
    type: _options_pb2.ErrorType
    status: int
    message: str
    retryable: bool
    retry_after: float
    param: str
    source: str
    request_id: str
    docs_url: str
    details: ErrorDetails
    def __init__(self, code: _Optional[_Union[_reason_pb2.Reason, str]] = ..., type: _Optional[_Union[_options_pb2.ErrorType, str]] = ..., status: _Optional[int] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ..., retry_after: _Optional[float] = ..., param: _Optional[str] = ..., source: _Optional[str] = ..., request_id: _Optional[str] = ..., docs_url: _Optional[str] = ..., details: _Optional[_Union[ErrorDetails, _Mapping]] = ...) -> None: ...

class ErrorDetails(_message.Message):
    __slots__ = ("dropped", "excluded_by", "suggestions", "limit_source", "required_usd", "available_usd", "shortfall_usd", "estimated", "resets_at", "max_affordable", "violations", "near", "route", "needed", "in_flight", "topup_url", "exceeds")
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_BY_FIELD_NUMBER: _ClassVar[int]
    SUGGESTIONS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_USD_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_USD_FIELD_NUMBER: _ClassVar[int]
    SHORTFALL_USD_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    RESETS_AT_FIELD_NUMBER: _ClassVar[int]
    MAX_AFFORDABLE_FIELD_NUMBER: _ClassVar[int]
    VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    NEAR_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    NEEDED_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    TOPUP_URL_FIELD_NUMBER: _ClassVar[int]
    EXCEEDS_FIELD_NUMBER: _ClassVar[int]
    dropped: _containers.RepeatedCompositeFieldContainer[_plan_pb2.DroppedOffering]
    excluded_by: _containers.RepeatedScalarFieldContainer[str]
    suggestions: _containers.RepeatedCompositeFieldContainer[_plan_pb2.Suggestion]
    limit_source: str
    required_usd: float
    available_usd: float
    shortfall_usd: float
    estimated: CostEstimate
    resets_at: int
    max_affordable: Affordable
    violations: _containers.RepeatedCompositeFieldContainer[Violation]
    near: _containers.RepeatedScalarFieldContainer[str]
    route: _route_pb2.Route
    needed: _containers.RepeatedScalarFieldContainer[str]
    in_flight: int
    topup_url: str
    exceeds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dropped: _Optional[_Iterable[_Union[_plan_pb2.DroppedOffering, _Mapping]]] = ..., excluded_by: _Optional[_Iterable[str]] = ..., suggestions: _Optional[_Iterable[_Union[_plan_pb2.Suggestion, _Mapping]]] = ..., limit_source: _Optional[str] = ..., required_usd: _Optional[float] = ..., available_usd: _Optional[float] = ..., shortfall_usd: _Optional[float] = ..., estimated: _Optional[_Union[CostEstimate, _Mapping]] = ..., resets_at: _Optional[int] = ..., max_affordable: _Optional[_Union[Affordable, _Mapping]] = ..., violations: _Optional[_Iterable[_Union[Violation, _Mapping]]] = ..., near: _Optional[_Iterable[str]] = ..., route: _Optional[_Union[_route_pb2.Route, _Mapping]] = ..., needed: _Optional[_Iterable[str]] = ..., in_flight: _Optional[int] = ..., topup_url: _Optional[str] = ..., exceeds: _Optional[_Iterable[str]] = ...) -> None: ...

class CostEstimate(_message.Message):
    __slots__ = ("unit", "units", "unit_price_usd", "wake_up_usd")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    UNIT_PRICE_USD_FIELD_NUMBER: _ClassVar[int]
    WAKE_UP_USD_FIELD_NUMBER: _ClassVar[int]
    unit: str
    units: float
    unit_price_usd: float
    wake_up_usd: float
    def __init__(self, unit: _Optional[str] = ..., units: _Optional[float] = ..., unit_price_usd: _Optional[float] = ..., wake_up_usd: _Optional[float] = ...) -> None: ...

class Affordable(_message.Message):
    __slots__ = ("horizon", "episodes")
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    horizon: int
    episodes: int
    def __init__(self, horizon: _Optional[int] = ..., episodes: _Optional[int] = ...) -> None: ...

class Violation(_message.Message):
    __slots__ = ("path", "message", "type")
    PATH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    path: str
    message: str
    type: str
    def __init__(self, path: _Optional[str] = ..., message: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...
