from limber._gen.limber.v1 import account_pb2 as _account_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Workspace(_message.Message):
    __slots__ = ("id", "org_id", "name", "slug", "budget", "settings", "created")
    ID_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLUG_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    org_id: str
    name: str
    slug: str
    budget: _account_pb2.KeyBudget
    settings: _account_pb2.Settings
    created: int
    def __init__(self, id: _Optional[str] = ..., org_id: _Optional[str] = ..., name: _Optional[str] = ..., slug: _Optional[str] = ..., budget: _Optional[_Union[_account_pb2.KeyBudget, _Mapping]] = ..., settings: _Optional[_Union[_account_pb2.Settings, _Mapping]] = ..., created: _Optional[int] = ...) -> None: ...
