from limber._gen.limber.v1 import audit_pb2 as _audit_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListAuditRequest(_message.Message):
    __slots__ = ("org_id", "limit", "cursor", "action", "actor", "subject", "request_id")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    limit: int
    cursor: str
    action: str
    actor: str
    subject: str
    request_id: str
    def __init__(self, org_id: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ..., action: _Optional[str] = ..., actor: _Optional[str] = ..., subject: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class ListAuditResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_audit_pb2.AuditRecord]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_audit_pb2.AuditRecord, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class VerifyAuditRequest(_message.Message):
    __slots__ = ("org_id",)
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    def __init__(self, org_id: _Optional[str] = ...) -> None: ...

class VerifyAuditResponse(_message.Message):
    __slots__ = ("org_id", "intact", "faults")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    INTACT_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    intact: bool
    faults: _containers.RepeatedCompositeFieldContainer[_audit_pb2.AuditFault]
    def __init__(self, org_id: _Optional[str] = ..., intact: _Optional[bool] = ..., faults: _Optional[_Iterable[_Union[_audit_pb2.AuditFault, _Mapping]]] = ...) -> None: ...
