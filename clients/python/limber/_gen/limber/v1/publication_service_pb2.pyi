from google.protobuf import struct_pb2 as _struct_pb2
from limber._gen.limber.v1 import publication_pb2 as _publication_pb2
from limber._gen.limber.v1 import suite_pb2 as _suite_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreatePublicationRequest(_message.Message):
    __slots__ = ("evaluation_id", "comparison_id", "title", "dry_run")
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    comparison_id: str
    title: str
    dry_run: bool
    def __init__(self, evaluation_id: _Optional[str] = ..., comparison_id: _Optional[str] = ..., title: _Optional[str] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class CreatePublicationResponse(_message.Message):
    __slots__ = ("publication",)
    PUBLICATION_FIELD_NUMBER: _ClassVar[int]
    publication: _publication_pb2.Publication
    def __init__(self, publication: _Optional[_Union[_publication_pb2.Publication, _Mapping]] = ...) -> None: ...

class ListPublicationsRequest(_message.Message):
    __slots__ = ("limit", "cursor")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    limit: int
    cursor: str
    def __init__(self, limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListPublicationsResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_publication_pb2.Publication]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_publication_pb2.Publication, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class GetPublicationRequest(_message.Message):
    __slots__ = ("publication_id",)
    PUBLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    publication_id: str
    def __init__(self, publication_id: _Optional[str] = ...) -> None: ...

class GetPublicationResponse(_message.Message):
    __slots__ = ("document",)
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    document: _struct_pb2.Struct
    def __init__(self, document: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class WithdrawPublicationRequest(_message.Message):
    __slots__ = ("publication_id", "reason")
    PUBLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    publication_id: str
    reason: str
    def __init__(self, publication_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class WithdrawPublicationResponse(_message.Message):
    __slots__ = ("publication",)
    PUBLICATION_FIELD_NUMBER: _ClassVar[int]
    publication: _publication_pb2.Publication
    def __init__(self, publication: _Optional[_Union[_publication_pb2.Publication, _Mapping]] = ...) -> None: ...

class GetLeaderboardRequest(_message.Message):
    __slots__ = ("scenario", "action_space")
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    scenario: str
    action_space: str
    def __init__(self, scenario: _Optional[str] = ..., action_space: _Optional[str] = ...) -> None: ...

class GetLeaderboardResponse(_message.Message):
    __slots__ = ("object", "scenario", "digest", "action_space", "data", "tasks")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    object: str
    scenario: str
    digest: str
    action_space: str
    data: _containers.RepeatedCompositeFieldContainer[_publication_pb2.LeaderboardEntry]
    tasks: _containers.RepeatedCompositeFieldContainer[_suite_pb2.SuiteTask]
    def __init__(self, object: _Optional[str] = ..., scenario: _Optional[str] = ..., digest: _Optional[str] = ..., action_space: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_publication_pb2.LeaderboardEntry, _Mapping]]] = ..., tasks: _Optional[_Iterable[_Union[_suite_pb2.SuiteTask, _Mapping]]] = ...) -> None: ...

class ListSigningKeysRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSigningKeysResponse(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[_publication_pb2.SigningKey]
    def __init__(self, keys: _Optional[_Iterable[_Union[_publication_pb2.SigningKey, _Mapping]]] = ...) -> None: ...

class RotateSigningKeyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RotateSigningKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _publication_pb2.SigningKey
    def __init__(self, key: _Optional[_Union[_publication_pb2.SigningKey, _Mapping]] = ...) -> None: ...
