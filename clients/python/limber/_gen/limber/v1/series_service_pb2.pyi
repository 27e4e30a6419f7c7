from limber._gen.limber.v1 import series_pb2 as _series_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QuerySeriesRequest(_message.Message):
    __slots__ = ("since", "until", "step_s", "by", "limit", "model", "provider", "key_id", "workspace_id", "robot_id", "contract")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    since: int
    until: int
    step_s: int
    by: _series_pb2.SeriesDimension
    limit: int
    model: str
    provider: str
    key_id: str
    workspace_id: str
    robot_id: str
    contract: str
    def __init__(self, since: _Optional[int] = ..., until: _Optional[int] = ..., step_s: _Optional[int] = ..., by: _Optional[_Union[_series_pb2.SeriesDimension, str]] = ..., limit: _Optional[int] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., key_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., robot_id: _Optional[str] = ..., contract: _Optional[str] = ...) -> None: ...

class QuerySeriesResponse(_message.Message):
    __slots__ = ("object", "since", "until", "step_s", "series", "total")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    object: str
    since: int
    until: int
    step_s: int
    series: _containers.RepeatedCompositeFieldContainer[_series_pb2.Series]
    total: _series_pb2.SeriesFigures
    def __init__(self, object: _Optional[str] = ..., since: _Optional[int] = ..., until: _Optional[int] = ..., step_s: _Optional[int] = ..., series: _Optional[_Iterable[_Union[_series_pb2.Series, _Mapping]]] = ..., total: _Optional[_Union[_series_pb2.SeriesFigures, _Mapping]] = ...) -> None: ...
