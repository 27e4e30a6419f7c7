from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StopScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_SCOPE_UNSPECIFIED: _ClassVar[StopScope]
    STOP_SCOPE_ROBOT: _ClassVar[StopScope]
    STOP_SCOPE_SESSION: _ClassVar[StopScope]
    STOP_SCOPE_KEY: _ClassVar[StopScope]
    STOP_SCOPE_WORKSPACE: _ClassVar[StopScope]
    STOP_SCOPE_ORG: _ClassVar[StopScope]
STOP_SCOPE_UNSPECIFIED: StopScope
STOP_SCOPE_ROBOT: StopScope
STOP_SCOPE_SESSION: StopScope
STOP_SCOPE_KEY: StopScope
STOP_SCOPE_WORKSPACE: StopScope
STOP_SCOPE_ORG: StopScope

class RobotStop(_message.Message):
    __slots__ = ("id", "object", "org_id", "scope", "subject", "reason", "created", "created_by", "released", "released_by", "workspace_id", "durable", "replicas")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_BY_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    org_id: str
    scope: StopScope
    subject: str
    reason: str
    created: int
    created_by: str
    released: int
    released_by: str
    workspace_id: str
    durable: bool
    replicas: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., org_id: _Optional[str] = ..., scope: _Optional[_Union[StopScope, str]] = ..., subject: _Optional[str] = ..., reason: _Optional[str] = ..., created: _Optional[int] = ..., created_by: _Optional[str] = ..., released: _Optional[int] = ..., released_by: _Optional[str] = ..., workspace_id: _Optional[str] = ..., durable: _Optional[bool] = ..., replicas: _Optional[_Iterable[str]] = ...) -> None: ...
