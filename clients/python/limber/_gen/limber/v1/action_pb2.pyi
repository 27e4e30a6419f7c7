from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Action(_message.Message):
    __slots__ = ("space", "steps", "dt_ms", "note")
    SPACE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    DT_MS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    space: str
    steps: _containers.RepeatedCompositeFieldContainer[ActionStep]
    dt_ms: int
    note: str
    def __init__(self, space: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[ActionStep, _Mapping]]] = ..., dt_ms: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class ActionStep(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class SafetyBounds(_message.Message):
    __slots__ = ("lowest", "highest", "max_change", "max_start_jump")
    LOWEST_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_FIELD_NUMBER: _ClassVar[int]
    MAX_CHANGE_FIELD_NUMBER: _ClassVar[int]
    MAX_START_JUMP_FIELD_NUMBER: _ClassVar[int]
    lowest: _containers.RepeatedScalarFieldContainer[float]
    highest: _containers.RepeatedScalarFieldContainer[float]
    max_change: float
    max_start_jump: float
    def __init__(self, lowest: _Optional[_Iterable[float]] = ..., highest: _Optional[_Iterable[float]] = ..., max_change: _Optional[float] = ..., max_start_jump: _Optional[float] = ...) -> None: ...
