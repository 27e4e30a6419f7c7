from limber._gen.limber.v1 import log_pb2 as _log_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetLogRequest(_message.Message):
    __slots__ = ("log_id",)
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    log_id: str
    def __init__(self, log_id: _Optional[str] = ...) -> None: ...

class GetLogResponse(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: _log_pb2.LogRecord
    def __init__(self, record: _Optional[_Union[_log_pb2.LogRecord, _Mapping]] = ...) -> None: ...

class ListLogsRequest(_message.Message):
    __slots__ = ("kind", "workspace_id", "since_minutes", "limit", "cursor", "status", "http_status", "robot_id", "session_id", "model", "provider", "request_id", "direct")
    KIND_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_MINUTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    kind: _log_pb2.LogKind
    workspace_id: str
    since_minutes: int
    limit: int
    cursor: str
    status: str
    http_status: int
    robot_id: str
    session_id: str
    model: str
    provider: str
    request_id: str
    direct: bool
    def __init__(self, kind: _Optional[_Union[_log_pb2.LogKind, str]] = ..., workspace_id: _Optional[str] = ..., since_minutes: _Optional[int] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ..., status: _Optional[str] = ..., http_status: _Optional[int] = ..., robot_id: _Optional[str] = ..., session_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., request_id: _Optional[str] = ..., direct: _Optional[bool] = ...) -> None: ...

class ListLogsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor", "archived_until")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_log_pb2.LogRecord]
    has_more: bool
    next_cursor: str
    archived_until: int
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_log_pb2.LogRecord, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ..., archived_until: _Optional[int] = ...) -> None: ...

class ExportLogsRequest(_message.Message):
    __slots__ = ("kind", "since_minutes", "workspace_id", "status", "http_status", "robot_id", "session_id", "model", "provider", "request_id", "cursor", "direct")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SINCE_MINUTES_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    ROBOT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    kind: _log_pb2.LogKind
    since_minutes: int
    workspace_id: str
    status: str
    http_status: int
    robot_id: str
    session_id: str
    model: str
    provider: str
    request_id: str
    cursor: str
    direct: bool
    def __init__(self, kind: _Optional[_Union[_log_pb2.LogKind, str]] = ..., since_minutes: _Optional[int] = ..., workspace_id: _Optional[str] = ..., status: _Optional[str] = ..., http_status: _Optional[int] = ..., robot_id: _Optional[str] = ..., session_id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., request_id: _Optional[str] = ..., cursor: _Optional[str] = ..., direct: _Optional[bool] = ...) -> None: ...

class ExportLogsResponse(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: _log_pb2.LogRecord
    def __init__(self, record: _Optional[_Union[_log_pb2.LogRecord, _Mapping]] = ...) -> None: ...
