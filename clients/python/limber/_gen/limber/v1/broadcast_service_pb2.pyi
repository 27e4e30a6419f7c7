from limber._gen.limber.v1 import broadcast_pb2 as _broadcast_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateBroadcastRequest(_message.Message):
    __slots__ = ("name", "endpoint", "protocol", "headers", "sampling_rate", "privacy_mode", "filter", "resource_attributes", "enabled", "events", "type")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ResourceAttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_MODE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    endpoint: str
    protocol: _broadcast_pb2.BroadcastProtocol
    headers: _containers.ScalarMap[str, str]
    sampling_rate: float
    privacy_mode: bool
    filter: _broadcast_pb2.BroadcastFilter
    resource_attributes: _containers.ScalarMap[str, str]
    enabled: bool
    events: bool
    type: str
    def __init__(self, name: _Optional[str] = ..., endpoint: _Optional[str] = ..., protocol: _Optional[_Union[_broadcast_pb2.BroadcastProtocol, str]] = ..., headers: _Optional[_Mapping[str, str]] = ..., sampling_rate: _Optional[float] = ..., privacy_mode: _Optional[bool] = ..., filter: _Optional[_Union[_broadcast_pb2.BroadcastFilter, _Mapping]] = ..., resource_attributes: _Optional[_Mapping[str, str]] = ..., enabled: _Optional[bool] = ..., events: _Optional[bool] = ..., type: _Optional[str] = ...) -> None: ...

class CreateBroadcastResponse(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: _broadcast_pb2.BroadcastTarget
    def __init__(self, target: _Optional[_Union[_broadcast_pb2.BroadcastTarget, _Mapping]] = ...) -> None: ...

class ListBroadcastsRequest(_message.Message):
    __slots__ = ("limit", "cursor")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    limit: int
    cursor: str
    def __init__(self, limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListBroadcastsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_broadcast_pb2.BroadcastTarget]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_broadcast_pb2.BroadcastTarget, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class GetBroadcastRequest(_message.Message):
    __slots__ = ("target_id",)
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    target_id: str
    def __init__(self, target_id: _Optional[str] = ...) -> None: ...

class GetBroadcastResponse(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: _broadcast_pb2.BroadcastTarget
    def __init__(self, target: _Optional[_Union[_broadcast_pb2.BroadcastTarget, _Mapping]] = ...) -> None: ...

class UpdateBroadcastRequest(_message.Message):
    __slots__ = ("target_id", "name", "endpoint", "protocol", "headers", "sampling_rate", "privacy_mode", "filter", "resource_attributes", "enabled", "events")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ResourceAttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_MODE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    target_id: str
    name: str
    endpoint: str
    protocol: _broadcast_pb2.BroadcastProtocol
    headers: _containers.ScalarMap[str, str]
    sampling_rate: float
    privacy_mode: bool
    filter: _broadcast_pb2.BroadcastFilter
    resource_attributes: _containers.ScalarMap[str, str]
    enabled: bool
    events: bool
    def __init__(self, target_id: _Optional[str] = ..., name: _Optional[str] = ..., endpoint: _Optional[str] = ..., protocol: _Optional[_Union[_broadcast_pb2.BroadcastProtocol, str]] = ..., headers: _Optional[_Mapping[str, str]] = ..., sampling_rate: _Optional[float] = ..., privacy_mode: _Optional[bool] = ..., filter: _Optional[_Union[_broadcast_pb2.BroadcastFilter, _Mapping]] = ..., resource_attributes: _Optional[_Mapping[str, str]] = ..., enabled: _Optional[bool] = ..., events: _Optional[bool] = ...) -> None: ...

class UpdateBroadcastResponse(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: _broadcast_pb2.BroadcastTarget
    def __init__(self, target: _Optional[_Union[_broadcast_pb2.BroadcastTarget, _Mapping]] = ...) -> None: ...

class DeleteBroadcastRequest(_message.Message):
    __slots__ = ("target_id",)
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    target_id: str
    def __init__(self, target_id: _Optional[str] = ...) -> None: ...

class DeleteBroadcastResponse(_message.Message):
    __slots__ = ("object", "id", "deleted")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    object: str
    id: str
    deleted: bool
    def __init__(self, object: _Optional[str] = ..., id: _Optional[str] = ..., deleted: _Optional[bool] = ...) -> None: ...
