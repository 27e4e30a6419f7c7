from limber._gen.limber.v1 import contract_pb2 as _contract_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BroadcastProtocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BROADCAST_PROTOCOL_UNSPECIFIED: _ClassVar[BroadcastProtocol]
    BROADCAST_PROTOCOL_HTTP_PROTOBUF: _ClassVar[BroadcastProtocol]
    BROADCAST_PROTOCOL_HTTP_JSON: _ClassVar[BroadcastProtocol]
    BROADCAST_PROTOCOL_GRPC: _ClassVar[BroadcastProtocol]

class BroadcastStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BROADCAST_STATUS_UNSPECIFIED: _ClassVar[BroadcastStatus]
    BROADCAST_STATUS_ACTIVE: _ClassVar[BroadcastStatus]
    BROADCAST_STATUS_FAILING: _ClassVar[BroadcastStatus]
    BROADCAST_STATUS_DISABLED: _ClassVar[BroadcastStatus]
BROADCAST_PROTOCOL_UNSPECIFIED: BroadcastProtocol
BROADCAST_PROTOCOL_HTTP_PROTOBUF: BroadcastProtocol
BROADCAST_PROTOCOL_HTTP_JSON: BroadcastProtocol
BROADCAST_PROTOCOL_GRPC: BroadcastProtocol
BROADCAST_STATUS_UNSPECIFIED: BroadcastStatus
BROADCAST_STATUS_ACTIVE: BroadcastStatus
BROADCAST_STATUS_FAILING: BroadcastStatus
BROADCAST_STATUS_DISABLED: BroadcastStatus

class BroadcastTarget(_message.Message):
    __slots__ = ("id", "object", "name", "type", "endpoint", "protocol", "header_names", "sampling_rate", "privacy_mode", "filter", "resource_attributes", "enabled", "status", "last_error", "dropped_spans", "created_at", "events")
    class ResourceAttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    HEADER_NAMES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_MODE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    DROPPED_SPANS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    name: str
    type: str
    endpoint: str
    protocol: BroadcastProtocol
    header_names: _containers.RepeatedScalarFieldContainer[str]
    sampling_rate: float
    privacy_mode: bool
    filter: BroadcastFilter
    resource_attributes: _containers.ScalarMap[str, str]
    enabled: bool
    status: BroadcastStatus
    last_error: str
    dropped_spans: int
    created_at: int
    events: bool
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., name: _Optional[str] = ..., type: _Optional[str] = ..., endpoint: _Optional[str] = ..., protocol: _Optional[_Union[BroadcastProtocol, str]] = ..., header_names: _Optional[_Iterable[str]] = ..., sampling_rate: _Optional[float] = ..., privacy_mode: _Optional[bool] = ..., filter: _Optional[_Union[BroadcastFilter, _Mapping]] = ..., resource_attributes: _Optional[_Mapping[str, str]] = ..., enabled: _Optional[bool] = ..., status: _Optional[_Union[BroadcastStatus, str]] = ..., last_error: _Optional[str] = ..., dropped_spans: _Optional[int] = ..., created_at: _Optional[int] = ..., events: _Optional[bool] = ...) -> None: ...

class BroadcastFilter(_message.Message):
    __slots__ = ("contracts", "models", "key_ids", "workspace_id")
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    KEY_IDS_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    contracts: _containers.RepeatedScalarFieldContainer[_contract_pb2.Contract]
    models: _containers.RepeatedScalarFieldContainer[str]
    key_ids: _containers.RepeatedScalarFieldContainer[str]
    workspace_id: str
    def __init__(self, contracts: _Optional[_Iterable[_Union[_contract_pb2.Contract, str]]] = ..., models: _Optional[_Iterable[str]] = ..., key_ids: _Optional[_Iterable[str]] = ..., workspace_id: _Optional[str] = ...) -> None: ...
