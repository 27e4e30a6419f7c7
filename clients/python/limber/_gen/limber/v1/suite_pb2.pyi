from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Suite(_message.Message):
    __slots__ = ("id", "object", "title", "digest", "tasks", "episodes", "created_at", "archived_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    object: str
    title: str
    digest: str
    tasks: _containers.RepeatedCompositeFieldContainer[SuiteTask]
    episodes: int
    created_at: int
    archived_at: int
    def __init__(self, id: _Optional[str] = ..., object: _Optional[str] = ..., title: _Optional[str] = ..., digest: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[SuiteTask, _Mapping]]] = ..., episodes: _Optional[int] = ..., created_at: _Optional[int] = ..., archived_at: _Optional[int] = ...) -> None: ...

class SuiteTask(_message.Message):
    __slots__ = ("scenario", "version", "digest", "action_space", "instruction", "episodes", "seed", "weight")
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    scenario: str
    version: str
    digest: str
    action_space: str
    instruction: str
    episodes: int
    seed: int
    weight: float
    def __init__(self, scenario: _Optional[str] = ..., version: _Optional[str] = ..., digest: _Optional[str] = ..., action_space: _Optional[str] = ..., instruction: _Optional[str] = ..., episodes: _Optional[int] = ..., seed: _Optional[int] = ..., weight: _Optional[float] = ...) -> None: ...
