from limber._gen.limber.v1 import suite_pb2 as _suite_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateSuiteRequest(_message.Message):
    __slots__ = ("title", "tasks")
    TITLE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    title: str
    tasks: _containers.RepeatedCompositeFieldContainer[NewSuiteTask]
    def __init__(self, title: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[NewSuiteTask, _Mapping]]] = ...) -> None: ...

class NewSuiteTask(_message.Message):
    __slots__ = ("scenario", "instruction", "action_space", "episodes", "seed", "weight")
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    scenario: str
    instruction: str
    action_space: str
    episodes: int
    seed: int
    weight: float
    def __init__(self, scenario: _Optional[str] = ..., instruction: _Optional[str] = ..., action_space: _Optional[str] = ..., episodes: _Optional[int] = ..., seed: _Optional[int] = ..., weight: _Optional[float] = ...) -> None: ...

class CreateSuiteResponse(_message.Message):
    __slots__ = ("suite",)
    SUITE_FIELD_NUMBER: _ClassVar[int]
    suite: _suite_pb2.Suite
    def __init__(self, suite: _Optional[_Union[_suite_pb2.Suite, _Mapping]] = ...) -> None: ...

class ListSuitesRequest(_message.Message):
    __slots__ = ("limit", "cursor")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    limit: int
    cursor: str
    def __init__(self, limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListSuitesResponse(_message.Message):
    __slots__ = ("object", "data", "has_more", "next_cursor")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    object: str
    data: _containers.RepeatedCompositeFieldContainer[_suite_pb2.Suite]
    has_more: bool
    next_cursor: str
    def __init__(self, object: _Optional[str] = ..., data: _Optional[_Iterable[_Union[_suite_pb2.Suite, _Mapping]]] = ..., has_more: _Optional[bool] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class GetSuiteRequest(_message.Message):
    __slots__ = ("suite_id",)
    SUITE_ID_FIELD_NUMBER: _ClassVar[int]
    suite_id: str
    def __init__(self, suite_id: _Optional[str] = ...) -> None: ...

class GetSuiteResponse(_message.Message):
    __slots__ = ("suite",)
    SUITE_FIELD_NUMBER: _ClassVar[int]
    suite: _suite_pb2.Suite
    def __init__(self, suite: _Optional[_Union[_suite_pb2.Suite, _Mapping]] = ...) -> None: ...

class ArchiveSuiteRequest(_message.Message):
    __slots__ = ("suite_id",)
    SUITE_ID_FIELD_NUMBER: _ClassVar[int]
    suite_id: str
    def __init__(self, suite_id: _Optional[str] = ...) -> None: ...

class ArchiveSuiteResponse(_message.Message):
    __slots__ = ("suite",)
    SUITE_FIELD_NUMBER: _ClassVar[int]
    suite: _suite_pb2.Suite
    def __init__(self, suite: _Optional[_Union[_suite_pb2.Suite, _Mapping]] = ...) -> None: ...
