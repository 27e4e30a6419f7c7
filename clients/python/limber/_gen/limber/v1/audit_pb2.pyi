from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AuditRecord(_message.Message):
    __slots__ = ("id", "org_id", "seq", "created", "actor", "action", "subject", "details", "request_id", "previous", "hash")
    ID_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    id: str
    org_id: str
    seq: int
    created: int
    actor: str
    action: str
    subject: str
    details: _struct_pb2.Struct
    request_id: str
    previous: str
    hash: str
    def __init__(self, id: _Optional[str] = ..., org_id: _Optional[str] = ..., seq: _Optional[int] = ..., created: _Optional[int] = ..., actor: _Optional[str] = ..., action: _Optional[str] = ..., subject: _Optional[str] = ..., details: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., request_id: _Optional[str] = ..., previous: _Optional[str] = ..., hash: _Optional[str] = ...) -> None: ...

class AuditFault(_message.Message):
    __slots__ = ("org_id", "seq", "fault")
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    org_id: str
    seq: int
    fault: str
    def __init__(self, org_id: _Optional[str] = ..., seq: _Optional[int] = ..., fault: _Optional[str] = ...) -> None: ...
